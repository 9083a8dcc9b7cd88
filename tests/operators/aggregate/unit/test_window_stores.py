"""Stores of windows and sessions: what queries of them give, and what they no longer keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.errors import StateError, TopologyError

TEXT, NUMBER = serdes.string(), serdes.int64()


@contextmanager
def counting(
    windows: Any, records: list[tuple[str, int]], *, emit: Any = "update", every: int = 1
) -> Iterator[cs.TopologyTestDriver]:
    """A driver that has counted records (key, timestamp) in windows, into the store "counts"."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER))
    grouped = stream.group_by_key().windowed_by(windows, emit=emit)
    grouped.count(materialized=cs.Materialized(store="counts"))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for key, ts in records:
            topic.pipe_input(key, 1, timestamp=ts)
        driver.commit()
        yield driver


def test_windows_of_a_key_by_start() -> None:
    records = [("a", 1), ("a", 12), ("b", 13), ("a", 14), ("a", 25)]
    with counting(cs.TimeWindows(size=10, grace=100), records) as driver:
        store = driver.get_window_store("counts")
        assert store.kind == "window"
        assert store.fetch("a") == [(0, 1), (10, 2), (20, 1)]
        assert store.fetch("a", 5, 20) == [(10, 2), (20, 1)]
        assert store.fetch("a", 10, 10) == [(10, 2)]
        assert store.fetch("c") == []
        assert store.get(cs.Windowed("a", 10, 20)) == 2
        assert store.get(cs.Windowed("a", 10, 21)) is None
        assert list(store.range("b")) == [(cs.Windowed("b", 10, 20), 1)]
        assert [key for key, _ in store.prefix("a")] == [("a", 0, 10), ("a", 10, 20), ("a", 20, 30)]
        assert [key for key, _ in store.all()] == [("a", 0, 10), ("a", 10, 20), ("a", 20, 30), ("b", 10, 20)]
        assert store.to_arrow().select(["key", "start", "end", "value", "timestamp"]).slice(
            1, 1
        ).to_pylist() == [{"key": "a", "start": 10, "end": 20, "value": 2, "timestamp": 14}]
        assert store.to_arrow().schema.field("end").type == pa.int64()
        with pytest.raises(StateError, match="keeps windows by time"):
            store.get("a")


def test_sessions_of_a_key() -> None:
    records = [("a", 1), ("a", 5), ("a", 30), ("b", 31)]
    with counting(cs.SessionWindows(gap=10, grace=50), records) as driver:
        store = driver.get_session_store("counts")
        assert store.kind == "session"
        assert store.fetch("a") == [((1, 5), 2), ((30, 30), 1)]
        assert store.fetch("a", 5, 29) == [((1, 5), 2)]
        assert store.fetch("a", 6) == [((30, 30), 1)]
        assert store.get(cs.Windowed("a", 1, 5)) == 2
        assert store.get(cs.Windowed("a", 2, 5)) is None
        assert list(store.all()) == [(("a", 1, 5), 2), (("a", 30, 30), 1), (("b", 31, 31), 1)]
        assert store.to_arrow().to_pylist()[0] == {
            "key": "a",
            "start": 1,
            "end": 5,
            "value": 2,
            "timestamp": 5,
        }


def test_each_kind_has_its_getter() -> None:
    with counting(cs.SessionWindows(gap=10), []) as driver:
        with pytest.raises(StateError, match="is a session store, not a window store") as raised:
            driver.get_window_store("counts")
        assert raised.value.next == "call get_session_store('counts')"


def test_windows_that_have_expired_do_not_show() -> None:
    with counting(cs.TimeWindows(size=10), [("a", 1), ("a", 12), ("b", 35)]) as driver:
        assert driver.get_window_store("counts").fetch("a") == []
        assert list(driver.get_window_store("counts").all()) == [(("b", 30, 40), 1)]


def test_materialized_retention_keeps_closed_windows() -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key()
    kept = cs.Materialized(store="counts", retention=30)
    stream.windowed_by(cs.TimeWindows(size=10)).count(materialized=kept)
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for ts in (1, 12, 35):
            topic.pipe_input("a", 1, timestamp=ts)
        assert driver.get_window_store("counts").fetch("a") == [(10, 1), (30, 1)]


