"""What stands behind the table of `agg` in windows whose bounds depend on the records: any operator, any function."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import agg, serdes

TEXT = serdes.string()
VALUE = serdes.json({"x": pl.Float64, "s": pl.String})
AGGREGATES = {
    "count": agg.count(),
    "sum": agg.sum("x"),
    "mean": agg.mean("x"),
    "min": agg.min("x"),
    "max": agg.max("s"),
    "first": agg.first("s"),
    "last": agg.last("x"),
    "collect": agg.collect("s"),
    "collect_set": agg.collect_set("x"),
    "approx_distinct": agg.approx_distinct("x"),
    "count_distinct": agg.count_distinct("x"),
    "top": agg.top(2, by="x", field="s"),
}
WINDOWS = {
    "session": cs.SessionWindows(gap=3, grace=20),
    "sliding": cs.SlidingWindows(difference=4, grace=20),
}
RECORDS = [
    ("k", 0.5, 1),
    ("k", None, 9),
    ("j", 0.1, 9),
    ("k", 0.25, 5),
    ("k", -0.5, 7),
    ("j", 0.2, 2),
    ("k", 2.0, 30),
]
FILTERS = {"callable": lambda row: row["m"] is not None, "expression": pl.col("m").is_not_null()}


@pytest.mark.parametrize(("form", "every"), [("callable", 1), ("expression", 3), ("callable", 100)])
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("name", AGGREGATES)
def test_a_filter_and_a_grouping_behind_windows_see_new_and_old_rows(
    name: str, windows: str, form: str, every: int
) -> None:
    builder = cs.StreamsBuilder()
    windowed = builder.stream("s", cs.Consumed(key=TEXT, value=VALUE)).group_by_key()
    table = windowed.windowed_by(WINDOWS[windows]).agg(m=AGGREGATES[name])
    table.to_stream().map(lambda key, row: (f"{key}", row)).to(
        "all", cs.Produced(key=TEXT, value=serdes.json())
    )
    kept = table.filter(FILTERS[form])
    grouped = kept.group_by(lambda key, row: (str(row["m"]), 1), cs.Grouped(key=TEXT, value=serdes.int64()))
    grouped.count(materialized=cs.Materialized(store="counts"))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        topic = driver.create_input_topic("s", TEXT, VALUE)
        for key, x, ts in RECORDS:
            topic.pipe_input(key, {"x": x, "s": str(x)}, timestamp=ts)
        driver.commit()
        rows: dict[str, Any] = dict(driver.create_output_topic("all", TEXT, serdes.json()).read_key_values())
        found = {value: count for value, count in driver.get_key_value_store("counts").all() if count}
    assert found == Counter(
        str(row["m"]) for row in rows.values() if row is not None and row["m"] is not None
    )


@pytest.mark.parametrize("windows", [*WINDOWS.values(), cs.TimeWindows(size=5)], ids=repr)
def test_a_named_table_of_windows_is_joined_by_its_windows(windows: Any) -> None:
    builder = cs.StreamsBuilder()
    windowed = builder.stream("s", cs.Consumed(key=TEXT, value=VALUE)).group_by_key().windowed_by(windows)
    table = windowed.agg(cs.Materialized(store="made"), m=agg.sum("x"))
    doubled = table.map_values(lambda row: 2 * row["m"], value=serdes.json())
    joined = table.join(doubled, lambda row, other: [row["m"], other])
    joined.to_stream().map(lambda key, pair: (key.key, pair)).to(
        "out", cs.Produced(key=TEXT, value=serdes.json())
    )
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("s", TEXT, VALUE).pipe_input("k", {"x": 0.5, "s": None}, timestamp=7)
        found = driver.create_output_topic("out", TEXT, serdes.json()).read_key_values()
    assert found[-1] == ("k", [0.5, 1.0])
