"""Changes of the random graphs of every kind of operator (`tests/laws/compositions`): one of them, or all below one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import crossstream as cs
from crossstream.application.local import LocalRounds
from crossstream.catalog.planners import plan_topology
from crossstream.errors import CrossStreamError, StateError
from crossstream.evolution.evolve import evolve
from tests.evolution.changes.living import check_difference
from tests.evolution.changes.worlds import Record, fold, store_of_driver
from tests.faults.one_process import CORES, process
from tests.laws.compositions import functions as f
from tests.laws.compositions.building import Building, key_serde
from tests.laws.compositions.drawing import Drawing, records
from tests.laws.compositions.graphs import SOURCES, Graph, Item, Kind, kinds_of
from tests.spark.world import World

REFUSED = ("CS-751", "CS-754")
TRIES = 60


@dataclass(frozen=True)
class Changed:
    """A graph before and after, and the records that come before the change and after it."""

    before: Graph
    after: Graph
    earlier: tuple[Item, ...]
    later: tuple[Item, ...]
    partitions: int = 2

    def __repr__(self) -> str:
        parts = (self.before, self.after, self.earlier, self.later)
        shown = ",\n".join("(" + "".join(f"\n    {one!r}," for one in part) + "\n)" for part in parts)
        return f"Changed({shown}, {self.partitions})"


def topics_of(graph: Graph) -> dict[str, int]:
    """The topics that are written, by the step that writes them: tables and streams to different ones."""
    kinds = kinds_of(graph)
    return {
        f"out-{number}-{kind.shape}": number
        for number, (step, kind) in enumerate(zip(graph, kinds, strict=True))
        if step.op not in SOURCES and kind.shape != "global"
    }


def topology(graph: Graph) -> cs.Topology:
    built, topics = (
        Building(graph, plain=False),
        {number: topic for topic, number in topics_of(graph).items()},
    )
    for number, (step, kind) in enumerate(zip(graph, built.kinds, strict=True)):
        built.handles.append(built.built(number, step))
        if number in topics:
            built.handles[-1].to(topics[number], key=key_serde(kind), value=f.JSON)
    return built.builder.build()


def drawn(rng: Random) -> Changed:
    while True:
        drawing = Drawing(rng)
        before = tuple(replace(step, nulls=False, fails=False) for step in drawing.graph())
        after = _changed(rng, before) if _is_valid(before) else None
        if after is None:
            continue
        made = _with_records(rng, before, after)
        if _runs(made):
            return made


def _with_records(rng: Random, before: Graph, after: Graph) -> Changed:
    earlier = records(rng, before, kinds_of(before))
    later = records(rng, before, kinds_of(before))
    timed = [
        replace(item, ts=3 * number, place=0, key=item.key or "a")
        for number, item in enumerate((*earlier, *later))
    ]
    parts = tuple(timed[: len(earlier)]), tuple(timed[len(earlier) :])
    return Changed(before, after, *parts, rng.randint(1, 3))


def _runs(case: Changed) -> bool:
    """Whether both graphs take what comes: one in which functions fail says nothing of changes."""
    try:
        fresh(case.before, case.earlier)
        fresh(case.after, case.earlier, case.later)
    except CrossStreamError:
        return False
    return True


def _changed(rng: Random, graph: Graph) -> Graph | None:
    """Another operator in the place of one; those below it stay, if they still fit."""
    places = [number for number, step in enumerate(graph) if step.op not in SOURCES]
    if not places:
        return None
    for _ in range(TRIES):
        place = rng.choice(places)
        drawing = Drawing(rng)
        for step in graph[:place]:
            drawing.add(step)
        drawing.failing = False
        made = drawing.operator()
        if made is None:
            continue
        made = replace(made, nulls=False, fails=False)
        for rest in (graph[place + 1 :], ()):
            after = (*graph[:place], made, *rest)
            if after != graph and _is_valid(after):
                return after
    return None


def _is_valid(graph: Graph) -> bool:
    try:
        topology(graph)
    except (CrossStreamError, KeyError, AttributeError, AssertionError, TypeError, IndexError):
        return False
    return True


def is_result(graph: Graph, kinds: Sequence[Kind], number: int) -> bool:
    """Whether what a step sends are rows of a table, which are compared; else they are events."""
    step = graph[number]
    if kinds[number].shape == "table":
        return True
    passes = (step.op == "to_stream" and not step.by) or step.op in ("map_values", "peek")
    return passes and is_result(graph, kinds, step.parents[0])


def is_clear(kinds: Sequence[Kind], number: int) -> bool:
    """Whether its rows do not depend on how input is cut into batches."""
    return kinds[number].emitted != "loose"


@dataclass
class Run:
    root: Path
    partitions: int

    def __post_init__(self) -> None:
        self.world = World(self.root)

    def config(self) -> cs.StreamsConfig:
        return self.world.config(partitions=self.partitions)

    def prepare(self, graph: Graph) -> None:
        inputs = [f"in-{number}" for number, step in enumerate(graph) if step.op in SOURCES]
        there = self.world.topics.log().topics()
        self.world.create(**{topic: 1 for topic in (*inputs, *topics_of(graph)) if topic not in there})

    def feed(self, items: Sequence[Item], graph: Graph) -> None:
        kinds = kinds_of(graph)
        for item in items:
            serde = f.DECLARED[kinds[item.source].value] if kinds[item.source].typed else f.JSON
            self.world.append(f"in-{item.source}", [(item.key, item.value, item.ts)], f.TEXT, serde)

    def topics(self, *names: str) -> dict[str, list[Record]]:
        there = self.world.topics.log().topics()
        return {
            name: [(k, v, ts) for k, v, ts, _ in self.world.wire(name)[0]] if name in there else []  # type: ignore[misc]
            for name in names
        }


def stores_of(graph: Graph) -> list[str]:
    """The stores that can be queried, and whose rows do not depend on how input is cut."""
    kinds = kinds_of(graph)
    if any(not is_clear(kinds, number) for number in range(len(graph))):
        return []
    return [store.public for store in plan_topology(topology(graph)).stores.values() if store.public]


def fresh(graph: Graph, *parts: Sequence[Item]) -> list[dict[str, list[Any]]]:
    """What a new application writes, after each part of its input; and what its stores have, by ``store:`` name."""
    kinds, found = kinds_of(graph), []
    with cs.TopologyTestDriver(topology(graph), commit_every=10_000) as driver:
        inputs: dict[int, Any] = {
            number: driver.create_input_topic(
                f"in-{number}", f.TEXT, f.DECLARED[kind.value] if kind.typed else f.JSON
            )
            for number, kind in enumerate(kinds)
            if graph[number].op in SOURCES
        }
        outs = {
            topic: driver.create_output_topic(topic, cs.serdes.bytes(), cs.serdes.bytes())
            for topic in topics_of(graph)
        }
        for items in parts:
            for item in items:
                inputs[item.source].pipe_input(item.key, item.value, item.ts)
            driver.commit()
            stores = {f"store:{name}": list(store_of_driver(driver, name).all()) for name in stores_of(graph)}
            found.append(
                {
                    topic: [(one.key, one.value, one.timestamp) for one in out.read_records()]
                    for topic, out in outs.items()
                }
                | stores
            )
    return found


def check(case: Changed) -> bool:
    """Whether the change was done; False: it was refused."""
    with TemporaryDirectory() as folder:
        return _check(case, Run(Path(folder), case.partitions))


def _check(case: Changed, run: Run) -> bool:
    for graph in (case.before, case.after):
        run.prepare(graph)
    watched = {**topics_of(case.before), **topics_of(case.after)}
    run.feed(case.earlier, case.before)
    process(topology(case.before), run.config())
    before = run.topics(*watched)
    try:
        evolve(topology(case.after), run.config(), lambda made, config: LocalRounds(CORES))
    except StateError as error:
        if error.code in REFUSED:
            return False
        raise
    changed = run.topics(*watched)
    kinds, topics = kinds_of(case.after), topics_of(case.after)
    first, second = fresh(case.after, case.earlier, case.later)
    for topic in watched:
        written = changed[topic][len(before[topic]) :]
        if topic not in topics or not is_result(case.after, kinds, topics[topic]):
            assert not written, f"{topic}: the change wrote {written}, and there was nothing to write"
        elif is_clear(kinds, topics[topic]):
            check_difference(topic, before[topic], written, first[topic])
    check_stores(case.after, run, first)
    run.feed(case.later, case.before)
    process(topology(case.after), run.config())
    check_stores(case.after, run, second)
    after = run.topics(*watched)
    for topic, number in topics.items():
        if is_result(case.after, kinds, number) and is_clear(kinds, number):
            got, right = fold(after[topic]), fold([*first[topic], *second[topic]])
            assert got == right, f"after more input, {topic} has {got}, right is {right}"
        elif kinds[number].emitted == "exact" and kinds[number].shape == "stream":
            came = Counter(after[topic][len(changed[topic]) :])
            assert came == Counter(second[topic]), f"{topic}: {came}, right is {Counter(second[topic])}"
    return True


def check_stores(graph: Graph, run: Run, wanted: Mapping[str, Sequence[Any]]) -> None:
    for name in stores_of(graph):
        got = list(cs.open_store(run.world.state_dir, name).all())
        assert got == wanted[f"store:{name}"], f"{name} has {got}, right is {wanted[f'store:{name}']}"
