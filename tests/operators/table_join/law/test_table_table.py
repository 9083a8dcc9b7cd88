"""The table-table join by primary key, through the driver, against the plain reference."""

from __future__ import annotations

from hypothesis import given

from tests.laws.effort import law
from tests.laws.engine import Way, rows_of, run_engine, ways
from tests.laws.strategies import Case, flipped, table_cases


@law
@given(table_cases(kinds=("inner", "outer")), ways())
def test_a_flipped_join_is_the_join_of_flipped_tables(case: Case, way: Way) -> None:
    assert rows_of(run_engine(case, way)) == rows_of(run_engine(flipped(case), way))


@law
@given(table_cases(kinds=("left",)), ways())
def test_left_is_inner_and_the_left_rows_without_partner(case: Case, way: Way) -> None:
    left, inner = rows_of(run_engine(case, way)), rows_of(run_engine({**case, "type": "inner"}, way))
    assert inner.items() <= left.items()
    assert all(value.endswith(",∅") for key, value in left.items() if key not in inner)


@law
@given(table_cases(kinds=("outer",)), ways())
def test_outer_is_left_and_the_right_rows_without_partner(case: Case, way: Way) -> None:
    outer, left = rows_of(run_engine(case, way)), rows_of(run_engine({**case, "type": "left"}, way))
    assert left.items() <= outer.items()
    assert all(value.startswith("∅,") for key, value in outer.items() if key not in left)
