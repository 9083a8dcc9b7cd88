"""The law of changes over every kind of operator: another one in the place of one of a random graph."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.evolution.changes.compositions import check, drawn
from tests.evolution.test_law import once_found


@once_found(0.5)
@given(st.integers(0, 10**9))
def test_another_operator(seed: int) -> None:
    case = drawn(Random(seed))
    try:
        check(case)
    except Exception as error:
        error.add_note(repr(case))
        raise


def test_few_changes_are_refused() -> None:
    assert sum(check(drawn(Random(seed))) for seed in range(10)) >= 9
