"""Where the topics of an application live, by its configuration."""

from __future__ import annotations

from typing import Any

from crossstream.config import StreamsConfig
from crossstream.topics import TopicConnection


def connection_of(config: StreamsConfig) -> TopicConnection | None:
    """Where the topics of an application live; None: it reads DataFrames only."""
    if config.servers is not None:
        from crossstream.kafka import KafkaConnection

        return KafkaConnection(config.servers, config.kafka, config.broker_patience_ms / 1000)
    if config.topics_path is not None:
        from crossstream.files import FileTopics

        return FileTopics(config.topics_path, durable=config.durable)
    return None


def publisher_of(connection: TopicConnection | None) -> Any:
    """What publishes staged records; None where sinks write directly."""
    return connection.publisher() if connection is not None and hasattr(connection, "publisher") else None
