"""The plan of a topology: which operator runs in which round, which stores it has, what is re-keyed.

Round 0 reads the sources. Every later round is one shuffle and one pass over its state partitions. A *flow* is the
output of a step. A flow that is needed in a later round, or by another key, is *exchanged*: its rows go to the state
partition of their key. A flow that skips rounds travels packed, and only its target opens it.

Each table is kept in the round where a join looks it up; a table that is looked up in two rounds has two stores. The
left side of a foreign-key join is not kept: its round remembers the foreign keys only.

Global tables have a plan of their own, the `global_stage`. It runs before the rounds of a batch, so every task of
every round may look them up.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import Any

from crossstream.columns.changes import reference
from crossstream.graph.nodes import FrameSink, Graph
from crossstream.planning.steps import (
    AggregateStep,
    AnswerManyStep,
    GlobalResolveStep,
    GlobalStep,
    MaterializeStep,
    ReadStep,
    ReferManyStep,
    ResolveManyStep,
    ResolveStep,
    Step,
    StreamStreamJoinStep,
    SubscribeStep,
)
from crossstream.serdes import Serde
from crossstream.storage.sorted_run import Layout

KEY_VALUE = Layout("key-value", (("value", "bytes"), ("ts", "int64")))
VERSIONED = Layout("versioned", (("value", "bytes"),), sort="int64")
SUBSCRIPTIONS_HEADERS = Layout(
    "subscriptions+headers",
    (("value", "bytes"), ("ts", "int64"), ("headers", "bytes")),
    sort="uint64",
    second_key=True,
)
KEY_VALUE_HEADERS = Layout("key-value+headers", (("value", "bytes"), ("ts", "int64"), ("headers", "bytes")))
VERSIONED_HEADERS = Layout("versioned+headers", (("value", "bytes"), ("headers", "bytes")), sort="int64")
"""Rows with their headers, where a join gives them to its results."""
REFERENCES = Layout("references", (("reference", "bytes"), ("ts", "int64")))
REFERRERS = Layout("referrers", (("count", "int64"),))
INDEX = Layout("index", (), sort="uint64", second_key=True)
INTERESTED = Layout("interested", (), sort="uint64", second_key=True)
SUBSCRIPTIONS = Layout("subscriptions", (("value", "bytes"), ("ts", "int64")), sort="uint64", second_key=True)
WINDOWED = Layout("windowed", (("value", "bytes"), ("ts", "int64")), sort="int64")
"""Aggregates by key and start of the window."""
WINDOW = Layout(
    "window", (("value", "bytes"), ("headers", "bytes"), ("alone", "uint8")), sort="int64", numbered=True
)
WAITING = Layout("waiting", (("side", "uint8"),), sort="int64", numbered=True)
BUFFER = Layout("buffer", (("value", "bytes"), ("headers", "bytes")), sort="int64", numbered=True)

Partitioner = Callable[[Any, int], int]


def many_references(names: Sequence[str]) -> Layout:
    """The foreign keys of a row into several tables."""
    return Layout(f"references({','.join(names)})", tuple((reference(name), "bytes") for name in names))


def many_rows(names: Sequence[str]) -> Layout:
    """Rows, with their foreign keys into several tables."""
    references = tuple((reference(name), "bytes") for name in names)
    return Layout(f"rows({','.join(names)})", (("value", "bytes"), ("ts", "int64"), *references))


def layout_of(kind: str) -> Layout | None:
    """The layout of a kind of store; None for an unknown kind."""
    found = re.fullmatch(r"(references|rows)\(([\w,]+)\)", kind)
    if found is not None:
        names = found[2].split(",")
        return many_references(names) if found[1] == "references" else many_rows(names)
    return next((one for one in globals().values() if isinstance(one, Layout) and one.kind == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDef:
    """A store of the plan. ``public``: the name under which it can be queried.

    ``derived``: made from other stores, and rebuilt from them when the number of partitions changes. ``by_key2``: a row
    is in the state partition of its second key. ``results``: holds results of an operator, so the last version put is
    the newest. ``repeats``: keeps a tombstone of a missing row as a version. ``window_size``: of the windows (ms) whose
    starts it has beside its keys.
    """

    name: str
    layout: Layout
    round: int
    key: Serde
    value: Serde
    public: str | None = None
    history: int | None = None
    derived: bool = False
    results: bool = False
    repeats: bool = True
    by_key2: bool = False
    window_size: int | None = None


@dataclass(frozen=True, slots=True)
class ViewDef:
    """A view over two global tables. ``node``: its operator; ``left``, ``right``: names of stores, or of other views.

    ``value``: the serde of its rows.
    """

    node: str
    left: str
    right: str
    value: Serde


@dataclass(frozen=True, slots=True)
class Flow:
    """The output of a step: the serdes of key and value, and the round.

    Keys or values that a function made without a serde have the engine's own. ``routed``: rows are in the state
    partition of their key.
    """

    name: str
    round: int
    key: Serde
    value: Serde
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """A flow that goes to the state partitions of ``to_round``, where it is called ``arrives``.

    Rows travel in the serdes of their reader, the operator ``node``; the bytes of the key decide the partition.
    ``partitioner``: decides the partition instead of the hash (KIP-775). ``partition_column``: the extra column
    with the partition of each row. ``stays``: rows are in the state partition of their key already. ``columns``:
    decoded fields that travel with the values. ``undecoded``: the step that read the rows, if the task they arrive
    in decodes the values.
    """

    flow: str
    to_round: int
    arrives: str
    node: str
    key: Serde
    value: Serde
    partitioner: Partitioner | None = None
    partition_column: str | None = None
    stays: bool = False
    columns: frozenset[str] = frozenset()
    undecoded: ReadStep | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """The parts of a plan in one round.

    ``leaving``: the exchanges of each flow, with their numbers. ``derived``: stores that are made from others.
    ``probes_global``: whether a change of a global table alone gives work.
    """

    steps: tuple[Step, ...]
    leaving: Mapping[str, tuple[tuple[int, Exchange], ...]]
    derived: tuple[str, ...]
    probes_global: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything an engine needs to run a topology, round by round. ``sources``: the nodes that round 0 reads."""

    topology: Graph
    steps: tuple[Step, ...]
    flows: dict[str, Flow]
    exchanges: tuple[Exchange, ...]
    stores: dict[str, StoreDef]
    global_stage: Plan | None = None
    views: Mapping[str, ViewDef] = field(default_factory=dict)
    parts: tuple[Round, ...] = field(init=False, compare=False)
    sources: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        rounds = 1 + max((step.round for step in self.steps), default=0)
        sources = frozenset(step.node for step in self.steps if isinstance(step, ReadStep))
        object.__setattr__(self, "parts", tuple(map(self._part, range(rounds))))
        object.__setattr__(self, "sources", sources)

    def _part(self, number: int) -> Round:
        steps = tuple(step for step in self.steps if step.round == number)
        leaving: dict[str, tuple[tuple[int, Exchange], ...]] = {}
        for index, exchange in enumerate(self.exchanges):
            if self.flows[exchange.flow].round == number:
                leaving[exchange.flow] = (*leaving.get(exchange.flow, ()), (index, exchange))
        derived = tuple(
            store.name for store in self.stores.values() if store.derived and store.round == number
        )
        probes_global = any(isinstance(step, GlobalResolveStep) for step in steps)
        return Round(steps, leaving, derived, probes_global)

    @property
    def rounds(self) -> int:
        """Number of rounds, the reading one included."""
        return len(self.parts)

    @property
    def reacting(self) -> frozenset[str]:
        """The stores whose rows get new results when a global table changes."""
        return frozenset(step.subscriptions for step in self.steps if isinstance(step, GlobalResolveStep))

    def shipped(self) -> Plan:
        """The plan for the workers: without the functions that only the driver calls."""
        nodes = {
            node.name: replace(node, function=None) if isinstance(node, FrameSink) else node
            for node in self.topology
        }
        topology = Graph(nodes)
        stage = None if self.global_stage is None else replace(self.global_stage, topology=topology)
        return replace(self, topology=topology, global_stage=stage)

    @property
    def derived(self) -> tuple[str, ...]:
        """The stores that are made from others."""
        return tuple(sorted(store.name for store in self.stores.values() if store.derived))

    @property
    def by_key2(self) -> tuple[str, ...]:
        """The stores whose rows are in the state partition of their second key."""
        return tuple(sorted(store.name for store in self.stores.values() if store.by_key2))

    @property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """The stores that keep copies of rows of several tables, with the stores of these tables by number."""
        return {
            step.right_rows: step.right_stores for step in self.steps if isinstance(step, ResolveManyStep)
        }

    def fingerprint(self) -> dict[str, str]:
        """The properties of each store that its state depends on: kind, serdes, history."""
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
        if self.global_stage is not None:
            lines.append(f"Before, where a global table changed:\n{self.global_stage.text(partitions)}")
        for number, part in enumerate(self.parts):
            tasks = "one task for each share of the source partitions" if number == 0 else _tasks(partitions)
            lines.append(f"Round {number}: {tasks}")
            for step in part.steps:
                kind = type(step).__name__.removesuffix("Step").lower()
                read = f" <- {', '.join(step.inputs)}" if step.inputs else ""
                lines.append(f"  {kind} {step.node}{read}")
                lines.extend(
                    f"    store {name} ({self.stores[name].layout.kind})" for name in _stores_of(step)
                )
            lines.extend(
                f"  shuffle {exchange.flow} -> round {exchange.to_round}, {_way(exchange)}"
                for _, exchange in sorted(chain.from_iterable(part.leaving.values()), key=itemgetter(0))
            )
        return "\n".join(lines) + "\n"


def _tasks(partitions: int | None) -> str:
    return "one task for each state partition" if partitions is None else f"{partitions} tasks"


def _way(exchange: Exchange) -> str:
    if exchange.stays:
        return "staying in its partition"
    if exchange.partition_column is not None:
        return "back to who asked"
    return "by partitioner" if exchange.partitioner else "by hash of its key"


def _stores_of(step: Step) -> list[str]:
    if isinstance(step, AggregateStep | MaterializeStep | SubscribeStep | GlobalStep):
        return [step.store]
    if isinstance(step, StreamStreamJoinStep):
        return [*step.stores] if step.waiting is None else [*step.stores, step.waiting]
    if isinstance(step, ResolveStep):
        return [step.subscriptions] if step.referrers is None else [step.subscriptions, step.referrers]
    if isinstance(step, GlobalResolveStep):
        return [step.subscriptions]
    if isinstance(step, ReferManyStep):
        return [step.references, step.counts]
    if isinstance(step, AnswerManyStep):
        return [step.subscribers]
    return [step.rows, step.referrers, step.right_rows] if isinstance(step, ResolveManyStep) else []
