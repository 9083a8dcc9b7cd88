"""The part of a changed topology that has to run for stores to be rebuilt, as a topology of its own.

It has the operators above the stores and the results, up to the topics, or up to tables whose rows are stored:

- such a table becomes a source of its rows. Not where a stream is made of it: that depends on all its changes, in
  their order, and not on the rows that are left;
- a result becomes a table in the serdes of its sink, with a store; other sinks are left out, and so are actions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from crossstream.api.topology import Topology
from crossstream.evolution.decision import StoredTable
from crossstream.evolution.stored_rows import topic_of
from crossstream.graph.names import history_of, unique
from crossstream.graph.nodes import Node, Repartition, Sink, Source, StoreSpec, ToTable, lineage
from crossstream.planning.plan import Plan
from crossstream.serdes.own import alike


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is rebuilt. ``stores``: of the plan. ``results``: whose new rows are needed, in the serdes of the sink.

    ``read_back``: of these by sink the source of the rows that it had. ``aliases``: the names under which these sources
    read topics, and stored rows, that other sources may read, too. ``rows``: tables that are stored. ``events``: sinks
    of streams, all whose results are wanted.
    """

    topology: Topology
    plan: Plan
    stores: Collection[str]
    results: Collection[str]
    read_back: Mapping[str, Source]
    aliases: Mapping[str, str]
    rows: Mapping[str, StoredTable]
    events: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A topology that fills stores. ``after``, ``before``: by sink, the stores with rows of results.

    ``needed``: the operators that are wanted; others stand there for the planner, and their topics are not read.
    ``aliases``: other names under which topics are read, of sinks and of stored rows. ``events``: by sink of a stream
    the topic that it writes instead of its own.
    """

    topology: Topology
    needed: frozenset[str]
    after: Mapping[str, str]
    before: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    events: Mapping[str, str] = field(default_factory=dict)


def parts_of(wanted: Wanted) -> Iterator[Part]:
    """The part that is needed; then with more of the graph, for stores are also where others in the graph need them.

    These others may be tables whose rows are stored: then those below what fills the stores are computed, too. At last
    all are but those of sources, for a table may be stored in the round in which another one comes.
    """
    for one in (wanted, _with_readers(wanted), _of_sources(wanted)):
        needed, cut = needed_of(one)
        made = _Maker(one, needed, cut)
        yield made.part(needed, keeps_stores=False)
        yield made.part(needed, keeps_stores=True)
        yield made.part({node.name for node in wanted.topology if node.shape != "none"}, keeps_stores=True)


def _with_readers(wanted: Wanted) -> Wanted:
    """Without rows of tables that are at or below what fills the stores."""
    nodes, fillers = wanted.topology.nodes, _keepers(wanted.plan, wanted.stores)
    rows = {
        name: table
        for name, table in wanted.rows.items()
        if fillers.isdisjoint(node.name for node in lineage(nodes, [name]))
    }
    return replace(wanted, rows=rows)


def _of_sources(wanted: Wanted) -> Wanted:
    nodes = wanted.topology.nodes
    return replace(
        wanted, rows={name: table for name, table in wanted.rows.items() if nodes[name].reads_input}
    )


def needed_of(wanted: Wanted) -> tuple[frozenset[str], frozenset[str]]:
    """The operators without which the stores and results are not made, and those of them that become sources."""
    nodes = wanted.topology.nodes
    paths = {name: list(path_to(nodes, name)) for name in wanted.results}
    tables = (path[-1].name for path in paths.values())
    heads = {*_keepers(wanted.plan, wanted.stores), *tables, *wanted.events}
    whole: set[str] = set()
    while True:
        cut = wanted.rows.keys() - whole
        found = _above(nodes, heads, cut)
        above = {
            node.name for node in lineage(nodes, [name for name in found if nodes[name].shape == "stream"])
        }
        if above <= whole:
            break
        whole |= above
    results = {node.name for path in paths.values() for node in path}
    return frozenset(found | results), frozenset(cut & found)


def path_to(nodes: Mapping[str, Node], sink: str) -> Iterator[Node]:
    """The operators from a sink up to the table whose rows it gets."""
    node = nodes[sink]
    yield node
    while node.shape != "table":
        node = nodes[node.parents[0]]
        yield node


def _keepers(plan: Plan, stores: Collection[str]) -> set[str]:
    """The operators whose steps fill or look up these stores."""
    plans = [plan] if plan.global_stage is None else [plan, plan.global_stage]
    return {step.node for one in plans for step in one.steps if not set(stores).isdisjoint(step.names())}


def _above(nodes: Mapping[str, Node], heads: Iterable[str], cut: Collection[str]) -> set[str]:
    """The operators of these names and those above them, up to the ones that are cut."""
    found: set[str] = set()
    waiting = list(heads)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += () if name in cut else nodes[name].parents
    return found


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes topologies of operators. ``cut``: those that become sources of stored rows."""

    wanted: Wanted
    needed: frozenset[str]
    cut: frozenset[str]

    def part(self, names: Collection[str], *, keeps_stores: bool) -> Part:
        nodes: dict[str, Node] = {}
        for node in self.wanted.topology:
            if node.name in self.cut:
                nodes[node.name] = self._stored(node, keeps_store=keeps_stores)
            elif node.name in self.wanted.events:
                nodes[node.name] = self._sent(node)
            elif node.name in self.wanted.results or (node.name in names and not node.only_acts):
                nodes[node.name] = replace(node, parents=tuple(map(self._unseen, node.parents)))
        after: dict[str, str] = {}
        before: dict[str, str] = {}
        taken = {*self.wanted.plan.stores, *nodes}
        for name in self.wanted.results:
            sink = nodes[name]
            after[name] = unique(f"{name}.rows", taken)
            if _has_other_keys(sink, nodes[sink.parents[0]]):
                # They are written again, and lie where these bytes do.
                moved = unique(f"{name}.keys", taken)
                nodes[moved] = Repartition(name=moved, parents=sink.parents, key=sink.key, value=sink.value)
                sink = replace(sink, parents=(moved,))
            del nodes[name]  # parents come before children
            nodes[name] = _table_of(sink, after[name])
            if name in self.wanted.read_back:
                store = before[name] = unique(f"{name}.before", taken)
                source = self.wanted.read_back[name]
                kept = replace(source.store or StoreSpec(None, sink.key, sink.value), name=store)
                nodes[store] = replace(source, name=store, store=kept)
        needed = self.needed | set(before.values())
        events = {name: _event_topic(self.wanted, name) for name in self.wanted.events}
        return Part(Topology(nodes), needed, after, before, self.wanted.aliases, events)

    def _sent(self, sink: Node) -> Sink:
        """A sink of a stream that writes all results into a topic beside."""
        return Sink(
            name=sink.name,
            parents=tuple(map(self._unseen, sink.parents)),
            shape="none",
            key=sink.key,
            value=sink.value,
            location=sink.location,
            topic=_event_topic(self.wanted, sink.name),
        )

    def _unseen(self, name: str) -> str:
        """What an operator reads without the actions above it, which are the user's and were called once."""
        nodes = self.wanted.topology.nodes
        while nodes[name].only_acts:
            name = nodes[name].parents[0]
        return name

    def _stored(self, node: Node, *, keeps_store: bool) -> Source:
        """A table as a source of its stored rows."""
        rows = self.wanted.rows[node.name]
        history = history_of(self.wanted.topology.nodes, node.name)
        store = replace(node.store, ttl=None) if keeps_store and node.store is not None else StoreSpec()
        return Source(
            name=node.name,
            shape=node.shape,
            topics=(topic_of(rows.store),),
            key=rows.key,
            value=rows.value,
            location=node.location,
            store=replace(store, history_retention=history),
        )


def _event_topic(wanted: Wanted, sink: str) -> str:
    """No pattern matches such a name."""
    return f"__events-{list(wanted.events).index(sink)}"


def _has_other_keys(sink: Node, parent: Node) -> bool:
    """Whether a sink writes the keys of a stream with another serde."""
    known = parent.key or parent.key_type
    return parent.shape == "stream" and (known is None or sink.key is None or not alike(known, sink.key))


def _table_of(sink: Node, store: str) -> ToTable:
    """The rows of a result, with the bytes that its sink gives them."""
    return ToTable(
        name=sink.name,
        parents=sink.parents,
        shape="table",
        key=sink.key,
        value=sink.value,
        key_type=sink.key_type,
        value_type=sink.value_type,
        location=sink.location,
        store=StoreSpec(store, sink.key, sink.value),
    )
