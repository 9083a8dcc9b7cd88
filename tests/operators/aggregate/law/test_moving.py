"""Built-in aggregates in windows whose bounds depend on the records: failures, and each single change."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import agg, serdes
from crossstream.operators.aggregate.builtin import contents
from tests.laws.effort import cases

TEXT, NUMBER = serdes.string(), serdes.int64()
LARGE = 1 << 62
Given = list[tuple[str, str, int]]

records = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(["1", "-2", "no number", str(LARGE), str(-LARGE)]),
        st.integers(0, 25),
    ),
    max_size=16,
)
windows = st.sampled_from(
    [
        cs.SessionWindows(gap="3 ms", grace="9 ms"),
        cs.SessionWindows(gap="1 ms", grace="30 ms"),
        cs.SlidingWindows(difference="4 ms", grace="9 ms"),
        cs.SlidingWindows(difference="0 ms", grace="5 ms"),
    ]
)
cuts = st.sampled_from([1, 2, 5, 100])


def within(total: int) -> int:
    if not -(1 << 63) <= total < 1 << 63:
        raise OverflowError("beyond 64 bits")
    return total


def last_of(driver: cs.TopologyTestDriver, name: str) -> dict[Any, Any]:
    key = serdes.string()
    found = {
        one.key: (one.value, one.timestamp)
        for one in driver.create_output_topic(name, key, NUMBER).read_records()
    }
    return {window: row for window, row in found.items() if row[0] is not None}


@cases(1)
@given(records, windows, cuts, st.sampled_from(["update", "close"]))
@example(
    [("a", "1", 0), ("a", "no number", 3), ("a", "1", 6)],
    cs.SessionWindows(gap="3 ms", grace="9 ms"),
    100,
    "update",
)
@example(
    [("a", str(LARGE), 0), ("a", str(LARGE), 5), ("a", "1", 2)],
    cs.SessionWindows(gap="3 ms", grace="9 ms"),
    100,
    "update",
)
def test_a_skipped_record_changes_no_window(given_: Given, windows: Any, every: int, emit: Any) -> None:
    """A field fails, or a sum leaves 64 bits: aggregates and bounds are those that functions give which raise there."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("s", cs.Consumed(key=TEXT, value=serdes.json({"s": pl.String})))
    grouped = stream.group_by_key().windowed_by(windows, emit=emit)
    merging: Any = (
        {"merger": lambda one, other: within(one + other)} if isinstance(windows, cs.SessionWindows) else {}
    )
    made = grouped.agg(total=agg.sum(pl.col("s").cast(pl.Int64)))
    functions = grouped.aggregate(
        lambda: 0, lambda total, row: within(total + int(row["s"])), value=NUMBER, **merging
    )
    for name, table in (
        ("agg", made.map_values(lambda row: row["total"], value=NUMBER)),
        ("functions", functions),
    ):
        table.to_stream().select_key(lambda window, _: str(window)).to(
            name, cs.Produced(key=TEXT, value=NUMBER)
        )
    with cs.TopologyTestDriver(builder.build(), commit_every=every, processing_errors="skip") as driver:
        topic = driver.create_input_topic("s", TEXT, serdes.json())
        for key, text, ts in given_:
            topic.pipe_input(key, {"s": text}, timestamp=ts)
        driver.commit()
        assert last_of(driver, "agg") == last_of(driver, "functions")
        dropped = driver.metrics()["dropped"]
    by_operator: dict[str, dict[str, int]] = {}
    for name, count in dropped.items():
        operator, _, reason = name.partition(": ")
        by_operator.setdefault(operator, {})[reason] = count
    assert len(set(map(str, by_operator.values()))) <= 1, dropped
    assert len(by_operator) in (0, 2), dropped


ALL = {
    "count": agg.count(),
    "sum": agg.sum("n"),
    "mean": agg.mean("n"),
    "high": agg.max("n"),
    "first": agg.first("n"),
    "last": agg.last("n"),
    "all": agg.collect("n"),
    "set": agg.collect_set("n"),
    "different": agg.approx_distinct("n"),
    "top": agg.top(2, by="n", field="n"),
}


@cases(0.5)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 4), st.integers(0, 25)), max_size=16
    ),
    windows,
    cuts,
    st.sampled_from([2, 1 << 18]),
)
def test_every_change_of_windows_is_the_one_of_single_records(
    given_: list[tuple[str, int | None, int]], windows: Any, every: int, chunk: int
) -> None:
    def changes(every: int) -> list[Any]:
        builder = cs.StreamsBuilder()
        stream = builder.stream("s", cs.Consumed(key=TEXT, value=serdes.json({"n": pl.Int64})))
        made = stream.group_by_key().windowed_by(windows).agg(**ALL).to_stream()
        table = builder.table("t", cs.Consumed(key=TEXT, value=TEXT))
        by_text = made.map(lambda window, row: ("k", f"{window} {row}"))
        by_text.left_join(table, lambda left, right: left).to("out", cs.Produced(key=TEXT, value=TEXT))
        with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
            topic = driver.create_input_topic("s", TEXT, serdes.json({"n": pl.Int64}))
            for key, number, ts in given_:
                topic.pipe_input(key, {"n": number}, timestamp=ts)
            driver.commit()
            return driver.create_output_topic("out", TEXT, TEXT).read_values()

    single = changes(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contents, "CHUNK", chunk)
        assert changes(every) == single


@pytest.mark.parametrize("every", [1, 2, 3])
def test_where_sessions_are_joined_the_records_of_the_earlier_one_come_first(every: int) -> None:
    """Story: a record at 10, an earlier one at 0, and one at 5, which joins both."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("s", cs.Consumed(key=TEXT, value=serdes.json({"n": pl.Int64})))
    sessions = stream.group_by_key().windowed_by(cs.SessionWindows(gap="5 ms", grace="20 ms"))
    sessions.agg(
        cs.Materialized(store="made"), all=agg.collect("n"), first=agg.first("n"), last=agg.last("n")
    )
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        topic = driver.create_input_topic("s", TEXT, serdes.json({"n": pl.Int64}))
        for number, ts in ((2, 10), (1, 0), (3, 5)):
            topic.pipe_input("k", {"n": number}, timestamp=ts)
        driver.commit()
        rows = [row for _, row in driver.get_session_store("made").all()]
    assert rows == [{"all": [1, 2, 3], "first": 1, "last": 3}]
