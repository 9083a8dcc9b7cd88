"""The reference agrees with Kafka's recorded cases and with every table of the specification."""

from __future__ import annotations

import pytest

from tests.conformance.case import Script
from tests.conformance.check import check_script, check_vector
from tests.conformance.compare import assert_same_table
from tests.conformance.scripts import BATCH_SCRIPTS, SCRIPTS, TABLE_SCRIPTS
from tests.conformance.vectors import ADJUSTMENTS, Vector, load
from tests.reference import final_table, fold, run

# cases by operator, as the page beside the vectors counts them
COUNTS = {
    "stream-stream": 38,
    "table-table": 31,
    "stream-table": 13,
    "stream-globaltable": 11,
    "table-table-fk": 48,
}


def test_all_vectors_are_here() -> None:
    found = [vector.operator for vector in load()]
    assert {operator: found.count(operator) for operator in found} == COUNTS


def test_every_adjustment_names_a_case() -> None:
    assert {adjustment.case for adjustment in ADJUSTMENTS} <= {vector.id for vector in load()}


def test_scripts_have_names_of_their_own() -> None:
    names = [script.name for script in SCRIPTS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("vector", load(), ids=str)
def test_vector(vector: Vector) -> None:
    check_vector(vector, run(vector.case))


@pytest.mark.parametrize("vector", [vector for vector in load() if vector.olds], ids=str)
def test_old_values(vector: Vector) -> None:
    result = run(vector.case)
    assert [[output.old for output in outputs] for outputs in result.outputs] == vector.olds


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_script(script: Script) -> None:
    result = run(script.case)
    check_script(script, result)
    if script.dropped is not None:
        assert result.dropped.total() == script.dropped, dict(result.dropped)


@pytest.mark.parametrize("script", TABLE_SCRIPTS, ids=str)
def test_script_ends_with_the_relational_join(script: Script) -> None:
    assert run(script.case).rows == final_table(script.case)


@pytest.mark.parametrize("script", BATCH_SCRIPTS, ids=str)
def test_batches_end_with_the_table_of_single_records(script: Script) -> None:
    assert script.ends is not None
    emitted = run(script.case).outputs
    for end in script.ends:
        batched = fold(output for outputs in script.expected[:end] for output in outputs)
        single = (output for outputs in emitted[:end] for output in outputs)
        assert_same_table(single, {key: value for key, (value, _) in batched.items()})


@pytest.mark.parametrize("vector", [v for v in load() if v.operator.startswith("table-table")], ids=str)
def test_vector_ends_with_the_relational_join(vector: Vector) -> None:
    assert run(vector.case).rows == final_table(vector.case)
