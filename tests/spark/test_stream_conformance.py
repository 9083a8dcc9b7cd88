"""Joins of streams on Spark: the recorded cases and the specification's tables, in any batches.

Nightly, random cases too.

records    each batch gives exactly the records of the reference, in any order
engine     the test driver, given the same batches, emits the same, in the same order for each key
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.conformance.compare import assert_same_records
from tests.conformance.runner import Case
from tests.conformance.scripts import STREAM_SCRIPTS
from tests.conformance.vectors import load
from tests.oracle.cases import JOINS, random_case
from tests.spark.fixtures import Sessions
from tests.spark.fleet import Sailed, Voyage, check_all, check_driver, either, reference
from tests.spark.world import ALONE, SPREAD, World

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


VOYAGES: dict[str, Any] = {
    "all in one batch on three partitions": (RECORDED + WRITTEN, 3, 1, "expressions", SPREAD),
    "all in three batches on one partition": (RECORDED + WRITTEN, 1, 3, "callables", ALONE),
}
NIGHTLY: dict[str, Any] = {
    "random cases in four batches on three partitions": (drawn(12, 30), 3, 4, "callables", SPREAD),
    "random cases in four batches of one task each": (drawn(22, 30), 3, 4, "callables", ALONE),
}


@pytest.fixture(scope="module", params=either(VOYAGES, NIGHTLY))
def voyage(request: pytest.FixtureRequest, sessions: Sessions, tmp_path_factory: Any) -> Voyage:
    *how, rows = request.param
    world = World(tmp_path_factory.mktemp("fleet"), single_task_rows=rows)
    return Voyage.of(*how, sessions.running(), world)


def test_records(voyage: Voyage) -> None:
    check_all(voyage, check_records)


def test_the_driver_emits_the_same_records(voyage: Voyage) -> None:
    check_all(voyage, check_driver)


def check_records(voyage: Voyage, case: Case, sailed: Sailed) -> None:
    wanted = reference(voyage, case)
    for batch, expected in enumerate(wanted):
        assert_same_records(sailed.outputs[batch], expected)
    assert not [output for batch in sailed.outputs[len(wanted) :] for output in batch]
