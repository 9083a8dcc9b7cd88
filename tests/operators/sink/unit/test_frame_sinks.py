"""Records on their way to `for_each_batch`: those that no column holds are under the policy of undecodable ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.columns.values import Values
from crossstream.operators.sink.frame_columns import column_of
from crossstream.serdes import Serde
from tests.pairs import Pair

TEXT, JSON = serdes.string(), serdes.json()
LARGE = 2**70


def frames(value: Serde, key: Serde = TEXT) -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=key, value=value, name="orders"))
    orders.for_each_batch(lambda frame, batch: None, cs.Named("frames"))
    return builder.build()


def piped(topology: cs.Topology, value: Serde, values: list[Any], **settings: Any) -> cs.TopologyTestDriver:
    """The driver, after one batch of the values."""
    driver = cs.TopologyTestDriver(topology, commit_every=len(values), **settings)
    orders = driver.create_input_topic("orders", TEXT, value)
    orders.pipe_records([cs.TestRecord(f"k{row}", value, row) for row, value in enumerate(values)])
    return driver


@dataclass
class Count:
    n: int | None = None


COUNT = serdes.json(Count)


def test_a_record_that_no_column_holds_is_named() -> None:
    with pytest.raises(cs.SerdeError) as caught:
        piped(frames(COUNT), JSON, [{"n": 1}, {"n": LARGE}, {"n": 2}])
    error = caught.value
    assert error.code == "CS-402"
    place = {name: error.where[name] for name in ("operator", "topic", "partition", "offset", "key")}
    assert place == {"operator": "frames", "topic": "orders", "partition": 0, "offset": 1, "key": "k1"}
    assert "test_frame_sinks.py" in error.where["line"]
    assert "deserialization_errors" in str(error.next)


def test_a_record_that_no_column_holds_is_skipped() -> None:
    values = [{"n": 1}, {"n": LARGE}, {"n": 2}, None]
    driver = piped(frames(COUNT), JSON, values, deserialization_errors="skip")
    metrics = driver.metrics()
    assert metrics["dropped"] == {"frames: undecodable": 1}
    assert metrics["rows_out"]["frames"] == 3


def test_a_record_that_no_column_holds_is_a_dead_letter() -> None:
    dead_letters = cs.DeadLetter("dead")
    driver = piped(frames(COUNT), JSON, [{"n": LARGE}, {"n": 1}], deserialization_errors=dead_letters)
    (dead,) = driver.create_output_topic("dead", TEXT, JSON).read_records()
    assert (dead.key, dead.value) == ("k0", {"n": LARGE})
    assert dict(dead.headers)["crossstream.operator"] == b"frames"
    assert driver.metrics()["rows_out"]["frames"] == 1


def test_keys_that_no_column_holds() -> None:
    topology = frames(TEXT, serdes.json(int))
    driver = cs.TopologyTestDriver(topology, commit_every=2, deserialization_errors="skip")
    orders = driver.create_input_topic("orders", JSON, TEXT)
    orders.pipe_input(LARGE, "a", timestamp=1)
    orders.pipe_input(7, "b", timestamp=2)
    assert driver.metrics()["dropped"] == {"frames: undecodable": 1}
    assert driver.metrics()["rows_out"]["frames"] == 1


ANY = [{"n": LARGE}, {"n": [1, "x"]}, {"n": {"n": [{}]}}, "text", 7, None, [1, [2, {"a": None}]]]


def test_json_without_declared_type_is_the_text_of_each_record() -> None:
    driver = piped(frames(JSON), JSON, ANY)
    assert driver.metrics()["dropped"] == {}
    assert driver.metrics()["rows_out"]["frames"] == len(ANY)
    column = column_of(Values(JSON, wire=JSON.encode_objects(ANY)))
    assert pa.types.is_string(column.type)
    assert [text and json.loads(text) for text in column.to_pylist()] == ANY


def test_a_declared_type_without_columns_is_its_text() -> None:
    either = serdes.json(dict[str, int])
    driver = piped(frames(either), either, [{"n": 1}])
    assert driver.metrics()["rows_out"]["frames"] == 1
    assert column_of(Values(either, wire=either.encode_objects([{"n": 1}]))).to_pylist() == ['{"n":1}']


def test_what_a_serde_of_the_user_reads_without_a_type_is_its_bytes() -> None:
    pair = Pair(dtype=None)
    column = column_of(Values(pair, wire=pair.encode_objects([(1, 2), None])))
    assert column.to_pylist() == [b"1,2", None]


@pytest.mark.parametrize(
    ("dtype", "given", "wanted"),
    [
        (pl.Datetime("ns", "UTC"), [-1, 1999, None], pa.timestamp("us", "UTC")),
        (pl.Datetime("ms"), [-1, 1999, None], pa.timestamp("us")),
        (pl.Duration("ns"), [-1, 1999, None], pa.duration("us")),
        (pl.Enum(["a", "b"]), ["b", None], pa.string()),
        (pl.List(pl.Datetime("ns")), [[-1, 1999], None], pa.list_(pa.timestamp("us"))),
        (pl.Struct({"at": pl.Datetime("ns")}), [{"at": -1}, None], pa.struct({"at": pa.timestamp("us")})),
        (pl.Array(pl.UInt8, 2), [[0, 255], None], pa.list_(pa.int16())),
        (pl.Null(), [None], pa.string()),
    ],
)
def test_types_that_spark_writes_otherwise(dtype: Any, given: list[Any], wanted: pa.DataType) -> None:
    """Times are rounded down, also those before 1970; lists, texts and bytes have the types that Spark gives them."""
    column = column_of(Values(Pair(dtype=dtype), series=pl.Series(given, dtype=dtype, strict=False)))
    assert column.type == wanted
    assert column.null_count == given.count(None)
    if dtype == pl.Datetime("ns", "UTC"):
        assert column.cast(pa.int64()).to_pylist() == [-1, 1, None]


LAST = 253_402_300_799_999
"""The last millisecond of the year 9999, after which Spark has no timestamps."""


def test_a_timestamp_that_no_column_holds_is_named() -> None:
    driver = cs.TopologyTestDriver(frames(TEXT))
    orders = driver.create_input_topic("orders", TEXT, TEXT)
    orders.pipe_input("a", "x", timestamp=LAST)
    with pytest.raises(cs.SerdeError) as caught:
        orders.pipe_input("b", "x", timestamp=LAST + 1)
    error = caught.value
    assert (error.code, error.where["operator"], error.where["key"]) == ("CS-402", "frames", "b")
    assert error.what == (
        "the timestamp of a record cannot be decoded: "
        "253402300800000 ms are after the year 9999, the last that Spark has"
    )


def test_timestamps_that_no_column_holds_are_let_go() -> None:
    driver = cs.TopologyTestDriver(frames(TEXT), commit_every=3, deserialization_errors=cs.DeadLetter("dead"))
    orders = driver.create_input_topic("orders", TEXT, TEXT)
    orders.pipe_records([cs.TestRecord(f"k{ts}", "x", ts) for ts in (LAST + 1, LAST, 2**62 - 1)])
    dead = driver.create_output_topic("dead", TEXT, TEXT).read_records()
    assert [(one.key, one.timestamp) for one in dead] == [(f"k{ts}", ts) for ts in (LAST + 1, 2**62 - 1)]
    assert driver.metrics()["dropped"] == {"frames: undecodable": 2}
    assert driver.metrics()["rows_out"]["frames"] == 1
