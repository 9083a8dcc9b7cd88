"""The table-table join by foreign key, through the driver, against the plain reference."""

from __future__ import annotations

from hypothesis import given

from tests.laws.effort import law
from tests.laws.engine import Way, rows_of, run_engine, ways
from tests.laws.strategies import Case, foreign_key_cases


@law
@given(foreign_key_cases(kinds=("left",)), ways())
def test_left_is_inner_and_the_left_rows_without_partner(case: Case, way: Way) -> None:
    left = rows_of(run_engine(case, way))
    inner = rows_of(run_engine({**case, "type": "inner"}, way))
    assert inner.items() <= left.items()
    assert all(value.endswith(",∅") for key, value in left.items() if key not in inner)
