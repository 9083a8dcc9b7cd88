"""Random cases, each of a `Random` of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.laws.compositions.functions import Letters, row
from tests.laws.compositions.graphs import (
    SOURCES,
    Case,
    Graph,
    Item,
    Kind,
    Step,
    Way,
    kind_of,
    kinds_of,
)
from tests.laws.compositions.operators import OPERATORS, SHORT, may_fail

FAILING = 0.1
"""The share of graphs that have functions that fail."""
SPREAD = 0.3
"""The share of cases without stream time whose keys are in several partitions of their topics."""


def case(rng: Random) -> Case:
    graph = Drawing(rng).graph()
    kinds = kinds_of(graph)
    items = records(rng, graph, kinds)
    made = way(rng, kinds, len(items))
    transforms = any(step.op == "transform" for step in graph)
    if transforms and any(len(step.parents) > 1 for step in graph):
        made = Way(made.partitions, each=True)  # where its rows are among others depends on the batch
    if any(step.fails and kinds[step.parents[0]].shape == "table" and _stays(step) for step in graph):
        made = Way(made.partitions, each=True)  # a function of tables fails on the net change of a batch
    if rng.random() < SPREAD and not any(map(_timed, graph)):
        items = tuple(replace(one, place=0 if one.key is None else Letters.index(one.key)) for one in items)
    return Case(graph, items, made)


def _stays(step: Step) -> bool:
    """Whether a row of a table stays as it was where the function fails on it."""
    return step.stored or step.op in ("fk", "aggregate")


def _timed(step: Step) -> bool:
    """Whether stream time decides about records."""
    waits = step.op in ("suppress", "deduplicate") or step.within > 0
    return waits or step.windows is not None or step.history == SHORT


def way(rng: Random, kinds: Sequence[Kind], count: int) -> Way:
    """Any cut; but where results depend on it, one record in a batch. Stream time is that of one partition."""
    loose = any(kind.emitted == "loose" for kind in kinds)
    partitions = rng.choice([1, 2, 3, 5])
    if loose:
        return Way(partitions, each=True)
    return Way(partitions, tuple(sorted({rng.randint(1, count) for _ in range(rng.randint(0, 5))})))


def records(rng: Random, graph: Graph, kinds: Sequence[Kind]) -> tuple[Item, ...]:
    """Few keys; ties in time and late ones; rows that move to other groups, and are deleted."""
    sources = [number for number, step in enumerate(graph) if step.op in SOURCES]
    late = rng.choice([(0,), (0, 0, 4), (0, 0, 0, 15)])
    keys = Letters[: rng.randint(1, 3)]
    clock, items = 0, []
    for _ in range(rng.randint(1, 20)):
        clock += rng.choice([1, 0, 3, 7])
        source = rng.choice(sources)
        items.append(_record(rng, keys, source, graph, kinds[source], max(0, clock - rng.choice(late))))
    return tuple(items)


def _record(rng: Random, keys: Sequence[str], number: int, graph: Graph, kind: Kind, ts: int) -> Item:
    step, key, value = graph[number], rng.choice(keys), rng.randint(1, 9)
    may_be_null = kind.shape != "stream" or step.nulls
    whole: Any = value
    if kind.value == "row":
        whole = row(
            value,
            rng.choice([*keys, *keys, *Letters, None]),
            rng.choice([1.0, None, 0.5, -1.5, 2.5, 0.0, -0.0]),
        )
    if may_be_null and rng.random() < 0.2:
        whole = None
    if step.nulls and rng.random() < 0.1:
        return Item(number, None, whole, ts)
    return Item(number, key, whole, ts)


class Drawing:
    """One random graph, step by step; each step reads what is there, more often what was made last."""

    counts: tuple[int, ...] = (1, 1, 1, 2, 3)
    """How many sources there may be."""
    operators = OPERATORS

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.steps: list[Step] = []
        self.kinds: list[Kind] = []
        self.deep = self.coin(0.6)
        self.failing = self.coin(FAILING)

    def graph(self) -> Graph:
        for _ in range(self.rng.choice(self.counts)):
            self.add(self.source())
        for _ in range(self.rng.randint(1, 8)):
            self.add(self.operator())
        return tuple(self.steps)

    def add(self, step: Step | None) -> None:
        if step is not None:
            parents = [self.kinds[parent] for parent in step.parents]
            if step.form == "expr" and not all(parent.typed for parent in parents):
                step = replace(step, form="call")
            if self.failing and may_fail(step, parents) and self.coin(0.4):
                step = replace(step, fails=True)
            self.steps.append(step)
            self.kinds.append(kind_of(step, len(self.steps) - 1, parents))

    def source(self) -> Step:
        op = self.rng.choice(["stream", "stream", "stream", "table", "table", "global"])
        value = self.rng.choice(["row", "row", "row", "int"])
        history = self.rng.choice([None, None, None, 100_000, SHORT]) if op == "table" else None
        nulls = op == "stream" and self.coin(0.2)
        return Step(op, fn=value, declared=self.coin(0.7), history=history, nulls=nulls)

    def operator(self) -> Step | None:
        """One that fits what is there; None where none of some tries did."""
        for _ in range(12):
            draw, weight = self.rng.choice(self.operators)
            step = draw(self) if self.coin(weight) else None
            if step is not None and self.allowed(step):
                return step
        return None

    def allowed(self, step: Step) -> bool:
        """Results that depend on the cut are rare, for then there is but one."""
        parents = [self.kinds[parent] for parent in step.parents]
        made = kind_of(step, len(self.steps), parents)
        return made.emitted != "loose" or any(one.emitted == "loose" for one in self.kinds) or self.coin(0.1)

    # choices

    def coin(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, fits: Callable[[Kind], bool]) -> int | None:
        """The number of a step whose kind fits: of the last one in a deep graph, else more often of a later one."""
        if self.deep and self.kinds and fits(self.kinds[-1]):
            return len(self.kinds) - 1
        return self.other(fits)

    def other(self, fits: Callable[[Kind], bool]) -> int | None:
        found = [number for number, kind in enumerate(self.kinds) if fits(kind)]
        if not found:
            return None
        return found[max(self.rng.randint(0, len(found) - 1) for _ in range(4))]

    def form(self, *forms: Any) -> Any:
        return self.rng.choice(forms)
