"""Where the topics of an application live, by its configuration, and how far those that it writes reach."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossstream.config import DeadLetter, StreamsConfig
from crossstream.errors import ConfigError
from crossstream.state.root import StateRoot
from crossstream.topics import TopicConnection, TopicLog, TopicPartition
from crossstream.topology.graph import Sink, Source, Topology


def connection_of(config: StreamsConfig) -> TopicConnection | None:
    """Where the topics of an application live; None: it reads DataFrames only."""
    if config.servers is not None:
        from crossstream.kafka import KafkaConnection

        return KafkaConnection(config.servers, config.kafka, config.broker_patience_ms / 1000)
    if config.topics_path is not None:
        from crossstream.files import FileTopics

        return FileTopics(config.topics_path, durable=config.durable)
    return None


def check_topics(topology: Topology, connection: TopicConnection | None) -> None:
    """Raises `ConfigError` CS-235 if a topology has topics and it is not said where they are."""
    if connection is None and any(isinstance(node, Source | Sink) for node in topology):
        raise ConfigError(
            "neither bootstrap_servers nor topics_dir is set",
            code="CS-235",
            next="StreamsConfig(bootstrap_servers='host:port') for Kafka, topics_dir='folder' for file topics",
        )


def publisher_of(connection: TopicConnection | None) -> Any:
    """What publishes staged records; None where sinks write directly."""
    return connection.publisher() if connection is not None and hasattr(connection, "publisher") else None


def staging_of(connection: TopicConnection | None, state: StateRoot) -> Path:
    """Where records for file topics wait for their batch: with local state, else with the topics.

    All workers see both; what is on this machine of remote state they do not.
    """
    if state.is_remote and connection is not None and hasattr(connection, "staging_folder"):
        folder: Path = connection.staging_folder(state.here.name)
        return folder
    return state.here / "staged"


def written_ends(topology: Topology, config: StreamsConfig, log: TopicLog) -> dict[str, list[int]]:
    """Where the topics that sinks and dead letters may go to end, by partition."""
    known = log.topics()
    wanted = [TopicPartition(t, p) for t in _written(topology, config, known) for p in range(known[t])]
    ends = log.end_offsets(wanted)
    found: dict[str, list[int]] = {}
    for tp in wanted:
        found.setdefault(tp.topic, []).append(ends[tp])
    return found


def _written(topology: Topology, config: StreamsConfig, known: Mapping[str, int]) -> list[str]:
    """Those of the ``known`` topics that sinks and dead letters may go to."""
    sinks = [node for node in topology if isinstance(node, Sink)]
    if any(node.topic is None for node in sinks):
        return sorted(known)
    policies = (config.deserialization_errors, config.processing_errors)
    letters = {policy.topic for policy in policies if isinstance(policy, DeadLetter)}
    return sorted(known.keys() & (letters | {node.topic for node in sinks if node.topic is not None}))
