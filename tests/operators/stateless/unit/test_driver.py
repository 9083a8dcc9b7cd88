"""Operators through the driver, where one example says more than a law: sinks, re-keying, names, self-joins."""

from __future__ import annotations

import re
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON, INT = serdes.string(), serdes.json(), serdes.int64()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)


def pipe(driver: cs.TopologyTestDriver, topic: str, *records: tuple[Any, ...], value: Any = TEXT) -> None:
    driver.create_input_topic(topic, TEXT, value).pipe_records(records)


def read(driver: cs.TopologyTestDriver, topic: str, value: Any = TEXT) -> list[tuple[Any, Any]]:
    return driver.create_output_topic(topic, TEXT, value).read_key_values()


# Streams that become tables


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_re_keyed_stream_is_a_table_like_any_other(partitions: int) -> None:
    """Looked up by key, and joined with a table whose keys come from a topic."""
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=JSON))
    latest = orders.select_key(lambda order: order["customer"]).to_table(
        materialized=cs.Materialized(store="latest", key=TEXT, value=JSON)
    )
    customers = builder.table("customers", CONSUMED)
    latest.join(customers, lambda order, name: f"{name}: {order['n']}").to_stream().to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), partitions) as driver:
        pipe(driver, "customers", ("a", "Ada"), ("b", "Bea"))
        pipe(driver, "orders", *((str(n), {"customer": "abc"[n % 3], "n": n}) for n in range(5)), value=JSON)
        assert read(driver, "out") == [("a", "Ada: 0"), ("b", "Bea: 1"), ("a", "Ada: 3"), ("b", "Bea: 4")]
        store = driver.get_key_value_store("latest")
        assert store.get("c") == {"customer": "c", "n": 2}
        assert store.get("x") is None
        assert [key for key, _ in store.all()] == ["a", "b", "c"]


def test_streams_of_different_serdes_merge() -> None:
    builder = cs.StreamsBuilder()
    words = builder.stream("words", CONSUMED)
    numbers = builder.stream("numbers", cs.Consumed(key=serdes.bytes(), value=INT))
    merged = words.merge(numbers.select_key(lambda key, value: key.decode()))
    table = merged.to_table(materialized=cs.Materialized(key=TEXT))
    table.map_values(repr).to_stream().to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), 3) as driver:
        pipe(driver, "words", ("k", "one"))
        driver.create_input_topic("numbers", serdes.bytes(), INT).pipe_input(b"k", 2)
        assert read(driver, "out") == [("k", "'one'"), ("k", "2")]


def test_keys_of_different_serdes_meet_where_the_table_keeps_them() -> None:
    """Streams that are by key already, each by the bytes of its own serde."""
    builder = cs.StreamsBuilder()
    words = builder.stream("words", CONSUMED).repartition(cs.Repartitioned(key=TEXT))
    json = cs.Consumed(key=serdes.json(), value=TEXT)
    others = builder.stream("others", json).repartition(cs.Repartitioned(key=serdes.json()))
    words.merge(others).to_table(materialized=cs.Materialized(store="kept", key=TEXT, value=TEXT))
    keys = [f"k{number}" for number in range(20)]
    with cs.TopologyTestDriver(builder.build(), 5) as driver:
        pipe(driver, "words", *((key, "word") for key in keys))
        topic = driver.create_input_topic("others", serdes.json(), TEXT)
        for key in keys[10:]:
            topic.pipe_input(key, "other")
        store = driver.get_key_value_store("kept")
        wanted = {key: "word" if key in keys[:10] else "other" for key in keys}
        assert list(store.all()) == sorted(wanted.items())
        assert {key: store.get(key) for key in keys} == wanted


def test_null_keys_of_re_keyed_streams_are_counted_apart() -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", CONSUMED)
    stream.to_table()
    nameless = stream.select_key(lambda value: None)
    nameless.to_table(materialized=cs.Materialized(key=TEXT))
    nameless.repartition(cs.Repartitioned(key=TEXT)).to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", (None, "x", 1))
        assert read(driver, "out") == []
        assert driver.metrics()["dropped"] == {
            "in.to_table: null-key": 1,
            "in.select_key.to_table: null-key-repartition": 1,
            "in.select_key.repartition: null-key-repartition": 1,
        }
        assert driver.metrics()["dropped-records-total"] == 1


# Tables


def test_a_filter_deletes_only_what_it_let_through() -> None:
    builder = cs.StreamsBuilder()
    builder.table("in", CONSUMED).filter(lambda value: value > "m").to_stream().to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        pipe(
            driver, "in", ("k", None), ("k", "a"), ("k", "b"), ("k", "x"), ("k", "y"), ("k", "c"), ("k", None)
        )
        assert read(driver, "out") == [("k", "x"), ("k", "y"), ("k", None)]


