"""Text, bytes, numbers, booleans, UUIDs: Kafka's bytes, both ways, from any array, with telling errors."""

from __future__ import annotations

import math
import struct
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes import Serde
from crossstream.serdes.calls import find_invalid
from tests.serdes.rows import awkward, plain, unhurried

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


VALUES: dict[str, tuple[Serde, st.SearchStrategy[Any]]] = {
    "string": (serdes.string(), TEXT),
    "bytes": (serdes.bytes(), st.binary()),
    "int16": (serdes.int16(), integers(16)),
    "int32": (serdes.int32(), integers(32)),
    "int64": (serdes.int64(), integers(64)),
    "float32": (serdes.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (serdes.float64(), st.floats(allow_nan=False)),
    "boolean": (serdes.boolean(), st.booleans()),
    "uuid": (serdes.uuid(), st.uuids()),
}
ALL = pytest.mark.parametrize("name", VALUES)


def in_column(value: object) -> object:
    """The value as a column holds it."""
    return str(value) if isinstance(value, UUID) else value


def many(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Few and many rows: the ways differ."""
    rows = st.lists(st.none() | values, max_size=8)
    return rows | st.tuples(rows, st.integers(3, 9)).map(lambda drawn: drawn[0] * drawn[1])


@ALL
@unhurried
@given(data=st.data())
def test_every_way_gives_the_same(name: str, data: st.DataObject) -> None:
    serde, strategy = VALUES[name]
    values = data.draw(many(strategy))
    rows = [serde.serialize(value) for value in values]

    assert [serde.deserialize(row) for row in rows] == values
    encoded = serde.encode_objects(values)
    assert encoded.type == pa.large_binary()
    assert encoded.to_pylist() == rows
    for array in (encoded, awkward(rows)):
        assert serde.decode_objects(array) == values
        series = serde.decode_series(array)
        assert series.dtype == serde.dtype
        assert series.to_list() == [in_column(value) for value in values]
        written = serde.encode_series(series)
        assert written.type == pa.large_binary()
        assert written.to_pylist() == rows
        assert find_invalid(serde, array) == []
    if len(values) > 2:
        assert serde.encode_series(series[1:-1]).to_pylist() == rows[1:-1]


@pytest.mark.parametrize(
    ("name", "value", "wire"),
    [  # written by Kafka's own serializers
        ("string", "héllo", "68c3a96c6c6f"),
        ("string", "", ""),
        ("bytes", b"\x00\xff", "00ff"),
        ("int16", -2, "fffe"),
        ("int32", 1, "00000001"),
        ("int64", -(2**63), "8000000000000000"),
        ("float32", 1.5, "3fc00000"),
        ("float64", -0.0, "8000000000000000"),
        ("float64", math.inf, "7ff0000000000000"),
        ("boolean", True, "01"),
        ("boolean", False, "00"),
        (
            "uuid",
            UUID("7b3f8a52-0d0e-4c4a-9c39-5f1d7f6a2b11"),
            "37623366386135322d306430652d346334612d396333392d356631643766366132623131",
        ),
    ],
)
def test_bytes_are_kafkas(name: str, value: object, wire: str) -> None:
    serde = VALUES[name][0]
    assert serde.serialize(value) == bytes.fromhex(wire)
    assert serde.encode_objects([value] * 20).to_pylist() == [bytes.fromhex(wire)] * 20
    assert serde.deserialize(bytes.fromhex(wire)) == value


@ALL
def test_none_is_null_and_nothing_else_is(name: str) -> None:
    serde = VALUES[name][0]
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None
    for rows in (0, 1, 30):
        nulls = serde.encode_objects([None] * rows)
        assert nulls.null_count == rows == len(nulls)
        assert serde.decode_objects(nulls) == [None] * rows
        series = serde.decode_series(awkward([None] * rows))
        assert (series.dtype, series.null_count()) == (serde.dtype, rows)
        assert serde.encode_series(series).null_count == rows
        untyped = pl.Series([None] * rows, dtype=pl.Null)
        assert serde.encode_series(untyped).null_count == rows


def other_nans() -> list[float]:
    """NaNs of other bytes than `math.nan`: what arithmetic makes has a sign, and what others write has a payload."""
    signalling = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    return [
        math.inf - math.inf,
        *(pl.Series([0.0]) / 0.0),
        -math.nan,
        signalling,
        np.float64("nan"),
        math.nan,
    ]


@pytest.mark.parametrize(
    ("serde", "wire"), [(serdes.float32(), "7fc00000"), (serdes.float64(), "7ff8000000000000")]
)
@pytest.mark.parametrize("copies", [1, 20])
def test_every_nan_has_the_bytes_of_kafkas(serde: Serde, wire: str, copies: int) -> None:
    values = other_nans() * copies
    expected = [bytes.fromhex(wire)] * len(values)
    assert [serde.serialize(value) for value in values] == expected
    assert serde.encode_objects(values).to_pylist() == expected
    assert serde.encode_series(pl.Series(values, dtype=pl.Float64)).to_pylist() == expected
    assert serde.encode_series(pl.Series(values, dtype=pl.Float32)).to_pylist() == expected


@pytest.mark.parametrize("serde", [serdes.float32(), serdes.float64()])
@pytest.mark.parametrize("rows", [1, 40])
def test_nan_is_a_value(serde: Serde, rows: int) -> None:
    encoded = serde.encode_objects([math.nan] * rows)
    assert encoded.null_count == 0
    assert all(math.isnan(value) for value in serde.decode_objects(encoded))
    series = serde.decode_series(encoded)
    assert series.is_nan().all()
    assert serde.encode_series(series).to_pylist() == encoded.to_pylist()


@pytest.mark.parametrize("rows", [1, 40])
def test_float32_rounds_as_java_does(rows: int) -> None:
    expected = [struct.pack(">f", 0.1)] * rows
    assert serdes.float32().encode_objects([0.1] * rows).to_pylist() == expected
    assert serdes.float32().encode_series(pl.Series([0.1] * rows)).to_pylist() == expected


def test_floats_take_integers() -> None:
    serde = serdes.float64()
    assert serde.serialize(2) == struct.pack(">d", 2.0)
    assert serde.decode_objects(serde.encode_objects([1, 2.5, None] * 10)) == [1.0, 2.5, None] * 10
    assert serde.encode_series(pl.Series([1, 2])).to_pylist() == [
        struct.pack(">d", value) for value in (1, 2)
    ]


@pytest.mark.parametrize("rows", [1, 40])
def test_numpy_scalars_are_numbers(rows: int) -> None:
    assert serdes.int64().decode_objects(serdes.int64().encode_objects([np.int64(7)] * rows)) == [7] * rows
    assert (
        serdes.float64().decode_objects(serdes.float64().encode_objects([np.float32(0.5)] * rows))
        == [0.5] * rows
    )
    assert (
        serdes.boolean().decode_objects(serdes.boolean().encode_objects([np.bool_(True)] * rows))
        == [True] * rows
    )


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("string", 1, "CS-401"),
        ("string", b"bytes", "CS-401"),
        ("string", "\ud800", "CS-403"),
        ("bytes", "text", "CS-401"),
        ("int64", "7", "CS-401"),
        ("int64", True, "CS-401"),
        ("int64", 7.0, "CS-401"),
        ("int16", 2**15, "CS-403"),
        ("int32", -(2**31) - 1, "CS-403"),
        ("int64", 2**63, "CS-403"),
        ("int64", 2**70, "CS-403"),
        ("float64", "1.5", "CS-401"),
        ("float64", False, "CS-401"),
        ("float64", 10**400, "CS-403"),
        ("float32", 1e39, "CS-403"),
        ("boolean", 1, "CS-401"),
        ("uuid", "7b3f8a52-0d0e-4c4a-9c39-5f1d7f6a2b11", "CS-401"),
    ],
)
def test_values_that_do_not_fit(name: str, value: object, code: str, rows: int) -> None:
    serde = VALUES[name][0]
    with pytest.raises(SerdeError) as single:
        serde.serialize(value)
    with pytest.raises(SerdeError) as column:
        serde.encode_objects([None, *[value] * rows])
    for error in (single.value, column.value):
        assert error.code == code
        assert error.next
        assert error.where["serde"] == name
        assert name in str(error)
        assert type(value).__name__ in str(error)


@pytest.mark.parametrize(
    ("name", "series", "code"),
    [
        ("string", pl.Series([1]), "CS-401"),
        ("bytes", pl.Series(["x"]), "CS-401"),
        ("int64", pl.Series([1.0]), "CS-401"),
        ("int64", pl.Series([True]), "CS-401"),
        ("int64", pl.Series([2**63], dtype=pl.UInt64), "CS-403"),
        ("int16", pl.Series([None, 1, -40_000]), "CS-403"),
        ("float64", pl.Series(["1.5"]), "CS-401"),
        ("float32", pl.Series([1.0, None, 1e39]), "CS-403"),
        ("boolean", pl.Series([1]), "CS-401"),
        ("uuid", pl.Series([1]), "CS-401"),
        ("uuid", pl.Series(["7b3f8a52"]), "CS-403"),
    ],
)
def test_columns_that_do_not_fit(name: str, series: pl.Series, code: str) -> None:
    with pytest.raises(SerdeError) as caught:
        VALUES[name][0].encode_series(series)
    assert caught.value.code == code
    assert caught.value.next


@pytest.mark.parametrize("copies", [1, 20])
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("string", b"ok", b"\xff"),
        ("string", b"ok", b"\xc3"),
        ("int16", b"\0\1", b"\0\1\2"),
        ("int32", b"\0\0\0\1", b""),
        ("int64", b"\0\0\0\0\0\0\0\1", b"\1"),
        ("float32", b"\0\0\0\0", b"\0"),
        ("float64", b"\0\0\0\0\0\0\0\0", b"\0\0\0\0"),
        ("boolean", b"\1", b"\2"),
        ("boolean", b"\1", b""),
        ("uuid", b"7b3f8a52-0d0e-4c4a-9c39-5f1d7f6a2b11", b"1-1-1-1-1"),
        ("uuid", b"7b3f8a52-0d0e-4c4a-9c39-5f1d7f6a2b11", b"7b3f8a52-0d0e-4c4a-9c39-5f1d7f6a2b11\n"),
        ("uuid", b"7b3f8a52-0d0e-4c4a-9c39-5f1d7f6a2b11", b"\xff" * 36),
    ],
)
def test_undecodable_bytes(name: str, good: bytes, bad: bytes, copies: int) -> None:
    serde = VALUES[name][0]
    data = awkward([good, None, bad, good] * copies)
    for decode in (serde.decode_objects, serde.decode_series):
        with pytest.raises(SerdeError) as caught:
            decode(data)
        assert caught.value.code == "CS-402"
    with pytest.raises(SerdeError) as single:
        serde.deserialize(bad)
    assert single.value.code == "CS-402"
    found = find_invalid(serde, data)
    assert [row for row, _ in found] == [2 + 4 * copy for copy in range(copies)]
    assert all(name in reason for _, reason in found)


def test_widths_that_add_up_are_still_wrong() -> None:
    """Two rows of 7 and 9 bytes are not two int64."""
    with pytest.raises(SerdeError):
        serdes.int64().decode_series(plain([b"1234567", b"123456789"]))


def test_characters_cut_by_a_row_end_are_still_wrong() -> None:
    """Each row must be UTF-8, not only all of them together."""
    with pytest.raises(SerdeError):
        serdes.string().decode_series(plain([b"\xc3", b"\xa9"]))


def test_uuids_are_written_in_lower_case() -> None:
    upper = "7B3F8A52-0D0E-4C4A-9C39-5F1D7F6A2B11"
    serde = serdes.uuid()
    assert serde.deserialize(upper.encode()) == UUID(upper)
    assert serde.decode_series(plain([upper.encode()])).to_list() == [upper.lower()]
    assert serde.encode_series(pl.Series([upper])).to_pylist() == [upper.lower().encode()]


def test_categories_are_text() -> None:
    series = pl.Series(["a", None, "b"], dtype=pl.Categorical)
    assert serdes.string().encode_series(series).to_pylist() == [b"a", None, b"b"]


@pytest.mark.parametrize("inner", [str, 5, None, "string", serdes.string])
def test_a_serde_of_windows_is_made_of_a_serde(inner: Any) -> None:
    for make in (
        lambda: serdes.windowed(inner, "1 minute"),
        lambda: serdes.session_windowed(inner),
        lambda: serdes.left_or_right(serdes.string(), inner),
    ):
        with pytest.raises(SerdeError, match="takes a serde, not") as refused:
            make()
        assert refused.value.code == "CS-404"
