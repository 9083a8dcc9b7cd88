"""A start that finds a change of its application begun: nothing of it counts, or it is finished (decision 0050)."""

from __future__ import annotations

from dataclasses import replace

from crossstream.application.inputs import connection_of
from crossstream.application.publishing import Publishing, staging_of
from crossstream.config import StreamsConfig
from crossstream.graph.nodes import Graph
from crossstream.storage.commit_log import BatchLog


def once_only(config: StreamsConfig) -> StreamsConfig:
    """The settings with which a change writes results: into Kafka in a transaction, whatever batches do."""
    return config if config.servers is None else replace(config, processing_guarantee="exactly_once")


def finish_last(publishing: Publishing, topology: Graph, config: StreamsConfig) -> None:
    """Commits the batch whose results the last run was publishing; a change of which nothing was seen is dropped."""
    log, restarts = publishing.log, config.on_lost_state == "restart"
    if publishing.delivery.is_staged or not _is_change(log):
        publishing.finish_last(config.application_id, restarts=restarts)
        return
    careful = once_only(config)
    connection = connection_of(careful, topology, log.root)
    own = Publishing.of(topology, careful, connection, log, staging_of(connection, log.root))
    try:
        own.finish_last(config.application_id, restarts=restarts)
    finally:
        own.close()


def _is_change(log: BatchLog) -> bool:
    if log.application() is None:
        return False
    begun = log.begun(log.newest())
    return begun is not None and begun.becomes is not None
