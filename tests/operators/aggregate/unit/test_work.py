"""How much work a record is: a batch is folded in columns, so a record more is hardly any more calls."""

from __future__ import annotations

import sys
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import agg, serdes

TEXT = serdes.string()
VALUE = serdes.json({"n": pl.Int64, "x": pl.Float64, "s": pl.String})
ALL = {
    "count": agg.count(),
    "sum": agg.sum("n"),
    "mean": agg.mean("x"),
    "low": agg.min("x"),
    "high": agg.max("s"),
    "first": agg.first("s"),
    "last": agg.last("s"),
    "all": agg.collect("s"),
    "set": agg.collect_set("s"),
    "different": agg.approx_distinct("s"),
    "top": agg.top(2, by="x"),
}
WINDOWS = {
    "none": None,
    "hopping": cs.TimeWindows(size=20, advance=10, grace=50),
    "session": cs.SessionWindows(gap=4, grace=50),
    "sliding": cs.SlidingWindows(difference=4, grace=50),
}
MOST = 150
"""Calls for a record more; a fold of its own for each record makes 20,000 with these aggregates."""


def calls(windows: Any, each: bool, records: int) -> int:
    """The calls of Python and C functions in a batch. ``each``: every change is given out, not the last of a batch."""
    builder = cs.StreamsBuilder()
    grouped: Any = builder.stream("s", cs.Consumed(key=TEXT, value=VALUE)).group_by_key()
    if windows is not None:
        grouped = grouped.windowed_by(windows)
    stream = grouped.agg(**ALL).to_stream()
    if each:
        other = builder.table("t", cs.Consumed(key=TEXT, value=TEXT))
        stream = stream.map(lambda key, row: (str(key), "")).join(other, lambda left, right: left)
    stream.to("out", cs.Produced(key=TEXT, value=TEXT)) if each else stream.to("out")
    made = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    with cs.TopologyTestDriver(builder.build(), commit_every=10**9) as driver:
        topic = driver.create_input_topic("s", TEXT, VALUE)
        for number in range(records):
            # Sessions of a few records; every third record is late, and two sessions are joined now and then.
            value = {"n": number, "x": number / 2, "s": str(number % 5)}
            ts = 10 * (number // 4) + number % 4 - 7 * (number % 3 == 2)
            topic.pipe_input(f"k{number % 2}", value, timestamp=max(ts, 0))
        sys.setprofile(count)
        try:
            driver.commit()
        finally:
            sys.setprofile(None)
    return made


@pytest.mark.parametrize("each", [False, True], ids=["net", "each"])
@pytest.mark.parametrize("windows", WINDOWS)
def test_a_record_is_no_polars_work_of_its_own(windows: str, each: bool) -> None:
    few, many = (calls(WINDOWS[windows], each, records) for records in (100, 300))
    assert (many - few) / 200 < MOST
