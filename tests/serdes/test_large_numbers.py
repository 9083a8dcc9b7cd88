"""Numbers of more than 64 bits, and the longest durations: taken as they are, or refused with a code."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.durations import LATEST, LONGEST, to_milliseconds
from crossstream.storage.root import root_of
from tests.docs.state_folder import Writer

TEXT, JSON = serdes.string(), serdes.json()
TEXTS = cs.Consumed(key=TEXT, value=TEXT)


# -- durations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written", [LONGEST + 1, -LONGEST - 1, sys.maxsize, 1 << 70, f"{LONGEST + 1} ms", "9" * 5_000 + " days"]
)
def test_no_longer_durations(written: Any) -> None:
    with pytest.raises(cs.ConfigError) as caught:
        to_milliseconds(written, "grace", minimum=None)
    assert caught.value.code == "CS-210"


def test_the_longest_durations() -> None:
    assert to_milliseconds(LONGEST) == LONGEST
    assert to_milliseconds(-LONGEST, minimum=None) == -LONGEST
    assert to_milliseconds(timedelta.max - timedelta(microseconds=999)) < LONGEST


@pytest.mark.parametrize(
    "make",
    [
        lambda: cs.JoinWindows.of(sys.maxsize),
        lambda: cs.JoinWindows(before=0, after=2**63 - 1),
        lambda: cs.JoinWindows(before=0, after=0, grace=2**63 - 1),
        lambda: cs.Materialized(history_retention="99999999999999999999 days"),
        lambda: cs.Joined(grace=2**63 - 1),
    ],
)
def test_options_that_are_longer(make: Any) -> None:
    with pytest.raises(cs.TopologyError, match="73 million years") as caught:
        make()
    assert caught.value.code == "CS-110"
    assert caught.value.next is not None


def joined(how: str, windows: cs.JoinWindows, given: list[tuple[str, str, int]]) -> list[Any]:
    """Values and timestamps that the join of two streams gives, record by record; ``given``: topic, value, time."""
    builder = cs.StreamsBuilder()
    left, right = (builder.stream(topic, TEXTS) for topic in ("left", "right"))
    result = getattr(left, how)(right, lambda one, other: f"{one},{other}", windows)
    result.to("out", cs.Produced(key=TEXT, value=TEXT))
    with cs.TopologyTestDriver(builder.build(), idle_after="1 second") as driver:
        topics = {topic: driver.create_input_topic(topic, TEXT, TEXT) for topic in ("left", "right")}
        for topic, value, timestamp in given:
            topics[topic].pipe_input("k", value, timestamp)
        driver.advance_wall_clock_time("1 hour")
        records = driver.create_output_topic("out", TEXT, TEXT).read_records()
    return [(record.value, record.timestamp) for record in records]


@pytest.mark.parametrize("how", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("grace", [0, LONGEST])
@pytest.mark.parametrize("end", [1_000, LONGEST, LATEST])
def test_the_longest_window_finds_every_pair(how: str, grace: int, end: int) -> None:
    windows = cs.JoinWindows.of(LONGEST, grace=grace)
    given = [("left", "a", 0), ("right", "x", min(end, LONGEST)), ("left", "b", min(end, LONGEST))]
    found = joined(how, windows, given)
    assert found == [("a,x", min(end, LONGEST)), ("b,x", min(end, LONGEST))]
    assert joined(how, windows, [("right", "x", end), ("left", "a", end)]) == [("a,x", end)]


@pytest.mark.parametrize("how", ["join", "left_join", "outer_join"])
def test_a_window_that_is_long_on_one_side_finds_every_pair(how: str) -> None:
    ahead = cs.JoinWindows(before=0, after=LONGEST)
    assert joined(how, ahead, [("left", "a", 0), ("right", "x", LONGEST)]) == [("a,x", LONGEST)]
    behind = cs.JoinWindows(before=LONGEST, after=-LONGEST)
    assert joined(how, behind, [("right", "x", 0), ("left", "a", LONGEST)]) == [("a,x", LONGEST)]


def test_nobody_comes_out_of_the_longest_window_alone() -> None:
    given = [("left", "a", 0), ("left", "b", 1), ("right", "x", 86_400_000)]
    assert joined("outer_join", cs.JoinWindows.of(LONGEST), given[:2]) == []
    assert joined("outer_join", cs.JoinWindows.of(0, grace=LONGEST), given) == []
    assert joined("outer_join", cs.JoinWindows(before=0, after=LONGEST), given) == [
        ("a,x", 86_400_000),
        ("b,x", 86_400_000),
    ]


def test_whoever_is_behind_the_longest_window_comes_out_alone() -> None:
    windows = cs.JoinWindows(before=0, after=LONGEST)
    given = [("left", "a", 0), ("left", "b", LONGEST), ("left", "c", LONGEST + 1)]
    assert joined("left_join", windows, given) == [("a,None", 0)]


def looked_up(joined: cs.Joined, given: list[tuple[str, str, int]]) -> list[Any]:
    builder = cs.StreamsBuilder()
    table = builder.table("table", TEXTS, cs.Materialized(history_retention=LONGEST))
    stream = builder.stream("stream", TEXTS)
    result = stream.left_join(table, lambda one, row: f"{one},{row}", joined)
    result.to("out", cs.Produced(key=TEXT, value=TEXT))
    with cs.TopologyTestDriver(builder.build()) as driver:
        topics = {topic: driver.create_input_topic(topic, TEXT, TEXT) for topic in ("table", "stream")}
        for topic, value, timestamp in given:
            topics[topic].pipe_input("k", value, timestamp)
        return driver.create_output_topic("out", TEXT, TEXT).read_values()


def test_the_longest_history_and_grace_period() -> None:
    given = [("table", "old", 0), ("stream", "s", 5), ("table", "new", 10), ("stream", "t", LONGEST)]
    assert looked_up(cs.Joined(), given) == ["s,old", "t,new"]
    waiting = cs.Joined(grace=LONGEST)
    assert looked_up(waiting, given) == []
    assert looked_up(waiting, [*given, ("stream", "u", LONGEST + 4)]) == []
    assert looked_up(waiting, [*given, ("stream", "u", LONGEST + 5)]) == ["s,old"]


# -- values and keys -----------------------------------------------------------------------------------


def stored(rows: list[tuple[Any, Any]], key: Any = JSON, value: Any = JSON) -> Any:
    builder = cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=key, value=value), cs.Materialized(store="rows"))
    driver = cs.TopologyTestDriver(builder.build())
    topic = driver.create_input_topic("rows", key, value)
    for row in rows:
        topic.pipe_input(*row, timestamp=5)
    return driver.get_key_value_store("rows")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
def test_a_store_with_numbers_that_arrow_has_not(number: int) -> None:
    store = stored([("a", {"id": number}), ("b", {"id": 1})], TEXT)
    assert store.get("a") == {"id": number}
    wire = [f'{{"id":{number}}}'.encode(), b'{"id":1}']
    assert store.to_arrow().to_pydict() == {"key": ["a", "b"], "value": wire, "timestamp": [5, 5]}
    assert store.to_polars()["value"].to_list() == wire
    assert store.to_pandas()["value"].tolist() == wire
    keyed = stored([(number, 1)])
    assert keyed.to_polars().rows() == [(str(number).encode(), 1, 5)]
    assert keyed.get_many([number]) == {number: 1}


@dataclass(frozen=True)
class Event:
    at: datetime
    n: int = 0


NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event(NOON), b'{"at":"2026-01-01T12:00:00","n":0}'),
        (Event(NOON.replace(tzinfo=timezone.utc), 10**20), b'{"at":"2026-01-01T12:00:00Z","n":%d}' % 10**20),
    ],
)
def test_a_store_with_what_the_columns_of_its_type_have_not(event: Event, text: bytes) -> None:
    """Such rows are sound: they are not blamed on an earlier run."""
    events = serdes.json(Event)
    store = stored([("a", event)], TEXT, events)
    assert list(store.all()) == [("a", event)]
    assert store.to_polars().rows() == [("a", text, 5)]
    assert store.to_arrow()["value"].to_pylist() == store.to_pandas()["value"].tolist() == [text]
    assert stored([(event, 1)], events).to_polars().rows() == [(text, 1, 5)]


@pytest.mark.parametrize("key", [{"id": 1}, [1, 2]])
def test_keys_that_no_dict_takes(key: Any) -> None:
    store = stored([(key, "x")])
    assert store.get(key) == "x"
    with pytest.raises(cs.StateError) as caught:
        store.get_many(["other", key])
    assert caught.value.code == "CS-711"
    keys = [key, "other"]
    assert eval(caught.value.next.partition(": ")[2], {"store": store, "keys": keys}) == ["x", None]


@pytest.mark.parametrize("timestamp", [LATEST + 1, 2**63 - 1, 2**63, -(2**63) - 1, True])
def test_timestamps_that_are_none_for_the_driver(timestamp: Any) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("in", TEXTS).to("out")
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for pipe in (
            lambda: topic.pipe_input("k", "v", timestamp),
            lambda: topic.pipe_records([("k", "v", 5), ("k", "v", timestamp)]),
        ):
            with pytest.raises(cs.ConfigError) as caught:
                pipe()
            assert caught.value.code == "CS-201"


@pytest.mark.parametrize("timestamp", [LATEST, 0, -1, -LATEST])
def test_timestamps_that_the_driver_takes(timestamp: int) -> None:
    """A negative one is refused by the topology, or left to its timestamp extractor."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=lambda key, value, given: max(given, 5))
    builder.stream("in", consumed).to("out")
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("k", "v", timestamp)
        topic.pipe_records([("k", "v", timestamp), ("k", "v", None)])
        read = driver.create_output_topic("out", TEXT, TEXT).read_records()
    assert [record.timestamp for record in read[:2]] == [max(timestamp, 5)] * 2


