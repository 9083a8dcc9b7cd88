"""Values as the bytes that a store keeps, and back."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream import serdes
from crossstream.serdes import arrays, calls

_WIDTH = 8


def to_cells(values: pl.Series) -> pa.LargeBinaryArray:
    """Values as the bytes that a store keeps; no value is null bytes.

    Numbers and times have eight bytes, text is UTF-8, other values are JSON.
    """
    dtype = values.dtype
    if dtype == pl.String:
        return arrays.text_bytes(values)
    if dtype == pl.Binary:
        return values.to_arrow().cast(arrays.LARGE_BINARY)
    if not _is_fixed(dtype):
        inside = calls.encode_series(_nested(dtype), values.alias("v").to_frame().to_struct())
        return arrays.nulled(inside, values.is_null().to_numpy()) if values.null_count() else inside
    there = None if not values.null_count() else values.is_not_null().to_numpy()
    return arrays.from_fixed_rows(_numbers(values.drop_nulls()).view(np.uint8), _WIDTH, there)


def from_cells(column: pa.LargeBinaryArray, dtype: pl.DataType) -> pl.Series:
    """The values of cells."""
    if dtype == pl.String:
        return pl.Series(column.cast(pa.large_string()))
    if dtype == pl.Binary:
        return pl.Series(column)
    if not _is_fixed(dtype):
        return calls.decode_series(_nested(dtype), column).struct.field("v")
    there = arrays.validity(column)
    rows = arrays.fixed_rows(column, _WIDTH)
    assert rows is not None
    kind = np.float64 if dtype.is_float() else np.uint64 if dtype == pl.UInt64 else np.int64
    return arrays.numeric_series(rows.view(kind), there).cast(dtype)


def _is_fixed(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype.is_float() or dtype == pl.Boolean or dtype.is_temporal()


def _numbers(values: pl.Series) -> np.ndarray:
    """The numbers of a series without nulls, in eight bytes each."""
    if values.dtype.is_float():
        return values.cast(pl.Float64).to_numpy().copy()
    if values.dtype == pl.UInt64:
        return values.to_numpy().copy()
    return values.to_physical().cast(pl.Int64).to_numpy().copy()


def _nested(dtype: pl.DataType) -> serdes.Serde:
    return serdes.json(pl.Struct({"v": dtype}))
