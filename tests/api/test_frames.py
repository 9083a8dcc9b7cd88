"""Streaming DataFrames as sources; a double stands for pyspark's."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph import nodes as graph
from tests.api.cases import node_of, refused, serde_names


@dataclass
class Frame:
    types: dict[str, str]
    isStreaming: bool = True
    columns: list[str] = field(init=False)

    def __post_init__(self):
        self.columns = list(self.types)

    @property
    def schema(self):
        fields = [
            SimpleNamespace(
                name=name,
                dataType=SimpleNamespace(
                    simpleString=lambda text=text: text, jsonValue=lambda text=text: text
                ),
            )
            for name, text in self.types.items()
        ]
        return SimpleNamespace(fields=fields)


@pytest.mark.parametrize(
    ("spark", "serde"),
    [
        ("string", "string"),
        ("binary", "bytes"),
        ("smallint", "int16"),
        ("int", "int32"),
        ("bigint", "int64"),
        ("float", "float32"),
        ("double", "float64"),
        ("boolean", "boolean"),
        ("struct<a:int>", "json"),
        ("array<string>", "json"),
        ("map<string,int>", "json"),
    ],
)
def test_serdes_follow_from_the_columns(spark, serde):
    frame = Frame({"key": "string", "value": spark, "timestamp": "timestamp"})
    assert serde_names(cs.StreamsBuilder().stream_from(frame)) == ("string", serde)


def test_given_serdes_win():
    frame = Frame({"key": "binary", "value": "binary"})
    consumed = cs.Consumed(key=serdes.string(), value=serdes.json())
    assert serde_names(cs.StreamsBuilder().stream_from(frame, consumed)) == ("string", "json")


def test_frames_are_kept_by_the_name_of_their_node():
    builder = cs.StreamsBuilder()
    first, second = Frame({"key": "string", "value": "string"}), Frame({"key": "string", "value": "string"})
    stream = builder.stream_from(first)
    table = builder.table_from(second, cs.Consumed(name="rates"), cs.Materialized(store="rates"))
    assert isinstance(stream, cs.KStream)
    assert isinstance(table, cs.KTable)
    assert table.queryable_store_name == "rates"
    topology = builder.build()
    assert topology.frames == {"frame": first, "rates": second}
    assert type(topology["frame"]) is graph.FrameSource
    assert [node.shape for node in topology] == ["stream", "table"]
    assert node_of(builder.stream_from(first)).name == "frame-3"


def test_a_frame_where_a_topic_belongs():
    builder, frame = cs.StreamsBuilder(), Frame({"key": "string", "value": "string"})
    refused("CS-101", lambda: builder.stream(frame), "stream_from(…) reads a DataFrame")
    refused("CS-102", lambda: builder.table(frame), "not Frame")
    refused("CS-102", lambda: builder.global_table(frame), 'pass one name, such as "orders"')


def test_what_is_no_streaming_frame():
    builder = cs.StreamsBuilder()
    good = {"key": "string", "value": "string"}
    refused("CS-150", lambda: builder.stream_from("orders"), "stream_from")
    refused("CS-150", lambda: builder.table_from(Frame(good, isStreaming=False)), "readStream")
    refused("CS-150", lambda: builder.stream_from(Frame({"id": "int", "value": "int"})), "no column key")
    refused("CS-150", lambda: builder.stream_from(Frame({**good, "key": "timestamp"})), "type timestamp")
    late = cs.Consumed(offset_reset="latest")
    refused("CS-101", lambda: builder.stream_from(Frame(good), late), "offset_reset")
    timed = cs.Consumed(timestamp_extractor=lambda key, value, timestamp: 0)
    refused("CS-101", lambda: builder.table_from(Frame(good), timed), "timestamp")
    dated = Frame({**good, "timestamp": "date"})
    refused(
        "CS-150", lambda: builder.stream_from(dated), "cast it to timestamp or timestamp_ntz or bigint or int"
    )
    refused(
        "CS-150",
        lambda: builder.stream_from(Frame({**good, "headers": "string"})),
        "headers is of type string",
    )


@pytest.mark.parametrize("name", ["key", "value", "timestamp", "headers"])
def test_a_column_that_spark_finds_twice(name):
    frame = Frame({"key": "string", "value": "string", name: "string", name.upper(): "int"})
    error = refused("CS-150", lambda: cs.StreamsBuilder().stream_from(frame), f"{name}, {name.upper()}")
    assert "drop" in error.next


@pytest.mark.parametrize("column", ["Key", "VALUE", "Timestamp", "Headers"])
def test_a_column_that_spark_finds_in_other_letters(column):
    """It is not read, and so a timestamp would be the clock's."""
    types = {name: "string" for name in ("key", "value") if name != column.lower()}
    frame = Frame({**types, column: "timestamp"})
    error = refused("CS-150", lambda: cs.StreamsBuilder().stream_from(frame), f": {column}")
    assert f'.withColumnRenamed("{column}", "{column.lower()}")' in error.next


@pytest.mark.parametrize("given", [{}, {"value": serdes.json()}])
@pytest.mark.parametrize("kind", ["variant", "interval", "interval year to month", "geometry(4326)"])
def test_types_that_no_serde_reads(kind, given):
    frame = Frame({"key": "string", "value": kind})
    refused("CS-150", lambda: cs.StreamsBuilder().stream_from(frame, cs.Consumed(**given)), f"of type {kind}")
