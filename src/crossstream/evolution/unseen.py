"""A batch that the code before a change has begun: it is dropped, where nothing of it can have been seen."""

from __future__ import annotations

from contextlib import closing

from crossstream.application.inputs import connection_of, ends_of
from crossstream.application.publishing import Publishing
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.graph.nodes import FrameSink, Graph
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import BatchEntry


def check_finished(log: BatchLog, topology: Graph, config: StreamsConfig, publishing: Publishing) -> None:
    """Raises `StateError` CS-757 if a batch was begun whose results may have been seen, in part."""
    before = log.newest()
    begun = log.begun(before)
    if begun is None:
        return
    if not _is_unseen(begun, log, topology, config, publishing):
        what = f"batch {begun.id} was begun and not committed, and some of its results may have been written"
        raise refuse("CS-757", what, folder=str(log.root))
    log.forget(begun.id)


def _is_unseen(
    begun: BatchEntry, log: BatchLog, topology: Graph, config: StreamsConfig, publishing: Publishing
) -> bool:
    """Rows of DataFrames do not come again, and functions may have got some; topics end where they ended before it."""
    if begun.publication is not None or begun.epoch >= 0 or any(topology.each(FrameSink)):
        return False
    writes_at_once = config.servers is not None and config.processing_guarantee != "exactly_once"
    if writes_at_once or not publishing.delivery.is_staged:
        return False
    return not begun.sinks or begun.sinks == _ends(begun, log, topology, config)


def _ends(
    begun: BatchEntry, log: BatchLog, topology: Graph, config: StreamsConfig
) -> dict[str, list[int]] | None:
    connection = connection_of(config, topology, log.root)
    if connection is None:
        return None
    with closing(connection.log()) as topics:
        known = topics.topics()
        if any(topic not in known for topic in begun.sinks):
            return None
        return ends_of(topics, begun.sinks, known)
