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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import Any

from crossstream.columns.stream_time import Counts
from crossstream.graph.nodes import FrameSink, Graph, Node, TableSink
from crossstream.planning.layouts import read_as
from crossstream.planning.steps import (
    ExpireStep,
    GlobalResolveStep,
    MaterializeStep,
    ReadStep,
    ResolveManyStep,
    Step,
)
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.sorted_run import Layout

Partitioner = Callable[[Any, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDef:
    """A store of the plan. ``public``: the name under which it can be queried.

    ``derived``: made from other stores, and rebuilt from them when the number of partitions changes. ``by_key2``: a row
    is in the state partition of its second key. ``anywhere``: a row is where the processor is that put it.
    ``results``: holds results of an operator, so the last version put is the newest. ``repeats``: keeps a tombstone of
    a missing row as a version. ``window_size``: of the windows (ms) whose starts it has beside its keys.
    ``remembered``: how long (ms) rows are still there, and not shown, when they have expired. ``begins_empty``: also
    beside state of a version that did not have it. ``spread``: rows of a hot key are in the state partitions of their
    second keys (decision 0053). ``copies``: it has copies of the rows of hot keys, in every state partition: the store
    whose keys are hot, and the one with the rows.
    """

    name: str
    layout: Layout
    round: int
    key: EngineSerde
    value: EngineSerde
    public: str | None = None
    history: int | None = None
    derived: bool = False
    results: bool = False
    repeats: bool = True
    by_key2: bool = False
    anywhere: bool = False
    window_size: int | None = None
    remembered: int = 0
    begins_empty: bool = False
    spread: bool = False
    copies: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ViewDef:
    """A view over two global tables. ``node``: its operator; ``left``, ``right``: names of stores, or of other views.

    ``value``: the serde of its rows.
    """

    node: str
    left: str
    right: str
    value: EngineSerde


@dataclass(frozen=True, slots=True)
class Flow:
    """The output of a step: the serdes of key and value, and the round.

    Keys or values that a function made without a serde have the engine's own. ``routed``: rows are in the state
    partition of their key.
    """

    name: str
    round: int
    key: EngineSerde
    value: EngineSerde
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Exchange:
    """A flow that goes to the state partitions of ``to_round``, where it is called ``arrives``.

    Rows travel in the serdes of their reader, the operator ``node``; the bytes of the key decide the partition.
    ``partitioner``: decides the partition instead of the hash (KIP-775). ``partition_column``: the extra column
    with the partition of each row. ``stays``: rows are in the state partition of their key already. ``columns``:
    decoded fields that travel with the values. ``undecoded``: the step that read the rows, if the task they arrive
    in decodes the values. ``old``: the values before the changes travel, too. ``spread``: a store; rows of keys that
    are hot in it go to the state partition of their ``second`` key, a column, or without one to every state partition,
    and then the others do not go at all.
    """

    flow: str
    to_round: int
    arrives: str
    node: str
    key: EngineSerde
    value: EngineSerde
    partitioner: Partitioner | None = None
    partition_column: str | None = None
    stays: bool = False
    columns: frozenset[str] = frozenset()
    undecoded: ReadStep | None = None
    old: bool = False
    spread: str | None = None
    second: str | None = None

    @property
    def copies(self) -> bool:
        """Whether it carries rows of hot keys alone, to every state partition."""
        return self.spread is not None and self.second is None

    @property
    def way(self) -> str:
        """Where rows go, for people."""
        if self.stays:
            return "staying in its partition"
        if self.partition_column is not None:
            return "back to who asked"
        return "by partitioner" if self.partitioner else "by hash of its key"


@dataclass(frozen=True, slots=True)
class Feed:
    """Rows that move stream time: the name behind the exchange that they come through, and which of them count.

    ``tick``: stream time goes in steps of so many ms. The longer they are, the fewer rows are reported.
    """

    arrives: str
    counts: Counts
    tick: int = 1


@dataclass(frozen=True, slots=True)
class Timed:
    """What moves the stream time of a store: rows that come through exchanges, of records of these source nodes."""

    feeds: tuple[Feed, ...]
    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class Round:
    """The parts of a plan in one round.

    ``leaving``: the exchanges of each flow, with their numbers. ``derived``: stores that are made from others, in their
    first batch. ``timers``: stores of timers, which fire without records. ``probes_global``: whether a change of a
    global table alone gives work. ``spread``: stores that spread the rows of hot keys.
    """

    steps: tuple[Step, ...]
    leaving: Mapping[str, tuple[tuple[int, Exchange], ...]]
    derived: tuple[str, ...]
    probes_global: bool
    timers: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything an engine needs to run a topology, round by round. ``sources``: the nodes that round 0 reads.

    ``timers``: the stores of timers; the ``clock`` of their versions is the time at which the next one fires.
    ``timed``: of the stores with a stream time, what moves it; ``feeds``: all that moves that of some store;
    ``fed_by``: their numbers, by exchange. ``announced``: the sources whose readers say in all state partitions what
    they saw, with the round in which it is heard.
    """

    topology: Graph
    steps: tuple[Step, ...]
    flows: dict[str, Flow]
    exchanges: tuple[Exchange, ...]
    stores: dict[str, StoreDef]
    global_stage: Plan | None = None
    views: Mapping[str, ViewDef] = field(default_factory=dict)
    timed: Mapping[str, Timed] = field(default_factory=dict)
    feeds: tuple[Feed, ...] = field(init=False, compare=False)
    fed_by: Mapping[str, tuple[int, ...]] = field(init=False, compare=False)
    announced: tuple[tuple[str, int], ...] = field(init=False, compare=False)
    parts: tuple[Round, ...] = field(init=False, compare=False)
    sources: frozenset[str] = field(init=False, compare=False)
    timers: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        rounds = 1 + max((step.round for step in self.steps), default=0)
        feeds = dict.fromkeys(feed for one in self.timed.values() for feed in one.feeds)
        object.__setattr__(self, "feeds", tuple(feeds))
        fed_by: dict[str, tuple[int, ...]] = {}
        for number, feed in enumerate(feeds):
            fed_by[feed.arrives] = (*fed_by.get(feed.arrives, ()), number)
        object.__setattr__(self, "fed_by", fed_by)
        announced = tuple((step.node, step.round) for step in self.steps if step.hears_of_snapshots)
        object.__setattr__(self, "announced", announced)
        sources = frozenset(step.node for step in self.steps if isinstance(step, ReadStep))
        object.__setattr__(self, "parts", tuple(map(self._part, range(rounds))))
        object.__setattr__(self, "sources", sources)
        timers = frozenset(name for part in self.parts for name in part.timers)
        object.__setattr__(self, "timers", timers)

    def _part(self, number: int) -> Round:
        steps = tuple(step for step in self.steps if step.round == number)
        leaving: dict[str, tuple[tuple[int, Exchange], ...]] = {}
        for index, exchange in enumerate(self.exchanges):
            if self.flows[exchange.flow].round == number:
                leaving[exchange.flow] = (*leaving.get(exchange.flow, ()), (index, exchange))
        here = [store for store in self.stores.values() if store.round == number]
        derived = tuple(store.name for store in here if store.derived and store.copies is None)
        probes_global = any(isinstance(step, GlobalResolveStep) for step in steps)
        timers = tuple(step.timer for step in steps if step.timer is not None)
        spread = tuple(store.name for store in here if store.spread)
        return Round(steps, leaving, derived, probes_global, timers, spread)

    @property
    def rounds(self) -> int:
        """Number of rounds, the reading one included."""
        return len(self.parts)

    @property
    def reacting(self) -> frozenset[str]:
        """The stores whose rows get new results when a global table changes."""
        return frozenset(step.subscriptions for step in self.steps if isinstance(step, GlobalResolveStep))

    def shipped(self) -> Plan:
        """The plan for the workers: without what only the driver uses."""
        nodes = {node.name: _shipped(node) for node in self.topology}
        topology = Graph(nodes)
        stage = None if self.global_stage is None else replace(self.global_stage, topology=topology)
        return replace(self, topology=topology, global_stage=stage)

    @property
    def expiring(self) -> frozenset[str]:
        """The stores whose rows expire by the clock on the wall."""
        return frozenset(step.store for step in self.steps if isinstance(step, ExpireStep) and step.by_clock)

    @property
    def derived(self) -> tuple[str, ...]:
        """The stores that are made from others."""
        return tuple(sorted(store.name for store in self.stores.values() if store.derived))

    @property
    def by_key2(self) -> tuple[str, ...]:
        """The stores whose rows are in the state partition of their second key."""
        return tuple(sorted(store.name for store in self.stores.values() if store.by_key2))

    @property
    def anywhere(self) -> tuple[str, ...]:
        """The stores of processors, whose rows are in the state partition of the record they were put with."""
        return tuple(sorted(store.name for store in self.stores.values() if store.anywhere))

    @property
    def begin_empty(self) -> tuple[str, ...]:
        """The stores that state of earlier versions may lack."""
        return tuple(sorted(store.name for store in self.stores.values() if store.begins_empty))

    @property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """The stores that keep copies of rows of several tables, with the stores of these tables by number."""
        return {
            step.right_rows: step.right_stores for step in self.steps if isinstance(step, ResolveManyStep)
        }

    def _keeps(self, name: str, number: int) -> bool:
        """Whether a name is that of a store of the round, and not of copies."""
        store = self.stores.get(name)
        return store is not None and store.round == number and store.copies is None

    def fingerprint(self) -> dict[str, str]:
        """The properties of each store that its state depends on: kind, serdes, history."""
        return {
            store.name: f"{store.layout.kind}/{store.key.name}/{store.value.name}/{store.history}"
            for store in self.stores.values()
        }

    def text(self, partitions: int | None = None) -> str:
        """The rounds, stores and re-keyings, for people. A store is shown at the step that keeps it: the first one."""
        lines, shown = [], set[str]()
        if self.global_stage is not None:
            shown.update(self.global_stage.stores)
            lines.append(f"Before, where a global table changed:\n{self.global_stage.text(partitions)}")
        in_all = "one task for each state partition" if partitions is None else f"{partitions} tasks"
        for number, part in enumerate(self.parts):
            tasks = "one task for each share of the source partitions" if number == 0 else in_all
            lines.append(f"Round {number}: {tasks}")
            for step in part.steps:
                if isinstance(step, MaterializeStep) and step.copies:
                    continue
                read = f" <- {', '.join(step.inputs)}" if step.inputs else ""
                lines.append(f"  {step.kind} {step.node}{read}")
                named = [name for name in step.names() if self._keeps(name, number) and name not in shown]
                lines += [f"    store {name} ({read_as(self.stores[name].layout.kind)})" for name in named]
                shown.update(named)
            lines += [
                f"  shuffle {exchange.flow} -> round {exchange.to_round}, {exchange.way}"
                for _, exchange in sorted(chain.from_iterable(part.leaving.values()), key=itemgetter(0))
                if not exchange.copies
            ]
        return "\n".join(lines) + "\n"


def _shipped(node: Node) -> Node:
    """A node without the function, or the secrets, that only the driver uses."""
    if isinstance(node, FrameSink):
        return replace(node, function=None)
    return replace(node, options={}) if isinstance(node, TableSink) else node
