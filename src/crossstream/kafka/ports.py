"""What the reader and the writer of records ask of a Kafka client.

Two answer: that of Python's own client, with an object for each record (`messages`), and the native one, without
(`native`, decision 0052). All but records is as in `confluent_kafka.Consumer` and `Producer`, errors included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.partitioning import Partitions
from crossstream.topics import TopicPartition


class Run(NamedTuple):
    """Records of one partition, columns of `RECORDS`; ``first`` and ``last``: their offsets, which ascend."""

    tp: TopicPartition
    records: pa.RecordBatch
    first: int
    last: int


class Event(NamedTuple):
    """What a consumer reports instead of a record: an error, or the end of a partition."""

    topic: str | None
    partition: int
    offset: int
    error: KafkaError


class Taken(NamedTuple):
    runs: Sequence[Run]
    events: Sequence[Event]


class Failure(NamedTuple):
    """The first of the ``lost`` records that were not stored."""

    lost: int
    error: KafkaError
    topic: str | None
    partition: int | None
    key: bytes | None


class Client(Protocol):
    def list_topics(self, topic: str = ..., timeout: float = ...) -> Any: ...


class ReadingClient(Client, Protocol):
    """A consumer of assigned partitions."""

    def take(self, most: int, seconds: float) -> Taken:
        """At most so many messages of those that have arrived; waits for the first if there are none."""

    def incremental_assign(self, partitions: list[KafkaPartition]) -> None: ...

    def incremental_unassign(self, partitions: list[KafkaPartition]) -> None: ...

    def unassign(self) -> None: ...

    def get_watermark_offsets(
        self, partition: KafkaPartition, timeout: float = ..., cached: bool = ...
    ) -> tuple[int, int]: ...

    def close(self) -> None: ...


class Outgoing(Protocol):
    """Records on their way into the queue of a producer."""

    def send(self) -> KafkaError | None:
        """Queues records until there are no more (None) or the next is refused: why. It continues with that one."""

    def refused(self) -> tuple[int, bytes | None]:
        """Partition (-1: by key) and key of the record that was refused."""


class WritingClient(Client, Protocol):
    """A producer that keeps what it could not store."""

    def outgoing(
        self, topic: str, records: pa.RecordBatch, partitions: Partitions | None, count: int | None
    ) -> Outgoing:
        """Records to send; ``partitions``: where `BY_KEY` is not meant; ``count``: sort them by partition, of so many.

        One partition after the other, the records of each in their order; those without a key in any partition's. The
        client keeps, sends and frees the records of a partition together. Where those of several come by turns, it
        takes nearly twice the processor time. It still chooses the partition of records that have none.
        """

    def failure(self) -> Failure | None:
        """What was not stored since this was asked last."""

    def poll(self, timeout: float) -> int: ...

    def flush(self, timeout: float) -> int: ...

    def purge(self) -> None: ...

    def __len__(self) -> int: ...

    def init_transactions(self, timeout: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(
        self, positions: list[KafkaPartition], group_metadata: object, timeout: float
    ) -> None: ...

    def commit_transaction(self, timeout: float) -> None: ...

    def abort_transaction(self, timeout: float) -> None: ...
