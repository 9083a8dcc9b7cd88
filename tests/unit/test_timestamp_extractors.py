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
    @pytest.mark.parametrize(
        "extractor", [pl.col("timestamp"), lambda key, value, timestamp: value["timestamp"]]
    )
    def test_reads_the_field(self, extractor: Any, every: int) -> None:
        assert times(extractor, [{"timestamp": 5000}, {"timestamp": 6000, "n": 1}], every) == [5000, 6000]

    def test_reads_the_record_s_own_where_there_is_no_such_field(self, every: int) -> None:
        given = [
            {"n": 1},
            {"timestamp": 5000},
            "text",
            {"in": {"timestamp": 1}},
            [1],
            {"timestamp": 6000},
            {},
        ]
        assert times(pl.col("timestamp") + 1, given, every) == [8, 5001, 8, 8, 8, 6001, 8]

    def test_reads_a_null_where_the_field_is_null(self, every: int) -> None:
        given = [{"timestamp": None}, {"n": 1}, {"timestamp": 5000}]
        found = times(pl.col("timestamp"), given, every, processing_errors="skip")
        assert found == [7, 5000]
        filled = pl.coalesce(pl.col("timestamp").cast(pl.Int64), pl.col("other").cast(pl.Int64))
        assert times(filled, [{"timestamp": None, "other": 9}, {"other": 8}], every) == [9, 7]

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
        assert times(pl.col("timestamp") + pl.col("value"), [1, 2], every) == [8, 9]

    def test_beside_another_field_reads_whole_records(self, every: int) -> None:
        builder = cs.StreamsBuilder()
        extractor = pl.col("timestamp") + pl.col("n")
        builder.stream("in", cs.Consumed(key=TEXT, value=JSON, timestamp_extractor=extractor)).to("out")
        with cs.TopologyTestDriver(
            builder.build(), commit_every=every, deserialization_errors="skip", processing_errors="skip"
        ) as driver:
            topic = driver.create_input_topic("in", TEXT, serdes.bytes())
            for value in (b'{"n":1}', b'{"n":1,"x":"\xff"}', b'"text"', b'{"timestamp":5000,"n":2}'):
                topic.pipe_input("k", value, timestamp=7)
            driver.commit()
            records = driver.create_output_topic("out", TEXT, JSON).read_records()
            assert [record.timestamp for record in records] == [8, 5002]
            assert driver.metrics()["dropped"] == {"in: undecodable": 1, "in: failed": 1}
