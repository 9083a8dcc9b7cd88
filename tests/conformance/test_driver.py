"""The production operators in the driver: Kafka's recorded cases, the specification's tables, in any batches.

A batch of one record must give exactly the expected records; in bigger batches table joins must end with the
same table, each row changed at most once, and stream joins must emit exactly the same records.
"""

from __future__ import annotations

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
from tests.conformance.runner import Ran, is_table, missing, per_batch, run_driver, run_reference
from tests.conformance.scripts import BATCH_SCRIPTS, STREAM_SCRIPTS, TABLE_SCRIPTS
from tests.conformance.vectors import Vector, load
from tests.reference import fold

cs = pytest.importorskip("crossstream")
if not hasattr(cs, "TopologyTestDriver"):
    pytest.skip("the driver is not there yet", allow_module_level=True)

TABLE_OPERATORS = ("table-table", "table-table-fk")
STREAM_OPERATORS = ("stream-stream", "stream-table", "stream-globaltable")

VECTORS = [vector for vector in load() if missing(vector.case) is None]
TABLE_VECTORS = [vector for vector in VECTORS if vector.operator in TABLE_OPERATORS]
STREAM_VECTORS = [vector for vector in VECTORS if vector.operator in STREAM_OPERATORS]
TABLES = [script for script in TABLE_SCRIPTS if missing(script.case) is None]
STREAMS = [script for script in STREAM_SCRIPTS if missing(script.case) is None]

styles = pytest.mark.parametrize("functions", ["callables", "expressions"])
sizes = pytest.mark.parametrize("size", [2, 3, 1000])
spread = pytest.mark.parametrize("partitions", [1, 4])


@styles
@pytest.mark.parametrize("vector", TABLE_VECTORS, ids=str)
def test_table_vector(vector: Vector, functions: Style) -> None:
    ran = run_in(functions, vector.case)
    check_vector(vector, ran)
    check_store(ran)


@styles
@pytest.mark.parametrize("vector", STREAM_VECTORS, ids=str)
def test_stream_vector(vector: Vector, functions: Style) -> None:
    check_vector(vector, run_in(functions, vector.case))


@styles
@pytest.mark.parametrize("script", TABLES + STREAMS, ids=str)
def test_script(script: Script, functions: Style) -> None:
    ran = run_in(functions, script.case)
    check_script(script, ran)
    if script.dropped is not None:
        assert ran.dropped == script.dropped, ran.reasons
    check_store(ran)


@pytest.mark.parametrize("script", TABLES + STREAMS, ids=str)
def test_script_on_four_partitions(script: Script) -> None:
    if has_null_key(script.case) and not is_table(script.case):
        pytest.skip("which partition's stream time a record without key moves is free")
    expected = run_reference(script.case, partitions=4)
    ran = run_driver(script.case, partitions=4)
    assert_same_by_input(ran.outputs, expected.outputs, script.case["inputs"])
    assert ran.dropped == expected.dropped.total(), ran.reasons


@spread
@sizes
@pytest.mark.parametrize("script", TABLES, ids=str)
def test_table_script_in_batches(script: Script, size: int, partitions: int) -> None:
    check_table_in_batches(script.case, size, partitions)


@sizes
@pytest.mark.parametrize("vector", TABLE_VECTORS, ids=str)
def test_table_vector_in_batches(vector: Vector, size: int) -> None:
    check_table_in_batches(vector.case, size, partitions=1)


@sizes
@pytest.mark.parametrize("script", STREAMS, ids=str)
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


def run_in(functions: Style, case: Any) -> Ran:
    if functions == "expressions" and not expressible(case):
        pytest.skip("this case's functions have no form as expressions")
    return run_driver(case, functions=functions)


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


def has_null_key(case: Any) -> bool:
    return any(item["key"] is None for item in case["inputs"])
