"""Results into Kafka exactly once: tasks stage records in the state, the driver writes them in one transaction.

`transactions` explains how (decision 0036).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from crossstream.kafka.producer import KafkaWriter
from crossstream.kafka.settings import KafkaSettings
from crossstream.kafka.transactions import TransactionPublisher
from crossstream.runtime.delivery import Place, TaskId, TaskWriter
from crossstream.runtime.staged_records import StagingWriter, staging_name
from crossstream.storage.commit_log import STAGED
from crossstream.storage.log_entries import BatchEntry, Publication, StagedFrame
from crossstream.storage.manifest import checked_staged


@dataclass(slots=True)
class Transaction:
    """Stages records in the storage of the state. ``application``: whose transactions they are."""

    connection: KafkaSettings
    application: str
    place: Place
    is_staged: bool = True
    looks_at_ends: bool = False
    _publisher: TransactionPublisher | None = None
    _topics: KafkaWriter | None = None

    def connect(self) -> None: ...

    def writer(self, task: TaskId) -> TaskWriter:
        writer = StagingWriter(self.place.root.storage(STAGED), staging_name(task))
        return _Staging(writer, self._known_topics)

    def settle(self) -> None: ...

    def begin(self, mark: str, state: str, newest: int, *, restarts: bool) -> None:
        if mark:
            self._opened().begin(mark, state, newest, restarts=restarts)

    def kept(self, staged: Iterable[StagedFrame]) -> list[str]:
        return [frame[0] for frame in staged]

    def publish(
        self, entry: BatchEntry, publication: Publication, state: str, note: Callable[[], None]
    ) -> None:
        """Notes the batch while brokers store its records; ``note`` has returned before the commit."""
        staged = publication.staged
        if not staged:
            note()
            return
        read = partial(checked_staged, self.place.root.storage(STAGED))
        self._opened().publish(publication.mark, state, entry.id, staged, read, note)

    def forget(self, staged: Iterable[StagedFrame]) -> None: ...

    def close(self) -> None:
        publisher, self._publisher = self._publisher, None
        topics, self._topics = self._topics, None
        for client in (publisher, topics):
            if client is not None:
                client.close()

    def _opened(self) -> TransactionPublisher:
        if self._publisher is None:
            self._publisher = TransactionPublisher(self.connection, self.application, self.place.owns)
        return self._publisher

    def _known_topics(self) -> KafkaWriter:
        """The producer of this process, which writes nothing: it knows the topics."""
        if self._topics is None:
            self._topics = KafkaWriter(self.connection)
        return self._topics


@dataclass(slots=True)
class _Staging:
    """Stages the records of one task. ``topics``: what knows the topics."""

    records: StagingWriter
    topics: Callable[[], KafkaWriter]

    @property
    def staged(self) -> Sequence[StagedFrame]:
        return self.records.staged

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self.records.write(topic, records, partitions)

    def must_exist(self, topic: str) -> None:
        """The transaction fails where it does not."""

    def partition_count(self, topic: str) -> int:
        return self.topics().partition_count(topic)

    def record_limit(self, topic: str) -> int | None:
        return self.topics().record_limit(topic)

    def finish(self, *, is_part: bool) -> None:
        self.records.flush()
