"""Streaming DataFrames as sources; a double stands for pyspark's."""

from __future__ import annotations

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph import nodes as graph
from tests.api.cases import node_of, refused, serde_names
from tests.api.frame_double import Frame, changes, frame


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
    refused(
        "CS-101", lambda: builder.table_from(Frame(good), cs.Consumed(load="first")), "whose end is not known"
    )
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


# -- plain columns


def test_plain_columns_give_the_serdes():
    builder = cs.StreamsBuilder()
    plain = frame(id="bigint", name="string", price="decimal(10,2)", at="timestamp")
    table = builder.table_from(plain, key="id", store="rows", name="rows")
    assert serde_names(table) == (
        "int64",
        "json[{name: String, price: Decimal(10, 2), at: Datetime(us, UTC)}]",
    )
    node = node_of(table)
    assert (node.name, node.timestamp, node.changes, node.store.name) == ("rows", None, False, "rows")
    assert builder.build().frames == {"rows": plain}
    of_two = builder.table_from(plain, key=["name", "id"], columns=["price"], timestamp="at")
    assert serde_names(of_two) == ("json[{name: String, id: Int64}]", "json[{price: Decimal(10, 2)}]")
    assert (node_of(of_two).rows.read, node_of(of_two).timestamp) == (("name", "id", "price"), "at")


def test_a_stream_without_keys():
    stream = cs.StreamsBuilder().stream_from(frame(n="int"), key=())
    assert serde_names(stream) == ("bytes", "json[{n: Int32}]")


def test_a_table_of_changes_has_the_columns_of_its_rows():
    feed = changes(id="string", n="int")
    table = node_of(cs.StreamsBuilder().table_from(feed, key="id"))
    assert (table.changes, table.timestamp) == (True, "_commit_timestamp")
    assert table.value.name == "json[{n: Int32}]"
    stream = node_of(cs.StreamsBuilder().stream_from(feed, key="id"))
    assert (stream.changes, stream.timestamp) == (False, "_commit_timestamp")
    assert set(stream.rows.columns) == {"n", "_change_type", "_commit_version", "_commit_timestamp"}


def test_the_columns_of_changes_are_like_others_without_key():
    """The form of key and value does not read them."""
    feed = changes(key="string", value="string")
    assert node_of(cs.StreamsBuilder().table_from(feed)).rows is None


def test_a_column_that_no_one_reads_may_be_of_any_type():
    plain = frame(id="string", n="int", v="variant", w={"type": "udt"})
    assert (
        serde_names(cs.StreamsBuilder().table_from(plain, key="id", columns=["n"]))[1] == "json[{n: Int32}]"
    )


def test_a_dataframe_of_spark_connect():
    other = type("DataFrame", (Frame,), {"__module__": "pyspark.sql.connect.dataframe"})(
        {"id": "int", "n": "int"}
    )
    refused(
        "CS-150", lambda: cs.StreamsBuilder().table_from(other, key="id"), "Spark Connect", "without remote"
    )
