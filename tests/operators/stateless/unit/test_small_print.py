"""What a port of tables needs besides joins: `to`, `to_stream` with a mapper, `map_values` with a store."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.api.cases import refused

TEXT, COUNT = serdes.string(), serdes.int64()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)


@pytest.mark.parametrize("every", [1, 9])
def test_a_table_writes_its_changes(every: int) -> None:
    def run(write: Any) -> list[cs.TestRecord]:
        builder = cs.StreamsBuilder()
        write(builder.table("in", CONSUMED))
        with cs.TopologyTestDriver(builder.build(), commit_every=every, partitions=2) as driver:
            topic = driver.create_input_topic("in", TEXT, TEXT)
            topic.pipe_records([("a", "1", 1), ("b", "2", 2), ("a", None, 3)])
            driver.commit()
            return driver.create_output_topic("out", TEXT, TEXT).read_records()

    assert run(lambda table: table.to("out")) == run(lambda table: table.to_stream().to("out"))
    assert run(lambda table: table.to("out"))[-1].value in (None, "2")
    assert len(run(lambda table: table.to(lambda key, value: "out", cs.Produced(value=TEXT)))) > 1


def test_its_sink_has_a_name() -> None:
    builder = cs.StreamsBuilder()
    table = builder.table("in", CONSUMED)
    assert table.to("a", named=cs.Named("first")) is None
    table.to("b", cs.Produced(name="second"))
    table.to("c", cs.Produced(name="other"), cs.Named("third"))
    table.to("d")
    assert [name for name in builder.build().nodes if "to_stream" not in name] == [
        "in",
        "first",
        "second",
        "third",
    ]
    refused("CS-101", lambda: table.to("e", cs.Named("x")))
    refused("CS-101", lambda: table.to("e", named="x"))
    refused("CS-102", lambda: table.to("not a topic"))
    refused("CS-140", lambda: table.map_values(str).to("e"))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("every", [1, 9])
def test_windows_become_plain_keys(every: int, partitions: int) -> None:
    builder = cs.StreamsBuilder()
    words = builder.stream("in", CONSUMED)
    counts = words.group_by_key().windowed_by("10 seconds").count()
    again = counts.to_stream(lambda window, count: f"{window.key}@{window.start}-{window.end}")
    again.to("out", cs.Produced(key=TEXT, value=COUNT))
    with cs.TopologyTestDriver(builder.build(), commit_every=every, partitions=partitions) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(
            [("a", "x", 1), ("a", "x", 2), ("a", "x", 10_001)]
        )
        driver.commit()
        out = driver.create_output_topic("out", TEXT, COUNT)
        assert out.read_key_values_to_map() == {"a@0-10000": 2, "a@10000-20000": 1}


@pytest.mark.parametrize("every", [1, 9])
@pytest.mark.parametrize("windowed", [False, True])
def test_values_are_mapped_into_a_store(windowed: bool, every: int) -> None:
    builder = cs.StreamsBuilder()
    grouped = builder.stream("in", CONSUMED).group_by_key()
    counts = grouped.windowed_by("10 seconds").count() if windowed else grouped.count()
    stored = cs.Materialized(store="texts", value=TEXT)
    mapped = counts.map_values(lambda count: f"{count} times", materialized=stored)
    assert mapped.queryable_store_name == "texts"
    with cs.TopologyTestDriver(builder.build(), commit_every=every, partitions=2) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(
            [("a", "x", 1), ("b", "x", 2), ("a", "x", 3)]
        )
        driver.commit()
        if windowed:
            key = cs.Windowed("a", 0, 10_000)
            assert driver.get_key_value_store("texts").get(key) == "2 times"
        else:
            assert dict(driver.get_key_value_store("texts").all()) == {"a": "2 times", "b": "1 times"}
