"""What a table cannot hold is refused where the sink is written, or is a bad record with its rule: never a loop."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.config import OnError
from crossstream.serdes import Serde
from crossstream.serdes.contract import OneByOne
from tests.lakehouse.lake import FORMATS, Lake
from tests.lakehouse.other_readers import rows_of
from tests.laws.effort import cases

TEXT, NUMBER = serdes.string(), serdes.int64()


def valued(dtype: Any) -> Serde:
    return serdes.json({"p": dtype, "n": pl.Int64})


def topology(lake: Lake, key: Serde, value: Serde, kind: str = "table", **settings: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    lake.sink(getattr(builder, kind)("t", cs.Consumed(key=key, value=value)), "t", **settings)
    return builder.build()


def write(
    built: cs.Topology, key: Serde, value: Serde, rows: list[Any], errors: OnError = "fail"
) -> list[cs.TestRecord]:
    """One batch; returns the dead letters."""
    with cs.TopologyTestDriver(built, commit_every=100, processing_errors=errors) as driver:
        topic = driver.create_input_topic("t", key, value)
        for k, v in rows:
            topic.pipe_input(k, v)
        driver.commit()
        return driver.create_output_topic("bad", key, value).read_records()


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


@pytest.fixture
def delta(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "delta")


@pytest.fixture
def iceberg(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "iceberg")


UNFIT: list[tuple[Any, Any]] = [
    (pl.Decimal(10, 2), Decimal("-1.50")),
    (pl.Decimal(38, 18), Decimal("-0.000000000000000001")),
    (pl.String, ""),
    (pl.String, "__HIVE_DEFAULT_PARTITION__"),
    (pl.String, "x" * 254),
    (pl.String, "é" * 43),
]
FIT: list[tuple[Any, Any]] = [
    (pl.Decimal(10, 2), Decimal("1.50")),
    (pl.Decimal(10, 0), Decimal(-15)),
    (pl.UInt64, 2**64 - 1),
    (pl.String, "x" * 253),
    (pl.String, "é" * 42),
    (pl.String, None),
]


@pytest.mark.parametrize(("dtype", "value"), UNFIT)
@pytest.mark.parametrize("kind", ["table", "stream"])
def test_a_partition_that_delta_cannot_hold_is_a_bad_record(
    kind: str, dtype: Any, value: Any, delta: Lake
) -> None:
    serde = valued(dtype)
    rows = [("a", {"p": None, "n": 1}), ("b", {"p": value, "n": 2}), ("c", {"p": None, "n": 3})]
    built = topology(delta, TEXT, serde, kind, partition_by="p")
    with pytest.raises(cs.SinkError) as caught:
        write(built, TEXT, serde, rows)
    assert (caught.value.code, "'p'" in caught.value.what) == ("CS-658", True)
    where = caught.value.where
    assert (where["topic"], where["partition"], where["offset"], where["key"]) == ("t", 0, 1, "b")
    assert where["table"] == delta.path("t")
    [letter] = write(built, TEXT, serde, rows, cs.DeadLetter("bad"))
    assert (letter.key, letter.value) == ("b", {"p": value, "n": 2})
    assert sorted(row["key"] for row in rows_of(delta, "t")) == ["a", "c"]


@pytest.mark.parametrize(("dtype", "value"), FIT)
def test_a_partition_that_delta_can_hold(dtype: Any, value: Any, delta: Lake) -> None:
    serde = valued(dtype)
    built = topology(delta, TEXT, serde, partition_by=["p"])
    for n in (1, 2):
        write(built, TEXT, serde, [("a", {"p": value, "n": n})])
    assert rows_of(delta, "t") == [{"key": "a", "p": value, "n": 2}]


@pytest.mark.parametrize(
    "dtype", [pl.Float64, pl.Float32, pl.Binary, pl.List(pl.Int64), pl.Struct({"a": pl.Int8})]
)
def test_types_of_partitions_that_delta_does_not_have(dtype: Any, delta: Lake) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        topology(delta, TEXT, valued(dtype), partition_by="p")
    assert (caught.value.code, "'p'" in caught.value.what) == ("CS-101", True)
    assert "tests/lakehouse" in str(caught.value.where["line"])


@pytest.mark.parametrize("names", [("p", "p"), ("key", "p", "n")])
def test_partitions_of_a_column_twice_or_of_all_columns(names: tuple[str, ...], delta: Lake) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        topology(delta, TEXT, valued(pl.String), partition_by=names)
    assert caught.value.code == "CS-101"


def test_a_key_with_a_list(lake: Lake) -> None:
    """A stream may have one: its rows are not looked for."""
    key = serdes.json({"k": pl.List(pl.Int64), "n": pl.Int64})
    with pytest.raises(cs.SerdeError) as caught:
        topology(lake, key, NUMBER)
    assert (caught.value.code, "'k'" in caught.value.what) == ("CS-404", True)
    write(topology(lake, key, NUMBER, "stream"), key, NUMBER, [({"k": [1], "n": 2}, 3)])
    assert rows_of(lake, "t") == [{"k": [1], "n": 2, "value": 3}]


def test_a_column_without_a_name(lake: Lake) -> None:
    with pytest.raises(cs.SerdeError) as caught:
        topology(lake, TEXT, serdes.json({"": pl.String}))
    assert caught.value.code == "CS-404"


def test_partitions_of_a_table_of_others_are_named(delta: Lake) -> None:
    """Else a text that is no partition would be found when it is written."""
    columns = pa.schema([("key", pa.string()), ("p", pa.string()), ("n", pa.int64())])
    DeltaTable.create(delta.path("t"), columns, partition_by=["p", "n"])
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(delta, TEXT, valued(pl.String)))
    assert (caught.value.code, "partition_by=('p',)" in str(caught.value.next)) == ("CS-657", True)
    built = topology(delta, TEXT, valued(pl.String), partition_by="p")
    write(built, TEXT, valued(pl.String), [("a", {"p": "x", "n": 1}), ("b", {"p": "", "n": 1})], "skip")
    assert rows_of(delta, "t") == [{"key": "a", "p": "x", "n": 1}]


ANY_TEXT = st.text(max_size=100) | st.sampled_from(
    ["", "__HIVE_DEFAULT_PARTITION__", "..", "a/b", "%2F", "x=y"]
)
PARTITIONS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": (pl.String, ANY_TEXT),
    "decimal": (pl.Decimal(38, 18), st.decimals(-(10**9), 10**9, places=18)),
    "whole": (pl.UInt64, st.integers(0, 2**64 - 1)),
    "signed": (pl.Int64, st.integers(-(2**63), 2**63 - 1)),
    "flag": (pl.Boolean, st.booleans()),
    "day": (pl.Date, st.dates()),
    "local": (pl.Datetime("us"), st.datetimes()),
    "at": (pl.Datetime("us", "UTC"), st.datetimes(timezones=st.just(timezone.utc))),
}


@pytest.mark.parametrize("kind", PARTITIONS)
@cases(0.1)
@given(data=st.data())
def test_a_value_of_a_partition_is_read_back_or_is_a_bad_record(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dtype, values = PARTITIONS[kind]
    delta, serde = Lake(tmp_path_factory.mktemp("lake"), "delta"), valued(dtype)
    drawn = data.draw(st.lists(values | st.none(), min_size=1, max_size=4))
    rows = [(str(n), {"p": value, "n": n}) for n, value in enumerate(drawn)]
    bad = write(topology(delta, TEXT, serde, partition_by="p"), TEXT, serde, rows, cs.DeadLetter("bad"))
    found = [(row["key"], {"p": row["p"], "n": row["n"]}) for row in rows_of(delta, "t")]
    assert sorted(found + [(letter.key, letter.value) for letter in bad]) == rows


VALUES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "whole": (pl.UInt64, (0, 2**64 - 1)),
    "decimal": (pl.Decimal(38, 0), (Decimal(10**38 - 1), Decimal(1 - 10**38))),
    "text": (pl.String, ("", "\0", "\U0010ffff" * 40)),
    "bytes": (pl.Binary, (b"", b"\xff" * 40)),
    "day": (pl.Date, (date.min, date.max)),
    "local": (pl.Datetime("us"), (datetime.min, datetime.max)),
    "at": (pl.Datetime("ms", "UTC"), (datetime(1, 1, 1, tzinfo=timezone.utc),)),
    "list": (pl.List(pl.Decimal(38, 0)), ([], [Decimal(10**38 - 1), None])),
    "struct": (
        pl.Struct({"d": pl.Decimal(38, 0), "u": pl.UInt64}),
        ({"d": Decimal(10**38 - 1), "u": 2**64 - 1},),
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_at_the_limits_of_their_type_are_read_back(kind: str, lake: Lake) -> None:
    dtype, values = VALUES[kind]
    serde = valued(dtype)
    rows = [(str(n), {"p": value, "n": n}) for n, value in enumerate((*values, None))]
    for _ in range(2):
        write(topology(lake, TEXT, serde), TEXT, serde, rows)
    found = sorted(rows_of(lake, "t"), key=lambda row: row["n"])
    assert [(row["key"], {"p": row["p"], "n": row["n"]}) for row in found] == rows


def test_floats_of_every_kind_are_read_back(lake: Lake) -> None:
    floats = [math.nan, math.inf, -math.inf, -0.0, 5e-324, None]
    for _ in range(2):
        write(
            topology(lake, NUMBER, serdes.float64(), "stream"),
            NUMBER,
            serdes.float64(),
            list(enumerate(floats)),
        )
    found = sorted(rows_of(lake, "t"), key=lambda row: row["key"])
    assert repr([row["value"] for row in found]) == repr([value for value in floats for _ in range(2)])


LISTS_OF_TIMES = pl.List(pl.Datetime("ms"))


@dataclass(frozen=True)
class FarTimes(OneByOne):
    """A serde of the user's own: lists of one time, in milliseconds of any size."""

    name: str = "far-times"
    dtype: pl.DataType = LISTS_OF_TIMES

    def serialize(self, value: int | None) -> bytes | None:
        return None if value is None else str(value).encode()

    def deserialize(self, data: bytes | None) -> int | None:
        return None if data is None else int(data)

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        return self.encode_objects(values.to_list())

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        lists = [[number] for number in self.decode_objects(data)]
        return pl.Series(lists, dtype=pl.List(pl.Int64)).cast(self.dtype)


