"""Arrow's large binary arrays as numpy arrays, and back; and Polars series made of parts.

Arrays may be slices, with any bytes under nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

Offsets = npt.NDArray[np.int64]
Content = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

LARGE_BINARY = pa.large_binary()

FEW = 16
"""Rows up to which a loop over Python objects is cheaper than setting up columns."""


def offsets(data: pa.LargeBinaryArray) -> Offsets:
    """Where each row begins in `content`, and where the last one ends: n + 1 positions, no copy."""
    buffer = data.buffers()[1]
    if buffer is None or not len(data):
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int64, len(data) + 1, data.offset * 8)


def content(data: pa.LargeBinaryArray) -> Content:
    """The bytes that `offsets` point into, no copy; those of neighbours of a slice are there too."""
    buffer = data.buffers()[2]
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def validity(data: pa.Array) -> Mask | None:
    """Row by row, whether it is not null; None if nothing is."""
    return data.is_valid().to_numpy(zero_copy_only=False) if data.null_count else None


def ends_of(sizes: Any) -> Offsets:
    """As `offsets`, of rows of these sizes that are one after the other from 0."""
    made = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=made[1:])
    return made


def fixed_rows(data: pa.LargeBinaryArray, width: int) -> Content | None:
    """The bytes of the rows that are not null, one after the other; None if any is not ``width`` bytes."""
    dense = data.drop_null() if data.null_count else data
    positions = offsets(dense)
    if (np.diff(positions) != width).any():
        return None
    return content(dense)[positions[0] : positions[-1]]


def from_fixed_rows(rows: Content, width: int, valid: Mask | None) -> pa.LargeBinaryArray:
    """Rows of ``width`` bytes each; ``valid``: which rows of the result they are, None: all."""
    if valid is None:
        positions = np.arange(0, len(rows) + 1, width, dtype=np.int64)
        return binary_array(positions, rows)
    return binary_array(ends_of(valid) * width, rows, valid)


def binary_array(positions: Offsets, rows: Any, valid: Mask | None = None) -> pa.LargeBinaryArray:
    """An array over ``rows`` (any buffer), cut at ``positions``; no copy."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    buffers = [bits, pa.py_buffer(positions), pa.py_buffer(rows)]
    return pa.Array.from_buffers(LARGE_BINARY, len(positions) - 1, buffers)


def binary_rows(rows: Sequence[bytes | None]) -> pa.LargeBinaryArray:
    """An array of Python bytes, None → null."""
    return pa.array(rows, LARGE_BINARY)


def null_rows(count: int) -> pa.LargeBinaryArray:
    return pa.nulls(count, LARGE_BINARY)


def with_nulls(dense: pa.Array, there: Mask) -> pa.Array:
    """The rows where the mask is true, and nulls in between."""
    return dense if there.all() else dense.take(_numbered(there))


def _numbered(there: Mask) -> pa.Array:
    return pa.array(np.cumsum(there) - 1, mask=~there)


def text_bytes(text: pl.Series) -> pa.LargeBinaryArray:
    """The UTF-8 of a String series."""
    return text.to_arrow().cast(pa.large_string()).view(LARGE_BINARY)


def null_series(rows: int, dtype: pl.DataType) -> pl.Series:
    return pl.Series([None], dtype=dtype).new_from_index(0, rows)


def struct_of(parts: dict[str, pl.Series], rows: int) -> pl.Series:
    """A struct series of those columns; with none, rows of a struct without fields."""
    if not parts:
        return pl.Series([{}], dtype=pl.Struct({})).new_from_index(0, rows)
    if "" in parts:  # a list of series would be cheaper, but there Polars gives it another name
        return pl.DataFrame(parts).to_struct()
    return pl.DataFrame([part.alias(name) for name, part in parts.items()]).to_struct()


def list_series(sizes: Any, items: pl.Series, missing: Any = None) -> pl.Series:
    """A series of lists. ``missing``: which of them are null."""
    mask = None if missing is None else pa.array(missing)
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(ends_of(sizes)), items.to_arrow(), mask=mask))


