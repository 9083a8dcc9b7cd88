"""Table joins on Spark: the recorded cases and the specification's tables, in any batches; nightly random cases too.

tables    after each batch a result folds to the reference's table, and its store holds the same rows
engine    the test driver, given the same batches, emits the same records
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.conformance.compare import assert_same_table
from tests.conformance.runner import Case
from tests.conformance.scripts import BATCH_SCRIPTS, TABLE_SCRIPTS
from tests.conformance.vectors import load
from tests.oracle.cases import JOINS, random_case
from tests.reference import fold
from tests.spark.fixtures import Sessions
from tests.spark.fleet import Sailed, Voyage, check_all, check_driver, either, reference
from tests.spark.world import ALONE, SPREAD, World

pytestmark = pytest.mark.spark

TABLE_OPERATORS = ("table-table", "table-table-fk")
RECORDED: list[Case] = [vector.case for vector in load() if vector.operator in TABLE_OPERATORS]
WRITTEN: list[Case] = [script.case for script in [*TABLE_SCRIPTS, *BATCH_SCRIPTS]]


def with_global(case: Case) -> Case:
    """A foreign-key join with its right table as a global one."""
    return {**case, "id": f"{case['id']}, global", "params": {**case["params"], "global": True}}


GLOBAL: list[Case] = [
    with_global(case)
    for case in RECORDED + WRITTEN
    if case["operator"] == "table-table-fk"
    and "joins" not in case
    and case["params"].get("right_versioned_ms") is None
]


def drawn(seed: int, count: int) -> list[Case]:
    """Random cases of every table join, chains among them."""
    rng = Random(seed)
    kinds = [(operator, kind) for operator in TABLE_OPERATORS for kind in JOINS[operator]]
    return [random_case(rng, *kinds[number % len(kinds)]) for number in range(count)]


VOYAGES: dict[str, Any] = {
    "all in one batch on three partitions": (RECORDED + WRITTEN, 3, 1, "expressions", SPREAD),
    "all in three batches on one partition": (RECORDED + WRITTEN, 1, 3, "callables", ALONE),
}
NIGHTLY: dict[str, Any] = {
    "random cases in four batches on three partitions": (drawn(11, 30), 3, 4, "callables", SPREAD),
    "random cases in four batches of one task each": (drawn(21, 30), 3, 4, "callables", ALONE),
    "with global tables in three batches on three partitions": (GLOBAL, 3, 3, "expressions", ALONE),
}
"""The law of the random cases is the driver's (`test_random_cases`), and `test_global_tables` has global tables."""


@pytest.fixture(scope="module", params=either(VOYAGES, NIGHTLY))
def voyage(request: pytest.FixtureRequest, sessions: Sessions, tmp_path_factory: Any) -> Voyage:
    *how, rows = request.param
    world = World(tmp_path_factory.mktemp("fleet"), single_task_rows=rows)
    return Voyage.of(*how, sessions.running(), world)


def test_tables(voyage: Voyage) -> None:
    check_all(voyage, check_tables)


def test_the_driver_emits_the_same_records(voyage: Voyage) -> None:
    check_all(voyage, check_driver)


def check_tables(voyage: Voyage, case: Case, sailed: Sailed) -> None:
    wanted = reference(voyage, case)
    table: dict[Any, Any] = {}
    for count in range(1, len(wanted) + 1):
        folded = fold(output for batch in wanted[:count] for output in batch)
        table = {key: value for key, (value, _) in folded.items()}
        assert_same_table((output for batch in sailed.outputs[:count] for output in batch), table)
    assert sailed.store == table, f"the store holds {sailed.store}\ninstead of {table}"
    assert not [output for batch in sailed.outputs[len(wanted) :] for output in batch]
