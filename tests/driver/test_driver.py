"""The test driver's own doing: topics in and out, batches, what a failed batch leaves behind."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)


def relay(*topics: str) -> cs.Topology:
    """Hands records on from topic to topic, adding an exclamation mark at each."""
    builder = cs.StreamsBuilder()
    for source, target in pairwise(topics):
        builder.stream(source, CONSUMED).map_values(lambda value: value + "!").to(target, PRODUCED)
    return builder.build()


def test_records_come_out_as_they_went_in() -> None:
    with cs.TopologyTestDriver(relay("in", "out")) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT, start_timestamp=100, auto_advance="1 second")
        out = driver.create_output_topic("out", TEXT, TEXT)
        assert out.is_empty
        topic.pipe_input("a", "1")
        topic.pipe_input(None, "2", headers=[("h", b"x"), ("h", None)])
        topic.pipe_record(cs.TestRecord("c", "3", 7))
        topic.pipe_records([("d", "4"), ("e", "5", 9), cs.TestRecord("f", "6", 8, (("g", b""),))])
        topic.advance_time(5)
        topic.pipe_input("h", "7", datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc))
        topic.pipe_input("i", "8")
        assert out.queue_size == 8
        assert out.read_record() == cs.TestRecord("a", "1!", 100)
        assert out.read_record() == cs.TestRecord(None, "2!", 1100, (("h", b"x"), ("h", None)))
        assert out.queue_size == 6
        assert out.read_records() == [
            cs.TestRecord("c", "3!", 7),
            cs.TestRecord("d", "4!", 2100),
            cs.TestRecord("e", "5!", 9),
            cs.TestRecord("f", "6!", 8, (("g", b""),)),
            cs.TestRecord("h", "7!", 1000),
            cs.TestRecord("i", "8!", 3105),
        ]
        assert out.is_empty
        with pytest.raises(IndexError, match="out"):
            out.read_record()


def test_reading_goes_on_in_the_middle_of_a_batch() -> None:
    with cs.TopologyTestDriver(relay("in", "out"), commit_every=100) as driver:
        topic, out = (
            driver.create_input_topic("in", TEXT, TEXT),
            driver.create_output_topic("out", TEXT, TEXT),
        )
        topic.pipe_records((f"k{n}", str(n), n) for n in range(5))
        assert out.is_empty
        driver.commit()
        assert [out.read_record().value, out.read_record().value] == ["0!", "1!"]
        assert out.queue_size == 3
        topic.pipe_input("k5", "5", 5)
        driver.commit()
        assert out.read_values() == ["2!", "3!", "4!", "5!"]
        topic.pipe_input("k6", "6", 6)
        driver.commit()
        assert out.read_key_values_to_map() == {"k6": "6!"}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_pipe_records_fills_batches_like_single_records(size: int, partitions: int) -> None:
    batches = []
    for whole in (True, False):
        with cs.TopologyTestDriver(relay("in", "out"), partitions, size) as driver:
            topic = driver.create_input_topic("in", TEXT, TEXT)
            records = [(f"k{n}", str(n), n) for n in range(20)]
            if whole:
                topic.pipe_records(records)
            else:
                for record in records:
                    topic.pipe_input(*record)
            batches.append(driver.metrics()["batches"])
            driver.commit()
            read = driver.create_output_topic("out", TEXT, TEXT).read_records()
            assert sorted(record.timestamp or 0 for record in read) == list(range(20))
    assert batches == [20 // size] * 2


def test_a_value_of_the_wrong_type_is_told_where_it_is_piped() -> None:
    with cs.TopologyTestDriver(relay("in", "out")) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        with pytest.raises(cs.SerdeError, match="takes str, not int: 5"):
            topic.pipe_records([("a", "1"), ("b", 5)])
        topic.pipe_records([])
        assert driver.metrics()["batches"] == 0


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_goes_to_a_topic_of_the_topology_is_read_at_once(partitions: int) -> None:
    with cs.TopologyTestDriver(relay("in", "second", "third", "out"), partitions) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("a", "1", 1)
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["1!!!"]
        assert driver.create_output_topic("second", TEXT, TEXT).read_values() == ["1!"]


def test_in_batches_it_is_read_by_the_next_one() -> None:
    with cs.TopologyTestDriver(relay("in", "second", "out"), commit_every=3) as driver:
        topic, out = (
            driver.create_input_topic("in", TEXT, TEXT),
            driver.create_output_topic("out", TEXT, TEXT),
        )
        topic.pipe_records([("a", "1", 1), ("b", "2", 2)])
        driver.commit()
        assert out.read_values() == ["1!!", "2!!"]


def test_a_batch_that_fails_leaves_everything_as_it_was() -> None:
    """The join fails in its second round, when the left table and a topic have been written already."""
    builder = cs.StreamsBuilder()
    left = builder.table("left", CONSUMED, cs.Materialized(store="left"))
    right = builder.table("right", CONSUMED)
    seen = builder.stream("seen", CONSUMED)
    left.to_stream().to("seen", PRODUCED)
    seen.to("log", PRODUCED)
    joined = left.join(right, lambda _, row: str(1 // int(row)), foreign_key=lambda value: value)
    joined.to_stream().to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        lefts, rights = (driver.create_input_topic(name, TEXT, TEXT) for name in ("left", "right"))
        out, log = (driver.create_output_topic(name, TEXT, TEXT) for name in ("out", "log"))
        rights.pipe_input("x", "0", 1)
        rights.pipe_input("y", "1", 1)
        lefts.pipe_input("a", "y", 2)
        before = driver.metrics()
        for _ in range(2):
            with pytest.raises(cs.ProcessingError, match="CS-501"):
                lefts.pipe_input("b", "x", 3)
            assert list(driver.get_key_value_store("left").all()) == [("a", "y")]
            assert driver.metrics() == before
            assert log.queue_size == 1
        assert out.read_key_values() == [("a", "1")]


PATTERN = re.compile("evt-.*")


def scattered() -> cs.Topology:
    """Each record goes to a topic of its own value, and all these topics are read by a pattern."""
    builder = cs.StreamsBuilder()
    builder.stream("src", CONSUMED).to(lambda key, value: f"evt-{value}", PRODUCED)
    builder.stream(PATTERN, CONSUMED).map_values(lambda value: str(int(value) + 1)).to("all", PRODUCED)
    return builder.build()


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_pattern_reads_what_the_topology_writes(size: int, partitions: int) -> None:
    with cs.TopologyTestDriver(scattered(), partitions, size) as driver:
        topic = driver.create_input_topic("src", TEXT, TEXT)
        topic.pipe_records([("a", "1", 1), ("b", "2", 2), ("c", "1", 3)])
        driver.commit()
        read = driver.create_output_topic("all", TEXT, TEXT).read_key_values()
        assert sorted(read) == [("a", "2"), ("b", "3"), ("c", "2")]
        assert driver.create_output_topic("evt-1", TEXT, TEXT).queue_size == 2
        assert driver.produced_topic_names() == {"all", "evt-1", "evt-2"}


def test_a_pattern_reads_what_is_piped_and_what_is_written() -> None:
    with cs.TopologyTestDriver(scattered()) as driver:
        driver.create_input_topic("src", TEXT, TEXT).pipe_input("a", "1")
        driver.create_input_topic("evt-1", TEXT, TEXT).pipe_input("b", "5")
        assert driver.create_output_topic("all", TEXT, TEXT).read_values() == ["2", "6"]


def test_a_topic_that_two_patterns_match_is_an_error() -> None:
    """Whether records are piped into it or the topology writes them."""
    builder = cs.StreamsBuilder()
    builder.stream("src", CONSUMED).to(lambda key, value: f"evt-{value}", PRODUCED)
    for pattern in (PATTERN, re.compile(".*-1")):
        builder.stream(pattern, CONSUMED).to("all", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        with pytest.raises(cs.TopologyError, match="'evt-1'") as caught:
            driver.create_input_topic("evt-1", TEXT, TEXT)
        assert caught.value.code == "CS-122"
        topic = driver.create_input_topic("src", TEXT, TEXT)
        topic.pipe_input("a", "2")
        with pytest.raises(cs.TopologyError, match="CS-122"):
            topic.pipe_input("a", "1")


def test_a_batch_that_fails_takes_back_what_a_pattern_would_read() -> None:
    """Its second record fails when the first has been written to a topic that nobody knew before."""
    builder = cs.StreamsBuilder()
    source = builder.stream("src", CONSUMED)
    source.to(lambda key, value: f"evt-{value}", PRODUCED)
    source.map_values(lambda value: str(1 // int(value))).to("out", PRODUCED)
    builder.stream(PATTERN, CONSUMED).to("all", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), commit_every=2) as driver:
        topic, read = (
            driver.create_input_topic("src", TEXT, TEXT),
            driver.create_output_topic("all", TEXT, TEXT),
        )
        with pytest.raises(cs.ProcessingError, match="CS-501"):
            topic.pipe_records([("a", "1", 1), ("b", "0", 2)])
        assert driver.produced_topic_names() == set()
        with pytest.raises(cs.ProcessingError, match="CS-501"):
            driver.commit()
        assert read.is_empty


def test_dead_letters_are_read_by_a_pattern_that_matches_them() -> None:
    builder = cs.StreamsBuilder()
    builder.stream("src", CONSUMED).map_values(lambda value: str(1 // int(value))).to("out", PRODUCED)
    builder.stream(PATTERN, CONSUMED).to("all", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), processing_errors=cs.DeadLetter("evt-bad")) as driver:
        driver.create_input_topic("src", TEXT, TEXT).pipe_input("a", "0")
        assert driver.create_output_topic("all", TEXT, TEXT).read_key_values() == [("a", "0")]


@pytest.mark.parametrize("name", ["a b", "", "x" * 250])
def test_a_topic_that_a_record_names_has_a_name_that_topics_have(name: str) -> None:
    """As in an application, see ``tests/application/test_sink_topics.py``."""
    builder = cs.StreamsBuilder()
    builder.stream("src", CONSUMED).to(lambda key, value: name, PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        with pytest.raises(cs.SinkError) as caught:
            driver.create_input_topic("src", TEXT, TEXT).pipe_input("a", "1")
        error = caught.value
        assert (error.code, error.where["operator"]) == ("CS-656", "src.to")
        assert [error.where[name] for name in ("topic", "partition", "offset", "key")] == ["src", 0, 0, "a"]
        assert repr(name)[:40] in error.what
        assert driver.produced_topic_names() == set()


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("policy", ["fail", "skip", cs.DeadLetter("bad")])
@pytest.mark.parametrize("wrong", ["a b", "", ".", 5, None])
def test_a_record_that_names_no_topic_fails_alone(wrong: Any, policy: Any, size: int) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("src", CONSUMED).to(lambda key, value: wrong if value == "wrong" else "out", PRODUCED)
    records = [("a", "1", 0), ("b", "wrong", 1), ("c", "2", 2), ("d", "wrong", 3)]
    with cs.TopologyTestDriver(builder.build(), commit_every=size, processing_errors=policy) as driver:

        def process() -> None:
            driver.create_input_topic("src", TEXT, TEXT).pipe_records(records)
            driver.commit()

        if policy == "fail":
            with pytest.raises(cs.CrossStreamError) as caught:
                process()
            place = caught.value.where
            assert caught.value.code == ("CS-656" if isinstance(wrong, str) else "CS-501")
            assert (place["topic"], place["offset"], place["key"]) == ("src", 1, "b")
            return
        process()
        out = driver.create_output_topic("out", TEXT, TEXT).read_key_values()
        assert out == [("a", "1"), ("c", "2")]
        assert driver.metrics()["dropped"] == {"src.to: failed": 2}
        if policy != "skip":
            letters = driver.create_output_topic("bad", TEXT, TEXT).read_records()
            assert [(one.key, one.value) for one in letters] == [("b", "wrong"), ("d", "wrong")]


KINDS = {"get_key_value_store": "key-value", "get_versioned_store": "versioned", "get_window_store": "window"}
ASKED = {"rows": "get_key_value_store", "versions": "get_versioned_store", "records": "get_window_store"}


@pytest.mark.parametrize("method", ASKED.values())
@pytest.mark.parametrize("store", ASKED)
def test_a_store_of_another_kind_is_told_with_the_method_for_it(store: str, method: str) -> None:
    text, builder = serdes.string(), cs.StreamsBuilder()
    consumed = cs.Consumed(key=text, value=text)
    builder.table("rows", consumed, cs.Materialized(store="rows"))
    builder.table("versions", consumed, cs.Materialized(store="versions", history_retention="1 hour"))
    left, right = (builder.stream(topic, consumed) for topic in ("left", "right"))
    windows, stores = cs.JoinWindows.of(10), cs.StreamJoined(store="records", other_store="others")
    left.join(right, lambda one, other: one, windows, stores).to("out", cs.Produced(value=text))
    with cs.TopologyTestDriver(builder.build()) as driver:
        if method == ASKED[store]:
            assert getattr(driver, method)(store).name == store
            return
        with pytest.raises(cs.StateError) as caught:
            getattr(driver, method)(store)
    assert caught.value.code == "CS-710"
    assert caught.value.next == f"call {ASKED[store]}({store!r})"
    assert f"not a {KINDS[method]} store" in caught.value.what


def test_a_store_that_is_asked_for_no_key_says_what_to_do() -> None:
    builder = cs.StreamsBuilder()
    builder.table("in", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    with cs.TopologyTestDriver(builder.build()) as driver, pytest.raises(cs.StateError) as caught:
        driver.get_key_value_store("rows").get(None)
    assert (caught.value.code, caught.value.where) == ("CS-711", {"store": "rows"})
    assert caught.value.next == "ask for another key: records without one make no row"


def test_a_store_that_is_not_there_is_told_with_those_that_are() -> None:
    text, builder = serdes.string(), cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=text, value=text), cs.Materialized(store="rows"))
    with cs.TopologyTestDriver(builder.build()) as driver, pytest.raises(cs.StateError) as caught:
        driver.get_key_value_store("row")
    assert (caught.value.code, "its stores are: rows" in (caught.value.next or "")) == ("CS-710", True)
