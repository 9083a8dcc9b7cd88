"""Rows of plain columns: every type of Spark and of Arrow has a place, or is refused by name."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any
from uuid import UUID

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import TopologyError
from crossstream.serdes.plain_columns import PlainRows, plain_rows
from tests.serdes.rows import unhurried

AT = dt.datetime(2026, 1, 31, 12, 0, 0, 5)
UTC = dt.timezone.utc

KINDS: list[tuple[pa.DataType, Any, Any, Any]] = [
    (pa.int8(), pl.Int8, -7, -7),
    (pa.int16(), pl.Int16, 7, 7),
    (pa.int32(), pl.Int32, 7, 7),
    (pa.int64(), pl.Int64, 2**62, 2**62),
    (pa.float32(), pl.Float32, 0.5, 0.5),
    (pa.float64(), pl.Float64, 0.1, 0.1),
    (pa.bool_(), pl.Boolean, False, False),
    (pa.string(), pl.String, "é", "é"),
    (pa.string_view(), pl.String, "é", "é"),
    (pa.dictionary(pa.int32(), pa.string()), pl.String, "a", "a"),
    (pa.binary(), pl.Binary, b"\x00\xff", b"\x00\xff"),
    (pa.binary(2), pl.Binary, b"ab", b"ab"),
    (pa.decimal128(10, 2), pl.Decimal(10, 2), Decimal("1.50"), Decimal("1.50")),
    (pa.decimal128(38, 0), pl.Decimal(38, 0), Decimal(10**37), Decimal(10**37)),
    (pa.timestamp("us", "UTC"), pl.Datetime("us", "UTC"), AT.replace(tzinfo=UTC), AT.replace(tzinfo=UTC)),
    (
        pa.timestamp("us", "+02:00"),
        pl.Datetime("us", "UTC"),
        AT.replace(tzinfo=UTC),
        AT.replace(tzinfo=UTC),
    ),
    (pa.timestamp("us"), pl.Datetime("us"), AT, AT),
    (pa.timestamp("s"), pl.Datetime("us"), AT.replace(microsecond=0), AT.replace(microsecond=0)),
    (pa.date32(), pl.Date, AT.date(), AT.date()),
    (pa.time64("us"), pl.Time, AT.time(), AT.time()),
    (
        pa.duration("us"),
        pl.Duration("us"),
        dt.timedelta(days=-1, seconds=3),
        dt.timedelta(days=-1, seconds=3),
    ),
    (pa.list_(pa.int32()), pl.List(pl.Int32), [1, None], [1, None]),
    (pa.list_(pa.int32(), 2), pl.List(pl.Int32), [1, 2], [1, 2]),
    (
        pa.map_(pa.string(), pa.list_(pa.date32())),
        pl.List(pl.Struct({"key": pl.String, "value": pl.List(pl.Date)})),
        [("a", [AT.date()]), ("b", None)],
        [{"key": "a", "value": [AT.date()]}, {"key": "b", "value": None}],
    ),
    (
        pa.struct([("a", pa.map_(pa.int64(), pa.int64())), ("b", pa.null())]),
        pl.Struct({"a": pl.List(pl.Struct({"key": pl.Int64, "value": pl.Int64})), "b": pl.String}),
        {"a": [(1, 2)], "b": None},
        {"a": [{"key": 1, "value": 2}], "b": None},
    ),
    (pa.struct([]), pl.Struct({}), {}, {}),
    (pa.null(), pl.String, None, None),
]


def rows_of(schema: pa.Schema, *key: str, columns: list[str] | None = None) -> PlainRows:
    return plain_rows(schema, key, columns, {"operator": "rows"})


@pytest.mark.parametrize(("kind", "dtype", "given", "kept"), KINDS, ids=lambda one: str(one)[:40])
@pytest.mark.parametrize("copies", [1, 200])
def test_a_column_of_the_value(kind: pa.DataType, dtype: Any, given: Any, kept: Any, copies: int) -> None:
    """As a column, and after it was written: few rows and many are written in different ways."""
    schema = pa.schema([("id", pa.string()), ("c", kind)])
    batch = pa.record_batch(
        [pa.array(["k"] * 2 * copies), pa.array([given, None] * copies, kind)], schema=schema
    )
    rows = rows_of(schema, "id")
    series = rows.value_series(batch)
    assert series.dtype == pl.Struct({"c": dtype}) == rows.value.dtype
    expected = [{"c": kept}, {"c": None}] * copies
    assert series.to_list() == expected
    written = rows.value.encode_series(series)
    assert rows.value.decode_objects(written) == expected
    assert rows.value.decode_series(written).to_list() == expected
    assert pl.Series(rows.value_struct(batch)).to_list() == expected
    assert pickle.loads(pickle.dumps(rows)) == rows


def test_a_uuid_is_its_text() -> None:
    one = UUID(int=2**100 + 7)
    schema = pa.schema([("id", pa.uuid()), ("c", pa.uuid())])
    batch = pa.record_batch([pa.array([one.bytes], pa.uuid()), pa.array([None], pa.uuid())], schema=schema)
    rows = rows_of(schema, "id")
    assert rows.key == serdes.string()
    assert rows.key_wire(batch).to_pylist() == [str(one).encode()]
    assert rows.value_series(batch).to_list() == [{"c": None}]


@pytest.mark.parametrize(
    ("kind", "serde", "given", "wire"),
    [
        (pa.string(), serdes.string(), "a", b"a"),
        (pa.binary(), serdes.bytes(), b"a", b"a"),
        (pa.bool_(), serdes.boolean(), True, b"\x01"),
        (pa.int8(), serdes.int16(), -1, b"\xff\xff"),
        (pa.int16(), serdes.int16(), 1, b"\x00\x01"),
        (pa.int32(), serdes.int32(), 1, b"\x00\x00\x00\x01"),
        (pa.int64(), serdes.int64(), 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        (pa.float32(), serdes.float32(), 0.0, b"\x00\x00\x00\x00"),
        (pa.float64(), serdes.float64(), 0.0, b"\x00" * 8),
        (pa.date32(), None, AT.date(), b'"2026-01-31"'),
        (pa.decimal128(5, 2), None, Decimal("1.50"), b'"1.50"'),
        (pa.timestamp("us", "UTC"), None, AT.replace(tzinfo=UTC), b'"2026-01-31T12:00:00.000005Z"'),
        (pa.struct([("a", pa.int8())]), None, {"a": 1}, b'{"a":1}'),
    ],
    ids=str,
)
def test_a_key_of_one_column(kind: pa.DataType, serde: Any, given: Any, wire: bytes) -> None:
    schema = pa.schema([("id", kind), ("c", pa.int64())])
    batch = pa.record_batch([pa.array([given, None], kind), pa.array([1, 2])], schema=schema)
    rows = rows_of(schema, "id")
    assert rows.key is not None
    assert serde is None or rows.key == serde
    assert rows.key_wire(batch).to_pylist() == [wire, None]
    assert rows.key_wire(batch.slice(1)).to_pylist() == [None]


def test_a_key_of_several_columns() -> None:
    """A struct in the order of `key`; a null in one of its columns makes it null, as in a primary key."""
    schema = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("c", pa.int64())])
    batch = pa.record_batch(
        [pa.array([1, None, 3, None]), pa.array(["a", "b", None, None]), pa.array([1, 2, 3, 4])],
        schema=schema,
    )
    rows = rows_of(schema, "shop", "id")
    assert rows.keys == ("shop", "id")
    assert rows.key_wire(batch).to_pylist() == [b'{"shop":"a","id":1}', None, None, None]
    assert rows.key_wire(batch.slice(0, 1)).to_pylist() == [b'{"shop":"a","id":1}']
    assert rows.value_series(batch).to_list() == [{"c": number} for number in (1, 2, 3, 4)]


def test_which_columns_are_read() -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.month_day_nano_interval())])
    assert rows_of(schema, "id", columns=["a"]).columns == ("a",)
    assert rows_of(schema, "id", columns=["a", "id"]).columns == ("a", "id")
    assert rows_of(schema, "id", columns=["a", "id"]).read == ("id", "a")
    without = rows_of(schema, columns=["a"])
    assert (without.key, without.keys) == (None, ())
    assert without.key_wire(pa.record_batch({"a": [1, 2]})).to_pylist() == [None, None]


def test_a_column_that_became_wider_fits_or_is_refused() -> None:
    """A batch may have other types than the schema for which the serdes were made."""
    rows = rows_of(pa.schema([("id", pa.int64()), ("c", pa.int32())]), "id")
    assert rows.value_series(pa.record_batch({"id": [1], "c": pa.array([7], pa.int64())})).to_list() == [
        {"c": 7}
    ]
    with pytest.raises(pa.ArrowInvalid, match="not in range"):
        rows.value_series(pa.record_batch({"id": [1], "c": pa.array([2**40], pa.int64())}))


GOOD = [("id", pa.int64()), ("name", pa.string())]


@pytest.mark.parametrize(
    ("fields", "key", "columns", "words"),
    [
        (GOOD, ["idd"], None, ("key: there is no column 'idd'; the columns are id, name", "write 'id'")),
        (GOOD, ["ID"], None, ("no column 'ID'", "write 'id'")),
        (GOOD, ["id"], ["nam"], ("columns: there is no column 'nam'", "write 'name'")),
        (GOOD, ["id"], ["other"], ("no column 'other'", "correct the name")),
        (GOOD, ["id", "id"], None, ("key: a column is named twice",)),
        (GOOD[:1], ["id"], None, ("no column is left for the value", "columns=[")),
        (GOOD, ["id"], [], ("no column is left for the value",)),
        (
            [*GOOD, ("Name", pa.int64())],
            ["id"],
            None,
            ("name, Name differ by case only", "withColumnRenamed"),
        ),
        ([*GOOD, ("ID", pa.int64())], ["id"], ["name"], ("id, ID differ by case only",)),
        ([*GOOD, ("id", pa.int64())], ["id"], None, ("several columns id",)),
        ([*GOOD, ('a"b', pa.int64())], ["id"], None, ("a quote",)),
        (
            [*GOOD, ("c", pa.struct([("a", pa.int8()), ("a", pa.int8())]))],
            ["id"],
            None,
            ("several columns c.a",),
        ),
        (
            [("id", pa.null()), *GOOD[1:]],
            ["id"],
            None,
            ("of type null, of which no key is made: it is always",),
        ),
        (
            [("id", pa.map_(pa.int8(), pa.int8())), *GOOD[1:]],
            ["id"],
            None,
            ("of which no key is made: equal maps",),
        ),
        (
            [*GOOD, ("c", pa.month_day_nano_interval())],
            ["id"],
            None,
            ("column c is of type interval", "cast("),
        ),
        (
            [*GOOD, ("c", pa.struct([("at", pa.timestamp("ns"))]))],
            ["id"],
            None,
            ("column c.at is of type a time of nanoseconds", "cast(… as timestamp)"),
        ),
        ([*GOOD, ("c", pa.list_(pa.uuid()))], ["id"], None, ("column c[] is of type arrow.uuid",)),
        ([*GOOD, ("c", pa.decimal256(50, 2))], ["id"], None, ("column c is of type decimal256(50, 2)",)),
    ],
    ids=lambda one: None if isinstance(one, list | tuple) else str(one),
)
def test_what_is_refused(
    fields: list[Any], key: list[str], columns: list[str] | None, words: tuple[str, ...]
) -> None:
    with pytest.raises(TopologyError) as caught:
        plain_rows(pa.schema(fields), key, columns, {"operator": "rows"})
    assert caught.value.code == "CS-150"
    assert caught.value.where["operator"] == "rows"
    for word in words:
        assert word in str(caught.value)


LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    pa.binary(): st.binary(max_size=3),
    pa.decimal128(9, 3): st.decimals(-999999, 999999, places=3),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.duration("us"): st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999)),
}


@st.composite
def typed_columns(draw: Any, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    shape = draw(st.sampled_from(["leaf", "list", "map", "struct"] if depth else ["leaf"]))
    if shape == "leaf":
        return draw(st.sampled_from(list(LEAVES.items())))
    inner, values = draw(typed_columns(depth=depth - 1))
    if shape == "list":
        return pa.list_(inner), st.lists(st.none() | values, max_size=3)
    if shape == "map":
        return pa.map_(pa.string(), inner), st.lists(
            st.tuples(st.text("ab", max_size=2), st.none() | values), max_size=3, unique_by=lambda one: one[0]
        )
    return pa.struct([("x", inner)]), st.fixed_dictionaries({"x": st.none() | values})


@unhurried
@given(data=st.data(), copies=st.sampled_from([1, 40]))
def test_law_every_value_comes_back(data: st.DataObject, copies: int) -> None:
    kind, values = data.draw(typed_columns())
    column = pa.array(data.draw(st.lists(st.none() | values, min_size=1, max_size=4)) * copies, kind)
    batch = pa.record_batch({"id": pa.array(range(len(column))), "c": column})
    rows = rows_of(batch.schema, "id")
    series = rows.value_series(batch.slice(1))
    expected = [{"c": _without_maps(one)} for one in column.slice(1)]
    assert series.to_list() == expected
    assert rows.value.decode_series(rows.value.encode_series(series)).to_list() == expected


def _without_maps(one: Any) -> Any:
    """A scalar of Arrow as the column has it."""
    if not one.is_valid:
        return None
    if pa.types.is_map(one.type):
        return [{name: _without_maps(part) for name, part in entry.items()} for entry in one.values or ()]
    if pa.types.is_list(one.type):
        return [_without_maps(item) for item in one.values or ()]
    if pa.types.is_struct(one.type):
        return {name: _without_maps(part) for name, part in one.items()}
    return one.as_py()
