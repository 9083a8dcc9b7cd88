"""A crash at any step, as often as you like, changes no result of a join of streams, nor which records wait on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.runner import build
from tests.laws.crashes import some_crashes, some_places, some_rows, weathered
from tests.laws.effort import cases
from tests.laws.strategies import Case, stream_cases

any_case = stream_cases() | stream_cases(eager=True) | stream_cases(kinds=("outer",), self_join=True)


@cases(0.5)
@given(any_case, some_places, st.integers(1, 6), some_crashes, some_rows)
def test_crashes_change_nothing(
    case: Case, places: list[int], size: int, crashes: list[int], rows: int
) -> None:
    with weathered(build(case), case, places, size, crashes, rows) as (calm, stormy):
        assert stormy.wire("results") == calm.wire("results")
