"""Many small cases in one topology on Spark: one JVM, a handful of batches, hundreds of joins.

Every case gets its own topics and stores, told apart by a prefix. The inputs of each case are cut into the
same number of batches; batch n of the application holds batch n of every case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import crossstream as cs
from tests.conformance.compare import by_key
from tests.conformance.functions import Style, expressible
from tests.conformance.runner import (
    STORE,
    Case,
    Serdes,
    add,
    batches,
    is_table,
    is_used,
    per_batch,
    run_driver,
    run_reference,
    source_partition,
)
from tests.reference import Output
from tests.reference.chain import SIDES, is_timed
from tests.spark.world import World


@dataclass(frozen=True, slots=True)
class Sailed:
    """``outputs[n]``: what a case emitted in batch n, by arrival; ``store``: the rows of a table that results."""

    outputs: list[list[Output]]
    store: dict[Any, Any]


@dataclass(frozen=True, slots=True)
class Voyage:
    """Cases that were run together, and how."""

    cases: list[Case]
    partitions: int
    cuts: int
    functions: Style
    sailed: list[Sailed]

    @classmethod
    def of(
        cls, cases: list[Case], partitions: int, cuts: int, functions: Style, spark: Any, world: World
    ) -> Voyage:
        sailed = run_fleet(spark, world, cases, partitions=partitions, cuts=cuts, functions=functions)
        return cls(cases, partitions, cuts, functions, sailed)


def either(voyages: Mapping[str, Any], nightly: Mapping[str, Any]) -> list[Any]:
    """Voyages of every run, and those of the nightly ones, as parameters of a fixture."""
    return [
        pytest.param(how, id=name.replace(" ", "-"), marks=marks)
        for some, marks in ((voyages, ()), (nightly, pytest.mark.nightly))
        for name, how in some.items()
    ]


def check_all(voyage: Voyage, check: Callable[[Voyage, Case, Sailed], None]) -> None:
    """Tells of all cases that fail, not of the first one only."""
    failures = []
    for case, sailed in zip(voyage.cases, voyage.sailed, strict=True):
        try:
            check(voyage, case, sailed)
        except AssertionError as error:
            failures.append(f"{case['id']}: {error}")
    assert not failures, "\n".join(failures)


def check_driver(voyage: Voyage, case: Case, sailed: Sailed) -> None:
    """The test driver, given the same batches, emits the same, in the same order for each key."""
    ends = ends_of(case, voyage.cuts)
    (style,) = styles_of([case], voyage.functions)
    place = 0 if is_timed(case) else None
    ran = run_driver(case, partitions=voyage.partitions, ends=ends, functions=style, place=place)
    emitted = [by_key(outputs) for outputs in per_batch(ran.outputs, ends)]
    same = emitted == [by_key(outputs) for outputs in sailed.outputs[: len(emitted)]]
    assert same, f"\n  driver {emitted}\n  Spark  {sailed.outputs}"


def reference(voyage: Voyage, case: Case) -> list[list[Output]]:
    """What the reference gives in each batch of the case."""
    ends = ends_of(case, voyage.cuts)
    return per_batch(run_reference(case, 1 if is_timed(case) else voyage.partitions, ends).outputs, ends)


def prefix_of(number: int) -> str:
    return f"case{number:03}-"


def ends_of(case: Case, cuts: int) -> list[int]:
    """Input counts after which a batch of the case ends."""
    count = len(case["inputs"])
    return sorted({count * n // cuts for n in range(1, cuts + 1)} - {0})


def styles_of(cases: Sequence[Case], wanted: Style) -> list[Style]:
    """Expressions where they are wanted and the case has a form with them."""
    return [wanted if expressible(case) else "callables" for case in cases]


def run_fleet(
    spark: Any, world: World, cases: Sequence[Case], *, partitions: int, cuts: int, functions: Style
) -> list[Sailed]:
    """All cases through one application, in ``cuts`` batches."""
    topology = topology_of(cases, functions)
    make_topics(world, cases, partitions)
    seen: list[list[list[Output]]] = [[] for _ in cases]
    with cs.SparkStreams(topology, world.config(partitions=partitions), spark) as app:
        app.process_available()  # so that nothing is in a global table's topic when the application starts
        for number in range(cuts):
            put_batch(world, cases, number, cuts, partitions)
            app.process_available()
            for place, case in enumerate(cases):
                so_far = sum(map(len, seen[place]))
                seen[place].append(results(world, place, case)[so_far:])
        stores = [
            dict(app.store(f"{prefix_of(n)}{STORE}").all()) if is_table(case) else {}
            for n, case in enumerate(cases)
        ]
    return [Sailed(outputs, store) for outputs, store in zip(seen, stores, strict=True)]


def topology_of(cases: Sequence[Case], functions: Style) -> Any:
    builder = cs.StreamsBuilder()
    for number, (case, style) in enumerate(zip(cases, styles_of(cases, functions), strict=True)):
        add(builder, case, style, prefix=prefix_of(number))
    return builder.build()


def make_topics(world: World, cases: Sequence[Case], partitions: int) -> None:
    names = [f"{prefix_of(n)}{side}" for n, case in enumerate(cases) for side in SIDES if is_used(case, side)]
    world.create(**dict.fromkeys(names, partitions))


def put_batch(world: World, cases: Sequence[Case], number: int, cuts: int, partitions: int) -> None:
    """Appends what every case takes in batch ``number``."""
    for place, case in enumerate(cases):
        parts = batches(case["inputs"], ends_of(case, cuts))
        if number >= len(parts):
            continue
        for side in {item["side"] for item in parts[number] if is_used(case, item["side"])}:
            items = [item for item in parts[number] if item["side"] == side]
            key, value = Serdes(case).of(side)
            world.append(
                f"{prefix_of(place)}{side}",
                [(item["key"], item["value"], item["ts"], headers_of(item)) for item in items],
                key,
                value,
                [0 if is_timed(case) else source_partition(item["key"], partitions) for item in items],
            )


def headers_of(item: Mapping[str, Any]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, bytes.fromhex(value)) for name, value in item.get("headers", {}).items())


def results(world: World, place: int, case: Case) -> list[Output]:
    kinds = Serdes(case)
    return world.read(f"{prefix_of(place)}results", kinds.result_key, kinds.result_value)
