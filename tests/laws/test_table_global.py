"""The join of a table and a global table, through the driver: what a foreign-key join of two tables gives."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.effort import cases, law
from tests.laws.engine import Way, check_by_record, check_in_batches, rows_of, run_engine, ways
from tests.laws.strategies import Case, foreign_key_cases
from tests.laws.wide import wide_cases


def with_global(case: Case) -> Case:
    """The foreign-key join with its right table as a global one, which keeps no versions."""
    params: dict[str, Any] = {**case["params"], "right_versioned_ms": None, "global": True}
    return {**case, "params": params}


table_global_cases = foreign_key_cases().map(with_global)


@law
@given(table_global_cases, ways(by_record=True))
def test_one_record_at_a_time_is_the_reference(case: Case, way: Way) -> None:
    check_by_record(case, way)


@law
@given(table_global_cases, ways())
def test_no_cut_into_batches_changes_the_table(case: Case, way: Way) -> None:
    check_in_batches(case, way)


@cases(0.3)
@given(wide_cases().map(with_global), ways())
def test_many_rows_in_a_batch_do_not_change_the_table(case: Case, way: Way) -> None:
    check_in_batches(case, way)


@law
@given(foreign_key_cases(versioned=False).map(with_global), ways(functions=["expressions"]))
def test_expressions_give_what_callables_give(case: Case, way: Way) -> None:
    check_in_batches(case, way)


@law
@given(foreign_key_cases(versioned=False), ways(), st.booleans())
def test_a_global_table_joins_like_a_table(case: Case, way: Way, every: bool) -> None:
    """Also batch by batch, with timestamps, as long as one thing happens in a batch."""
    way = Way(way.partitions, 1, places=way.places, bits=way.bits, stored=way.stored) if every else way
    here, there = run_engine(case, way), run_engine(with_global(case), way)
    assert rows_of(here) == rows_of(there)
    if every:
        assert [sorted(map(str, outputs)) for outputs in here.outputs] == [
            sorted(map(str, outputs)) for outputs in there.outputs
        ]
