"""Kafka at the edges: exact ranges in, records out, offsets made visible; and a broker for development.

Importing this package opens nothing and needs no Kafka client; the client (`confluent-kafka`) is
imported when a `KafkaConnection` is first used, in the process that uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossstream.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from pathlib import Path

    from crossstream.kafka.consumer import KafkaReader
    from crossstream.kafka.log import KafkaLog
    from crossstream.kafka.producer import KafkaWriter
    from crossstream.runtime.delivery import Delivery, Place

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

    def delivery(self, place: Place) -> Delivery:
        """Results are written at once: at least once."""
        from crossstream.runtime.delivery import AtOnce

        return AtOnce(self.writer)

    def staging_folder(self, name: str) -> Path | None:
        """None: what is staged is in the state."""


@dataclass(frozen=True, slots=True)
class TransactionalKafka(KafkaConnection):
    """A cluster to which an ``application`` writes each batch exactly once, in one transaction."""

    application: str = ""

    def delivery(self, place: Place) -> Delivery:
        """Results are staged, and written in one transaction for each batch."""
        from crossstream.kafka.delivery import Transaction

        return Transaction(self, self.application, place)
