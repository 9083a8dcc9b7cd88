"""What the production operators are held against, in the driver: Kafka's recorded cases, the tables of the rules.

A batch of one record must give exactly the expected records; in bigger batches table joins must end with the
same table, each row changed at most once, and stream joins must emit exactly the same records. Each folder of
``tests/operators`` has the cases of its own operator: ``TestVectors = table_vectors("table-table")``.
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
from tests.reference.chain import is_timed

sizes = pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow), 1000])
spread = pytest.mark.parametrize("partitions", [1, 4])


def table_vectors(operator: str) -> type:
    """The tests of a table join: ``table-table`` or ``table-table-fk``."""
    vectors, scripts = cases_of(operator, TABLE_SCRIPTS)
    batches = [script for script in BATCH_SCRIPTS if script.case["operator"] == operator]

    class Vectors:
        @pytest.mark.parametrize(("vector", "functions"), in_both_styles(vectors))
        def test_vector(self, vector: Vector, functions: Style) -> None:
            ran = run_driver(vector.case, functions=functions)
            check_vector(vector, ran)
            check_store(ran)

        @pytest.mark.parametrize(("script", "functions"), in_both_styles(scripts))
        def test_script(self, script: Script, functions: Style) -> None:
            check_recorded(script, functions)

        @pytest.mark.parametrize("script", scripts, ids=str)
        def test_script_on_four_partitions(self, script: Script) -> None:
            check_partitions(script)

        @spread
        @sizes
        @pytest.mark.parametrize("script", scripts, ids=str)
        def test_script_in_batches(self, script: Script, size: int, partitions: int) -> None:
            check_table_in_batches(script.case, size, partitions)

        @sizes
        @pytest.mark.parametrize("vector", vectors, ids=str)
        def test_vector_in_batches(self, vector: Vector, size: int) -> None:
            check_table_in_batches(vector.case, size, partitions=1)

    return with_batches(Vectors, batches) if batches else Vectors


def with_batches(vectors: type, scripts: list[Script]) -> type:
    """The same with what the specification says of whole batches."""

    class Vectors(vectors):
        @pytest.mark.parametrize("materialized", [True, False])
        @pytest.mark.parametrize("script", scripts, ids=str)
        def test_a_batch_emits_the_last_change_of_each_row(self, script: Script, materialized: bool) -> None:
            assert script.ends is not None
            ran = run_driver(script.case, ends=script.ends, materialized=materialized)
            changelog = [output for outputs in ran.outputs for output in outputs]
            expected = [output for outputs in script.expected for output in outputs]
            assert by_key(normalised(changelog)) == by_key(expected)
            check_once_per_batch(per_batch(ran.outputs, script.ends))

    return Vectors


def stream_vectors(operator: str) -> type:
    """The tests of a join of streams: ``stream-stream``, ``stream-table`` or ``stream-globaltable``."""
    vectors, scripts = cases_of(operator, STREAM_SCRIPTS)
    # which partition's stream time a record without key moves is free
    keyed = [script for script in scripts if all(given.key is not None for given, _ in script.rows)]

    class Vectors:
        @pytest.mark.parametrize(("vector", "functions"), in_both_styles(vectors))
        def test_vector(self, vector: Vector, functions: Style) -> None:
            check_vector(vector, run_driver(vector.case, functions=functions))

        @pytest.mark.parametrize(("script", "functions"), in_both_styles(scripts))
        def test_script(self, script: Script, functions: Style) -> None:
            check_recorded(script, functions)

        @pytest.mark.parametrize("script", scripts, ids=str)
        def test_headers_of_results(self, script: Script) -> None:
            """A pair carries those of the record that completed it, an unmatched row its own (8.4)."""
            case = {**script.case, "inputs": with_headers(script.case["inputs"])}
            assert_same_by_input(run_driver(case).outputs, run_reference(case).outputs, case["inputs"])

        @pytest.mark.parametrize("script", keyed, ids=str)
        def test_script_on_four_partitions(self, script: Script) -> None:
            check_partitions(script)

        @sizes
        @pytest.mark.parametrize("script", scripts, ids=str)
        def test_script_in_batches(self, script: Script, size: int) -> None:
            check_stream_in_batches(script.case, size)

        @sizes
        @pytest.mark.parametrize("vector", vectors, ids=str)
        def test_vector_in_batches(self, vector: Vector, size: int) -> None:
            check_stream_in_batches(vector.case, size)

    return Vectors


def cases_of(operator: str, scripts: Sequence[Script]) -> tuple[list[Vector], list[Script]]:
    """The recorded cases and the tables of an operator; both exist."""
    vectors = [vector for vector in load() if vector.operator == operator]
    own = [script for script in scripts if script.case["operator"] == operator]
    assert vectors, operator
    assert own, operator
    return vectors, own


def in_both_styles(cases: Sequence[Any]) -> list[Any]:
    """Each case with callables, and with expressions where its functions have such a form."""
    styles: list[Style] = ["callables", "expressions"]
    return [
        pytest.param(case, style, id=f"{case}-{style}")
        for case in cases
        for style in styles
        if style == "callables" or expressible(case.case)
    ]


def check_recorded(script: Script, functions: Style) -> None:
    ran = run_driver(script.case, functions=functions)
    check_script(script, ran)
    if script.dropped is not None:
        assert ran.dropped == script.dropped, ran.reasons
    check_store(ran)


def check_partitions(script: Script) -> None:
    timed = is_timed(script.case)  # stream time is that of all state partitions
    expected = run_reference(script.case, partitions=1 if timed else 4)
    ran = run_driver(script.case, partitions=4, place=0 if timed else None)
    assert_same_by_input(ran.outputs, expected.outputs, script.case["inputs"])
    assert ran.dropped == expected.dropped.total(), ran.reasons


def check_store(ran: Ran) -> None:
    """The store of the result holds what its changelog folds to."""
    if ran.store is not None:
        table = fold(output for outputs in ran.outputs for output in outputs)
        assert ran.store == {key: value for key, (value, _) in table.items()}


def check_table_in_batches(case: Any, size: int, partitions: int) -> None:
    ends = batch_ends(case, size)
    timed = is_timed(case)
    ran = run_driver(case, ends=ends, partitions=partitions, place=0 if timed else None)
    found = per_batch(ran.outputs, ends)
    wanted = per_batch(run_reference(case, 1 if timed else partitions, ends).outputs, ends)
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
