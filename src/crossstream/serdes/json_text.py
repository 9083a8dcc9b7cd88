"""Polars series to JSON text, one document for each row.

A struct is written by Polars in one call, after columns that Polars would write in another way than msgspec
(or than another release of Polars) have been made text: times, dates, decimals, bytes, categories. What
remains, and few rows, go through Python objects and msgspec, and so do NaN and infinities, which are refused there.
The text of a value is the same either way, for keys are compared by it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.serdes import arrays, refusals
from crossstream.serdes.json_columns import beyond, struct_of, with_nulls_of
from crossstream.serdes.json_decimals import decimals_as_text
from crossstream.serdes.json_rows import encode_rows

FEW = 64
"""Rows up to which Python objects are cheaper than a call of Polars' encoder."""

_SIGNED, _UNSIGNED = (pl.Int8, pl.Int16, pl.Int32, pl.Int64), (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_AS_IS = (*_SIGNED, *_UNSIGNED, pl.Float64, pl.Boolean, pl.String, pl.Null)
_CAST = (pl.Date, pl.Categorical, pl.Enum)
_OTHERWISE = (pl.Float32,)
"""Columns whose Python objects msgspec writes in another way than they are written here."""

_EXPONENT = 1e16
"""From here on floats are written with an exponent: by msgspec as 1e16, by Polars as 1e+16."""


def json_text(values: pl.Series, serde: str, shortest: bool = False) -> pa.LargeBinaryArray:
    """The JSON of every row, null → null. ``shortest``: Decimals without declared scale have no zeros at the end.

    Raises `SerdeError` (CS-403).
    """
    values = decimals_as_text(_in_utc(values), shortest)
    if (late := beyond(values)) is not None:
        raise refusals.beyond_the_calendar(serde, int(late.sum()))
    dtype = values.dtype
    if not isinstance(dtype, pl.Struct) or not _columnar(dtype):
        return encode_rows(values.to_list(), serde)
    if len(values) <= FEW and not _has(dtype, _OTHERWISE):
        return encode_rows(values.to_list(), serde)
    written = _writable(values)
    if len(values) <= FEW or _has_odd_floats(written):
        return encode_rows(written.to_list(), serde)
    return with_null_rows(arrays.text_bytes(written.struct.json_encode()), values)


def with_null_rows(text: pa.LargeBinaryArray, values: pl.Series) -> pa.LargeBinaryArray:
    """The text with null where the series is null."""
    if not values.null_count():
        return text
    return pc.if_else(values.is_null().to_arrow(), pa.scalar(None, arrays.LARGE_BINARY), text)


def _has(dtype: Any, kinds: tuple[Any, ...]) -> bool:
    """Whether a column of one of the ``kinds`` is in it."""
    if isinstance(dtype, pl.Struct):
        return any(_has(field.dtype, kinds) for field in dtype.fields)
    return _has(dtype.inner, kinds) if isinstance(dtype, pl.List) else dtype in kinds


def _has_odd_floats(values: pl.Series) -> bool:
    """Whether floats are so large that they are written with an exponent, or have no JSON: NaN and infinities."""
    dtype = values.dtype
    if not _has(dtype, (pl.Float64,)):
        return False
    if isinstance(dtype, pl.Struct):
        return any(_has_odd_floats(part) for part in values.struct.unnest().get_columns())
    if isinstance(dtype, pl.List):
        return _has_odd_floats(values.list.explode())
    if not values.is_finite().all():
        return True
    least, most = values.min(), values.max()
    return least is not None and bool(least <= -_EXPONENT or most >= _EXPONENT)  # type: ignore[operator]


def _in_utc(values: pl.Series) -> pl.Series:
    """Times with UTC as their zone: offsets of old times have seconds, which JSON's have not."""
    dtype = values.dtype
    if not _zoned(dtype):
        return values
    if not isinstance(dtype, pl.Struct):
        return values.cast(_utc(dtype))
    parts = {part.name: _in_utc(part) for part in values.struct.unnest().get_columns()}
    return with_nulls_of(struct_of(parts, len(values)), values)


@lru_cache(maxsize=512)
def _zoned(dtype: Any) -> bool:
    """Whether there are times of another zone than UTC."""
    if isinstance(dtype, pl.Struct):
        return any(_zoned(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.List):
        return bool(_zoned(dtype.inner))
    return isinstance(dtype, pl.Datetime) and dtype.time_zone not in (None, "UTC")


def _utc(dtype: Any) -> Any:
    if isinstance(dtype, pl.List):
        return pl.List(_utc(dtype.inner))
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _utc(field.dtype) for field in dtype.fields})
    return pl.Datetime(dtype.time_unit, "UTC") if _zoned(dtype) else dtype


def _columnar(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return all(_columnar(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.List):
        return _as_is(dtype)
    if isinstance(dtype, pl.Datetime):
        return dtype.time_unit != "ns"
    return dtype in (*_AS_IS, *_CAST, pl.Binary, pl.Float32)


def _as_is(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return all(_as_is(field.dtype) for field in dtype.fields)
    return _as_is(dtype.inner) if isinstance(dtype, pl.List) else dtype in _AS_IS


def _writable(values: pl.Series) -> pl.Series:
    """The series with nothing in it but what every release of Polars writes as msgspec does."""
    dtype = values.dtype
    if _as_is(dtype):
        return values
    if isinstance(dtype, pl.Struct):
        parts = {part.name: _writable(part) for part in values.struct.unnest().get_columns()}
        return with_nulls_of(struct_of(parts, len(values)), values)
    if isinstance(dtype, pl.Datetime):
        text = values.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f").str.strip_suffix(".000000")
        return text if dtype.time_zone is None else text + "Z"
    if dtype == pl.Float32:
        return values.cast(pl.Float64)
    if dtype == pl.Binary:
        return values.bin.encode("base64")
    return values.cast(pl.String)
