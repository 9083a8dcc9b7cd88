"""JSON of a schema: dicts of exactly its fields, the same as objects and as columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes.calls import find_invalid
from crossstream.serdes.json.plain import typed_as
from tests.serdes.rows import awkward, plain, unhurried

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LOCAL = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29))
# Polars knows no summer times after 2037, where the tables of the time zones end; Python goes on with their rules.
KNOWN = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(2037, 1, 1))


def integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


def to_milliseconds(at: dt.datetime) -> dt.datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


INNER = {"x": (pl.Float64, st.floats(allow_nan=False, allow_infinity=False)), "y z": (pl.String, TEXT)}
FIELDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "i8": (pl.Int8, integers(-(2**7), 2**7 - 1)),
    "i16": (pl.Int16, integers(-(2**15), 2**15 - 1)),
    "i32": (pl.Int32, integers(-(2**31), 2**31 - 1)),
    "i64": (pl.Int64, integers(-(2**63), 2**63 - 1)),
    "u8": (pl.UInt8, integers(0, 2**8 - 1)),
    "u64": (pl.UInt64, integers(0, 2**64 - 1)),
    "f32": (pl.Float32, st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "f64": (pl.Float64, st.floats(allow_nan=False, allow_infinity=False)),
    "flag": (pl.Boolean, st.booleans()),
    "text": (pl.String, TEXT),
    "raw": (pl.Binary, st.binary(max_size=4)),
    "day": (pl.Date, st.dates()),
    "hour": (pl.Time, st.times()),
    "took": (pl.Duration("us"), st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999))),
    "local": (pl.Datetime("us"), LOCAL),
    "ms": (pl.Datetime("ms"), LOCAL.map(to_milliseconds)),
    "at": (pl.Datetime("us", "UTC"), LOCAL.map(lambda at: at.replace(tzinfo=dt.timezone.utc))),
    "berlin": (pl.Datetime("us", "Europe/Berlin"), KNOWN.map(lambda at: at.replace(tzinfo=dt.timezone.utc))),
    "price": (pl.Decimal(12, 2), st.decimals(-(10**9), 10**9, places=2)),
    "inner": (
        pl.Struct({name: kind for name, (kind, _) in INNER.items()}),
        st.fixed_dictionaries({name: st.none() | values for name, (_, values) in INNER.items()}),
    ),
    "empty": (pl.Struct({}), st.just({})),
    "many": (pl.List(pl.Int64), st.lists(st.none() | integers(-(2**63), 2**63 - 1), max_size=3)),
    "inners": (
        pl.List(pl.Struct({"day": pl.Date, "f": pl.Float32})),
        st.lists(
            st.none()
            | st.fixed_dictionaries(
                {"day": st.none() | st.dates(), "f": st.none() | st.floats(-1, 1, width=32)}
            ),
            max_size=3,
        ),
    ),
    "odd näme": (pl.String, TEXT),
}
SCHEMA = {name: kind for name, (kind, _) in FIELDS.items()}
SERDE = serdes.json(SCHEMA)
ROWS = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in FIELDS.items()})


COPIES = st.sampled_from([1, 20])
"""Few and many rows: the ways differ."""


@unhurried
@given(values=st.lists(st.none() | ROWS, max_size=5), copies=COPIES)
def test_objects_and_columns_are_the_same_both_ways(values: list[Any], copies: int) -> None:
    values = values * copies
    encoded = SERDE.encode_objects(values)
    rows = encoded.to_pylist()
    assert rows == [SERDE.serialize(value) for value in values]
    assert [SERDE.deserialize(row) for row in rows] == values
    for data in (encoded, awkward(rows)):
        assert SERDE.decode_objects(data) == values
        series = SERDE.decode_series(data)
        assert series.dtype == SERDE.dtype
        assert series.to_list() == values
    written = SERDE.encode_series(series)
    assert SERDE.decode_objects(written) == values
    assert SERDE.decode_series(written).equals(series, null_equal=True)
    assert SERDE.decode_objects(SERDE.encode_series(series[1:-1])) == values[1:-1]
    assert find_invalid(SERDE, awkward(rows)) == []


@unhurried
@given(
    values=st.lists(st.none() | ROWS, max_size=5), copies=COPIES, names=st.sets(st.sampled_from(list(SCHEMA)))
)
def test_some_fields(values: list[Any], copies: int, names: set[str]) -> None:
    values = values * copies
    series = SERDE.decode_series(SERDE.encode_objects(values), names)
    expected = [
        None if row is None else {name: row[name] for name in SCHEMA if name in names} for row in values
    ]
    assert series.dtype == pl.Struct({name: kind for name, kind in SCHEMA.items() if name in names})
    assert series.to_list() == expected


def test_every_kind_of_schema_means_the_same() -> None:
    expected = serdes.json({"id": pl.Int64, "tags": pl.List(pl.String), "at": pl.Datetime("us", "UTC")})
    arrow = pa.schema(
        [("id", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC"))]
    )
    fields = {"id": pl.Int64(), "tags": pl.List(pl.String()), "at": pl.Datetime("us", "UTC")}
    for schema in (arrow, pa.struct(list(arrow)), pl.Schema(fields), pl.Struct(fields), fields):
        assert serdes.json(schema) == expected
        assert hash(serdes.json(schema)) == hash(expected)
        assert serdes.json(schema).name == "json[{id: Int64, tags: [String], at: Datetime(us, UTC)}]"
        assert serdes.json(schema).dtype == pl.Struct(fields)
    assert serdes.json({"id": pl.Int32}) != serdes.json({"id": pl.Int64})


SMALL = serdes.json({"id": pl.Int16, "price": pl.Decimal(6, 2), "f": pl.Float32, "at": pl.Datetime("ms")})


def test_missing_fields_are_null_and_unknown_ones_ignored() -> None:
    for copies in (1, 80):
        data = plain([b'{"id":1,"more":[{}]}', b"{}", b"null"] * copies)
        blank = {"price": None, "f": None, "at": None}
        expected = [{"id": 1, **blank}, {"id": None, **blank}, None] * copies
        assert SMALL.decode_objects(data) == expected
        assert SMALL.decode_series(data).to_list() == expected


def test_columns_narrower_than_the_text_narrow_objects_too() -> None:
    text = b'{"f":0.1,"at":"1969-12-31T23:59:59.999999","price":1.5}'
    expected = {
        "id": None,
        "price": Decimal("1.50"),
        "f": 0.10000000149011612,
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000),
    }
    for copies in (1, 80):
        data = plain([text] * copies)
        assert SMALL.decode_objects(data) == [expected] * copies
        assert SMALL.decode_series(data).to_list() == [expected] * copies
    assert SMALL.deserialize(text) == expected


@pytest.mark.parametrize(
    "bad",
    [
        b'{"id":32768}',
        b'{"id":1.0}',
        b'{"id":true}',
        b'{"id":"1"}',
        b'{"price":"1.505"}',
        b'{"price":12345.00}',
        b'{"price":"Infinity"}',
        b'{"price":"sNaN"}',
        b'{"price":"1E+200"}',
        b'{"price":1e-200}',
        b'{"price":"1E+999999999"}',
        b'{"f":1e39}',
        b'{"f":"1"}',
        b'{"at":"2024-05-01T12:00:00Z"}',
        b'{"at":"2024-05-01"}',
        b'{"at":1}',
        b"[]",
        b"{} {}",
    ],
)
def test_misfits_are_errors_in_both_ways(bad: bytes) -> None:
    for copies in (1, 40):
        data = awkward([b'{"id":1}', None, bad] * copies)
        for decode in (SMALL.decode_objects, SMALL.decode_series):
            with pytest.raises(SerdeError) as caught:
                decode(data)
            assert caught.value.code == "CS-402"
        for way in (None, "objects", "series"):
            assert [row for row, _ in find_invalid(SMALL, data, way=way)] == [
                2 + 3 * copy for copy in range(copies)
            ]
    with pytest.raises(SerdeError, match="CS-402"):
        SMALL.deserialize(bad)


@pytest.mark.parametrize("copies", [1, 40])
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"id": "1"}, "CS-401"),
        ({"id": True}, "CS-401"),
        ({"id": 2**15}, "CS-401"),
        ({"id": 1, "color": "red"}, "CS-401"),
        ({"at": "2024-05-01T12:00:00"}, "CS-401"),
        ({"at": dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc)}, "CS-401"),
        ({"price": Decimal("1.505")}, "CS-403"),
        ({"price": Decimal("1E+200")}, "CS-403"),
        ([1], "CS-401"),
        ("text", "CS-401"),
    ],
)
def test_objects_that_could_not_be_read_again(value: Any, code: str, copies: int) -> None:
    for attempt in (
        lambda: SMALL.encode_objects([{"id": 1}, value, None] * copies),
        lambda: SMALL.serialize(value),
    ):
        with pytest.raises(SerdeError) as caught:
            attempt()
        assert caught.value.code == code
        assert caught.value.next


def test_dicts_may_lack_fields() -> None:
    assert SMALL.serialize({"f": 1}) == b'{"id":null,"price":null,"f":1.0,"at":null}'
    assert SMALL.serialize({}) == SMALL.encode_series(pl.Series([{}], dtype=SMALL.dtype))[0].as_py()


@pytest.mark.parametrize(
    ("column", "code"),
    [
        (pl.Series([{"id": 40_000}]), "CS-403"),
        (pl.Series([{"id": 1.0}]), "CS-401"),
        (pl.Series([{"color": "red"}]), "CS-401"),
        (pl.Series([{"price": Decimal("1.505")}]), "CS-401"),
        (
            pl.Series([{"at": dt.datetime(2024, 5, 1)}]).cast(pl.Struct({"at": pl.Datetime("us", "UTC")})),
            "CS-401",
        ),
        (pl.Series([1]), "CS-401"),
    ],
)
def test_columns_that_could_not_be_read_again(column: pl.Series, code: str) -> None:
    for copies in (1, 80):
        with pytest.raises(SerdeError) as caught:
            SMALL.encode_series(pl.concat([column] * copies))
        assert caught.value.code == code


@pytest.mark.parametrize(
    "schema",
    [
        {"a": pl.Object},
        {"a": pl.Datetime("ns")},
        {"a": pl.Categorical},
        {"a": pl.List(pl.Array(pl.Int64, 2))},
        {"a": pl.Struct({"b": pl.Int128})},
        {"a": 1},
        {"a": "Int64"},
        {1: pl.Int64},
        {'a "name"': pl.Int64},
    ],
)
def test_schemas_that_json_cannot_hold(schema: Any) -> None:
    with pytest.raises(SerdeError) as caught:
        serdes.json(schema)
    assert caught.value.code == "CS-404"
    assert caught.value.next


def test_unknown_fields_are_told() -> None:
    with pytest.raises(SerdeError, match="CS-401"):
        SMALL.decode_series(plain([b"{}"]), ["id", "color"])


FLOATS = serdes.json(
    {"f": pl.Float32, "fs": pl.List(pl.List(pl.Float32)), "in": pl.Struct({"f": pl.Float32})}
)


@pytest.mark.parametrize("copies", [1, 80])
@pytest.mark.parametrize(
    "make", [lambda f: {"f": f}, lambda f: {"fs": [[], None, [f, 1.5]]}, lambda f: {"in": {"f": f}}]
)
def test_finite_floats_beyond_the_column(make: Any, copies: int) -> None:
    """They do not become infinite."""
    rows = [None, make(1e300)]
    with pytest.raises(SerdeError, match="beyond the range of Float32") as caught:
        FLOATS.encode_series(pl.Series(rows * copies))
    assert caught.value.code == "CS-403"
    for beside in (None, 0.1, -3.4e38):
        column = pl.Series([None, make(beside)] * copies)
        narrow = pl.Series([None, make(beside)] * copies, dtype=FLOATS.dtype)
        assert FLOATS.encode_series(column).equals(FLOATS.encode_series(narrow))


ALONE: list[tuple[Any, list[Any]]] = [
    (pl.String(), ["x", "", None]),
    (pl.Int64(), [2**63 - 1, None]),
    (pl.Float64(), [0.5, -0.0, None]),
    (pl.Binary(), [b"x", None]),
    (pl.UInt64(), [0, 2**64 - 1, None]),
    (pl.Float32(), [0.5, None]),
    (pl.Decimal(38, 2), [Decimal("1.50"), None]),
    (pl.Datetime("us"), [dt.datetime(2026, 1, 2), None]),
    (pl.List(pl.Struct({"n": pl.UInt64})), [[{"n": 2**64 - 1}, None, {"n": None}], [], None]),
    (pl.List(pl.Decimal(38, 1)), [[Decimal("0.5"), None]]),
]


@pytest.mark.parametrize(("dtype", "values"), ALONE, ids=str)
def test_what_an_expression_gives_needs_no_field_around_it(dtype: Any, values: list[Any]) -> None:
    serde = typed_as(dtype)
    assert serde is not None
    assert serde.dtype == dtype
    data = serde.encode_objects(values)
    assert serde.encode_series(pl.Series(values, dtype=dtype)).to_pylist() == data.to_pylist()
    assert [serde.serialize(value) for value in values] == data.to_pylist()
    assert [serde.deserialize(row) for row in data.to_pylist()] == values
    assert serde.decode_objects(data) == values
    for series in (serde.decode_series(data), serde.decode_series(data, ["n"])):
        assert (series.dtype, series.to_list()) == (dtype, values)
    assert serde.encode_objects([]).to_pylist() == []


def test_a_type_that_json_has_not_has_no_serde() -> None:
    for dtype in (pl.Null(), pl.Object(), pl.Struct({'"': pl.Int64()}), pl.List(pl.Null())):
        assert typed_as(dtype) is None