def test_old_values_pass_through_maps_and_joins() -> None:
    builder = cs.StreamsBuilder()
    left, right = builder.table("left", CONSUMED), builder.table("right", CONSUMED)
    both = left.outer_join(right, lambda row, other: f"{row}{other}").map_values(str.lower)
    both.filter(lambda value: "x" in value).filter_not(lambda value: "y" in value).to_stream().to(
        "out", PRODUCED
    )
    with cs.TopologyTestDriver(builder.build()) as driver:
        for topic, value in [("left", "A"), ("right", "X"), ("left", "B"), ("left", "Y"), ("left", None)]:
            pipe(driver, topic, ("k", value))
        assert read(driver, "out") == [("k", "ax"), ("k", "bx"), ("k", None), ("k", "nonex")]


@pytest.mark.parametrize("partitions", [1, 4])
def test_employees_and_their_managers(partitions: int) -> None:
    """A table joined with itself by foreign key; who manages oneself changes once."""
    builder = cs.StreamsBuilder()
    people = builder.table("people", cs.Consumed(key=TEXT, value=JSON))
    managed = people.left_join(
        people,
        lambda person, boss: f"{person['name']} <- {boss and boss['name']}",
        foreign_key=lambda person: person["boss"],
        materialized=cs.Materialized(store="managed", value=TEXT),
    )
    managed.to_stream().to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), partitions) as driver:
        people_in = driver.create_input_topic("people", TEXT, JSON)
        out = driver.create_output_topic("out", TEXT, TEXT)
        people_in.pipe_input("ceo", {"name": "Ada", "boss": "ceo"})
        assert out.read_key_values() == [("ceo", "Ada <- Ada")]
        people_in.pipe_input("dev", {"name": "Bob", "boss": "ceo"})
        people_in.pipe_input("ops", {"name": "Cleo", "boss": "dev"})
        assert out.read_key_values() == [("dev", "Bob <- Ada"), ("ops", "Cleo <- Bob")]
        people_in.pipe_input("ceo", {"name": "Eve", "boss": None})
        assert sorted(out.read_key_values()) == [("ceo", "Eve <- None"), ("dev", "Bob <- Eve")]
        people_in.pipe_input("dev", None)
        assert sorted(out.read_key_values(), key=str) == [("dev", None), ("ops", "Cleo <- None")]
        assert dict(driver.get_key_value_store("managed").all()) == {
            "ceo": "Eve <- None",
            "ops": "Cleo <- None",
        }


def test_a_table_joined_with_itself_by_key_is_retracted() -> None:
    builder = cs.StreamsBuilder()
    table = builder.table("in", CONSUMED)
    table.join(table.map_values(str.upper), lambda low, up: low + up).to_stream().to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "a"), ("k", "b"), ("k", None), ("k", None))
        assert read(driver, "out") == [("k", "aA"), ("k", "bB"), ("k", None)]


# Partitioners: KIP-775, repartition, sinks


@pytest.mark.parametrize("size", [1, 100])
def test_partitioners_of_a_foreign_key_join(size: int) -> None:
    """Both tables are partitioned by the number in their keys, not by hash."""
    asked: set[tuple[str, int]] = set()

    def by_number(key: str, count: int) -> int:
        asked.add((key, count))
        return int(key[1:]) % count

    builder = cs.StreamsBuilder()
    left, right = builder.table("left", CONSUMED), builder.table("right", CONSUMED)
    joined = left.join(
        right,
        lambda row, other: f"{row}={other}",
        foreign_key=lambda value: value,
        table_joined=cs.TableJoined(partitioner=by_number, other_partitioner=by_number),
        materialized=cs.Materialized(store="joined", value=TEXT),
    )
    joined.to_stream().to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), 4, size) as driver:
        pipe(driver, "left", *((f"l{n}", f"r{n % 5}") for n in range(20)))
        pipe(driver, "right", *((f"r{n}", f"R{n}") for n in range(5)))
        pipe(driver, "left", ("l0", "r3"), ("l1", None))
        driver.commit()
        wanted = {f"l{n}": f"r{n % 5}=R{n % 5}" for n in range(20)} | {"l0": "r3=R3"}
        del wanted["l1"]
        store = driver.get_key_value_store("joined")
        assert dict(store.all()) == wanted
        assert store.get("l7") == "r2=R2"
    assert asked == {(f"l{n}", 4) for n in range(20)} | {(f"r{n}", 4) for n in range(5)}


def test_a_partitioner_of_a_topic_chooses_copies_and_keeps_the_order() -> None:
    """A list makes copies, an empty one drops the record, None is Kafka's default."""
    places: dict[str, Any] = {"one": 1, "both": [0, 1], "none": [], "any": None, "two": 1}
    builder = cs.StreamsBuilder()
    produced = cs.Produced(key=TEXT, value=TEXT, partitioner=lambda topic, key, value, count: places[value])
    builder.stream("in", CONSUMED).to("out", produced)
    with cs.TopologyTestDriver(builder.build(), 2, commit_every=10) as driver:
        pipe(driver, "in", *(("k", value) for value in ["one", "any", "two", "both", "none", "any"]))
        driver.commit()
        assert [value for _, value in read(driver, "out")] == ["one", "any", "two", "both", "both", "any"]
        assert driver.metrics()["rows_out"] == {"in.to(out)": 6}