@pytest.mark.parametrize("far", [-62_135_596_800_001, 253_402_300_800_000, 2**62])
def test_a_time_that_readers_do_not_have_is_a_bad_record(far: int, lake: Lake) -> None:
    serde = FarTimes()
    rows = [("a", 0), ("b", far), ("c", -62_135_596_800_000)]
    write(topology(lake, TEXT, serde, "stream"), TEXT, serde, rows, "skip")
    assert sorted(row["key"] for row in rows_of(lake, "t")) == ["a", "c"]


def test_keys_that_differ_in_bytes_alone_are_one_key(lake: Lake) -> None:
    """0.0 and -0.0, and two texts of one JSON object, in one batch and over several: the last one counts."""
    for rows in ([(0.0, 1), (-0.0, 2), (math.nan, 3), (math.nan, 4)], [(0.0, 5)], [(math.nan, None)]):
        write(topology(lake, serdes.float64(), NUMBER), serdes.float64(), NUMBER, rows)
    assert repr(rows_of(lake, "t")) == repr([{"key": 0.0, "value": 5}])


def test_two_texts_of_one_json_key_are_one_key(lake: Lake) -> None:
    key = serdes.json({"a": pl.Int64, "b": pl.String})
    texts = [b'{"a":1,"b":"x"}', b'{"b":"x","a":1}', b'{"a": 1, "b": "x", "more": 0}']
    with cs.TopologyTestDriver(topology(lake, key, NUMBER), partitions=3, commit_every=100) as driver:
        topic = driver.create_input_topic("t", serdes.bytes(), NUMBER)
        for n, text in enumerate(texts):
            topic.pipe_input(text, n, timestamp=n)
    assert rows_of(lake, "t") == [{"a": 1, "b": "x", "value": 2}]


