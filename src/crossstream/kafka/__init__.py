"""Kafka at the edges: exact ranges in, records out, offsets made visible; and a broker for development.

Importing this package opens nothing and needs no Kafka client; the client (`confluent-kafka`) is
imported when a `KafkaConnection` is first used, in the process that uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossstream.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from crossstream.kafka.consumer import KafkaReader
    from crossstream.kafka.log import KafkaLog
    from crossstream.kafka.producer import KafkaWriter
    from crossstream.kafka.transactions import StagingWriter, TransactionPublisher
    from crossstream.storage.files import Storage

__all__ = ["KafkaConnection", "TransactionalKafka"]


@dataclass(frozen=True, slots=True)
class KafkaConnection(KafkaSettings):
    """Opens readers and writers of a cluster; a `crossstream.topics.TopicConnection`. Settings: as `KafkaSettings`.

    >>> KafkaConnection("localhost:9092", {"security.protocol": "PLAINTEXT"}).bootstrap_servers
    'localhost:9092'
    """

    def log(self) -> KafkaLog:
        """The driver's side: topics, offsets, commits."""
        from crossstream.kafka.log import KafkaLog

        return KafkaLog(self)

    def reader(self) -> KafkaReader:
        """A reader of exact ranges; opens its consumer at the first read and keeps it."""
        from crossstream.kafka.consumer import KafkaReader

        return KafkaReader(self)

    def writer(self) -> KafkaWriter:
        """A writer of records; opens its producer at the first write and keeps it."""
        from crossstream.kafka.producer import KafkaWriter

        return KafkaWriter(self)


@dataclass(frozen=True, slots=True)
class TransactionalKafka(KafkaConnection):
    """A cluster to which an ``application`` writes each batch exactly once, in one transaction."""

    application: str = ""

    def stage_in(self, storage: Storage, task: str) -> StagingWriter:
        """Keeps the records of a task in files, until the driver publishes the batch."""
        from crossstream.kafka.transactions import StagingWriter

        return StagingWriter(storage, task)

    def transactions(self, owns: Callable[[], None]) -> TransactionPublisher:
        """Publishes batches; opens its producer at the first one and keeps it. ``owns``: as `TransactionPublisher`."""
        from crossstream.kafka.transactions import TransactionPublisher

        return TransactionPublisher(self, self.application, owns)
