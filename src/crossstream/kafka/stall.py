"""What to make of silence: a reader waits for records that exist, and none come.

While brokers are away the reader waits quietly, up to the patience. What waiting cannot mend (a topic
that is gone, a range that was deleted, a refused login) is told as soon as it is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.kafka import errors as faults
from crossstream.kafka.client import SETTLE_SECONDS, Complaints, is_denial
from crossstream.kafka.cut_off import SILENT_SECONDS
from crossstream.topics import OffsetRange

PROBE_SECONDS = 1.0
STUCK_FACTOR = 10
"""Patience for a range that does not advance although brokers answer (a long aborted transaction)."""


class Stall:
    """Counts the seconds waited since the last progress and asks the cluster for the reason.

    ``waited`` counts only time spent waiting, not the time a caller takes between batches.
    """

    def __init__(self, consumer: Consumer, complaints: Complaints, patience_seconds: float) -> None:
        self.consumer = consumer
        self._complaints = complaints
        self._patience = patience_seconds
        self.progress()

    def progress(self) -> None:
        """Something came."""
        self.waited = 0.0
        self._unanswered = 0.0
        self._next_probe = PROBE_SECONDS
        self._next_client = SILENT_SECONDS

    def wants_another_client(self) -> bool:
        """Whether it is time to try one: seldomer each time, so that a slow answer gets through in the end."""
        wanted = self.waited >= self._next_client
        if wanted:
            self._next_client = 2 * self._next_client + SILENT_SECONDS
        return wanted

    def waited_for(self, seconds: float, unfinished: Iterable[tuple[OffsetRange, int]]) -> None:
        """Nothing came for ``seconds`` more; raises `SourceError` if there is no use in waiting.

        ``unfinished``: the ranges that are read, each with the offset it has come to.
        """
        self.check_access()
        self._wait(seconds)
        if self.waited >= min(self._next_probe, self._patience):
            all(self._probe(span, position) for span, position in unfinished)
            self._next_probe = self.waited + PROBE_SECONDS

    def check_access(self) -> None:
        """Raises `SourceError` (CS-605) if a broker refused us."""
        if self._complaints.denied is not None:
            raise faults.refused(self._complaints.denied.str())

    def check_range(self, span: OffsetRange, position: int, *, settled: bool) -> None:
        """Raises `SourceError` if the log begins after ``position`` (CS-601) or ends too early (CS-603).

        ``settled``: an early end is no passing state. (A new leader may lag behind for a moment.)
        """
        place = KafkaPartition(span.topic, span.partition)
        begin, end = self.consumer.get_watermark_offsets(place, timeout=PROBE_SECONDS, cached=False)
        if begin > position:
            raise faults.deleted(span, position, begin)
        if end < span.end and settled:
            raise faults.truncated(span, end)

    def _probe(self, span: OffsetRange, position: int) -> bool:
        """Whether the cluster answered; raises `SourceError` if its answer leaves no hope."""
        asked = monotonic()
        try:
            if self._is_known(span):
                self.check_range(span, position, settled=self.waited >= self._patience)
        except KafkaException as failed:
            self._wait(monotonic() - asked)
            if self._unanswered >= self._patience:
                reason = self._complaints.last or failed.args[0].str()
                raise faults.away(self._patience, reason, span.topic) from failed
            return False
        self._unanswered = 0.0
        if self.waited >= self._patience * STUCK_FACTOR:
            raise faults.stuck(span, position, self.waited)
        return True

    def _is_known(self, span: OffsetRange) -> bool:
        """Whether the brokers know topic and partition; raises `SourceError` if they settled on not."""
        topic = self.consumer.list_topics(span.topic, timeout=PROBE_SECONDS).topics[span.topic]
        settled = self.waited >= min(SETTLE_SECONDS, self._patience)
        if topic.error is not None and topic.error.code() not in faults.MISSING:
            if is_denial(topic.error):
                raise faults.refused(topic.error.str(), span.topic)
            raise KafkaException(topic.error)
        partition = topic.partitions.get(span.partition)
        if partition is None and settled:
            raise faults.missing(span.topic, None if topic.error is not None else span.partition)
        if partition is not None and partition.leader == -1 and self.waited >= self._patience:
            raise faults.leaderless(self._patience, span.topic, span.partition)
        return partition is not None

    def _wait(self, seconds: float) -> None:
        self.waited += seconds
        self._unanswered += seconds
