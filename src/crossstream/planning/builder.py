"""A plan while it is made: flows, exchanges, stores and tables so far, and what readers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crossstream.graph.describe import has_new_key
from crossstream.graph.names import inner, name_of, unique
from crossstream.graph.nodes import (
    Aggregate,
    Filter,
    ForeignKeyJoin,
    FrameSource,
    GlobalJoin,
    Graph,
    GroupTable,
    ManyJoin,
    MapValues,
    Node,
    Sink,
    Source,
    StoreSpec,
    StreamGlobalJoin,
    StreamTableJoin,
    TableJoin,
    ToTable,
    is_stream_join,
    readings,
    sorts_out,
)
from crossstream.graph.stores import history_of, inner_store, keeps_versions
from crossstream.graph.traversal import Forks, Visits, forwarders, sharing
from crossstream.planning.plan import (
    KEY_VALUE,
    KEY_VALUE_HEADERS,
    VERSIONED,
    VERSIONED_HEADERS,
    Exchange,
    Flow,
    Partitioner,
    StoreDef,
    ViewDef,
)
from crossstream.planning.steps import MaterializeStep, OrderStep, Step
from crossstream.serdes.json_untyped import kept
from crossstream.serdes.serde import Identity, alike, identity
from crossstream.storage.sorted_run import Layout

_Wanted = tuple[str, int, Partitioner | None, Identity, Identity]
"""A flow, the round and partitioner, and the serdes of its keys and values."""


@dataclass(slots=True)
class PlanBuilder:
    topology: Graph
    steps: list[Step] = field(default_factory=list)
    flows: dict[str, Flow] = field(default_factory=dict)
    changes: dict[str, Flow] = field(default_factory=dict)
    """The flow that readers of a node read."""
    raw: dict[str, Flow] = field(default_factory=dict)
    """The flow that a table is materialised from."""
    exchanges: dict[_Wanted, Exchange] = field(default_factory=dict)
    stores: dict[str, StoreDef] = field(default_factory=dict)
    tables: dict[tuple[str, int, Partitioner | None], MaterializeStep] = field(default_factory=dict)
    wants_old: set[str] = field(default_factory=set)
    wants_changelog: set[str] = field(default_factory=set)
    """The tables whose readers need every change, not only the last one of a batch."""
    makes_changelog: set[str] = field(default_factory=set)
    """The tables that a stream looks up or that keep versions: they are kept from every change.

    And the operators on streams that drop or re-key records which become rows of a table.
    """
    wants_headers: set[str] = field(default_factory=set)
    """The tables whose rows need their headers: a join gives them to its results."""
    become_rows: set[str] = field(default_factory=set)
    """The streams whose records become the rows of a table."""
    global_stores: dict[str, str] = field(default_factory=dict)
    """The store, or the view, of each global table."""
    views: dict[str, ViewDef] = field(default_factory=dict)
    visits: Visits = field(init=False)
    forks: Forks = field(init=False)
    sharing: Mapping[str, Sequence[Sink]] = field(init=False)
    """The sinks that write together, by the name of each."""
    globals: PlanBuilder | None = None
    """The plan of the global tables, if there are any."""

    def __post_init__(self) -> None:
        self.visits = Visits(self.topology)
        self.forks = Forks(self.visits)
        self.sharing = {sink.name: sinks for sinks in sharing(self.visits) for sink in sinks}

    @property
    def global_stage(self) -> PlanBuilder:
        """The plan of the global tables, which runs before the rounds of a batch."""
        if self.globals is None:
            self.globals = PlanBuilder(self.topology)
        return self.globals

    def find_needs(self) -> None:
        """Finds out what each operator needs from its parents: old rows, every change."""
        for node in reversed(list(self.topology)):
            self._need_old(node)
            self._need_changelog(node)
            self._need_headers(node)

    def _need_headers(self, node: Node) -> None:
        """The headers of the rows that a join looks up, where they are those of its results; of a view's left rows."""
        wanted = getattr(node, "headers", None)
        if isinstance(node, TableJoin) and wanted is not None:
            self.wants_headers.update(node.parents)
        elif isinstance(node, StreamTableJoin | StreamGlobalJoin | ForeignKeyJoin) and wanted in (
            "right",
            "both",
        ):
            self.wants_headers.add(node.parents[1])
        elif isinstance(node, GlobalJoin) and node.name in self.wants_headers:
            self.wants_headers.add(node.parents[0])

    def _need_old(self, node: Node) -> None:
        """A filter needs its parent's old rows; row-wise operators need them for a filter below.

        Not from a parent with versions: it also forwards tombstones of missing rows (semantics 2.2.6).
        """
        if isinstance(node, GroupTable):
            self.wants_old.update(node.parents)
            self.wants_changelog.update(node.parents)
            return
        if node.shape != "table" or self.knows_old(node):
            return
        if isinstance(node, Filter) or (isinstance(node, MapValues) and node.name in self.wants_old):
            self.wants_old.update(name for name in node.parents if not self.versioned(self.topology[name]))

    def knows_old(self, node: Node) -> bool:
        """Whether a filter keeps versions of a table without versions: its own newest one is the old row."""
        return (
            isinstance(node, Filter)
            and keeps_versions(node)
            and not self.versioned(self.topology[node.parents[0]])
        )

    def _need_changelog(self, node: Node) -> None:
        """Joins of streams, and versions, must not depend on the batches: they need every change.

        So does a table made of a stream of changes, if operators in between may drop the last change of a row, or
        give it another key than the changes before.
        """
        if isinstance(node, ToTable) or node.name in self.become_rows:
            self.become_rows.update(name for name in node.parents if self.topology[name].shape == "stream")
        if keeps_versions(node) or (node.name in self.become_rows and sorts_out(node)):
            self.makes_changelog.add(node.name)
        if isinstance(node, StreamTableJoin):
            self.wants_changelog.add(node.parents[0])
            self.makes_changelog.add(node.parents[1])
        elif is_stream_join(node) or self.emits_changelog(node):
            self.wants_changelog.update(node.parents)

    def emits_changelog(self, node: Node) -> bool:
        """Whether an operator on tables emits every change."""
        return node.name in self.wants_changelog or node.name in self.makes_changelog

    def versioned(self, node: Node) -> bool:
        """Whether a table keeps versions, itself or the table it is derived from row by row."""
        return history_of(self.topology.nodes, node.name) is not None

    def earliest(self, flow: Flow) -> int:
        """The first round in which rows of a flow are in the state partition of their key."""
        return max(1, flow.round if flow.routed else flow.round + 1)

    def source_of(self, table: Node) -> Flow:
        """The flow that a table is kept from: its records, or the changes of its operator."""
        return self.raw.get(table.name) or self.flow(table.name)

    def materialize(self, table: Node, number: int, partitioner: Partitioner | None) -> MaterializeStep:
        """The step that keeps ``table`` in round ``number``; added on the first call."""
        if (table.name, number, partitioner) in self.tables:
            return self.tables[table.name, number, partitioner]
        spec: StoreSpec = getattr(table, "store", None) or StoreSpec()
        source = self.source_of(table)
        key, value = spec.key or table.key or source.key, spec.value or table.value or source.value
        flow = self.arrive(replace(source, key=key, value=value), number, table, partitioner)
        first = not any(name == table.name for name, _, _ in self.tables)
        public = spec.name if first and spec.name not in self.stores else None
        name = public or unique(f"{table.name}@{number}", self.stores)
        history = history_of(self.topology.nodes, table.name)
        store = self.put(
            StoreDef(
                name=name,
                layout=self.layout(table, history),
                round=number,
                key=key,
                value=value,
                public=public,
                history=history,
                results=not isinstance(table, Source | FrameSource | ToTable),
                repeats=not self.knows_old(table),
            )
        )
        out = self.add(Flow(inner(name, "changes"), number, store.key, store.value, partitioner is None))
        changelog = None
        if table.name in self.wants_changelog:
            changelog = self.add(replace(out, name=inner(name, "every change"))).name
        step = MaterializeStep(
            node=table.name,
            round=number,
            inputs=(flow,),
            output=out.name,
            store=store.name,
            old=table.name in self.wants_old,
            changelog=changelog,
            null_key_reason=self.null_key_reason(table) if isinstance(table, ToTable) else None,
            counts=first,
        )
        self.tables[table.name, number, partitioner] = step
        self.steps.append(step)
        return step

    def layout(self, table: Node, history: int | None = None) -> Layout:
        """The layout of a table, by whether it keeps versions and headers."""
        if table.name in self.wants_headers:
            return KEY_VALUE_HEADERS if history is None else VERSIONED_HEADERS
        return KEY_VALUE if history is None else VERSIONED

    def null_key_reason(self, node: Node) -> str:
        """The reason under which an operator by key counts null keys of its stream (semantics 8.19)."""
        re_keyed = has_new_key(self.topology, node.parents[0])
        return "null-key-repartition" if re_keyed and not self.keeps_null_keys(node.name) else "null-key"

    def keeps_null_keys(self, name: str) -> bool:
        """Whether re-keying keeps null keys: a left or outer join of streams below needs them (KIP-962)."""

        def forwards(parent: str, child: Node) -> bool:
            return parent in forwarders(child)

        return any(
            forwards(parent, child) and is_stream_join(child) and getattr(child, "kind", "inner") != "inner"
            for parent, child in readings(self.topology, name, forwards)
        )

    def arrive(
        self,
        flow: Flow,
        number: int,
        node: Node,
        partitioner: Partitioner | None = None,
        partition_column: str | None = None,
        columns: frozenset[str] = frozenset(),
    ) -> str:
        """Makes a flow available to ``node`` in a round, in the state partition of its key.

        ``flow`` has the serdes that its rows travel in. ``partition_column``, ``columns``: see `Exchange`.
        """
        if flow.round == number and flow.routed and partitioner is None:
            return flow.name
        wanted = (flow.name, number, partitioner, identity(flow.key), identity(flow.value))
        if wanted not in self.exchanges:
            arrives = f"{flow.name}>{number}" + ("" if partitioner is None else f" by {name_of(partitioner)}")
            arrives = unique(arrives, {exchange.arrives: exchange for exchange in self.exchanges.values()})
            stays = flow.routed and partitioner is None and alike(self.flows[flow.name].key, flow.key)
            self.exchanges[wanted] = Exchange(
                flow.name,
                number,
                arrives,
                node.name,
                flow.key,
                flow.value,
                partitioner,
                partition_column,
                stays=stays,
                columns=columns,
            )
        return self.exchanges[wanted].arrives

    def keep(self, node: Aggregate | TableJoin | ForeignKeyJoin | ManyJoin | Filter | MapValues) -> None:
        """Keeps a result that is queryable, or whose old values a reader needs."""
        spec = node.store or StoreSpec()
        old_needed = isinstance(node, ForeignKeyJoin | ManyJoin) and node.name in self.wants_old
        if not old_needed and spec.name is None and spec.history_retention is None:
            return
        if is_kept_below(self, node):
            return
        step = self.materialize(node, self.earliest(self.flows[node.name]), None)
        self.raw[node.name] = self.flows[node.name]
        self.changes[node.name] = self.changes_of(step)

    def put_in_order(self, node: ForeignKeyJoin) -> None:
        """Sends every change of a result to the partition of its key, in order of arrival.

        The changes are made by foreign key, and a row may have several in a batch. A result that is kept needs no
        such step: it is put in order where it is kept.
        """
        if not self.emits_changelog(node) or node.name in self.changes:
            return
        made = self.flows[node.name]
        number = self.earliest(made)
        out = self.add(replace(made, name=f"{node.name} in order", round=number, routed=True))
        arrived = self.arrive(made, number, node)
        self.steps.append(OrderStep(node=node.name, round=number, inputs=(arrived,), output=out.name))
        self.changes[node.name] = out

    def changes_of(self, step: MaterializeStep) -> Flow:
        """The flow that readers of a kept table read: its changelog, if one of them needs it, or its net changes."""
        return self.flows[step.changelog or step.output or ""]

    def flow(self, name: str) -> Flow:
        return self.changes.get(name) or self.flows[name]

    def flow_of(self, node: Node, name: str, number: int, routed: bool = False) -> Flow:
        """A new flow with the serdes of a node's output."""
        return self.add(
            Flow(
                name,
                number,
                node.key or node.key_type or kept(),
                node.value or node.value_type or kept(),
                routed,
            )
        )

    def inner_store(self, node: Node, part: str) -> str:
        return inner_store(self.topology.nodes, node, part)

    def put(self, store: StoreDef) -> StoreDef:
        assert store.name not in self.stores, f"two stores are called {store.name!r}"
        self.stores[store.name] = store
        return store

    def add(self, flow: Flow) -> Flow:
        assert flow.name not in self.flows, f"two flows are called {flow.name!r}"
        self.flows[flow.name] = flow
        return flow


def is_kept_below(builder: PlanBuilder, table: Node) -> bool:
    """Whether a join keeps ``table`` by the hash of its key, and no other operator reads its net changes."""
    if table.name in builder.wants_old:
        return False
    children = builder.topology.children(table.name)
    reads = [
        (child, side)
        for child in children
        for side, parent in enumerate(child.parents)
        if parent == table.name
    ]
    return all(_keeps(*read) or _needs_no_store(builder, table, *read) for read in reads) and any(
        _keeps(*read) for read in reads
    )


def _keeps(child: Node, side: int) -> bool:
    """Whether a reader of a table keeps it in its own round. ``side``: the number of the table among its parents."""
    if isinstance(child, ForeignKeyJoin):
        return side == 1 and child.other_partitioner is None
    return isinstance(child, TableJoin) or (side > 0 and isinstance(child, ManyJoin | StreamTableJoin))


def _needs_no_store(builder: PlanBuilder, table: Node, child: Node, side: int) -> bool:
    """Whether a reader takes records without a store: it remembers their foreign keys."""
    if side > 0 or not isinstance(child, ForeignKeyJoin | ManyJoin) or isinstance(table, ToTable):
        return False
    return not builder.versioned(table)
