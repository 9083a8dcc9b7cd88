"""The production operators in the driver: Kafka's recorded cases, the specification's tables, in any batches.

A batch of one record must give exactly the expected records; in bigger batches table joins must end with the
same table, each row changed at most once, and stream joins must emit exactly the same records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.case import Script
from tests.conformance.check import check_script, check_vector
from tests.conformance.compare import (
    assert_same_by_input,
    assert_same_records,
    assert_same_table,
    by_key,
    normalised,
)
from tests.conformance.functions import Style, expressible
from tests.conformance.runner import Ran, per_batch, run_driver, run_reference
from tests.conformance.scripts import BATCH_SCRIPTS, STREAM_SCRIPTS, TABLE_SCRIPTS
from tests.conformance.vectors import Vector, load
from tests.laws.strategies import with_headers
from tests.reference import fold

TABLE_OPERATORS = ("table-table", "table-table-fk")
TABLE_VECTORS = [vector for vector in load() if vector.operator in TABLE_OPERATORS]
STREAM_VECTORS = [vector for vector in load() if vector.operator not in TABLE_OPERATORS]
# which partition's stream time a record without key moves is free
SPREAD = [
    *TABLE_SCRIPTS,
    *(script for script in STREAM_SCRIPTS if all(given.key is not None for given, _ in script.rows)),
]

sizes = pytest.mark.parametrize("size", [2, 3, 1000])
spread = pytest.mark.parametrize("partitions", [1, 4])


def in_both_styles(cases: Sequence[Any]) -> list[Any]:
    """Each case with callables, and with expressions where its functions have such a form."""
    styles: list[Style] = ["callables", "expressions"]
    return [
        pytest.param(case, style, id=f"{case}-{style}")
        for case in cases
        for style in styles
        if style == "callables" or expressible(case.case)
    ]


@pytest.mark.parametrize(("vector", "functions"), in_both_styles(TABLE_VECTORS))
def test_table_vector(vector: Vector, functions: Style) -> None:
    ran = run_driver(vector.case, functions=functions)
    check_vector(vector, ran)
    check_store(ran)


@pytest.mark.parametrize(("vector", "functions"), in_both_styles(STREAM_VECTORS))
def test_stream_vector(vector: Vector, functions: Style) -> None:
    check_vector(vector, run_driver(vector.case, functions=functions))


@pytest.mark.parametrize(("script", "functions"), in_both_styles([*TABLE_SCRIPTS, *STREAM_SCRIPTS]))
def test_script(script: Script, functions: Style) -> None:
    ran = run_driver(script.case, functions=functions)
    check_script(script, ran)
    if script.dropped is not None:
        assert ran.dropped == script.dropped, ran.reasons
    check_store(ran)


@pytest.mark.parametrize("script", STREAM_SCRIPTS, ids=str)
def test_headers_of_stream_results(script: Script) -> None:
    """A pair carries those of the record that completed it, an unmatched row its own (8.4)."""
    case = {**script.case, "inputs": with_headers(script.case["inputs"])}
    assert_same_by_input(run_driver(case).outputs, run_reference(case).outputs, case["inputs"])


@pytest.mark.parametrize("script", SPREAD, ids=str)
def test_script_on_four_partitions(script: Script) -> None:
    expected = run_reference(script.case, partitions=4)
    ran = run_driver(script.case, partitions=4)
    assert_same_by_input(ran.outputs, expected.outputs, script.case["inputs"])
    assert ran.dropped == expected.dropped.total(), ran.reasons


@spread
@sizes
@pytest.mark.parametrize("script", TABLE_SCRIPTS, ids=str)
def test_table_script_in_batches(script: Script, size: int, partitions: int) -> None:
    check_table_in_batches(script.case, size, partitions)


@sizes
@pytest.mark.parametrize("vector", TABLE_VECTORS, ids=str)
def test_table_vector_in_batches(vector: Vector, size: int) -> None:
    check_table_in_batches(vector.case, size, partitions=1)


@sizes
@pytest.mark.parametrize("script", STREAM_SCRIPTS, ids=str)
def test_stream_script_in_batches(script: Script, size: int) -> None:
    check_stream_in_batches(script.case, size)


@sizes
@pytest.mark.parametrize("vector", STREAM_VECTORS, ids=str)
def test_stream_vector_in_batches(vector: Vector, size: int) -> None:
    check_stream_in_batches(vector.case, size)


@pytest.mark.parametrize("materialized", [True, False])
@pytest.mark.parametrize("script", BATCH_SCRIPTS, ids=str)
def test_a_batch_emits_the_last_change_of_each_row(script: Script, materialized: bool) -> None:
    assert script.ends is not None
    ran = run_driver(script.case, ends=script.ends, materialized=materialized)
    changelog = [output for outputs in ran.outputs for output in outputs]
    expected = [output for outputs in script.expected for output in outputs]
    assert by_key(normalised(changelog)) == by_key(expected)
    check_once_per_batch(per_batch(ran.outputs, script.ends))


def check_store(ran: Ran) -> None:
    """The store of the result holds what its changelog folds to."""
    if ran.store is not None:
        table = fold(output for outputs in ran.outputs for output in outputs)
        assert ran.store == {key: value for key, (value, _) in table.items()}


def check_table_in_batches(case: Any, size: int, partitions: int) -> None:
    ends = batch_ends(case, size)
    ran = run_driver(case, ends=ends, partitions=partitions)
    found = per_batch(ran.outputs, ends)
    wanted = per_batch(run_reference(case, partitions, ends).outputs, ends)
    for count in range(1, len(found) + 1):
        table = fold(output for batch in wanted[:count] for output in batch)
        emitted = (output for batch in found[:count] for output in batch)
        assert_same_table(emitted, {key: value for key, (value, _) in table.items()})
    check_once_per_batch(found)
    check_store(ran)


def check_once_per_batch(found: list[list[Any]]) -> None:
    for batch in found:
        assert all(len(changes) == 1 for changes in by_key(batch).values())


def check_stream_in_batches(case: Any, size: int) -> None:
    ends = batch_ends(case, size)
    expected = run_reference(case, ends=ends)
    ran = run_driver(case, ends=ends)
    for got, want in zip(per_batch(ran.outputs, ends), per_batch(expected.outputs, ends), strict=True):
        assert_same_records(got, want)
    assert ran.dropped == expected.dropped.total(), ran.reasons


def batch_ends(case: Any, size: int) -> list[int]:
    count = len(case["inputs"])
    return [*range(size, count, size), count]
