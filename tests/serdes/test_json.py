"""Untyped JSON: objects as msgspec has them, rows never mixed up, columns of the types that Arrow reads."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes.calls import find_invalid
from tests.serdes.rows import awkward, plain, unhurried

JSON = serdes.json()
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)


def repeated(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Few and many rows: the ways differ."""
    return st.tuples(st.lists(values, max_size=8), st.sampled_from([1, 4, 12])).map(
        lambda drawn: drawn[0] * drawn[1]
    )


@unhurried
@given(values=repeated(TREES))
@example(values=[])
@example(values=[{}, [], "", 0, False, None] * 10)
@example(values=[{"a": None}] * 40)
@example(values=["null", [None], {"null": "null"}] * 10)
@example(values=["\n", {"\n": "}\n{"}] * 20)
@example(values=['\u2028\x7f\x00é😀/\\"'] * 20)
@example(values=[2**64, -(2**63) - 1, 1e300, 5e-324, -0.0] * 5)
def test_objects_survive_and_are_what_the_standard_library_reads(values: list[Any]) -> None:
    encoded = JSON.encode_objects(values)
    rows = encoded.to_pylist()
    assert rows == [JSON.serialize(value) for value in values]
    assert [None if row is None else json.loads(row) for row in rows] == values
    assert [JSON.deserialize(row) for row in rows] == values
    assert JSON.decode_objects(encoded) == values
    assert JSON.decode_objects(awkward(rows)) == values
    assert JSON.decode_objects(encoded[1:-1]) == values[1:-1]
    assert find_invalid(JSON, awkward(rows)) == []


def test_key_order_is_that_of_insertion() -> None:
    assert JSON.serialize({"z": 1, "a": 2, "m": 3}) == b'{"z":1,"a":2,"m":3}'


def test_the_last_of_equal_names_counts() -> None:
    assert JSON.deserialize(b'{"a":1,"a":2}') == {"a": 2}
    assert JSON.decode_series(plain([b'{"a":1,"a":2}'])).to_list() == [{"a": 2}]
    assert JSON.decode_series(plain([b'{"a":1,"a":2}']), ["a"]).to_list() == [{"a": 2}]


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Span(msgspec.Struct):
    start: Point
    tags: list[str]


def test_what_msgspec_encodes_is_encoded() -> None:
    day = dt.date(2024, 5, 1)
    assert JSON.serialize(Point(1, 2.5)) == b'{"x":1,"y":2.5}'
    assert JSON.serialize(Span(Point(1, 2.0), ["a"])) == b'{"start":{"x":1,"y":2.0},"tags":["a"]}'
    assert JSON.serialize({"day": day, "price": Decimal("1.50")}) == b'{"day":"2024-05-01","price":"1.50"}'
    assert (
        JSON.serialize([UUID(int=1), b"hi", (1, 2)])
        == b'["00000000-0000-0000-0000-000000000001","aGk=",[1,2]]'
    )
    raw = msgspec.Raw(b'{"a":\n1}\n')
    assert JSON.encode_objects([raw, {"b": 2}] * 10).to_pylist() == [b'{"a":\n1}\n', b'{"b":2}'] * 10


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("value", [msgspec.Raw(b"null")])
def test_the_text_null_is_never_written(value: object, rows: int) -> None:
    with pytest.raises(SerdeError, match="CS-403") as caught:
        JSON.encode_objects([{"a": 1}, None] * rows + [value])
    assert caught.value.next
    with pytest.raises(SerdeError, match="CS-403"):
        JSON.serialize(value)


def test_the_text_null_reads_as_null() -> None:
    assert JSON.deserialize(b"null") is None
    for data in (plain([b"null", b'{"a":1}', b" null "]), plain([b"null", b'{"a":1}'] * 50)):
        assert JSON.decode_objects(data)[:2] == [None, {"a": 1}]
        assert JSON.decode_series(data).to_list()[:2] == [None, {"a": 1}]
        assert JSON.decode_series(data, ["a"]).to_list()[:2] == [None, {"a": 1}]


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, {"a": 1j}, "\ud800", {None: 1}])
def test_values_without_json(value: object, rows: int) -> None:
    with pytest.raises(SerdeError) as caught:
        JSON.encode_objects([{"a": 1}] * rows + [value])
    assert caught.value.code == "CS-403"
    assert caught.value.next
    with pytest.raises(SerdeError, match="CS-403"):
        JSON.serialize(value)


