"""Searches for what was there at a moment, against looking through everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.columns.changes import Changes
from crossstream.columns.order import by_key, came_before, last_below, last_per_trigger, running_maximum_of
from crossstream.columns.values import Values
from tests.laws.effort import cases

law = cases(3.333)
moments = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


def changes(places: Sequence[tuple[int, int]], keys: Sequence[str] | None = None) -> Changes:
    wire = Values(serdes.string(), objects=list(keys or ["k"] * len(places)))
    major, minor = (np.array([place[n] for place in places], np.int64) for n in (0, 1))
    return Changes(wire, wire, major, major, minor)


@law
@given(moments, moments, st.booleans())
def test_came_before(records: list[tuple[int, int]], events: list[tuple[int, int]], or_with: bool) -> None:
    events = sorted(events)
    wanted = [sum(event <= record if or_with else event < record for event in events) for record in records]
    asking = changes(records)
    counts = came_before(asking.major, asking.minor, changes(events), or_with=or_with)
    assert counts.tolist() == wanted


@law
@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 10)), max_size=20),
)
def test_last_below(values: list[int], asked: list[tuple[int, int, int]]) -> None:
    asked = [(first, last, bound) for first, last, bound in asked if first <= last <= len(values)]
    first, last, bound = (np.array([one[n] for one in asked], np.int64) for n in range(3))
    wanted = [max((n for n in range(a, b) if values[n] < x), default=-1) for a, b, x in asked]
    assert last_below(np.array(values, np.int64), first, last, bound).tolist() == wanted


@law
@given(st.lists(st.lists(st.integers(-5, 5), min_size=1), max_size=6))
def test_running_maximum_of(groups: list[list[int]]) -> None:
    values = np.array([value for group in groups for value in group], np.int64)
    starts = np.cumsum([0, *map(len, groups)])[:-1].astype(np.int64)
    wanted = [max(group[: n + 1]) for group in groups for n in range(len(group))]
    assert running_maximum_of(values, starts).tolist() == wanted


@law
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 1)), max_size=12))
def test_last_per_trigger(rows: list[tuple[str, int, int]]) -> None:
    """Of the rows that one input record makes of one key the last stays."""
    rows = sorted(rows, key=lambda row: row[1:])
    made = changes([row[1:] for row in rows], [row[0] for row in rows])
    kept, begins = last_per_trigger(made, *by_key(made, made.hashes(1)))
    wanted = sorted({row: number for number, row in enumerate(rows)}.values())
    assert sorted(kept.tolist()) == wanted
    assert begins.sum() == len({row[0] for row in rows})
