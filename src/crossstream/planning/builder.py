"""A plan while it is made: flows, exchanges, stores and tables so far, and what readers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from crossstream.graph import nodes as graph
from crossstream.graph.describe import callable_name
from crossstream.graph.names import history_of, inner, inner_store, unique
from crossstream.graph.traversal import Forks, Visits, has_new_key, sharing
from crossstream.planning.layouts import KEY_VALUE, KEY_VALUE_HEADERS, VERSIONED, VERSIONED_HEADERS
from crossstream.planning.plan import Exchange, Flow, Partitioner, StoreDef, ViewDef
from crossstream.planning.steps import EncodeStep, MaterializeStep, OrderStep, Step
from crossstream.planning.timelines import feeds_of
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import InternalJson
from crossstream.serdes.own import Identity, alike, identity
from crossstream.storage.sorted_run import Layout

_Wanted = tuple[str, int, Partitioner | None, Identity, Identity]
"""A flow, the round and partitioner, and the serdes of its keys and values."""


@dataclass(slots=True)
class PlanBuilder:
    topology: graph.Graph
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
    sharing: Mapping[str, Sequence[graph.Sink]] = field(init=False)
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
            self.wants_headers.update(node.needs_headers(node.name in self.wants_headers))

    def _need_old(self, node: graph.Node) -> None:
        """A filter needs its parent's old rows; row-wise operators need them for a filter below.

        Not from a parent with versions: it also forwards tombstones of missing rows (semantics 2.2.6).
        """
        if node.needs_old(node.name in self.wants_old) and not self.knows_old(node):
            parents = [self.topology[name] for name in node.parents]
            self.wants_old.update(
                parent.name for parent in parents if node.old_of_versions or not self.versioned(parent)
            )

    def knows_old(self, node: graph.Node) -> bool:
        """Whether a filter keeps versions of a table without versions: its own newest one is the old row."""
        return (
            isinstance(node, graph.Filter)
            and node.history is not None
            and not self.versioned(self.topology[node.parents[0]])
        )

    def _need_changelog(self, node: graph.Node) -> None:
        """Joins of streams, and versions, must not depend on the batches: they need every change.

        So does a table made of a stream of changes, if operators in between may drop the last change of a row, or
        give it another key than the changes before.
        """
        if node.upserts_stream or node.name in self.become_rows:
            self.become_rows.update(name for name in node.parents if self.topology[name].shape == "stream")
        if node.history is not None or (node.name in self.become_rows and node.may_drop):
            self.makes_changelog.add(node.name)
        if node.as_of_record:
            self.wants_changelog.add(node.parents[0])
            self.makes_changelog.add(node.parents[1])
        elif node.joins_stream or node.takes_every_record or self.emits_changelog(node):
            self.wants_changelog.update(node.parents)

    def emits_changelog(self, node: graph.Node) -> bool:
        """Whether an operator on tables emits every change."""
        return node.name in self.wants_changelog or node.name in self.makes_changelog

    def versioned(self, node: graph.Node) -> bool:
        """Whether a table keeps versions, itself or the table it is derived from row by row."""
        return history_of(self.topology.nodes, node.name) is not None

    def earliest(self, flow: Flow) -> int:
        """The first round in which rows of a flow are in the state partition of their key."""
        return max(1, flow.round if flow.routed else flow.round + 1)

    def earliest_timed(self, flow: Flow) -> int:
        """As `earliest`, for an operator with a stream time that must be the same in all its state partitions."""
        number = self.earliest(flow)
        if number > flow.round:
            return number
        arriving = [exchange.arrives for exchange in self.exchanges.values()]
        known = feeds_of(flow.name, "all", self.steps, arriving, self.stores, self.topology)
        return number if known is not None else number + 1

    def earliest_kept(self, table: graph.Node, flow: Flow | None = None) -> int:
        """The first round in which a table can be kept; ``flow``: what it is kept from, if not `source_of` it."""
        flow = flow or self.source_of(table)
        return self.earliest_timed(flow) if self.versioned(table) else self.earliest(flow)

    def source_of(self, table: graph.Node) -> Flow:
        """The flow that a table is kept from: its records, or the changes of its operator."""
        return self.raw.get(table.name) or self.flow(table.name)

    def materialize(
        self, table: graph.Node, number: int, partitioner: Partitioner | None, named: int | None = None
    ) -> MaterializeStep:
        """The step that keeps ``table`` in round ``number``; added on the first call.

        ``named``: the round in the name of its store, where it is another one.
        """
        if (table.name, number, partitioner) in self.tables:
            return self.tables[table.name, number, partitioner]
        spec = table.store or graph.StoreSpec()
        source = self.source_of(table)
        key, value = spec.key or table.key or source.key, spec.value or table.value or source.value
        flow = self.arrive(replace(source, key=key, value=value), number, table, partitioner)
        first = not any(name == table.name for name, _, _ in self.tables)
        public = spec.name if first and spec.name not in self.stores else None
        name = public or unique(f"{table.name}@{named or number}", self.stores)
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
                results=not table.rows_are_records,
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
            null_key_reason=self.null_key_reason(table) if table.upserts_stream else None,
            counts=first,
        )
        self.tables[table.name, number, partitioner] = step
        self.steps.append(step)
        return step

    def layout(self, table: graph.Node, history: int | None = None) -> Layout:
        """The layout of a table, by whether it keeps versions and headers."""
        if table.name in self.wants_headers:
            return KEY_VALUE_HEADERS if history is None else VERSIONED_HEADERS
        return KEY_VALUE if history is None else VERSIONED

    def null_key_reason(self, node: graph.Node, side: int = 0) -> str:
        """The reason under which an operator by key counts null keys of one of its streams (semantics 8.19)."""
        re_keyed = has_new_key(self.topology, node.parents[side])
        return "null-key-repartition" if re_keyed and not self.keeps_null_keys(node.name) else "null-key"

    def keeps_null_keys(self, name: str) -> bool:
        """Whether re-keying keeps null keys: a left or outer join of streams below needs them (KIP-962)."""

        def forwards(parent: str, child: graph.Node) -> bool:
            return parent in child.forwarders

        return any(
            forwards(parent, child) and child.joins_stream and getattr(child, "kind", "inner") != "inner"
            for parent, child in graph.readings(self.topology, name, forwards)
        )

    def arrive(
        self,
        flow: Flow,
        number: int,
        node: graph.Node,
        partitioner: Partitioner | None = None,
        partition_column: str | None = None,
        columns: frozenset[str] = frozenset(),
        stays: bool = False,
        old: bool = False,
        spread: tuple[str, str] | None = None,
    ) -> str:
        """Makes a flow available to ``node`` in a round, in the state partition of its key.

        ``flow`` has the serdes that its rows travel in. ``partition_column``, ``columns``, ``stays``,
        ``old``: see `Exchange`; ``spread``: its ``spread`` and ``second``.
        """
        if flow.round == number and flow.routed and partitioner is None:
            return self._encoded(flow, node)
        wanted = (flow.name, number, partitioner, identity(flow.key), identity(flow.value))
        if wanted not in self.exchanges:
            arrives = f"{flow.name}>{number}"
            if partitioner is not None:
                arrives += f" by {callable_name(partitioner)} {id(partitioner):x}"
            arrives = unique(arrives, {exchange.arrives for exchange in self.exchanges.values()})
            stays = stays or (
                flow.routed and partitioner is None and alike(self.flows[flow.name].key, flow.key)
            )
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
        if old:
            self.exchanges[wanted] = replace(self.exchanges[wanted], old=True)
        if spread is not None:
            store, second = spread
            self.exchanges[wanted] = replace(self.exchanges[wanted], spread=store, second=second)
        return self.exchanges[wanted].arrives

    def copied(self, flow: Flow, number: int, node: graph.Node, store: str) -> str:
        """Brings the rows of the keys that are hot in a store to every state partition of a round."""
        arrives = f"{flow.name}>{number} hot in {store}"
        exchange = Exchange(flow.name, number, arrives, node.name, flow.key, flow.value, spread=store)
        self.exchanges[arrives, number, None, identity(flow.key), identity(flow.value)] = exchange
        return arrives

    def _encoded(self, flow: Flow, node: graph.Node) -> str:
        """A flow that stays in its task, with values in the serde that ``node`` declares for them."""
        if alike(flow.value, self.flows[flow.name].value):
            return flow.name
        name = f"{flow.name} as {flow.value.name} for {node.name}"
        if name not in self.flows:
            self.add(replace(flow, name=name))
            self.steps.append(EncodeStep(node=node.name, round=flow.round, inputs=(flow.name,), output=name))
        return name

    def keep(self, node: graph.Node) -> None:
        """Keeps a result that is queryable, or whose old values a reader needs."""
        old_needed = node.by_foreign_key and node.name in self.wants_old
        if not (old_needed or is_stored(node)) or is_kept_below(self, node):
            return
        made = self.flows[node.name]
        step = self.materialize(node, self.earliest_kept(node, made), None, self.earliest(made))
        self.raw[node.name] = self.flows[node.name]
        self.changes[node.name] = self.changes_of(step)

    def put_in_order(self, node: graph.ForeignKeyJoin) -> None:
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

    def flow_of(self, node: graph.Node, name: str, number: int, routed: bool = False) -> Flow:
        """A new flow with the serdes of a node's output."""
        key, value = (
            node.key or node.key_type or InternalJson(),
            node.value or node.value_type or InternalJson(),
        )
        return self.add(Flow(name, number, key, value, routed))

    def own_store(
        self,
        node: graph.Node,
        part: str,
        layout: Layout,
        number: int,
        key: EngineSerde,
        value: EngineSerde,
        **settings: Any,
    ) -> StoreDef:
        """A store that ``node`` keeps for itself in a round; ``settings``: see `StoreDef`."""
        name = inner_store(self.topology.nodes, node, part)
        return self.put(StoreDef(name=name, layout=layout, round=number, key=key, value=value, **settings))

    def put(self, store: StoreDef) -> StoreDef:
        assert store.name not in self.stores, f"two stores are called {store.name!r}"
        self.stores[store.name] = store
        return store

    def add(self, flow: Flow) -> Flow:
        assert flow.name not in self.flows, f"two flows are called {flow.name!r}"
        self.flows[flow.name] = flow
        return flow


def is_stored(node: graph.Node) -> bool:
    """Whether a table has a store of its own, which the user asked for."""
    spec = node.store or graph.StoreSpec()
    return spec.name is not None or spec.history_retention is not None


def is_kept_below(builder: PlanBuilder, table: graph.Node) -> bool:
    """Whether a join keeps ``table`` by the hash of its key, and no other operator reads its net changes."""
    if table.name in builder.wants_old:
        return False
    reads = [
        (child, side)
        for child in builder.topology.children(table.name)
        for side, parent in enumerate(child.parents)
        if parent == table.name
    ]
    kept = [child.keeps(side) for child, side in reads]
    return any(kept) and all(
        keeps or _needs_no_store(builder, table, *read) for keeps, read in zip(kept, reads, strict=True)
    )


def _needs_no_store(builder: PlanBuilder, table: graph.Node, child: graph.Node, side: int) -> bool:
    """Whether a reader takes records without a store: it remembers their foreign keys."""
    return side == 0 and child.by_foreign_key and not table.upserts_stream and not builder.versioned(table)
