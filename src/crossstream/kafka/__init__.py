"""Kafka at the edges: exact ranges in, records out, offsets made visible; and a broker for development.

Importing this package opens nothing and needs no Kafka client; the client (`confluent-kafka`) is
imported when a `KafkaConnection` is first used, in the process that uses it.
"""

from __future__ import annotations

from crossstream.kafka.cluster import KafkaConnection

__all__ = ["KafkaConnection"]
