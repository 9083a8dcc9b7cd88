"""From the graph to rounds: which operator runs in which round, which stores it has, what is re-keyed.

Round 0 reads the sources. Every later round is one shuffle and one pass over its state partitions. A
*flow* is what one step hands to others; a flow that is needed in a later round, or by another key, is
*exchanged*: its rows go to the state partition of their key. Exchanges over several rounds travel as they
are, opened only where they are needed.

Each table is materialised in the round where a join looks it up; a table looked up in two rounds has two
stores. The left side of a foreign-key join is not kept at all: its round remembers the foreign keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from crossstream.algebra.functions import Function
from crossstream.serdes import Serde
from crossstream.serdes.internal import pickled
from crossstream.state.run import Layout
from crossstream.topology.graph import (
    Branch,
    Filter,
    FlatMap,
    ForeignKeyJoin,
    FrameSink,
    FrameSource,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Repartition,
    SelectKey,
    Sink,
    Source,
    Split,
    StoreSpec,
    TableJoin,
    Topology,
    ToStream,
    ToTable,
)

KEY_VALUE = Layout("key-value", (("value", "bytes"), ("ts", "int64")))
VERSIONED = Layout("versioned", (("value", "bytes"),), sort="int64")
REFERENCES = Layout("references", (("reference", "bytes"), ("ts", "int64")))
SUBSCRIPTIONS = Layout("subscriptions", (("value", "bytes"), ("ts", "int64")), sort="uint64", second_key=True)

Partitioner = Callable[[Any, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDef:
    """A store of the plan. ``public``: the user's name for it, None if it is not queryable."""

    name: str
    layout: Layout
    round: int
    key: Serde
    value: Serde
    public: str | None = None
    history: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows that steps hand on: the serdes of key and value, the round they are made in.

    Keys or values that a function of the user made have the engine's own serde. ``routed``: rows are already
    in the state partition of their key.
    """

    name: str
    round: int
    key: Serde
    value: Serde
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """A flow that goes to the state partitions of ``to_round``, where it is called ``arrives``.

    Rows travel in the serdes that the operator ``node``, which wants them, keeps them in: the bytes of the key
    decide the partition. ``partitioner``: KIP-775, else the hash of the key decides.
    """

    flow: str
    to_round: int
    arrives: str
    node: str
    key: Serde
    value: Serde
    partitioner: Partitioner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operator in a round: ``inputs`` are flows, ``output`` the flow it makes (if any)."""

    node: str
    round: int
    inputs: tuple[str, ...]
    output: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStep(Step):
    """Records of a source; ``form``: what the first reader wants values decoded to.

    ``fields``: of a struct without declared type, those that the readers' expressions name; None: all.
    """

    form: str | None = None
    fields: frozenset[str] | None = None
    table: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatelessStep(Step):
    """filter, map, … on a stream; filter and map_values on a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep(Step):
    """Adds the serialised foreign key of each row as the extra column ``column``."""

    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeStep(Step):
    """Keeps a table in a store and yields its net changes; ``old``: with the values before.

    ``counts``: this is the store that counts refused rows, where a table has several. ``admit``: null keys are
    refused here, and counted under this reason.
    """

    store: str
    old: bool = False
    admit: str | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoinStep(Step):
    """Primary-key join; ``stores``: of the left and the right table."""

    stores: tuple[str, str]
    old: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeStep(Step):
    """First half of a foreign-key join, keyed by the primary key. ``answers``: flow of rows without foreign key."""

    store: str
    column: str
    answers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveStep(Step):
    """Second half, keyed by the foreign key: inputs are subscriptions, answers and right changes."""

    subscriptions: str
    right_store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkStep(Step):
    """Writes a flow to its topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSinkStep(Step):
    """Sends a flow to the driver, which makes a DataFrame of it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything an engine needs to run a topology, round by round."""

    topology: Topology
    steps: tuple[Step, ...]
    flows: dict[str, Flow]
    exchanges: tuple[Exchange, ...]
    stores: dict[str, StoreDef]

    @classmethod
    def of(cls, topology: Topology) -> Plan:
        """The plan of a finished topology."""
        return _Planner(topology).plan()

    @property
    def rounds(self) -> int:
        """Number of rounds, the reading one included."""
        return 1 + max((step.round for step in self.steps), default=0)

    def shipped(self) -> Plan:
        """The plan as workers get it: without what belongs to the driver alone."""
        nodes = {
            node.name: replace(node, function=None) if isinstance(node, FrameSink) else node
            for node in self.topology
        }
        return replace(self, topology=Topology(nodes))

    def in_round(self, number: int) -> list[Step]:
        return [step for step in self.steps if step.round == number]

    def fingerprint(self) -> dict[str, str]:
        """For each store what must stay the same for its state to be usable: kind, serdes, history."""
        return {
            store.name: f"{store.layout.kind}/{store.key.name}/{store.value.name}/{store.history}"
            for store in self.stores.values()
        }

    def digest(self) -> str:
        text = repr(sorted(self.fingerprint().items())) + repr(
            [(s.node, s.round, s.inputs) for s in self.steps]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def text(self, partitions: int | None = None) -> str:
        """The rounds, stores and re-keyings, for people."""
        lines = []
        for number in range(self.rounds):
            tasks = "one task for each share of the source partitions" if number == 0 else _tasks(partitions)
            lines.append(f"Round {number}: {tasks}")
            for step in self.in_round(number):
                kind = type(step).__name__.removesuffix("Step").lower()
                read = f" <- {', '.join(step.inputs)}" if step.inputs else ""
                lines.append(f"  {kind} {step.node}{read}")
                lines.extend(
                    f"    store {name} ({self.stores[name].layout.kind})" for name in _stores_of(step)
                )
            for exchange in self.exchanges:
                if self.flows[exchange.flow].round == number:
                    by = "partitioner" if exchange.partitioner else "hash of its key"
                    lines.append(f"  shuffle {exchange.flow} -> round {exchange.to_round}, by {by}")
        return "\n".join(lines) + "\n"


def _tasks(partitions: int | None) -> str:
    return "one task for each state partition" if partitions is None else f"{partitions} tasks"


def _stores_of(step: Step) -> list[str]:
    if isinstance(step, MaterializeStep | SubscribeStep):
        return [step.store]
    return [step.subscriptions] if isinstance(step, ResolveStep) else []


@dataclass(slots=True)
class _Planner:
    topology: Topology
    steps: list[Step] = field(default_factory=list)
    flows: dict[str, Flow] = field(default_factory=dict)
    changes: dict[str, Flow] = field(default_factory=dict)
    """The flow that readers of a node read."""
    raw: dict[str, Flow] = field(default_factory=dict)
    """The flow that a table is materialised from."""
    exchanges: dict[tuple[str, int, Partitioner | None, str, str], Exchange] = field(default_factory=dict)
    stores: dict[str, StoreDef] = field(default_factory=dict)
    tables: dict[tuple[str, int, Partitioner | None], MaterializeStep] = field(default_factory=dict)
    wants_old: set[str] = field(default_factory=set)

    def plan(self) -> Plan:
        for node in reversed(list(self.topology)):
            self._ask_old(node)
        for node in self.topology:
            self._place(node)
        return Plan(self.topology, tuple(self.steps), self.flows, tuple(self.exchanges.values()), self.stores)

    def _ask_old(self, node: Node) -> None:
        """A filter wants to know what its parent's row was; row-wise operators pass the wish on."""
        if node.shape != "table":
            return
        asks = isinstance(node, Filter) or (isinstance(node, MapValues) and node.name in self.wants_old)
        if asks and not self._versioned(node):
            self.wants_old.update(node.parents)

    def _versioned(self, node: Node) -> bool:
        """Whether a table keeps versions, itself or the table it is derived from row by row."""
        spec: StoreSpec | None = getattr(node, "store", None)
        if spec is not None and spec.history_retention is not None:
            return True
        if isinstance(node, Filter | MapValues) and spec is None and node.shape == "table":
            return self._versioned(self.topology[node.parents[0]])
        return False

    # -- placing -------------------------------------------------------------------------------------

    def _place(self, node: Node) -> None:
        if isinstance(node, Source | FrameSource):
            self._place_source(node)
        elif isinstance(node, ToTable):
            self._place_table(node, self._flow(node.parents[0]))
        elif isinstance(node, TableJoin):
            self._place_table_join(node)
        elif isinstance(node, ForeignKeyJoin):
            self._place_foreign_key_join(node)
        elif isinstance(node, Repartition):
            self._place_repartition(node)
        elif isinstance(node, Merge):
            self._place_merge(node)
        elif isinstance(node, Sink | FrameSink):
            parent = self._flow(node.parents[0])
            step = SinkStep if isinstance(node, Sink) else FrameSinkStep
            self.steps.append(step(node=node.name, round=parent.round, inputs=(parent.name,)))
        else:
            self._place_stateless(node)

    def _place_source(self, node: Source | FrameSource) -> None:
        is_table = node.shape == "table"
        raw = f"{node.name}.records" if is_table else node.name
        flow = self._flow_of(node, raw, 0)
        self.steps.append(
            ReadStep(
                node=node.name,
                round=0,
                inputs=(),
                output=raw,
                table=is_table,
                form=self._form(node),
                fields=self._fields(node),
            )
        )
        if is_table:
            self._place_table(node, self._refer(node, flow))

    def _refer(self, node: Node, flow: Flow) -> Flow:
        """Foreign keys of unversioned source tables are taken while reading, decoded once (decision 0008)."""
        if self._versioned(node):
            return flow
        for child in self._foreign_key_children(node):
            flow = self._reference_step(child, flow)
        return flow

    def _reference_step(self, join: ForeignKeyJoin, flow: Flow) -> Flow:
        out = self._add(replace(flow, name=f"{flow.name}+{join.name}"))
        self.steps.append(
            ReferenceStep(
                node=join.name,
                round=flow.round,
                inputs=(flow.name,),
                output=out.name,
                column=f"fk {join.name}",
            )
        )
        return out

    def _foreign_key_children(self, node: Node) -> list[ForeignKeyJoin]:
        return [
            child
            for child in self.topology.children(node.name)
            if isinstance(child, ForeignKeyJoin) and child.parents[0] == node.name
        ]

    def _form(self, node: Node) -> str | None:
        """How the first reader of a source's values wants them, so that checking them is the decoding."""
        for function in self._readers(node):
            return "objects" if function.expression is None else "series"
        return None

    def _fields(self, node: Node) -> frozenset[str] | None:
        """The fields that the expressions over a source's values name; None: they want values whole."""
        names = {name for function in self._readers(node) for name in function.columns} - {"key", "timestamp"}
        return None if "value" in names or not names else frozenset(names)

    def _readers(self, node: Node) -> list[Function]:
        """The functions over single values that read a node directly, the first to run first."""
        found: list[Function | None] = []
        extractor = getattr(node, "timestamp_extractor", None)
        if extractor is not None:
            found.append(Function.of(extractor, arguments=3))
        for child in self.topology.children(node.name):
            if child.parents[0] == node.name:
                found.append(getattr(child, "foreign_key", None))
            found += [getattr(child, "predicate", None), getattr(child, "mapper", None)]
        return [function for function in found if function is not None]

    def _place_table(self, node: Source | FrameSource | ToTable, raw: Flow) -> None:
        """A table from records: materialised now if its own changes are wanted, else where it is joined."""
        self.raw[node.name] = raw
        spec = node.store
        named = spec is not None and (spec.name is not None or spec.history_retention is not None)
        row_wise = any(isinstance(c, Filter | MapValues) for c in self.topology.children(node.name))
        if named or row_wise or node.name in self.wants_old or isinstance(node, ToTable):
            step = self._materialize(node, self._earliest(raw), None)
            self.changes[node.name] = self.flows[step.output or ""]
        else:
            self.changes[node.name] = raw

    def _earliest(self, flow: Flow) -> int:
        """The first round in which rows of a flow can be in the state partition of their key."""
        return max(1, flow.round if flow.routed else flow.round + 1)

    def _source_of(self, table: Node) -> Flow:
        """What a table is materialised from: its records, or the changes its operator makes."""
        return self.raw.get(table.name) or self._flow(table.name)

    def _materialize(self, table: Node, number: int, partitioner: Partitioner | None) -> MaterializeStep:
        """The step that keeps ``table`` in round ``number``; made when first asked for."""
        if (table.name, number, partitioner) in self.tables:
            return self.tables[table.name, number, partitioner]
        spec: StoreSpec = getattr(table, "store", None) or StoreSpec()
        source = self._source_of(table)
        key, value = spec.key or table.key or source.key, spec.value or table.value or source.value
        flow = self._arrive(replace(source, key=key, value=value), number, table, partitioner)
        first = not any(name == table.name for name, _, _ in self.tables)
        public = spec.name if first else None
        name = public or _unique(f"{table.name}@{number}", self.stores)
        versioned = spec.history_retention is not None
        store = StoreDef(
            name=name,
            layout=VERSIONED if versioned else KEY_VALUE,
            round=number,
            key=key,
            value=value,
            public=public,
            history=spec.history_retention,
        )
        self.stores[name] = store
        name = f"{name} changes"
        out = self._add(Flow(name, number, store.key, store.value, partitioner is None))
        step = MaterializeStep(
            node=table.name,
            round=number,
            inputs=(flow,),
            output=out.name,
            store=store.name,
            old=table.name in self.wants_old,
            admit=self._refusal(table),
            counts=first,
        )
        self.tables[table.name, number, partitioner] = step
        self.steps.append(step)
        return step

    def _refusal(self, table: Node) -> str | None:
        """Under which reason a stream that becomes a table counts null keys (semantics 8.19)."""
        if not isinstance(table, ToTable):
            return None
        return "null-key-repartition" if self._re_keyed(table.parents[0]) else "null-key"

    def _re_keyed(self, name: str) -> bool:
        """Whether the key of a stream may have changed since it was last moved to the partition of its key."""
        node = self.topology[name]
        if isinstance(node, Map | FlatMap | SelectKey) or (
            isinstance(node, ToStream) and node.mapper is not None
        ):
            return True
        if isinstance(node, Repartition) or node.shape == "table":
            return False
        return any(self._re_keyed(parent) for parent in node.parents)

    def _arrive(self, flow: Flow, number: int, node: Node, partitioner: Partitioner | None = None) -> str:
        """Makes a flow available to ``node`` in a round, in the state partition of its key.

        ``flow`` has the serdes that its rows are to arrive with.
        """
        if flow.round == number and flow.routed and partitioner is None:
            return flow.name
        place = (flow.name, number, partitioner, flow.key.name, flow.value.name)
        if place not in self.exchanges:
            arrives = f"{flow.name}>{number}" + (
                "" if partitioner is None else f" by {_name_of(partitioner)}"
            )
            arrives = _unique(arrives, {exchange.arrives: exchange for exchange in self.exchanges.values()})
            self.exchanges[place] = Exchange(
                flow.name, number, arrives, node.name, flow.key, flow.value, partitioner
            )
        return self.exchanges[place].arrives

    def _place_table_join(self, node: TableJoin) -> None:
        left, right = (self.topology[name] for name in node.parents)
        number = max(self._earliest(self._source_of(left)), self._earliest(self._source_of(right)))
        sides = [self._materialize(side, number, None) for side in (left, right)]
        out = self._flow_of(node, node.name, number, True)
        old = node.name in self.wants_old
        self.steps.append(
            TableJoinStep(
                node=node.name,
                round=number,
                inputs=tuple(side.output or "" for side in sides),
                output=out.name,
                stores=(sides[0].store, sides[1].store),
                old=old,
            )
        )
        self._keep(node)

    def _place_foreign_key_join(self, node: ForeignKeyJoin) -> None:
        left, right = (self.topology[name] for name in node.parents)
        flow = self._left_of(node, left)
        first = self._earliest(flow) if node.partitioner is None else max(1, flow.round + 1)
        arrived = self._arrive(flow, first, node, node.partitioner)
        second = max(first + 1, self._earliest(self._source_of(right)))
        if node.other_partitioner is not None:
            second = max(second, self._source_of(right).round + 1)
        table = self._materialize(right, second, node.other_partitioner)
        column = f"fk {node.name}"
        references = StoreDef(
            name=_unique(f"{node.name}.references", self.stores),
            layout=REFERENCES,
            round=first,
            key=flow.key,
            value=right.key or pickled(),
        )
        self.stores[references.name] = references
        value = flow.value
        subscriptions = self._add(Flow(f"{node.name}.subscriptions", first, references.value, value))
        answers = self._add(Flow(f"{node.name}.answers", first, flow.key, value))
        self.steps.append(
            SubscribeStep(
                node=node.name,
                round=first,
                inputs=(arrived,),
                output=subscriptions.name,
                store=references.name,
                column=column,
                answers=answers.name,
            )
        )
        store = StoreDef(
            name=_unique(f"{node.name}.subscriptions", self.stores),
            layout=SUBSCRIPTIONS,
            round=second,
            key=references.value,
            value=value,
        )
        self.stores[store.name] = store
        out = self._flow_of(node, node.name, second)
        self.steps.append(
            ResolveStep(
                node=node.name,
                round=second,
                inputs=(
                    self._arrive(subscriptions, second, node, node.other_partitioner),
                    self._arrive(answers, second, node),
                    table.output or "",
                ),
                output=out.name,
                subscriptions=store.name,
                right_store=table.store,
            )
        )
        self._keep(node)

    def _left_of(self, node: ForeignKeyJoin, left: Node) -> Flow:
        """The left changes with their foreign keys: taken while reading, or added where the changes are made."""
        source = self.raw.get(left.name)
        if source is not None and node.name in source.name.split("+"):
            return source
        if source is not None or self._versioned(left):
            step = self._materialize(left, self._earliest(self._source_of(left)), None)
            return self._reference_step(node, self.flows[step.output or ""])
        return self._reference_step(node, self._flow(left.name))

    def _keep(self, node: TableJoin | ForeignKeyJoin | Filter | MapValues) -> None:
        """Materialises a result that is queryable, or whose old values somebody asks for."""
        asked = isinstance(node, ForeignKeyJoin) and node.name in self.wants_old
        if node.store is None and not asked:
            return
        if (
            node.store is not None
            and node.store.name is None
            and node.store.history_retention is None
            and not asked
        ):
            return
        step = self._materialize(node, self._earliest(self.flows[node.name]), None)
        self.raw[node.name] = self.flows[node.name]
        self.changes[node.name] = self.flows[step.output or ""]

    def _place_repartition(self, node: Repartition) -> None:
        parent = self._flow(node.parents[0])
        number = parent.round + 1
        moved = replace(parent, key=node.key or parent.key, value=node.value or parent.value, routed=False)
        arrived = self._arrive(moved, number, node, node.partitioner)
        self._add(replace(moved, name=node.name, round=number, routed=node.partitioner is None))
        self.steps.append(StatelessStep(node=node.name, round=number, inputs=(arrived,), output=node.name))

    def _place_merge(self, node: Merge) -> None:
        flows = [self._flow(name) for name in node.parents]
        number = max(flow.round for flow in flows)
        inputs = tuple(
            flow.name if flow.round == number else self._arrive(flow, number, node) for flow in flows
        )
        routed = all(flow.routed for flow in flows)
        self._flow_of(node, node.name, number, routed)
        self.steps.append(StatelessStep(node=node.name, round=number, inputs=inputs, output=node.name))

    def _place_stateless(self, node: Node) -> None:
        if isinstance(node, Split):
            parent = self._flow(node.parents[0])
            self._add(replace(parent, name=node.name))
            self.steps.append(
                StatelessStep(node=node.name, round=parent.round, inputs=(parent.name,), output=node.name)
            )
            return
        parent = self._flow(node.parents[0])
        same_key = isinstance(node, Filter | MapValues | Peek | Branch | ToStream) and not (
            isinstance(node, ToStream) and node.mapper is not None
        )
        self._flow_of(node, node.name, parent.round, parent.routed and same_key)
        self.steps.append(
            StatelessStep(node=node.name, round=parent.round, inputs=(parent.name,), output=node.name)
        )
        if isinstance(node, Filter | MapValues) and node.shape == "table":
            self._keep(node)

    def _flow(self, name: str) -> Flow:
        return self.changes.get(name) or self.flows[name]

    def _flow_of(self, node: Node, name: str, number: int, routed: bool = False) -> Flow:
        """A new flow with the serdes of a node's output."""
        return self._add(Flow(name, number, node.key or pickled(), node.value or pickled(), routed))

    def _add(self, flow: Flow) -> Flow:
        self.flows[flow.name] = flow
        return flow


def _unique(name: str, taken: dict[str, Any]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _name_of(partitioner: Partitioner) -> str:
    return f"{getattr(partitioner, '__qualname__', type(partitioner).__qualname__)} {id(partitioner):x}"
