"""The table-table join by foreign key, through the driver, against the plain reference."""

from __future__ import annotations

from hypothesis import example, given

from tests.laws.effort import cases, law
from tests.laws.engine import Way, check_by_record, check_in_batches, rows_of, run_engine, ways
from tests.laws.strategies import Case, foreign_key_cases
from tests.laws.wide import sent_again_while_partners_go, wide_cases


@law
@given(foreign_key_cases(), ways(by_record=True))
def test_one_record_at_a_time_is_the_reference(case: Case, way: Way) -> None:
    check_by_record(case, way)


@law
@given(foreign_key_cases(), ways())
def test_no_cut_into_batches_changes_the_table(case: Case, way: Way) -> None:
    check_in_batches(case, way)


@cases(0.3)
@given(wide_cases(), ways())
@example(sent_again_while_partners_go(20), Way(every=40))
def test_many_rows_in_a_batch_do_not_change_the_table(case: Case, way: Way) -> None:
    check_in_batches(case, way)


@law
@given(foreign_key_cases(versioned=False), ways(functions=["expressions"]))
def test_expressions_give_what_callables_give(case: Case, way: Way) -> None:
    check_in_batches(case, way)


@law
@given(foreign_key_cases(kinds=("left",)), ways())
def test_left_is_inner_and_the_left_rows_without_partner(case: Case, way: Way) -> None:
    left = rows_of(run_engine(case, way))
    inner = rows_of(run_engine({**case, "type": "inner"}, way))
    assert inner.items() <= left.items()
    assert all(value.endswith(",∅") for key, value in left.items() if key not in inner)