UNDECODABLE = [
    b"",
    b" ",
    b"{",
    b'{"a":1',
    b'{"a":1}}',
    b'{"a":1}{"a":2}',
    b'{"a":1}\n{"a":2}',
    b'{"a":1},{"a":2}',
    b"1 2",
    b"{'a':1}",
    b"nul",
    b"NaN",
    b'"\xff"',
    b'{"a":"x\ny"}',
    b'"\\ud800"',
    b"[1,]",
    b"1e999",
    b"[" * 100_000,
]


@pytest.mark.parametrize("bad", UNDECODABLE)
def test_undecodable_rows_are_found(bad: bytes) -> None:
    for copies in (1, 20):
        data = awkward([b'{"a":1}', None, bad, b"[2]"] * copies)
        for decode in (JSON.decode_objects, JSON.decode_series):
            with pytest.raises(SerdeError) as caught:
                decode(data)
            assert caught.value.code == "CS-402"
        assert [row for row, _ in find_invalid(JSON, data)] == [2 + 4 * copy for copy in range(copies)]
    with pytest.raises(SerdeError, match="CS-402"):
        JSON.deserialize(bad)


PIECES = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b":",
        b",",
        b"\n",
        b" ",
        b"a",
        b'"a"',
        b"1",
        b"null",
        b'{"a":1}',
        b"{}",
        b"[]",
        b"\\",
    ]
)
TEXTS = st.lists(PIECES, max_size=7).map(b"".join)


@unhurried
@given(rows=st.lists(TEXTS, min_size=1, max_size=4))
@example(rows=[b'{"a":[{}', b"{}]}", b"{}{}"])
@example(rows=[b'{"a":"}', b'{"}', b"{}{}"])
@example(rows=[b"[1", b"2]", b"[3][4]"])
@example(rows=[b"", b"{}{}"])
@example(rows=[b"{}\n{}", b"null", b"\n"])
@example(rows=[b'{"a":{}', b"null", b"{}}", b"{}{}"])
def test_no_row_borrows_from_its_neighbour(rows: list[bytes]) -> None:
    """Pieces of JSON that only make sense together are errors; what decodes is what each row says alone."""
    data = plain(rows * 6)  # enough of them to be decoded together
    try:
        alone = [json.loads(row) for row in rows]
    except ValueError:
        alone = None
    if alone is None:
        with pytest.raises(SerdeError):
            JSON.decode_objects(data)
    else:
        assert JSON.decode_objects(data) == alone * 6


def test_types_are_inferred_from_every_row() -> None:
    rows = [{"a": 1, "b": "x"}, None, {"a": 2.5, "c": {"d": [1, None]}}, {"e": None, "f": []}]
    for copies in (1, 40):
        series = JSON.decode_series(JSON.encode_objects(rows * copies))
        assert series.dtype == pl.Struct(
            {
                "a": pl.Float64,
                "b": pl.String,
                "c": pl.Struct({"d": pl.List(pl.Int64)}),
                "e": pl.Null,
                "f": pl.List(pl.Null),
            }
        )
        missing = {"b": None, "c": None, "e": None, "f": None}
        assert series.to_list()[:2] == [{"a": 1.0, **missing, "b": "x"}, None]


@pytest.mark.parametrize(
    "values",
    [[{"a": 1}, {"a": "x"}], [{"a": True}, {"a": 1}], [{"a": [1, {}]}], [1, "x"], [{}, []], [1, 2**64]],
)
def test_several_types_in_one_field_are_told(values: list[Any]) -> None:
    with pytest.raises(SerdeError) as caught:
        JSON.decode_series(JSON.encode_objects(values))
    assert caught.value.code == "CS-404"
    assert "serdes.json(" in str(caught.value)
    with pytest.raises(SerdeError, match="CS-404"):
        find_invalid(JSON, JSON.encode_objects(values), way="series")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, None, 2], pl.Int64),
        ([1, 2.5], pl.Float64),
        (["a", None], pl.String),
        ([True], pl.Boolean),
        ([[1], []], pl.List(pl.Int64)),
        ([None], pl.Null),
        ([], pl.Null),
        ([{}, None], pl.Struct({})),
    ],
)
def test_columns_that_are_no_structs(values: list[Any], dtype: pl.DataType) -> None:
    for copies in (1, 50):
        series = JSON.decode_series(JSON.encode_objects(values * copies))
        assert series.dtype == dtype
        assert series.to_list() == values * copies
        assert JSON.decode_objects(JSON.encode_series(series)) == values * copies


NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 120_000)
ODD_COLUMNS = [
    pl.Series([b"hi", None]),
    pl.Series([NOON, None]),
    pl.Series([NOON, None], dtype=pl.Datetime("ms", "Europe/Berlin")),
    pl.Series([NOON, None], dtype=pl.Datetime("ns")),
    pl.Series([dt.date(1, 1, 1), None]),
    pl.Series([dt.time(1, 2, 3, 4), None]),
    pl.Series([dt.timedelta(days=-1, microseconds=1), None]),
    pl.Series([Decimal("1.50"), None], dtype=pl.Decimal(10, 2)),
    pl.Series(["a", None], dtype=pl.Categorical),
    pl.Series(["a", None], dtype=pl.Enum(["b", "a"])),
    pl.Series([1.1, None], dtype=pl.Float32),
    pl.Series([2**100, None], dtype=pl.Int128),
    pl.Series([2**64 - 1, None], dtype=pl.UInt64),
    pl.Series([[NOON], None]),
    pl.Series([[1, 2], None], dtype=pl.Array(pl.Int64, 2)),
    pl.Series([{"when": NOON, "more": {"raw": b"x"}}, None]),
    pl.Series([None, None], dtype=pl.Null),
]


@pytest.mark.parametrize("odd", ODD_COLUMNS, ids=lambda odd: str(odd.dtype))
def test_columns_of_any_type_are_written_as_their_objects_are(odd: pl.Series) -> None:
    series = pl.DataFrame({"odd": odd, "n": [1, 2]}).to_struct()
    expected = [read(row) for row in JSON.encode_objects(series.to_list()).to_pylist()]
    many = pl.concat([series] * 50)
    assert [read(row) for row in JSON.encode_series(series).to_pylist()] == expected
    assert [read(row) for row in JSON.encode_series(many).to_pylist()] == expected * 50
    assert [read(row) for row in JSON.encode_series(many[1:-1]).to_pylist()] == (expected * 50)[1:-1]
    assert JSON.encode_series(many).to_pylist() == JSON.encode_series(series).to_pylist() * 50


def read(row: bytes) -> Any:
    """What a row means: points in time whatever their offset and digits, floats to 32 bits."""
    return meaning(json.loads(row))


def meaning(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: meaning(inner) for name, inner in tree.items()}
    if isinstance(tree, list):
        return [meaning(inner) for inner in tree]
    if isinstance(tree, float):
        return pytest.approx(tree, rel=1e-6)
    if isinstance(tree, str) and tree[11:16] in ("10:00", "12:00", "14:00"):
        return msgspec.convert(tree, dt.datetime)
    return tree


def test_null_rows_of_a_struct_are_nulls() -> None:
    for copies in (1, 100):
        series = pl.Series([{"a": 1}, None, {"a": None}] * copies)
        assert JSON.encode_series(series).to_pylist() == [b'{"a":1}', None, b'{"a":null}'] * copies


def test_empty_arrays() -> None:
    empty = pa.array([], pa.large_binary())
    assert JSON.decode_objects(empty) == []
    assert JSON.decode_objects(awkward([])) == []
    assert len(JSON.decode_series(empty)) == 0
    assert len(JSON.encode_objects([])) == 0
    assert len(JSON.encode_series(pl.Series([], dtype=pl.Struct({"a": pl.Int64})))) == 0
    assert find_invalid(JSON, empty) == []


@pytest.mark.parametrize("copies", [1, 50])
def test_sets_are_written_sorted(copies: int) -> None:
    values = [{8, 0}, None, frozenset("xba"), {1, "a"}, {"a": [1]}, [[1, 2], [None]], 7] * copies
    texts = [
        b"[0,8]",
        None,
        b'["a","b","x"]',
        b'["a",1]',
        b'{"a":[1]}',
        b"[[1,2],[null]]",
        b"7",
    ] * copies
    assert serdes.json().encode_objects(values).to_pylist() == texts
    assert [serdes.json().serialize(value) for value in values] == texts
    with pytest.raises(SerdeError, match="CS-403"):
        serdes.json().serialize({1j})
    with pytest.raises(SerdeError, match="CS-403"):
        serdes.json().encode_objects([*values, {1j, 2j}])