def test_no_statistics_of_decimals_that_deltalake_would_round(delta: Lake) -> None:
    """A reader that looks for 2**64-1 would pass over the file: its largest value is said to be less."""
    key = serdes.json({"k": pl.UInt64})
    value = serdes.json({"n": pl.Int64, "s": pl.Struct({"d": pl.Decimal(38, 0)})})
    for kind in ("table", "stream"):
        write(
            topology(delta, key, value, kind),
            key,
            value,
            [({"k": 2**64 - 1}, {"n": 7, "s": {"d": Decimal(1)}})],
        )
    files = 0
    for log in Path(delta.path("t")).glob("_delta_log/*.json"):
        for add in (json.loads(line).get("add") for line in log.read_text().splitlines()):
            if add is not None:
                files += 1
                assert json.loads(add["stats"])["maxValues"] == {"n": 7}
                columns = pq.ParquetFile(Path(delta.path("t")) / add["path"]).metadata.row_group(0)
                assert {columns.column(n).compression for n in range(3)} == {"SNAPPY"}
    assert files == 2


def not_null(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


FIELDS = {
    "key": pa.field("key", pa.string()),
    "p": pa.field("p", pa.list_(pa.field("element", pa.int64()))),
    "n": pa.field("n", pa.int64()),
}
LISTS = valued(pl.List(pl.Int64))


def test_a_key_that_must_not_be_null_is_written(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.create("t", pa.schema([not_null("key", pa.string()), FIELDS["p"], FIELDS["n"]]))
    built = topology(lake, TEXT, LISTS)
    for n in (1, 2):
        write(built, TEXT, LISTS, [("a", {"p": [n], "n": None}), ("b", {"p": [n], "n": n})])
    write(built, TEXT, LISTS, [("b", None)])
    assert rows_of(lake, "t") == [{"key": "a", "p": [2], "n": None}]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "field", "kind"),
    [
        ("n", not_null("n", pa.int64()), "table"),
        ("p.element", pa.field("p", pa.list_(not_null("element", pa.int64()))), "table"),
        ("key", not_null("key", pa.string()), "stream"),
    ],
)
def test_other_columns_that_must_not_be_null_stop_the_start(
    name: str, field: pa.Field, kind: str, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.create("t", pa.schema([*({**FIELDS, field.name: field}).values()]))
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(lake, TEXT, LISTS, kind))
    assert (caught.value.code, f"{name} is not null there" in caught.value.what) == ("CS-657", True)
    assert capsys.readouterr().out == ""
