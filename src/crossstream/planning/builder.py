"""What the placing of operators shares: flows, exchanges, stores and tables made so far, and what readers want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from crossstream.graph.describe import has_new_key
from crossstream.graph.names import inner, name_of, unique
from crossstream.graph.nodes import (
    Filter,
    ForeignKeyJoin,
    FrameSource,
    Graph,
    ManyJoin,
    MapValues,
    Node,
    Sink,
    Source,
    StoreSpec,
    StreamTableJoin,
    TableJoin,
    ToTable,
    is_stream_join,
    readings,
    sorts_out,
)
from crossstream.graph.traversal import Forks, Visits, forwarders, sharing
from crossstream.graph.validate import history_of, inner_store, keeps_versions
from crossstream.planning.plan import KEY_VALUE, VERSIONED, Exchange, Flow, Partitioner, StoreDef
from crossstream.planning.steps import MaterializeStep, OrderStep, Step
from crossstream.serdes.kept import kept
from crossstream.serdes.serde import Identity, alike, identity

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
    """The tables whose readers want every change, not the last of the batch."""
    makes_changelog: set[str] = field(default_factory=set)
    """The tables that a stream looks up, or that keep versions: what they are kept from must be every change.

    And the operators on streams that sort out what becomes the rows of a table.
    """
    become_rows: set[str] = field(default_factory=set)
    """The streams whose records become the rows of a table."""
    wholes: dict[str, str] = field(default_factory=dict)
    """The store of each global table."""
    visits: Visits = field(init=False)
    forks: Forks = field(init=False)
    sharing: Mapping[str, Sequence[Sink]] = field(init=False)
    """The sinks that wait for each other, by the name of each."""
    globals: PlanBuilder | None = None
    """Where global tables are placed: a plan of their own."""

    def __post_init__(self) -> None:
        self.visits = Visits(self.topology)
        self.forks = Forks(self.visits)
        self.sharing = {sink.name: sinks for sinks in sharing(self.visits) for sink in sinks}

    @property
    def global_stage(self) -> PlanBuilder:
        """Where global tables are placed: a plan of their own."""
        if self.globals is None:
            self.globals = PlanBuilder(self.topology)
        return self.globals

    def ask(self) -> None:
        """Finds out what each operator wants of those above it: old rows, every change."""
        for node in reversed(list(self.topology)):
            self._ask_old(node)
            self._ask_changelog(node)

    def _ask_old(self, node: Node) -> None:
        """A filter wants to know what its parent's row was; row-wise operators pass the wish on.

        Not that of a parent with versions: it passes tombstones of rows that were not there on too (semantics 2.2.6).
        """
        if node.shape != "table" or self.knows_old(node):
            return
        if isinstance(node, Filter) or (isinstance(node, MapValues) and node.name in self.wants_old):
            self.wants_old.update(name for name in node.parents if not self.versioned(self.topology[name]))

    def knows_old(self, node: Node) -> bool:
        """Whether a filter keeps versions of a table without any, so that its own newest one is the old row."""
        return (
            isinstance(node, Filter)
            and keeps_versions(node)
            and not self.versioned(self.topology[node.parents[0]])
        )

    def _ask_changelog(self, node: Node) -> None:
        """Joins of streams give the same whatever the batches are, and versions are; so no change may be left out.

        Nor may it where the last change of a row may not reach the table that a stream of changes becomes, or reach
        it under another key than those before.
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
        """Whether an operator on tables gives every change."""
        return node.name in self.wants_changelog or node.name in self.makes_changelog

    def versioned(self, node: Node) -> bool:
        """Whether a table keeps versions, itself or the table it is derived from row by row."""
        return history_of(self.topology.nodes, node.name) is not None

    def earliest(self, flow: Flow) -> int:
        """The first round in which rows of a flow can be in the state partition of their key."""
        return max(1, flow.round if flow.routed else flow.round + 1)

    def source_of(self, table: Node) -> Flow:
        """What a table is materialised from: its records, or the changes its operator makes."""
        return self.raw.get(table.name) or self.flow(table.name)

    def materialize(self, table: Node, number: int, partitioner: Partitioner | None) -> MaterializeStep:
        """The step that keeps ``table`` in round ``number``; made when first asked for."""
        if (table.name, number, partitioner) in self.tables:
            return self.tables[table.name, number, partitioner]
        spec: StoreSpec = getattr(table, "store", None) or StoreSpec()
        source = self.source_of(table)
        key, value = spec.key or table.key or source.key, spec.value or table.value or source.value
        flow = self.arrive(replace(source, key=key, value=value), number, table, partitioner)
        first = not any(name == table.name for name, _, _ in self.tables)
        public = spec.name if first else None
        name = public or unique(f"{table.name}@{number}", self.stores)
        history = history_of(self.topology.nodes, table.name)
        store = self.put(
            StoreDef(
                name=name,
                layout=KEY_VALUE if history is None else VERSIONED,
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
            admit=self.refusal(table) if isinstance(table, ToTable) else None,
            counts=first,
        )
        self.tables[table.name, number, partitioner] = step
        self.steps.append(step)
        return step

    def refusal(self, node: Node) -> str:
        """Under which reason an operator by key counts the null keys of its stream (semantics 8.19)."""
        re_keyed = has_new_key(self.topology, node.parents[0])
        return "null-key-repartition" if re_keyed and not self.keeps_null_keys(node.name) else "null-key"

    def keeps_null_keys(self, name: str) -> bool:
        """Whether a left or outer join of streams is below, so that re-keying lets null keys pass (KIP-962)."""

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
        place: str | None = None,
        columns: frozenset[str] = frozenset(),
    ) -> str:
        """Makes a flow available to ``node`` in a round, in the state partition of its key.

        ``flow`` has the serdes that its rows are to arrive with. ``place``: the extra column that says where to.
        ``columns``: fields of the values that go with them, if they have been decoded.
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
                place,
                stays=stays,
                columns=columns,
            )
        return self.exchanges[wanted].arrives

    def keep(self, node: TableJoin | ForeignKeyJoin | ManyJoin | Filter | MapValues) -> None:
        """Materialises a result that is queryable, or whose old values somebody asks for."""
        asked = isinstance(node, ForeignKeyJoin | ManyJoin) and node.name in self.wants_old
        if node.store is None and not asked:
            return
        if (
            node.store is not None
            and node.store.name is None
            and node.store.history_retention is None
            and not asked
        ):
            return
        if is_kept_below(self, node):
            return
        step = self.materialize(node, self.earliest(self.flows[node.name]), None)
        self.raw[node.name] = self.flows[node.name]
        self.changes[node.name] = self.changes_of(step)

    def put_in_order(self, node: ForeignKeyJoin) -> None:
        """Every change of a result goes to the partition of its key, and in order of arrival to whoever reads it.

        It was made by foreign key, and a row may have had several within the batch. A result that is kept is put in
        order where it is kept, and of one change a row there is no order.
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
        """What readers of a kept table read: the last changes of a batch, or every change where some want that."""
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
        """The name of a store that an operator keeps for itself."""
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
    """Whether some join keeps ``table`` by the hash of its key, and nobody reads its net changes elsewhere."""
    if table.name in builder.wants_old:
        return False
    children = builder.topology.children(table.name)
    reads = [
        (child, place)
        for child in children
        for place, parent in enumerate(child.parents)
        if parent == table.name
    ]
    return all(_keeps(*read) or _needs_no_store(builder, table, *read) for read in reads) and any(
        _keeps(*read) for read in reads
    )


def _keeps(child: Node, place: int) -> bool:
    """Whether a reader of a table keeps it in its own round; ``place``: which of its parents the table is."""
    if isinstance(child, ForeignKeyJoin):
        return place == 1 and child.other_partitioner is None
    return isinstance(child, TableJoin) or (place > 0 and isinstance(child, ManyJoin | StreamTableJoin))


def _needs_no_store(builder: PlanBuilder, table: Node, child: Node, place: int) -> bool:
    """Whether a reader takes the rows as they come: their foreign keys, which are remembered instead of them."""
    if place > 0 or not isinstance(child, ForeignKeyJoin | ManyJoin) or isinstance(table, ToTable):
        return False
    return not builder.versioned(table)
