"""Keys that belong to either of two tables: bytes, objects, columns, order, and what is refused."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes import arrays
from crossstream.serdes.calls import find_invalid
from crossstream.serdes.keys import LEFT, RIGHT

SERDE = serdes.left_or_right(serdes.string(), serdes.int64())
numbers = st.integers(-(2**63), 2**63 - 1)
lefts, rights = (
    st.text().map(lambda key: cs.LeftOrRight(left=key)),
    numbers.map(lambda key: cs.LeftOrRight(right=key)),
)
columns = st.lists(st.none() | lefts | rights)


def binary(rows: list[bytes | None]) -> Any:
    return pa.array(rows, pa.large_binary())


def test_the_bytes() -> None:
    assert SERDE.serialize(cs.LeftOrRight(left="o1")) == b"\x00o1"
    assert SERDE.serialize(cs.LeftOrRight(right=7)) == b"\x01" + serdes.int64().serialize(7)
    assert SERDE.serialize(("", None)) == b"\x00"
    assert SERDE.serialize(None) is None
    assert SERDE.deserialize(b"\x00o1") == ("o1", None)
    assert SERDE.deserialize(None) is None


def test_a_key_is_a_pair() -> None:
    left, right = cs.LeftOrRight(left="o1")
    assert (left, right) == ("o1", None)
    assert {cs.LeftOrRight(right="c"): 1}[None, "c"] == 1
    assert serdes.json().serialize(cs.LeftOrRight(right="c")) == b'[null,"c"]'


@given(columns, st.data())
def test_objects_rows_and_columns_agree(values: list[Any], data: st.DataObject) -> None:
    wire = SERDE.encode_objects(values)
    assert wire.to_pylist() == [SERDE.serialize(value) for value in values]
    first = data.draw(st.integers(0, len(values)))
    part, wanted = wire[first:], values[first:]
    assert SERDE.decode_objects(part) == wanted == [SERDE.deserialize(row) for row in part.to_pylist()]
    series = SERDE.decode_series(part)
    assert series.dtype == SERDE.dtype
    assert series.to_list() == [value and value._asdict() for value in wanted]
    assert SERDE.encode_series(series).to_pylist() == part.to_pylist()


@given(columns)
def test_left_keys_come_first_each_side_in_its_order(values: list[Any]) -> None:
    present = [value for value in values if value is not None]
    by_bytes = sorted(present, key=SERDE.serialize)
    sides = [[v for v in by_bytes if v.right is None], [v for v in by_bytes if v.left is None]]
    assert by_bytes == sides[0] + sides[1]
    assert [v.left for v in sides[0]] == sorted((v.left for v in sides[0]), key=str.encode)


@given(st.lists(st.none() | st.binary(max_size=9)), st.sampled_from([LEFT, RIGHT]), st.data())
def test_tagging_columns(rows: list[bytes | None], side: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(rows)))
    made = arrays.with_first_byte(side, binary(rows)[first:])
    assert made.to_pylist() == [None if row is None else bytes([side]) + row for row in rows[first:]]


@pytest.mark.parametrize("key", ["o1", ("o1", 7), (None, None), ("o1",), {"left": "o1"}, ("o1", None, None)])
def test_what_is_no_key_of_either_table_is_refused(key: Any) -> None:
    with pytest.raises(SerdeError) as refusal:
        SERDE.serialize(key)
    assert refusal.value.code == "CS-401"


@pytest.mark.parametrize("row", [b"", b"\x02o1", b"\x01short"])
def test_bytes_of_something_else_are_refused(row: bytes) -> None:
    for decode in (SERDE.decode_objects, SERDE.decode_series):
        with pytest.raises(SerdeError) as refusal:
            decode(binary([b"\x00o1", row]))
        assert refusal.value.code == "CS-402"
    with pytest.raises(SerdeError):
        SERDE.deserialize(row)
    assert [bad for bad, _ in find_invalid(SERDE, binary([b"\x00o1", None, row]))] == [2]


@pytest.mark.parametrize(
    "series",
    [
        pl.Series(["o1"]),
        pl.Series([{"left": "o1"}]),
        pl.Series([{"left": "o1", "right": 7}]),
        pl.Series([{"left": None, "right": None}], dtype=pl.Struct({"left": pl.String, "right": pl.Int64})),
    ],
)
def test_columns_of_something_else_are_refused(series: pl.Series) -> None:
    with pytest.raises(SerdeError) as refusal:
        SERDE.encode_series(series)
    assert refusal.value.code == "CS-401"


def test_a_column_of_nulls() -> None:
    assert SERDE.encode_series(pl.Series([None, None])).to_pylist() == [None, None]
    assert SERDE.decode_series(binary([None])).to_list() == [None]


def test_keys_without_a_declared_type_have_no_declared_column() -> None:
    serde = serdes.left_or_right(serdes.json(), serdes.string())
    assert serde.dtype is None
    keys = [cs.LeftOrRight(left={"id": 1}), cs.LeftOrRight(right="c")]
    wire = serde.encode_objects(keys)
    assert serde.decode_objects(wire) == keys
    assert serde.decode_series(wire).to_list() == [key._asdict() for key in keys]
