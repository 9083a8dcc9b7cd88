"""Rows that may stand in one column, in groups."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.algebra.undeclared import groups_of, groups_of_numbers

_PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=20)


@given(_PAIRS)
@example([])
@example([(1, 0), (0, 2), (1, 0)])
def test_numbers_make_the_groups_that_marks_make(rows: list[tuple[int, int]]) -> None:
    marks = [[row[place] for row in rows] for place in range(2)]
    groups = groups_of_numbers([np.array(one, np.int64) for one in marks])
    assert [group.tolist() for group in groups] == [group.tolist() for group in groups_of(marks)]
