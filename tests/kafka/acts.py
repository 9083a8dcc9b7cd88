"""What clients of a broker do with a topic."""

from __future__ import annotations

from crossstream.kafka import KafkaConnection
from crossstream.topics import OffsetRange
from tests.kafka.fixtures import records


def read(connection: KafkaConnection, topic: str) -> None:
    reader = connection.reader()
    try:
        list(reader.read(OffsetRange(topic, 0, 0, 1), 10))
    finally:
        reader.close()


def write(connection: KafkaConnection, topic: str) -> None:
    writer = connection.writer()
    try:
        writer.write(topic, records((b"k", b"v")))
        writer.flush()
    finally:
        writer.close()
