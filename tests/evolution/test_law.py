"""The law of changes: random applications, a random change of the twelve kinds, random histories before and after.

Every result folds to that of a fresh run of the new code over all input, public stores are equal, and what the change
wrote are exactly the rows that differ, each once (`changes/living.py`).
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.evolution.changes.cases import Case, drawn, shrunk
from tests.evolution.changes.living import check
from tests.evolution.changes.pinned import FOUND
from tests.laws.effort import cases

seeds = st.integers(0, 10**9)


def once_found(share: float) -> settings:
    """As `cases`; a seed says nothing of another one, so what fails gets smaller as data."""
    return settings(cases(share), phases=(Phase.explicit, Phase.reuse, Phase.generate))


def failure(case: Case) -> object:
    """How a case fails: the kind of the error, and its code."""
    try:
        check(case)
    except Exception as error:
        return type(error), getattr(error, "code", None)
    return None


def check_smaller(case: Case) -> int:
    """Checks a case; shows a smaller one that fails in the same way."""
    try:
        return check(case)
    except Exception as error:
        error.add_note(f"a smaller case: {shrunk(case, failure)!r}")
        raise


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_what_was_found(case: Case) -> None:
    assert check(case) == len(case.stages) - 1


@once_found(0.5)
@given(seeds)
def test_a_change_of_tables_is_exact(seed: int) -> None:
    check_smaller(drawn(Random(seed), streams=False))


@once_found(0.3)
@given(seeds)
def test_a_change_of_an_application_with_streams_is_exact(seed: int) -> None:
    check_smaller(drawn(Random(seed), streams=True))


@once_found(0.1)
@given(seeds)
def test_ten_changes_in_a_row_are_exact_with_other_partitions_between(seed: int) -> None:
    check_smaller(drawn(Random(seed), count=10, records=8))


def test_few_changes_are_refused() -> None:
    """A law that most cases end before is not one."""
    done: Counter[bool] = Counter()
    for seed in range(10):
        case = drawn(Random(seed), streams=seed % 3 == 0, records=6)
        done[check(case) == len(case.stages) - 1] += 1
    assert done[True] >= 9
