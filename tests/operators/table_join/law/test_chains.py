"""Chains of table joins: results as inputs, tables used more than once, against the plain reference."""

from __future__ import annotations

from hypothesis import given

from tests.laws.effort import law
from tests.laws.engine import Way, check_by_record, check_in_batches, ways
from tests.laws.strategies import Case, chain_cases


@law
@given(chain_cases(), ways(by_record=True))
def test_one_record_at_a_time_is_the_reference(case: Case, way: Way) -> None:
    check_by_record(case, way)


@law
@given(chain_cases(), ways())
def test_no_cut_into_batches_changes_the_table(case: Case, way: Way) -> None:
    check_in_batches(case, way)