def test_the_clock_of_a_topic_that_went_too_far() -> None:
    builder = cs.StreamsBuilder()
    builder.stream("in", TEXTS).to("out")
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT, start_timestamp=LATEST, auto_advance=1)
        topic.pipe_input("k", "v")
        with pytest.raises(cs.ConfigError) as caught:
            topic.pipe_input("k", "v")
    assert caught.value.code == "CS-201"


def late(extractor: Any = None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left = builder.stream("left", cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=extractor))
    right = builder.stream("right", TEXTS)
    left.join(right, lambda one, other: one + other, cs.JoinWindows.of(10)).to("out", cs.Produced(value=TEXT))
    return builder.build()


@pytest.mark.parametrize("stamp", [LATEST + 1, 2**63 - 1])
def test_a_record_that_is_later_than_any_may_be(tmp_path: Path, stamp: int) -> None:
    with closing(Writer(tmp_path, late())) as application, pytest.raises(cs.ProcessingError) as caught:
        application.run({"left": [(b"k", b"a", 5), (b"k", b"b", stamp)]})
    assert (caught.value.code, caught.value.where["offset"]) == ("CS-507", 1)
    assert str(stamp) in caught.value.what


@pytest.mark.parametrize("stamp", [LATEST + 1, 2**63 - 1])
@pytest.mark.parametrize("kind", ["callable", "expression"])
def test_an_extractor_that_gives_a_time_later_than_any_may_be(kind: str, stamp: int) -> None:
    given = pl.when(pl.col("value") == "b").then(stamp).otherwise(7)
    topology = late(given if kind == "expression" else lambda key, value, _: stamp if value == "b" else 7)
    records = [("k", "a", 1), ("k", "b", 2), ("k", "c", 3)]
    with (
        pytest.raises(cs.ProcessingError) as caught,
        cs.TopologyTestDriver(topology, commit_every=3) as driver,
    ):
        driver.create_input_topic("left", TEXT, TEXT).pipe_records(records)
    assert (caught.value.code, caught.value.where["offset"]) == ("CS-501", 1)
    with cs.TopologyTestDriver(topology, commit_every=4, processing_errors="skip") as driver:
        driver.create_input_topic("left", TEXT, TEXT).pipe_records(records)
        driver.create_input_topic("right", TEXT, TEXT).pipe_input("k", "x", 7)
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["ax", "cx"]


# -- places --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [None, 5, b"state"])
def test_what_is_no_place_of_state(place: Any) -> None:
    with pytest.raises(cs.StateError, match="neither a path nor a URI") as caught:
        cs.open_store(place, "rows")
    assert caught.value.code == "CS-723"


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(tmp_path / "file", "rows")
    assert caught.value.code == "CS-713"
    for place in ("file", "file/below"):
        with pytest.raises(cs.StateError) as caught:
            root_of(tmp_path / place).lock("me")
        assert caught.value.code == "CS-723"
        assert caught.value.where == {"folder": str(tmp_path / place)}
