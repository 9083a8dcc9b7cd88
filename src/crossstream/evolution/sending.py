"""The rows of results that a change has made others: a batch of their difference, to the sinks of the application.

It is a plan of its own: for each result a source that reads the difference (`differences.py`), and the sink itself with
its serdes, partitioner and table. What it takes to send the old rows again is kept in a store of the same batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from crossstream import serdes
from crossstream.api.topology import Topology
from crossstream.application.inputs import connection_of
from crossstream.application.publishing import staging_of
from crossstream.application.rounds import Rounds, run_again
from crossstream.catalog.planners import plan_topology
from crossstream.columns.hashing import partition_bounds
from crossstream.config import StreamsConfig
from crossstream.evolution.compared import Rows
from crossstream.evolution.decision import HeldRows, NewResult, Rebuilt
from crossstream.evolution.differences import Difference, Differences, Prepared
from crossstream.evolution.events import Events
from crossstream.evolution.old_state import manifests_of
from crossstream.graph.nodes import Graph, Node, Source, StoreSpec
from crossstream.runtime.round import Sent
from crossstream.runtime.tables_and_topics import with_tables
from crossstream.runtime.worker import Job
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.own import known
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import SENT, Commit, SourceRange
from crossstream.storage.root import StateRoot
from crossstream.task.batch import Batch, Policy, Report, rank_of, settings_of

RAW = known(serdes.bytes())
"""Of bytes that stay as they are."""


@dataclass(frozen=True, slots=True)
class ToSend:
    """Rows to be sent to a sink. ``key``, ``value``: the serdes of their bytes; ``topic``: with the rows."""

    topic: Prepared
    key: EngineSerde
    value: EngineSerde


def differences(
    results: Iterable[NewResult], commit: Commit, root: StateRoot, tables: Collection[str] = ()
) -> list[ToSend]:
    """For each result what differs, and what would take that back. ``commit``: the last one, of the state ``root``.

    ``tables``: the sinks that write columns, in which bytes are not kept.
    """
    newest = newest_time(root, commit)
    found = []
    for result in results:
        after = rows_of(result.after, commit.partitions)
        before = None if result.before is None else rows_of(result.before, commit.partitions)
        ends = _ends([after] if before is None else [after, before], commit.partitions)
        by_value = result.sink in tables
        there = Difference("difference", result.sink, after, before, newest, ends, by_value)
        back = replace(there, side="inverse")
        found += [ToSend(there, result.after.table.key, result.after.table.value), ToSend(back, RAW, RAW)]
    return found


def events_of(rebuilt: Rebuilt, topology: Topology, since: int) -> list[ToSend]:
    """Results of streams that are sent again, with timestamps from ``since`` (ms) on."""
    found = []
    for sink, name in rebuilt.events.items():
        node = topology[sink]
        assert node.key is not None
        assert node.value is not None
        found.append(ToSend(Events.of(sink, rebuilt.root, name, since), node.key, node.value))
    return found


def sent_rows(root: StateRoot, commit: Commit) -> list[Difference]:
    """What the change of a commit has to send to take its rows back."""
    newest = newest_time(root, commit)
    stores = [store for store in commit.versions if store.startswith(SENT)]
    found = []
    for store in stores:
        rows = Rows(root.address, store, commit.versions[store], commit.partitions, RAW)
        ends = _ends([rows], commit.partitions)
        found.append(Difference("sent", store.removeprefix(SENT), rows, None, newest, ends))
    return found


def rows_of(held: HeldRows, partitions: int) -> Rows:
    """The rows as a value that tasks get. ``partitions``: of both states."""
    application, store = BatchLog(held.root).application(), held.table.store
    is_placed = application is not None and store in application.placed
    return Rows(held.root.address, store, held.versions, partitions, held.table.value, is_placed)


def newest_time(root: StateRoot, commit: Commit) -> int:
    """The latest time (ms) that the stores of a commit know; −1: they know none."""
    held = [one for store, versions in commit.versions.items() for one in manifests_of(root, store, versions)]
    return max((one.stream_time for one in held), default=-1)


def _ends(sides: Sequence[Rows], partitions: int) -> tuple[int, ...]:
    """The most rows that can differ, by state partition."""
    segments = [segment for side in sides for one in side.manifests() for segment in one.segments()]
    bounds = partition_bounds(partitions)
    return tuple(
        sum(one.stop - one.start for one in segments if one.low < bounds[p + 1] and bounds[p] <= one.high)
        for p in range(partitions)
    )


def run(
    topology: Topology,
    config: StreamsConfig,
    rounds: Rounds,
    root: StateRoot,
    results: Sequence[ToSend],
    number: int,
    partitions: int,
    clock: int,
) -> tuple[Report, Sent]:
    """Runs batch ``number``, which stages the rows for their sinks; ``rounds`` stays open.

    ``partitions``: of the state; ``clock``: ms.
    """
    graph = Graph({node.name: node for node in _nodes(topology, results)})
    plan = plan_topology(graph)
    connection = connection_of(config, topology, root)
    topics = Differences(tuple(result.topic for result in results))
    settings = replace(settings_of(config), decoding=Policy())
    staging = str(staging_of(connection, root))
    rounds.prepare(
        Job(
            config.application_id,
            plan.shipped(),
            root.address,
            staging,
            settings,
            with_tables(connection, topics),
        ),
        root,
    )
    shares = rounds.start()
    rounds.open()
    ranges = tuple(_ranges(results, graph))
    return run_again(rounds, Batch(number, ranges, partitions, shares=shares, clock=clock), None)


def _nodes(topology: Topology, results: Iterable[ToSend]) -> Iterator[Node]:
    for result in results:
        name, sink = result.topic.topic, result.topic.sink
        source = Source(name=name, topics=(name,), key=result.key, value=result.value)
        if result.topic.side == "inverse":
            yield replace(source, shape="table", store=StoreSpec(SENT + sink, RAW, RAW))
        elif topology[sink].writes_bytes:  # of keys that are gone the serde may have been another one
            yield replace(source, key=RAW, value=RAW)
            yield replace(topology[sink], parents=(name,), key=RAW, value=RAW)
        else:
            yield source
            yield replace(topology[sink], parents=(name,))


def _ranges(results: Iterable[ToSend], graph: Graph) -> Iterator[SourceRange]:
    """Those of the same state partition beside each other: they read the same files."""
    spans = [
        (partition, result.topic.topic, end)
        for result in results
        for partition, end in enumerate(result.topic.ends)
        if end
    ]
    for position, (partition, topic, end) in enumerate(sorted(spans)):
        yield SourceRange(topic, topic, partition, 0, end, rank_of(graph[topic].shape, position))
