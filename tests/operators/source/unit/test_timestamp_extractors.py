"""The timestamps that an extractor gives: a field of the value goes before the record's own, in each row by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
EVERY = (1, 1000)


@dataclass
class Event:
    name: str
    timestamp: int = 0


@dataclass
class Untimed:
    name: str


def times(extractor: Any, given: list[Any], every: int, serde: Any = JSON, **settings: Any) -> list[int]:
    """Those of the records that came out; they went in at 7."""
    builder = cs.StreamsBuilder()
    builder.stream("in", cs.Consumed(key=TEXT, value=serde, timestamp_extractor=extractor)).to("out")
    with cs.TopologyTestDriver(builder.build(), commit_every=every, **settings) as driver:
        topic = driver.create_input_topic("in", TEXT, serde)
        for number, value in enumerate(given):
            topic.pipe_input(str(number), value, timestamp=7)
        driver.commit()
        return [record.timestamp for record in driver.create_output_topic("out", TEXT, serde).read_records()]


@pytest.mark.parametrize("every", EVERY)
class TestAnExpressionThatNamesTimestamp:
    def test_is_refused_where_the_value_may_have_such_a_field(self, every: int) -> None:
        for extractor in (pl.col("timestamp"), pl.col("timestamp") + pl.col("n")):
            with pytest.raises(cs.TopologyError, match="CS-113") as caught:
                times(extractor, [], every)
            assert '"timestamp": pl.…' in str(caught.value.next)

    def test_reads_a_null_where_the_field_is_null(self, every: int) -> None:
        serde = serdes.json({"timestamp": pl.Int64, "other": pl.Int64})
        given = [{"timestamp": None}, {"other": 1}, {"timestamp": 5000}]
        found = times(pl.col("timestamp"), given, every, serde, processing_errors="skip")
        assert found == [5000]
        filled = pl.coalesce("timestamp", "other")
        assert times(filled, [{"timestamp": None, "other": 9}, {"timestamp": 8}], every, serde) == [9, 8]

    def test_of_a_value_that_is_null_is_a_failure(self, every: int) -> None:
        serde = serdes.json(Event)
        given = [Event("a", 5000), None, Event("b", 6000)]
        assert times(pl.col("timestamp"), given, every, serde, processing_errors="skip") == [5000, 6000]
        with pytest.raises(cs.ProcessingError, match="CS-501") as caught:
            times(pl.col("timestamp"), given, every, serde)
        assert (caught.value.where["offset"], caught.value.where["key"]) == (1, "1")

    def test_reads_the_field_of_a_declared_type(self, every: int) -> None:
        given = [Event("a", 5000), Event("b", 6000)]
        assert times(pl.col("timestamp"), given, every, serdes.json(Event)) == [5000, 6000]
        schema = serdes.json({"name": pl.String, "timestamp": pl.Datetime("ms", "UTC")})
        rows = [{"name": "a", "timestamp": datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc)}]
        assert times(pl.col("timestamp"), rows, every, schema) == [5000]

    def test_reads_the_record_s_own_where_the_type_has_no_such_field(self, every: int) -> None:
        given = [Untimed("a"), Untimed("bcd")]
        extractor = pl.col("timestamp") + pl.col("name").str.len_bytes()
        assert times(extractor, given, every, serdes.json(Untimed)) == [8, 10]

    def test_of_numbers(self, every: int) -> None:
        assert times(pl.col("timestamp") + pl.col("value"), [1, 2], every, serdes.int64()) == [8, 9]

    def test_beside_another_field_reads_whole_records(self, every: int) -> None:
        builder = cs.StreamsBuilder()
        extractor = pl.col("timestamp") + pl.col("n")
        serde = serdes.json({"n": pl.Int64, "x": pl.String, "timestamp": pl.Int64})
        builder.stream("in", cs.Consumed(key=TEXT, value=serde, timestamp_extractor=extractor)).to("out")
        with cs.TopologyTestDriver(
            builder.build(), commit_every=every, deserialization_errors="skip", processing_errors="skip"
        ) as driver:
            topic = driver.create_input_topic("in", TEXT, serdes.bytes())
            for value in (b'{"n":1}', b'{"timestamp":1,"n":1,"x":"\xff"}', b'{"timestamp":5000,"n":2}'):
                topic.pipe_input("k", value, timestamp=7)
            driver.commit()
            records = driver.create_output_topic("out", TEXT, JSON).read_records()
            assert [record.timestamp for record in records] == [5002]
            assert driver.metrics()["dropped"] == {"in: undecodable": 1, "in: failed": 1}
