"""Polars series to JSON text, one document for each row.

Polars writes structs in one call. Columns that it would write differently from msgspec, or from another release of
Polars, become text first: times, dates, decimals, bytes, categories. Other types, few rows, NaN and infinities go
through Python objects and msgspec. The text of a value is the same either way, because keys are compared by it.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, errors
from crossstream.serdes.json.columns import FEW, any_leaf, beyond_the_calendar
from crossstream.serdes.json.rows import encode_rows
from crossstream.serdes.json.shapes import DECIMAL_DIGITS

_SIGNED, _UNSIGNED = (pl.Int8, pl.Int16, pl.Int32, pl.Int64), (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_PLAIN = (*_SIGNED, *_UNSIGNED, pl.Float64, pl.Boolean, pl.String, pl.Null)
"""Columns that every release of Polars writes as msgspec writes their objects."""

_OTHER_TEXT = (pl.Date, pl.Categorical, pl.Enum, pl.Decimal, pl.Float32, pl.Binary)
"""Columns that are made plain first. The others (times of day, durations) go through Python objects."""

_SCALELESS = pl.Decimal(*DECIMAL_DIGITS)
"""The column of Decimals for which no scale is declared."""

_EXPONENT = 1e16
"""From here on floats are written with an exponent: by msgspec as 1e16, by Polars as 1e+16."""


def json_text(values: pl.Series, serde: str, shortest: bool = False) -> pa.LargeBinaryArray:
    """The JSON of every row, null → null. ``shortest``: Decimals without declared scale have no zeros at the end.

    Raises `SerdeError` (CS-403).
    """
    if beyond_the_calendar(values):
        raise errors.beyond_the_calendar(serde)
    few = len(values) <= FEW
    if not few or any_leaf(values.dtype, _differs):
        values = plain_columns(values, shortest)
    dtype = values.dtype
    if few or not isinstance(dtype, pl.Struct) or any_leaf(dtype, _is_not_plain) or _has_odd_floats(values):
        return encode_rows(values.to_list(), serde)
    text = arrays.text_bytes(values.struct.json_encode())
    return arrays.nulled(text, values.is_null().to_numpy()) if values.null_count() else text


def plain_columns(values: pl.Series, shortest: bool) -> pl.Series:
    """The series with text and numbers in place of all that has a text of its own. ``shortest``: as in `json_text`."""
    dtype = values.dtype
    if not any_leaf(dtype, _has_other_text):
        return values
    if isinstance(dtype, pl.Struct):
        parts = {part.name: plain_columns(part, shortest) for part in values.struct.unnest().get_columns()}
        return arrays.with_nulls_of(arrays.struct_of(parts, len(values)), values)
    if isinstance(dtype, pl.Array):
        return plain_columns(values.arr.to_list(), shortest)
    if isinstance(dtype, pl.List):
        return arrays.items_changed(values, lambda items: plain_columns(items, shortest))
    if isinstance(dtype, pl.Datetime):
        return _times_as_text(values)
    if isinstance(dtype, pl.Float32):
        return values.cast(pl.Float64)
    if isinstance(dtype, pl.Binary):
        return values.bin.encode("base64")
    text = values.cast(pl.String)
    if not shortest or dtype != _SCALELESS:
        return text
    return text.str.strip_chars_end("0").str.strip_chars_end(".")


def _times_as_text(values: pl.Series) -> pl.Series:
    zone = values.dtype.time_zone  # type: ignore[attr-defined]
    if zone not in (None, "UTC"):  # offsets of old times have seconds, which those of JSON have not
        values = values.dt.convert_time_zone("UTC")
    text = values.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f").str.strip_suffix(".000000")
    return text if zone is None else text + "Z"


def _is_not_plain(dtype: Any) -> bool:
    return dtype not in _PLAIN


def _has_other_text(dtype: Any) -> bool:
    if isinstance(dtype, pl.Datetime):
        return dtype.time_unit != "ns"
    return isinstance(dtype, pl.Array) or dtype in _OTHER_TEXT


def _differs(dtype: Any) -> bool:
    """Whether msgspec writes the objects of such a column in another way."""
    if isinstance(dtype, pl.Datetime):
        return dtype.time_zone not in (None, "UTC")
    return isinstance(dtype, pl.Float32 | pl.Decimal | pl.Array)


def _has_odd_floats(values: pl.Series) -> bool:
    """Whether floats are so large that they are written with an exponent, or have no JSON: NaN and infinities."""
    dtype = values.dtype
    if not any_leaf(dtype, _is_float):
        return False
    if isinstance(dtype, pl.Struct):
        return any(_has_odd_floats(part) for part in values.struct.unnest().get_columns())
    if isinstance(dtype, pl.List):
        return _has_odd_floats(values.list.explode(empty_as_null=False))
    if not values.is_finite().all():
        return True
    least, most = values.min(), values.max()
    return least is not None and bool(least <= -_EXPONENT or most >= _EXPONENT)  # type: ignore[operator]


def _is_float(dtype: Any) -> bool:
    return isinstance(dtype, pl.Float64)
