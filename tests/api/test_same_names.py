"""Two classes of one name: serdes of them are not the same, though they are called the same."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import cloudpickle
import msgspec
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.own import alike
from tests.api.cases import refused, serde_names
from tests.pairs import Pair

TEXT, JSON = serdes.string(), serdes.json()


def orders():
    class Key(msgspec.Struct, frozen=True):
        id: int
        region: str = "eu"

    return Key


def billing():
    class Key(msgspec.Struct, frozen=True):
        region: str = "eu"
        id: int = 0

    return Key


ORDERS, BILLING = orders(), billing()
OF_ORDERS, OF_BILLING = (
    cs.Consumed(key=serdes.json(ORDERS), value=JSON),
    cs.Consumed(key=serdes.json(BILLING), value=JSON),
)
TEN = cs.JoinWindows.of("10 seconds")


def joiner(one, other):
    return [one, other]


def test_keys_of_two_tables():
    builder = cs.StreamsBuilder()
    left, right = builder.table("left", OF_ORDERS), builder.table("right", OF_BILLING)
    refused(
        "CS-134",
        lambda: left.join(right, joiner),
        "json[Key] (tests.api",
        "orders.<locals>.Key",
        "billing.<locals>.Key",
    )
    same = builder.table("same", cs.Consumed(key=serdes.json(ORDERS), value=JSON))
    assert serde_names(left.join(same, joiner)) == ("json[Key]", None)


def test_keys_of_a_stream():
    builder = cs.StreamsBuilder()
    stream = builder.stream("views", OF_ORDERS)
    refused("CS-134", lambda: stream.join(builder.table("right", OF_BILLING), joiner), "billing.<locals>.Key")
    refused(
        "CS-134",
        lambda: stream.join(builder.stream("clicks", OF_BILLING), joiner, TEN),
        "billing.<locals>.Key",
    )


def test_settings_that_disagree():
    builder = cs.StreamsBuilder()
    stored = cs.Materialized(key=serdes.json(BILLING))
    refused("CS-140", lambda: builder.table("in", OF_ORDERS, stored), "orders.<locals>.Key")
    stream = builder.stream("views", OF_ORDERS)
    refused(
        "CS-140",
        lambda: stream.to_table(materialized=stored),
        "the keys of its input are",
        "billing.<locals>.Key",
    )
    values = builder.stream("clicks", cs.Consumed(key=TEXT, value=serdes.json(ORDERS)))
    table = builder.table("table", cs.Consumed(key=TEXT, value=JSON))
    wrong = cs.Joined(value=serdes.json(BILLING))
    refused("CS-140", lambda: values.join(table, joiner, wrong), "billing.<locals>.Key")


def test_a_class_that_was_defined_again():
    builder = cs.StreamsBuilder()
    left = builder.table("left", OF_ORDERS)
    right = builder.table("right", cs.Consumed(key=serdes.json(orders()), value=JSON))
    refused("CS-134", lambda: left.join(right, joiner), "another class of that name")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ORDERS, ORDERS, True),
        (ORDERS, BILLING, False),
        (list[ORDERS], list[BILLING], False),
        (ORDERS | None, ORDERS | None, True),
        (dict[str, ORDERS], dict[str, BILLING], False),
        (list[int], list[int], True),
    ],
)
def test_what_is_alike(one, other, same):
    mine, theirs = serdes.json(one), serdes.json(other)
    assert mine.name == theirs.name
    assert alike(mine, theirs) == same
    assert alike(serdes.left_or_right(TEXT, mine), serdes.left_or_right(TEXT, theirs)) == same


@dataclass(frozen=True)
class Delimited(Pair):
    """A serde of the user's that is compared by its fields."""

    separator: str = ","
    name: str = "delimited"


class Changeable(Delimited):
    """Compared by its fields, too, and without a hash."""

    __hash__ = None


class Alone(Pair):
    """Compared as an object: two of them are never equal, though they mean the same."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


@pytest.mark.parametrize("kind", [Delimited, Changeable])
def test_serdes_that_say_whether_they_are_equal(kind):
    builder = cs.StreamsBuilder()
    left = builder.table("left", cs.Consumed(key=kind(), value=JSON))
    right = builder.table("right", cs.Consumed(key=kind(separator=";"), value=JSON))
    name = kind.__name__
    refused("CS-134", lambda: left.join(right, joiner), f"{name}(", "separator=','", "separator=';'")
    refused("CS-134", lambda: left.to_stream().join(right, joiner), "separator=';'")
    stored = cs.Materialized(key=kind(separator=";"))
    refused("CS-140", lambda: builder.table("in", cs.Consumed(key=kind(), value=JSON), stored), "separator")
    same = builder.table("same", cs.Consumed(key=kind(), value=JSON))
    assert serde_names(left.join(same, joiner)) == ("delimited", None)
    assert not alike(serdes.left_or_right(TEXT, kind()), serdes.left_or_right(TEXT, kind(separator=";")))
    assert alike(serdes.left_or_right(TEXT, kind()), serdes.left_or_right(TEXT, kind()))


def test_serdes_that_do_not_say_it():
    assert Alone() != Alone()
    assert alike(Alone(), Alone())
    assert alike(serdes.left_or_right(TEXT, Alone()), serdes.left_or_right(TEXT, Alone()))


@pytest.mark.parametrize("kind", [Delimited, Changeable, Alone])
def test_a_topology_of_them_that_was_pickled(kind):
    builder = cs.StreamsBuilder()
    moved = builder.stream("in", cs.Consumed(key=TEXT, value=JSON)).map(lambda key, value: (value, value))
    for name in ("one", "other"):
        moved.repartition(cs.Repartitioned(key=kind(), value=JSON, name=name)).to(name)
    with cs.TopologyTestDriver(pickle.loads(cloudpickle.dumps(builder.build()))) as driver:
        driver.create_input_topic("in", TEXT, JSON).pipe_input("k", ["a", "b"])
        for name in ("one", "other"):
            assert driver.create_output_topic(name, TEXT, JSON).read_key_values() == [("a,b", ["a", "b"])]


def test_a_merge_forgets_the_class():
    builder = cs.StreamsBuilder()
    left = builder.stream("left", cs.Consumed(key=TEXT, value=serdes.json(ORDERS)))
    right = builder.stream("right", cs.Consumed(key=TEXT, value=serdes.json(BILLING)))
    merged = left.merge(right)
    assert serde_names(merged) == ("string", None)
    refused("CS-140", lambda: merged.to("out"), "value serde")
    merged.map_values(lambda value: value.id).to("out", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        for number, name in enumerate(("left", "right")):
            driver.create_input_topic(name, TEXT, JSON).pipe_input("k", {"id": number})
        assert driver.create_output_topic("out", TEXT, JSON).read_values() == [0, 1]


def test_a_stream_moved_with_either():
    """Each repartition writes what it is told to: the two are not one because they are called the same."""
    builder = cs.StreamsBuilder()
    moved = builder.stream("in", cs.Consumed(key=TEXT, value=JSON)).select_key(lambda value: value["id"])
    for name, kind in (("orders", ORDERS), ("billing", BILLING)):
        again = moved.repartition(cs.Repartitioned(key=serdes.json(int), value=serdes.json(kind)))
        again.map_values(repr).to(name, cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, JSON).pipe_input("k", {"id": 1, "region": "us"})
        found = [driver.create_output_topic(name, JSON, JSON).read_values() for name in ("orders", "billing")]
    assert found == [["Key(id=1, region='us')"], ["Key(region='us', id=1)"]]
