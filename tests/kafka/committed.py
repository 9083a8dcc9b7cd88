"""What readers see of a topic: plain consumers, which know nothing of crossstream."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

SECONDS = 600.0

Wire = tuple[bytes | None, bytes | None, int]
"""Key, value and timestamp as Kafka has them."""


def ends(servers: str, topic: str, isolation: str = "read_committed") -> dict[int, int]:
    """Where the partitions end for readers of this isolation."""
    consumer = _consumer(servers, isolation)
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        return {
            p: consumer.get_watermark_offsets(KafkaPartition(topic, p), timeout=30, cached=False)[1]
            for p in partitions
        }
    finally:
        consumer.close()


def read(servers: str, topic: str, isolation: str = "read_committed") -> dict[int, list[Wire]]:
    """All that a reader sees, by partition in order."""
    consumer = _consumer(servers, isolation)
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        found: dict[int, list[Wire]] = {partition: [] for partition in partitions}
        consumer.assign([KafkaPartition(topic, partition, 0) for partition in partitions])
        left, until = set(partitions), time.monotonic() + SECONDS
        while left:
            assert time.monotonic() < until, f"{topic} {left} cannot be read to the end"
            for message in consumer.consume(1_000, 0.5):
                if message.error() is None:
                    found[message.partition()].append(
                        (message.key(), message.value(), message.timestamp()[1])
                    )
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return found


def _consumer(servers: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "a reader",
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
