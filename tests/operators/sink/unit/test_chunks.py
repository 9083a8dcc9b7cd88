"""What a sink makes bytes of in chunks comes out as it would all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.operators.sink import runner as sinks

TEXT = serdes.string()
ROWS = 11


@dataclass
class Row:
    number: int


def shouted(value: Any) -> Any:
    return {"number": -value.number}


EXPRESSION = pl.struct(number=-pl.col("number"))


def results(function: Any, **options: Any) -> list[tuple[str, Any, int, Any]]:
    """Key, value, timestamp and headers of all results, of one batch."""
    builder = cs.StreamsBuilder()
    rows = builder.stream("in", cs.Consumed(key=TEXT, value=serdes.json(Row)))
    rows.map_values(function).to("out", cs.Produced(key=TEXT, value=serdes.json(), **options))
    with cs.TopologyTestDriver(builder.build(), partitions=2, commit_every=1000) as driver:
        topic = driver.create_input_topic("in", TEXT, serdes.json(Row))
        for number in range(ROWS):
            topic.pipe_input(f"k{number % 4}", Row(number), number, [("n", b"%d" % number)])
        driver.commit()
        records = driver.create_output_topic("out", TEXT, serdes.json()).read_records()
        return [(record.key, record.value, record.timestamp, list(record.headers)) for record in records]


@pytest.mark.parametrize("function", [EXPRESSION, shouted], ids=["expression", "callable"])
@pytest.mark.parametrize("chunk", [1, 2, 4, 10])
@pytest.mark.parametrize(
    "options",
    [{}, {"partitioner": lambda topic, key, value, count: value["number"] % count}],
    ids=["", "partitioner"],
)
def test_chunks_change_nothing(
    function: Any, chunk: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = results(function, **options)
    asked: list[int] = []
    written = sinks.SinkRunner._write_all

    def counted(runner: Any, changes: Any) -> None:
        asked.append(changes.rows)
        written(runner, changes)

    monkeypatch.setattr(sinks, "_CHUNK", chunk)
    monkeypatch.setattr(sinks.SinkRunner, "_write_all", counted)
    assert results(function, **options) == at_once
    assert sum(asked) == len(at_once) == ROWS
    assert max(asked) <= chunk


def test_the_record_that_a_serde_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever chunk it is in."""
    monkeypatch.setattr(sinks, "_CHUNK", 3)
    with pytest.raises(SerdeError) as caught:
        results(lambda row: object() if row.number == 7 else row.number)
    assert caught.value.code == "CS-403"
    where = caught.value.where
    assert (where["topic"], where["part"], where["key"]) == ("in", "value", "k3")
