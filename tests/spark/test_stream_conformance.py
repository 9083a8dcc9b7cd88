"""Joins of streams on Spark: the recorded cases, the specification's tables and random cases, in any batches.

records    each batch gives exactly the records of the reference, in any order
engine     the test driver, given the same batches, emits the same, in the same order for each key
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.conformance.compare import assert_same_records, by_key
from tests.conformance.functions import Style
from tests.conformance.runner import Case, per_batch, run_driver, run_reference
from tests.conformance.scripts import STREAM_SCRIPTS
from tests.conformance.vectors import load
from tests.oracle.cases import JOINS, random_case
from tests.spark.fixtures import Sessions
from tests.spark.fleet import Sailed, ends_of, run_fleet, styles_of
from tests.spark.world import World

pytestmark = pytest.mark.spark

OPERATORS = ("stream-stream", "stream-table", "stream-globaltable")
RECORDED: list[Case] = [vector.case for vector in load() if vector.operator in OPERATORS]
WRITTEN: list[Case] = [script.case for script in STREAM_SCRIPTS if script.operator in OPERATORS]


def drawn(seed: int, count: int) -> list[Case]:
    """Random cases of every join of streams: late records, eager mode, null keys and values."""
    rng = Random(seed)
    kinds = [(operator, kind) for operator in OPERATORS for kind in JOINS[operator]]
    return [
        random_case(rng, *kinds[number % len(kinds)], late=number % 2 == 0, eager=number % 5 == 0)
        for number in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Voyage:
    """Cases that were run together, and how."""

    cases: list[Case]
    partitions: int
    cuts: int
    functions: Style
    sailed: list[Sailed]


VOYAGES: dict[str, Any] = {
    "all in one batch on three partitions": (RECORDED + WRITTEN, 3, 1, "expressions"),
    "all in three batches on one partition": (RECORDED + WRITTEN, 1, 3, "callables"),
    "random cases in four batches on three partitions": (drawn(12, 60), 3, 4, "callables"),
}


@pytest.fixture(scope="module", params=VOYAGES, ids=lambda name: name.replace(" ", "-"))
def voyage(request: pytest.FixtureRequest, sessions: Sessions, tmp_path_factory: Any) -> Voyage:
    cases, partitions, cuts, functions = VOYAGES[request.param]
    world = World(Path(tmp_path_factory.mktemp("fleet")))
    sailed = run_fleet(
        sessions.running(), world, cases, partitions=partitions, cuts=cuts, functions=functions
    )
    return Voyage(cases, partitions, cuts, functions, sailed)


def test_records(voyage: Voyage) -> None:
    failures = []
    for case, sailed in zip(voyage.cases, voyage.sailed, strict=True):
        ends = ends_of(case, voyage.cuts)
        wanted = per_batch(run_reference(case, voyage.partitions, ends).outputs, ends)
        try:
            for batch, expected in enumerate(wanted):
                assert_same_records(sailed.outputs[batch], expected)
            assert not [output for batch in sailed.outputs[len(wanted) :] for output in batch]
        except AssertionError as error:
            failures.append(f"{case['id']}: {error}")
    assert not failures, "\n".join(failures)


def test_the_driver_emits_the_same_records(voyage: Voyage) -> None:
    failures = []
    styles = styles_of(voyage.cases, voyage.functions)
    for case, sailed, style in zip(voyage.cases, voyage.sailed, styles, strict=True):
        ends = ends_of(case, voyage.cuts)
        ran = run_driver(case, partitions=voyage.partitions, ends=ends, functions=style)
        emitted = [by_key(outputs) for outputs in per_batch(ran.outputs, ends)]
        if emitted != [by_key(outputs) for outputs in sailed.outputs[: len(emitted)]]:
            failures.append(f"{case['id']}:\n  driver {emitted}\n  Spark  {sailed.outputs}")
    assert not failures, "\n".join(failures)
