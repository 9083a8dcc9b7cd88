"""Where the topics of an application live, by its configuration, and how far those that it writes reach."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast

from crossstream.config import DeadLetter, StreamsConfig
from crossstream.errors import ConfigError, SinkError
from crossstream.state.root import StateRoot
from crossstream.topics import TopicConnection, TopicLog, TopicPartition
from crossstream.topology.graph import Sink, Source, Topology

if TYPE_CHECKING:
    from crossstream.kafka.instance import Instance
    from crossstream.kafka.log import KafkaLog

SETTLE_SECONDS, PAUSE_SECONDS = 1.0, 0.1
"""How long a topic to write to is looked for that is not there, and the pause between two looks."""


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


def check_written(topology: Topology, config: StreamsConfig, log: TopicLog, known: Mapping[str, int]) -> None:
    """Raises `SinkError` CS-652 if a topic that a sink or a `DeadLetter` names is not among the ``known`` ones.

    File topics are made when they are first written to, and others where the brokers may make them.
    """
    makes = str(config.kafka.get("allow.auto.create.topics", False)).lower() == "true"
    if config.servers is None or makes:
        return
    for topic, where in _named(topology, config):
        if topic not in known and not _is_there(log, topic):
            raise SinkError(
                f"the topic {topic!r} to write to does not exist, or the user may not see it",
                code="CS-652",
                where=where,
                next="create it, or correct the name; `crossstream topics list` shows what is there",
            )


def _named(topology: Topology, config: StreamsConfig) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The topics that are written to, as far as it is known before any record; and who names each."""
    for node in topology:
        if isinstance(node, Sink) and node.topic is not None:
            line = None if node.location is None else str(node.location)
            yield node.topic, {"operator": node.name, "line": line}
    for setting in ("deserialization_errors", "processing_errors"):
        policy = getattr(config, setting)
        if isinstance(policy, DeadLetter):
            yield policy.topic, {"setting": setting}


def _is_there(log: TopicLog, topic: str) -> bool:
    """Whether a topic that was not listed is there after all: brokers learn of a new one, one after the other."""
    deadline = monotonic() + SETTLE_SECONDS
    while topic not in log.topics():
        if monotonic() > deadline:
            return False
        sleep(PAUSE_SECONDS)
    return True


def instance_of(config: StreamsConfig, log: TopicLog | None, state: StateRoot) -> Instance | None:
    """This run of the application in its consumer group; None: file topics and DataFrames have none."""
    if config.servers is None:
        return None
    from crossstream.kafka.instance import Instance

    place = str(state) if state.is_remote else f"{state} on {socket.gethostname()}"
    return Instance(cast("KafkaLog", log), config.application_id, place, config.on_lost_state == "restart")


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
