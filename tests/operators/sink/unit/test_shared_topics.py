"""Several sinks of one topic: what one record brings to several of them, and those after it, stays in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream.catalog.planners import plan_topology
from crossstream.planning.steps import SinkStep
from crossstream.testing import TopologyTestDriver

TEXT, RAW = cs.serdes.string(), cs.serdes.bytes()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)
PRODUCED = cs.Produced(key=TEXT, value=TEXT)


def small(value: str) -> bool:
    return value < "m"


def other_serdes(small_: cs.KStream, large: cs.KStream, table: cs.KTable) -> None:
    small_.map_values(str.encode).to("out", cs.Produced(key=TEXT, value=RAW))
    large.to("out", PRODUCED)


def other_rounds(small_: cs.KStream, large: cs.KStream, table: cs.KTable) -> None:
    large.to("out", PRODUCED)
    small_.left_join(table, lambda value, row: value).to("out", PRODUCED)


def dynamic_topics(small_: cs.KStream, large: cs.KStream, table: cs.KTable) -> None:
    large.to(lambda key, value: "out", PRODUCED)
    small_.to(lambda key, value: "out" if value != "b" else "another", PRODUCED)


def one_dynamic_topic(small_: cs.KStream, large: cs.KStream, table: cs.KTable) -> None:
    large.to(lambda key, value: "out", PRODUCED)
    small_.to("out", PRODUCED)


def one_dynamic_topic_beside_others(small_: cs.KStream, large: cs.KStream, table: cs.KTable) -> None:
    """Each of two topics has a sink of its own, and one that may write to either."""
    small_.left_join(table, lambda value, row: value).to("another", PRODUCED)
    large.to(lambda key, value: "out" if value != "y" else "another", PRODUCED)
    small_.to("out", PRODUCED)


def partitioners(small_: cs.KStream, large: cs.KStream, table: cs.KTable) -> None:
    large.to("out", cs.Produced(key=TEXT, value=TEXT, partitioner=lambda topic, key, value, count: 0))
    small_.to("out", cs.Produced(key=TEXT, value=TEXT, partitioner=to_several))


def to_several(topic: str, key: str, value: str, count: int) -> Any:
    """Nowhere, to two partitions, or where the key says."""
    return {"a": [], "b": [0, 0]}.get(value)


def one_is_nowhere(small_: cs.KStream, large: cs.KStream, table: cs.KTable) -> None:
    """The sinks read the same stream."""
    large.to("out", PRODUCED)
    large.to("out", PRODUCED)


GIVEN = {
    other_serdes: "azbycx",
    other_rounds: "azbycx",
    dynamic_topics: "azycx",
    one_dynamic_topic: "azbycx",
    one_dynamic_topic_beside_others: "azbcx",
    partitioners: "zbbycx",
    one_is_nowhere: "zzyyxx",
}


@pytest.mark.parametrize("every", [1, 2, 1000])
@pytest.mark.parametrize("graph", GIVEN, ids=lambda graph: graph.__name__)
def test_in_order_of_arrival(graph: Callable[[cs.KStream, cs.KStream, cs.KTable], None], every: int) -> None:
    builder = cs.StreamsBuilder()
    stream, table = builder.stream("in", CONSUMED), builder.table("rows", CONSUMED)
    graph(stream.filter(small), stream.filter_not(small), table)
    with TopologyTestDriver(builder.build(), commit_every=every) as driver:
        given = driver.create_input_topic("in", TEXT, TEXT)
        given.pipe_records([("k", value, n) for n, value in enumerate("azbycx")])
        driver.commit()
        out = driver.create_output_topic("out", TEXT, TEXT).read_records()
    assert "".join(record.value for record in out) == GIVEN[graph]
    assert [record.timestamp for record in out] == ["azbycx".index(record.value) for record in out]


@pytest.mark.parametrize("deletes_to", ["rows", lambda key, value: "rows"], ids=["by name", "dynamic"])
@pytest.mark.parametrize("every", [1, 1000])
def test_a_row_that_is_deleted_and_comes_again_is_there(every: int, deletes_to: Any) -> None:
    """Deletes and other changes on ways of their own, as of a CDC topic."""
    builder = cs.StreamsBuilder()
    changes = builder.stream("changes", CONSUMED)
    changes.filter(lambda value: value == "delete").map_values(lambda value: None).to(deletes_to, PRODUCED)
    changes.filter_not(lambda value: value == "delete").to("rows", PRODUCED)
    with TopologyTestDriver(builder.build(), commit_every=every) as driver:
        given = driver.create_input_topic("changes", TEXT, TEXT)
        given.pipe_records([("k", value) for value in ("here", "delete", "again")])
        driver.commit()
        assert driver.create_output_topic("rows", TEXT, TEXT).read_key_values_to_map() == {"k": "again"}


@pytest.mark.parametrize("every", [1, 1000])
def test_several_results_of_a_record_in_turn(every: int) -> None:
    builder = cs.StreamsBuilder()
    letters = builder.stream("in", CONSUMED).flat_map_values(list)
    letters.filter_not(small).map_values(str.upper).to("out", PRODUCED)
    letters.filter(small).to("out", PRODUCED)
    with TopologyTestDriver(builder.build(), commit_every=every) as driver:
        given = driver.create_input_topic("in", TEXT, TEXT)
        given.pipe_records([("k", "azb"), ("k", "ycx")])
        driver.commit()
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == list("aZbYcX")
        counted = driver.metrics()
    assert counted["dropped-records-total"] == 0


@pytest.mark.parametrize("every", [1, 1000])
def test_other_topics_change_no_order(every: int) -> None:
    """A dynamic topic and two others: a way to one of these is not in turn, for a join is on it."""
    builder = cs.StreamsBuilder()
    letters = builder.stream("in", CONSUMED).flat_map_values(list)
    rows = builder.global_table("rows", CONSUMED)
    letters.left_join(rows, lambda letter, row: letter, key_selector=lambda key, letter: key).to(
        "joined", PRODUCED
    )
    letters.filter_not(small).map_values(str.upper).to(lambda key, value: "out", PRODUCED)
    letters.filter(small).to("out", PRODUCED)
    with TopologyTestDriver(builder.build(), commit_every=every) as driver:
        given = driver.create_input_topic("in", TEXT, TEXT)
        given.pipe_records([("k", "azb"), ("k", "ycx")])
        driver.commit()
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == list("aZbYcX")
        assert driver.create_output_topic("joined", TEXT, TEXT).read_values() == list("azbycx")


@pytest.mark.parametrize("to", ["out", lambda key, value: "out"], ids=["by name", "dynamic"])
def test_sinks_of_streams_that_share_no_record_wait_for_nothing(to: Any) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("one", CONSUMED).to("out", PRODUCED)
    builder.stream("other", CONSUMED).to(to, PRODUCED)
    sinks = [step for step in plan_topology(builder.build()).steps if isinstance(step, SinkStep)]
    assert [sink.shares for sink in sinks] == [None, None]


@pytest.mark.parametrize("others", ["before", "after"])
def test_other_streams_change_no_order(others: str) -> None:
    """The streams that write to a topic beside those of a record, wherever they are declared."""
    builder = cs.StreamsBuilder()

    def payments() -> None:
        paid = builder.stream("payments", CONSUMED)
        paid.to("audit", PRODUCED)
        paid.filter(bool).to("audit", PRODUCED)

    if others == "before":
        payments()
    checked = builder.stream("orders", CONSUMED).map_values(lambda order: order + ", checked")
    priced = checked.map_values(lambda order: order + ", priced")
    checked.to("audit", PRODUCED)
    priced.to("audit", PRODUCED)
    if others == "after":
        payments()
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("orders", TEXT, TEXT).pipe_input("k", "o1")
        out = driver.create_output_topic("audit", TEXT, TEXT).read_values()
    assert out == ["o1, checked, priced", "o1, checked"]