def test_the_unlimited_window_never_ends() -> None:
    with counting(cs.UnlimitedWindows(start=5), [("a", 1), ("a", 5), ("a", 10**9), ("a", 7)]) as driver:
        store = driver.get_window_store("counts")
        assert store.fetch("a") == [(5, 3)]
        assert list(store.all()) == [(cs.Windowed("a", 5, (1 << 63) - 1), 3)]
        assert store.to_arrow().to_pylist()[0]["timestamp"] == 10**9
    with pytest.raises(TopologyError, match="never closes"):
        cs.StreamsBuilder().stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key().windowed_by(
            cs.UnlimitedWindows(), emit="close"
        )


def test_an_unlimited_window_begins_at_a_datetime_too() -> None:
    begin = datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert cs.UnlimitedWindows(start=begin) == cs.UnlimitedWindows(start=1000)
    for wrong in (-1, True, None, 1.5):
        with pytest.raises(TopologyError, match="start") as refused:
            cs.UnlimitedWindows(start=wrong)  # type: ignore[arg-type]
        assert refused.value.code == "CS-110"


@pytest.mark.parametrize("size", ["unlimited", (1 << 63) - 1])
def test_the_unlimited_window_goes_to_a_topic_and_comes_back(size: Any) -> None:
    builder = cs.StreamsBuilder()
    counts = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key()
    counts.windowed_by(cs.UnlimitedWindows(start=5)).count().to("out", key=serdes.windowed(TEXT, size))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_input("a", 1, timestamp=7)
        result = driver.create_output_topic("out", serdes.windowed(TEXT, size), NUMBER)
        assert result.read_records() == [cs.TestRecord(cs.Windowed("a", 5, (1 << 63) - 1), 1, 7)]


def test_windows_without_a_difference_go_to_a_topic() -> None:
    builder = cs.StreamsBuilder()
    counts = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key()
    counts.windowed_by(cs.SlidingWindows(difference=0)).count().to("out", key=serdes.windowed(TEXT, 0))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_input("a", 1, timestamp=7)
        result = driver.create_output_topic("out", serdes.windowed(TEXT, 0), NUMBER)
        assert result.read_records() == [cs.TestRecord(cs.Windowed("a", 7, 7), 1, 7)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "windows", [cs.TimeWindows(size=100), cs.SessionWindows(gap=20), cs.SlidingWindows(difference=50)]
)
@pytest.mark.parametrize("emit", ["update", "close"])
def test_the_store_is_as_big_as_what_is_open(windows: Any, emit: str) -> None:
    """Over 100 window lengths: rows and bytes after the first lengths are those after the last."""
    sizes = []
    builder = cs.StreamsBuilder()
    grouped = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key()
    grouped.windowed_by(windows, emit=emit).count(materialized=cs.Materialized(store="counts"))  # type: ignore[arg-type]
    with cs.TopologyTestDriver(builder.build(), commit_every=10**6) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        getter = (
            driver.get_session_store if isinstance(windows, cs.SessionWindows) else driver.get_window_store
        )
        for batch in range(200):
            for ts in range(batch * 50, batch * 50 + 50, 10):
                topic.pipe_input(f"k{ts // 10 % 7}", 1, timestamp=ts)
            driver.commit()
            versions = getter("counts").versions()
            runs = [
                segment.run for version in versions for part in version.parts for segment in part.segments
            ]
            sizes.append(
                (
                    sum(run.rows for run in runs),
                    sum(column.nbytes for run in runs for column in run.columns.values()),
                )
            )
    first, last = sizes[10:50], sizes[-40:]
    assert max(last)[0] <= 2 * max(first)[0]
    assert max(size for _, size in last) <= 2 * max(size for _, size in first)


def aggregated(
    windows: Any, adder: Callable[..., Any], merger: Callable[..., Any] | None = None
) -> cs.Topology:
    builder = cs.StreamsBuilder()
    grouped = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key().windowed_by(windows)
    kept = cs.Materialized(store="made", value=serdes.json())
    grouped.aggregate(list, adder, merger, materialized=kept)
    return builder.build()


def append(values: list[int], value: int) -> list[int]:
    values.append(value)
    return values


def extend(left: list[int], right: list[int]) -> list[int]:
    left.extend(right)
    return left