@pytest.mark.parametrize("size", [1, 100])
def test_repartition_by_partitioner_and_by_hash(size: int) -> None:
    builder = cs.StreamsBuilder()
    numbers = builder.stream("in", cs.Consumed(key=TEXT, value=INT))
    moved = numbers.select_key(lambda value: value % 3).repartition(
        cs.Repartitioned(key=INT, partitioner=lambda key, count: key % count, name="thirds")
    )
    moved.to_table(materialized=cs.Materialized(store="last")).to_stream().to("out", cs.Produced(key=INT))
    with cs.TopologyTestDriver(builder.build(), 5, size) as driver:
        pipe(driver, "in", *(("k", n, n) for n in range(10)), value=INT)
        driver.commit()
        assert dict(driver.get_key_value_store("last").all()) == {0: 9, 1: 7, 2: 8}


@pytest.mark.parametrize("size", [1, 100])
def test_a_topic_for_each_record(size: int) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("in", CONSUMED).to(lambda key, value: f"to-{value}", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), commit_every=size) as driver:
        pipe(driver, "in", ("1", "a"), ("2", "b"), ("3", "a"))
        driver.commit()
        assert driver.produced_topic_names() == {"to-a", "to-b"}
        assert read(driver, "to-a") == [("1", "a"), ("3", "a")]
        assert read(driver, "to-b") == [("2", "b")]


def test_many_topics_are_one_stream() -> None:
    builder = cs.StreamsBuilder()
    builder.stream(["a", "b"], CONSUMED).to("listed", PRODUCED)
    builder.stream(re.compile("p-.*"), CONSUMED).to("matched", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        for topic in ("a", "p-1", "b", "p-2"):
            pipe(driver, topic, (topic, "x"))
        assert read(driver, "listed") == [("a", "x"), ("b", "x")]
        assert read(driver, "matched") == [("p-1", "x"), ("p-2", "x")]
        with pytest.raises(cs.ConfigError, match="CS-241"):
            driver.create_input_topic("q", TEXT, TEXT)


# Headers and times


def test_headers_go_through_and_joins_carry_those_of_their_trigger() -> None:
    builder = cs.StreamsBuilder()
    left, right = builder.table("left", CONSUMED), builder.table("right", CONSUMED)
    left.left_join(right, lambda row, other: f"{row}{other}", foreign_key=lambda value: value).to_stream().to(
        "out", PRODUCED
    )
    left.join(right, lambda row, other: row + other).to_stream().filter(lambda k, v: True).to(
        "by-key", PRODUCED
    )
    with cs.TopologyTestDriver(builder.build(), 3) as driver:
        lefts, rights = (driver.create_input_topic(name, TEXT, TEXT) for name in ("left", "right"))
        lefts.pipe_input("x", "x", 5, [("from", b"left"), ("from", None)])
        rights.pipe_input("x", "R", 3, [("from", b"right")])
        lefts.pipe_input("x", None, 4)
        out, by_key = (driver.create_output_topic(name, TEXT, TEXT) for name in ("out", "by-key"))
        assert out.read_records() == [
            cs.TestRecord("x", "xNone", 5, (("from", b"left"), ("from", None))),
            cs.TestRecord("x", "xR", 3, (("from", b"right"),)),
            cs.TestRecord("x", None, 4),
        ]
        assert by_key.read_records() == [
            cs.TestRecord("x", "xR", 5, (("from", b"right"),)),
            cs.TestRecord("x", None, 4),
        ]


@pytest.mark.parametrize("size", [1, 100])
def test_an_extractor_gives_the_times(size: int) -> None:
    builder = cs.StreamsBuilder()
    timed = cs.Consumed(
        key=TEXT, value=INT, timestamp_extractor=lambda key, value, timestamp: value * 10 + timestamp
    )
    left = builder.table("left", timed)
    left.join(builder.table("right", CONSUMED), lambda row, other: other).to_stream().to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), commit_every=size) as driver:
        pipe(driver, "left", ("k", 7, 1), value=INT)
        pipe(driver, "right", ("k", "R", 5))
        driver.commit()
        assert driver.create_output_topic("out", TEXT, TEXT).read_records() == [cs.TestRecord("k", "R", 71)]


# Functions that want the key


def test_functions_take_the_key_where_they_ask_for_it() -> None:
    builder = cs.StreamsBuilder()
    left, right = builder.table("left", CONSUMED), builder.table("right", CONSUMED)
    joined = left.join(
        right,
        cs.keyed(lambda key, row, other: f"{key}:{row}:{other}"),
        foreign_key=cs.keyed(lambda key, value: key[0]),
    )
    named = joined.filter(lambda key, value: key != "xb").map_values(lambda key, value: value + "!")
    named.to_stream(lambda key, value: key.upper()).to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), 2) as driver:
        pipe(driver, "right", ("x", "R"))
        pipe(driver, "left", ("xa", "1"), ("xb", "2"), ("xa", None))
        assert read(driver, "out") == [("XA", "xa:1:R!"), ("XA", None)]
