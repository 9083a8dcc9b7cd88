"""Through which exchanges the rows come that move the stream time of a store (decision 0038).

Who sends rows through an exchange says which of them raise the time of their source partition. So what comes through
one has a stream time that all state partitions know. What an operator makes in the round of its reader has none: where
it filters, joins, holds back or may fail, no other state partition knows how new its rows are. Such rows pass an
exchange though they stay where they are. Steps that make a row at least as new of each row that comes are no obstacle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from crossstream.columns.stream_time import Counts
from crossstream.graph import nodes as graph
from crossstream.graph.names import history_of
from crossstream.graph.nodes import Graph
from crossstream.planning.plan import Exchange, Feed, StoreDef, Timed
from crossstream.planning.steps import (
    AggregateStep,
    DeduplicateStep,
    EncodeStep,
    ExpireStep,
    MaterializeStep,
    StatelessStep,
    Step,
    StreamStreamJoinStep,
    StreamTableJoinStep,
    SuppressStep,
    TransformBatchesStep,
    WindowedAggregateStep,
)

_STRICTER: tuple[Counts, ...] = ("all", "keyed", "whole")


def feeds_of(
    name: str,
    counts: Counts,
    steps: Iterable[Step],
    arriving: Iterable[str],
    stores: Mapping[str, StoreDef],
    topology: Graph,
    of_round: bool = False,
) -> tuple[Feed, ...] | None:
    """The exchanges that say when the stream time of a flow moves; None: they do not know.

    ``counts``: which of its rows do. ``arriving``: the names that flows have behind exchanges. ``of_round``: with all
    rows that come into the round, whatever is made of them; of a join with a table, the stream's.
    """
    made_by = {
        name: step for step in steps for name in (step.output, getattr(step, "changelog", None)) if name
    }
    there = set(arriving)

    def feeds(name: str, counts: Counts) -> tuple[Feed, ...] | None:
        if name in there:
            return (Feed(name, counts),)
        step = made_by.get(name)
        if step is None:
            return None
        wanted = "all" if of_round else _passes(step, topology, stores)
        if wanted is None:
            return None
        stricter = max(counts, wanted, key=_STRICTER.index)
        inputs = step.inputs[:1] if isinstance(step, StreamTableJoinStep) else step.inputs
        parts = [feeds(one, stricter) for one in dict.fromkeys(inputs)]
        return None if None in parts else tuple(feed for part in parts if part is not None for feed in part)

    return feeds(name, counts)


def _passes(step: Step, topology: Graph, stores: Mapping[str, StoreDef]) -> Counts | None:
    """Of which rows that come a step makes one that is at least as new; None: not of each."""
    node = topology[step.node]
    if isinstance(step, AggregateStep):
        assert isinstance(node, graph.Aggregate)
        return None if node.emit_final else counted(node)
    if isinstance(step, MaterializeStep):
        return "keyed" if stores[step.store].repeats else None
    if isinstance(step, EncodeStep | ExpireStep):
        return "all"
    if isinstance(step, StatelessStep) and node.always_moves:
        return "all" if step.null_keys else "keyed"
    if isinstance(step, StatelessStep) and node.forwards_tombstones:
        # Of a table with versions a row that does not pass becomes a tombstone, whatever was there.
        versioned = node.shape == "table" and history_of(topology.nodes, node.parents[0]) is not None
        return "all" if versioned else None
    return "all" if isinstance(step, StatelessStep) and node.one_for_one else None


def counted(node: graph.Aggregate) -> Counts:
    """Which records move the stream time of an aggregation: those that it takes."""
    return "keyed" if node.takes_nulls else "whole"


def of_versions(store: StoreDef) -> Counts:
    """Which changes move the stream time of a table with versions: those that it puts.

    A filter may leave a tombstone out because there is no row. No other state partition knows that, so tombstones
    of such a filter do not count.
    """
    return "keyed" if store.repeats else "whole"


def timed(
    topology: Graph, steps: Iterable[Step], exchanges: Iterable[Exchange], stores: Mapping[str, StoreDef]
) -> dict[str, Timed]:
    """What moves the stream time of each store that has one."""
    steps, arriving = list(steps), [exchange.arrives for exchange in exchanges]
    found: dict[str, Timed] = {}
    for step in steps:
        of_round = isinstance(step, TransformBatchesStep)
        for store, flows, counts in _stores_of(step, topology, stores):
            parts = [
                feeds_of(flow, counts, steps, arriving, stores, topology, of_round)
                for flow in dict.fromkeys(flows)
            ]
            if None not in parts:
                feeds = tuple(dict.fromkeys(feed for part in parts if part is not None for feed in part))
                if isinstance(step, ExpireStep):
                    feeds = tuple(replace(feed, tick=step.tick) for feed in feeds)
                found[store] = Timed(feeds, _sources(topology, step.node))
    return found


def _stores_of(
    step: Step, topology: Graph, stores: Mapping[str, StoreDef]
) -> Iterable[tuple[str, tuple[str, ...], Counts]]:
    """The stores of a step that have a stream time, the flows whose rows move it, and which of these."""
    if isinstance(step, WindowedAggregateStep):
        node = topology[step.node]
        assert isinstance(node, graph.Aggregate)
        yield step.store, step.inputs, counted(node)
    elif isinstance(step, StreamStreamJoinStep):
        for store, flow in zip(step.stores, step.inputs, strict=True):
            yield store, (flow,), "whole"
        if step.waiting is not None:
            yield step.waiting, step.inputs, "all"
    elif isinstance(step, SuppressStep | DeduplicateStep):
        yield step.store, step.inputs, "all"
    elif isinstance(step, MaterializeStep):
        if stores[step.store].history is not None:
            yield step.store, step.inputs, of_versions(stores[step.store])
    elif isinstance(step, ExpireStep):
        if not step.by_clock:
            yield step.store, step.inputs, "keyed"
    elif isinstance(step, StreamTableJoinStep):
        if step.buffer is not None:
            yield step.buffer, step.inputs[:1], "whole"
    elif isinstance(step, TransformBatchesStep):
        yield step.timers, step.inputs, "all"


def _sources(topology: Graph, name: str) -> frozenset[str]:
    """The sources whose records become the rows that come to an operator; a table's, where it keeps one."""
    node = topology[name]
    waiting, met = list(node.forwarders or (name,)), set[str]()
    while waiting:
        one = waiting.pop()
        if one not in met:
            met.add(one)
            waiting += topology[one].forwarders
    return frozenset(one for one in met if topology[one].reads_topics)