@pytest.mark.parametrize("every", [1, 100])
def test_functions_may_change_their_aggregate(every: int) -> None:
    records = [(1, 10), (2, 14), (3, 12), (4, 30), (5, 21)]
    sliding = aggregated(cs.SlidingWindows(difference=5, grace=50), append)
    with cs.TopologyTestDriver(sliding, commit_every=every) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for value, ts in records:
            topic.pipe_input("a", value, timestamp=ts)
        driver.commit()
        assert driver.get_window_store("made").fetch("a") == [
            (5, [1]), (7, [1, 3]), (9, [1, 2, 3]), (11, [2, 3]), (13, [2]), (16, [5]), (25, [4])
        ]  # fmt: skip
    sessions = aggregated(cs.SessionWindows(gap=9, grace=50), append, extend)
    with cs.TopologyTestDriver(sessions, commit_every=every) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for value, ts in records:
            topic.pipe_input("a", value, timestamp=ts)
        driver.commit()
        assert driver.get_session_store("made").fetch("a") == [((10, 30), [1, 2, 3, 4, 5])]


@pytest.mark.parametrize("windows", [cs.SlidingWindows(difference=5), cs.SessionWindows(gap=5)])
def test_a_record_that_a_function_fails_on_changes_nothing(windows: Any) -> None:
    def adder(values: list[int], value: int) -> list[int]:
        return [*values, 10 // value]

    merger = {"merger": extend} if isinstance(windows, cs.SessionWindows) else {}
    topology = aggregated(windows, adder, *merger.values())
    with cs.TopologyTestDriver(topology, commit_every=10, processing_errors="skip") as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for value, ts in ((1, 10), (0, 11), (5, 12)):
            topic.pipe_input("a", value, timestamp=ts)
        driver.commit()
        found = {tuple(value) for _, value in driver._store("made", kind_of(windows)).all()}
        assert (10, 2) in found


def kind_of(windows: Any) -> Any:
    return "session" if isinstance(windows, cs.SessionWindows) else "window"


@pytest.mark.parametrize(
    ("windows", "key"),
    [
        (cs.TimeWindows(size=100), serdes.windowed(TEXT, 100)),
        (cs.SessionWindows(gap=100), serdes.session_windowed(TEXT)),
        (cs.SlidingWindows(difference=100), serdes.windowed(TEXT, 100)),
    ],
)
def test_windows_close_when_no_records_come(windows: Any, key: Any) -> None:
    builder = cs.StreamsBuilder()
    grouped = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key()
    made = grouped.windowed_by(windows, emit="close").count()
    made.to_stream().to("out", cs.Produced(key=key, value=NUMBER))
    with cs.TopologyTestDriver(builder.build(), idle_after=1000) as driver:
        output = driver.create_output_topic("out", key, NUMBER)
        driver.create_input_topic("in", TEXT, NUMBER).pipe_input("a", 1, timestamp=150)
        assert output.is_empty
        driver.advance_wall_clock_time(900)
        assert output.is_empty
        driver.advance_wall_clock_time(500)
        assert [(record.key.key, record.value) for record in output.read_records()] == [("a", 1)]
        driver.advance_wall_clock_time(5000)
        assert output.is_empty


@pytest.mark.parametrize(
    "windows", [cs.SessionWindows(gap=10, grace=5), cs.SlidingWindows(difference=10, grace=5)]
)
@pytest.mark.parametrize("every", [1, 100])
def test_several_streams_share_windows(windows: Any, every: int) -> None:
    builder, consumed = cs.StreamsBuilder(), cs.Consumed(key=TEXT, value=NUMBER)
    bought, sold = (builder.stream(name, consumed).group_by_key() for name in ("bought", "sold"))
    both = bought.cogroup(lambda n, value: n + value).cogroup(sold, lambda n, value: n - value)
    merger = (lambda left, right: left + right) if isinstance(windows, cs.SessionWindows) else None
    kept = cs.Materialized(store="stock", value=NUMBER)
    both.windowed_by(windows).aggregate(lambda: 0, merger, materialized=kept)
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        topics = [driver.create_input_topic(name, TEXT, NUMBER) for name in ("bought", "sold")]
        topics[0].pipe_input("a", 5, timestamp=10)
        topics[1].pipe_input("a", 2, timestamp=15)
        topics[0].pipe_input("a", 1, timestamp=12)
        driver.commit()
        if merger is not None:
            assert driver.get_session_store("stock").fetch("a") == [((10, 15), 4)]
        else:
            assert driver.get_window_store("stock").fetch("a") == [(0, 5), (2, 6), (5, 4), (11, -1), (13, -2)]
