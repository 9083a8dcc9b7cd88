"""Processors and deduplication get every change of a table that is kept, not the last one of a batch."""

from __future__ import annotations

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, NUMBER = serdes.string(), serdes.int64()
RECORDS = [("a", 1, 5), ("b", 2, 6), ("a", 3, 12), ("a", None, 13), ("b", 4, 21), ("a", 5, 30)]
PRODUCED = cs.Produced(key=TEXT, value=NUMBER)


class Forwards:
    def init(self, context: cs.ProcessorContext) -> None:
        self.context = context

    def process(self, record: cs.Record) -> None:
        self.context.forward(record.key, record.value)


@pytest.mark.parametrize("every", [1, 2, 100])
@pytest.mark.parametrize("operator", ["process", "process_values", "deduplicate"])
def test_changes_of_a_kept_table(every: int, operator: str) -> None:
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=NUMBER)
    changes = builder.table("in", consumed, cs.Materialized(store="kept")).to_stream()
    argument = 0 if operator == "deduplicate" else Forwards
    getattr(changes, operator)(argument).to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_records(RECORDS)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, NUMBER).read_records()
    assert [(one.key, one.value, one.timestamp) for one in out] == RECORDS


def test_a_text_names_the_field_that_identifies_a_record() -> None:
    builder = cs.StreamsBuilder()
    order = serdes.json({"id": pl.Int64})
    builder.stream("in", cs.Consumed(key=TEXT, value=order)).deduplicate("1 second", key="id").to("out")
    with cs.TopologyTestDriver(builder.build(), partitions=2, commit_every=4) as driver:
        topic = driver.create_input_topic("in", TEXT, order)
        topic.pipe_records([("a", {"id": 1}, 1), ("b", {"id": 1}, 2), ("c", {"id": 2}, 3)])
        driver.commit()
        out = driver.create_output_topic("out", TEXT, order).read_records()
    assert sorted(one.key for one in out) == ["a", "c"]


@pytest.mark.parametrize("every", [1, 2, 100])
def test_aggregations_count_every_change_of_a_kept_table(every: int) -> None:
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=NUMBER)
    changes = builder.table("in", consumed, cs.Materialized(store="kept")).to_stream()
    changes.group_by_key().count(materialized=cs.Materialized(store="counts"))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_records(RECORDS)
        driver.commit()
        assert dict(driver.get_key_value_store("counts").all()) == {"a": 3, "b": 2}
