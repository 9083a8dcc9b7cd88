"""Clients that get no answer: a reader whose records do not come, and clients that have lost all brokers.

While brokers are away a reader waits quietly, up to the patience. What waiting cannot cure (a topic
that is gone, a range that was deleted, a refused login) is reported at once.

A broker that has just started may answer that there are no brokers. Kafka's C client believes it, forgets all it knew,
and at the wrong moment never looks again (librdkafka issue 5301): only another client finds the cluster. So a client
that gets no answer for some seconds is replaced, while the patience lasts (decision 0028). One that reads or asks may
be replaced at any time. One that writes knows which of its records are stored: it is replaced only if another client is
answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.kafka import errors as faults
from crossstream.kafka.client import SETTLE_SECONDS, Complaints, is_denial, logger, open_admin
from crossstream.topics import OffsetRange

if TYPE_CHECKING:
    from crossstream.kafka.settings import KafkaSettings

SILENT_SECONDS = 5.0
"""A client without an answer for so long is taken for cut off."""
LOOK_SECONDS = 2.0
UNANSWERED = frozenset({*faults.TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD})
"""What a client says that finds no broker."""
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
        self.waited = 0.0
        self._unanswered = 0.0
        self._next_probe = PROBE_SECONDS
        self._next_client = SILENT_SECONDS

    def wants_another_client(self) -> bool:
        """Whether it is time to try one: less often each time, so that a slow answer gets through in the end."""
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
        tp = KafkaPartition(span.topic, span.partition)
        begin, end = self.consumer.get_watermark_offsets(tp, timeout=PROBE_SECONDS, cached=False)
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


class FlushStall:
    """Whether as many records as before are left to be stored, every few seconds."""

    def __init__(self) -> None:
        self._left, self._since = -1, monotonic()

    def lasts(self, left: int) -> bool:
        lasts = left == self._left and monotonic() - self._since >= SILENT_SECONDS
        if lasts or left != self._left:
            self._left, self._since = left, monotonic()
        return lasts


def is_cut_off(producer: Producer, connection: KafkaSettings) -> bool:
    """Whether another client finds brokers, and this one still finds none."""
    if _is_answered(producer) or not _is_answered(open_admin(connection, Complaints())):
        return False
    cut_off = not _is_answered(producer)
    if cut_off:
        logger.warning("a client has lost all brokers and does not find them again; another takes its tp")
    return cut_off


def _is_answered(client: object) -> bool:
    try:
        client.list_topics(timeout=LOOK_SECONDS)  # type: ignore[attr-defined]
    except KafkaException:
        return False
    return True
