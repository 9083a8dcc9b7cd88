"""Branches that merge with keys of no serde or another serde: in several state partitions, in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import crossstream as cs
from crossstream.testing import TopologyTestDriver

TEXT, RAW, JSON = cs.serdes.string(), cs.serdes.bytes(), cs.serdes.json()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)
PRODUCED = cs.Produced(key=TEXT, value=TEXT)

Ways = Callable[[cs.KStream, cs.KStream, cs.KTable], None]


def looked_up(stream: cs.KStream, table: cs.KTable) -> cs.KStream:
    """In the state partition of its key."""
    return stream.left_join(table, lambda value, row: value)


def same_key(stream: cs.KStream) -> cs.KStream:
    """With the key that it has, which no serde is known of any more."""
    return stream.map(lambda key, value: (key, value))


def merged(first: cs.KStream, second: cs.KStream, table: cs.KTable) -> None:
    same_key(first).merge(looked_up(second, table)).to("out", PRODUCED)


def two_sinks(first: cs.KStream, second: cs.KStream, table: cs.KTable) -> None:
    same_key(first).to("out", PRODUCED)
    looked_up(second, table).to("out", PRODUCED)


def keys_of_bytes(first: cs.KStream, second: cs.KStream, table: cs.KTable) -> None:
    first.map(lambda key, value: (key.encode(), value)).to("out", cs.Produced(key=RAW, value=TEXT))
    looked_up(second, table).to("out", PRODUCED)


def both_in_json(first: cs.KStream, second: cs.KStream, table: cs.KTable) -> None:
    """In other bytes than those that the rows of the join are placed by."""
    same_key(first).to("out", cs.Produced(key=JSON, value=TEXT))
    looked_up(second, table).to("out", cs.Produced(key=JSON, value=TEXT))


def re_keyed_below_a_join(first: cs.KStream, second: cs.KStream, table: cs.KTable) -> None:
    """No serde is known on either way."""
    same_key(first).merge(same_key(looked_up(second, table))).to("out", PRODUCED)


def of_tuples(first: cs.KStream, second: cs.KStream, table: cs.KTable) -> None:
    """Equal ones, which become lists."""
    ones = first.map(lambda key, value: ((key, key), value))
    others = looked_up(second, table).map(lambda key, value: ((key, str.upper(key).lower()), value))
    ones.merge(others).map(lambda key, value: (key[0], value)).to("out", PRODUCED)


GRAPHS: list[Ways] = [merged, two_sinks, keys_of_bytes, both_in_json, re_keyed_below_a_join, of_tuples]


@pytest.mark.parametrize("every", [1, 9])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("key", ["k", "w"])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.__name__)
def test_in_order_of_arrival(graph: Ways, key: str, partitions: int, every: int) -> None:
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("in", CONSUMED), builder.table("rows", CONSUMED)
    graph(stream.filter(lambda value: value < "m"), stream.filter_not(lambda value: value < "m"), table)
    with TopologyTestDriver(builder.build(), commit_every=every, partitions=partitions) as driver:
        given = driver.create_input_topic("in", TEXT, TEXT)
        for number, value in enumerate("azby"):
            given.pipe_input(key, value, number)
        driver.commit()
        assert driver.create_output_topic("out", RAW, TEXT).read_values() == list("azby")


@pytest.mark.parametrize("every", [1, 9])
def test_ways_of_the_state_partitions_of_two_keys(every: int) -> None:
    """Both rows come in one round, each where its old key is."""
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("in", CONSUMED), builder.table("rows", CONSUMED)
    by_value = stream.select_key(lambda key, value: value)
    found = by_value.left_join(table, lambda value, row: value, cs.Joined(key=TEXT, value=TEXT))
    found.select_key(lambda key, value: "k").to("out", PRODUCED)
    looked_up(stream.map_values(str.upper), table).to("out", PRODUCED)
    with TopologyTestDriver(builder.build(), commit_every=every, partitions=3) as driver:
        given = driver.create_input_topic("in", TEXT, TEXT)
        for number, value in enumerate("azby"):
            given.pipe_input("k", value, number)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, TEXT).read_values()
    assert [value for value in out if value.islower()] == list("azby")
    assert out == list("AaZzBbYy")


@pytest.mark.parametrize("every", [1, 9])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_key_that_the_serde_of_the_other_way_refuses_fails_alone(partitions: int, every: int) -> None:
    """Keys that meet are written in the serde that says which of them are the same."""
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("in", CONSUMED), builder.table("rows", CONSUMED)
    numbers = stream.map(lambda key, value: (len(value) if len(value) < 3 else key, value))
    both = numbers.merge(looked_up(stream.map_values(str.upper), table))
    both.map(lambda key, value: (str(key), value)).to("out", PRODUCED)
    settings = {"commit_every": every, "partitions": partitions}
    given = [("k", value) for value in ("a", "bbb", "cc", "ddd")]
    with TopologyTestDriver(builder.build(), processing_errors="skip", **settings) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(given)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, TEXT).read_key_values()
        assert out == [("k", value) for value in ("A", "bbb", "BBB", "CC", "ddd", "DDD")]
        assert sum(driver.metrics()["dropped"].values()) == 2
    with TopologyTestDriver(builder.build(), **settings) as driver:

        def process() -> None:
            driver.create_input_topic("in", TEXT, TEXT).pipe_records(given)
            driver.commit()

        with pytest.raises(cs.SerdeError, match="takes str, not int: 1") as caught:
            process()
        assert (caught.value.where["offset"], caught.value.where["part"]) == (0, "key")