def items_changed(lists: pl.Series, change: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """The lists with other items, which ``change`` makes of all of them at once."""
    array = lists.to_arrow()
    sizes = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return list_series(sizes, change(pl.Series(array.flatten())), lists.is_null().to_numpy())


def series_with_nulls(dense: pl.Series, there: Mask) -> pl.Series:
    """The rows where the mask is true, and nulls in between."""
    if there.all():
        return dense
    if not len(dense):
        return null_series(len(there), dense.dtype)
    return dense.gather(pl.Series(_numbered(there)))


def with_nulls_of(values: pl.Series, like: pl.Series) -> pl.Series:
    """``values`` with null rows where ``like`` has them."""
    return null_where(values, like.is_null().to_numpy()) if like.null_count() else values


def null_where(values: pl.Series, missing: Mask) -> pl.Series:
    """``values`` with null rows where the mask is true."""
    if missing.all():
        return null_series(len(values), values.dtype)
    return values.gather(pl.Series(_numbers_but(missing), dtype=pl.Int64))


def nulled(data: pa.Array, missing: Mask) -> pa.Array:
    """As `null_where`, of an Arrow array.

    Before its version 24, Arrow's ``if_else`` reads other bytes where the rows are a slice.
    """
    return data.take(_numbers_but(missing))


def _numbers_but(missing: Mask) -> pa.Array:
    """The number of each row, null where the mask is true."""
    return pa.array(np.arange(len(missing)), mask=missing)


def numeric_series(values: npt.NDArray[Any], valid: Mask | None) -> pl.Series:
    """A series of numbers; ``valid``: which rows of it ``values`` are (the others null), None: all."""
    if valid is None:
        return pl.Series(values)
    spread = np.zeros(len(valid), values.dtype)
    spread[valid] = values
    return pl.Series(pa.array(spread, mask=~valid))


_NOTHING = pa.scalar(b"", LARGE_BINARY)


def joined(*parts: Any) -> pa.LargeBinaryArray:
    """The bytes of several arrays or scalars, row by row; null where one of them is."""
    return pc.binary_join_element_wise(*parts, _NOTHING)


def with_first_byte(byte: int, data: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Every row with a byte in front; nulls stay nulls."""
    there = validity(data)
    dense = data if there is None else data.drop_null()
    positions = offsets(dense)
    begin = int(positions[0])
    rows = np.empty(int(positions[-1]) - begin + len(dense), np.uint8)
    made = positions - begin + np.arange(len(positions))
    kept = np.ones(len(rows), np.bool_)
    kept[made[:-1]] = False
    rows[kept] = content(dense)[begin : int(positions[-1])]
    rows[made[:-1]] = byte
    array = binary_array(made, rows)
    return array if there is None else with_nulls(array, there)


def without_first(data: pa.LargeBinaryArray, width: int, good: Mask | None = None) -> pa.LargeBinaryArray:
    """The rows that are ``good`` (None: all), without their first ``width`` bytes; the others are null."""
    positions = offsets(data)
    halves = np.empty(2 * len(data) + 1, np.int64)  # head, payload, head, payload, …
    halves[0::2] = positions
    halves[1::2] = np.minimum(positions[:-1] + width, positions[1:])
    valid = None if good is None or good.all() else np.repeat(good, 2)
    return binary_array(halves, content(data), valid).take(pa.array(np.arange(1, 2 * len(data), 2)))


def without_first_byte(data: pa.LargeBinaryArray) -> tuple[Content, pa.LargeBinaryArray] | None:
    """The first byte of every row, and the rest of it; None if a row is empty. ``data``: no nulls."""
    positions = offsets(data)
    if len(data) and (np.diff(positions) == 0).any():
        return None
    begin, rows = int(positions[0]), content(data)
    kept = np.ones(int(positions[-1]) - begin, np.bool_)
    kept[positions[:-1] - begin] = False
    rest = rows[begin : int(positions[-1])][kept]
    return rows[positions[:-1]], binary_array(positions - begin - np.arange(len(positions)), rest)
