"""Records as columns that Spark takes: it has no integers without a sign, and no times finer than microseconds."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError

_OTHER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
"""What takes the place of a type: the next wider one with a sign, and the one that Spark itself makes."""


def columns_of(changes: Changes) -> dict[str, pa.Array]:
    """Key, value and ``ms``, the timestamp. Raises `SerdeError` as `column_of` does."""
    return {"key": column_of(changes.key), "value": column_of(changes.value), "ms": pa.array(changes.ts)}


def column_of(values: Values) -> pa.Array:
    """A column of the values: of the declared type, or the text of JSON and the bytes of others without one.

    Raises `SerdeError`: CS-404 for a type that Arrow does not have.
    """
    if not values.declared():
        is_json = values.serde is not None and values.serde.name.partition("[")[0] == "json"
        return values.wire().cast(pa.string() if is_json else pa.binary())
    series = values.series()
    try:
        array = _in_microseconds(series).to_arrow()
    except pa.ArrowException as error:
        raise no_such_type(str(series.dtype)) from error
    return array.cast(pa.string() if pa.types.is_null(array.type) else _plain(array.type))


def no_such_type(types: str) -> CrossStreamError:
    step = "change the type before: map_values(…), then repartition(cs.Repartitioned(value=serdes.json({…})))"
    return refuse("CS-404", f"Spark has no columns of these types: {types}", step)


def _in_microseconds(series: pl.Series) -> pl.Series:
    """Rounded down, as Spark does it; Arrow would round towards 1970."""
    dtype = _coarser(series.dtype)
    return series if dtype == series.dtype else series.cast(dtype)


def _coarser(dtype: Any) -> Any:
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: _coarser(field.dtype) for field in dtype.fields})
    if isinstance(dtype, pl.List):
        return pl.List(_coarser(dtype.inner))
    if isinstance(dtype, pl.Datetime) and dtype.time_unit == "ns":
        return pl.Datetime("us", dtype.time_zone)
    return pl.Duration("us") if dtype == pl.Duration("ns") else dtype


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type as Spark has it, in structs and lists too."""
    if isinstance(kind, pa.StructType):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if isinstance(kind, pa.DictionaryType):
        return _plain(kind.value_type)
    if isinstance(kind, pa.TimestampType):
        return pa.timestamp("us", kind.tz and "UTC")
    return pa.duration("us") if pa.types.is_duration(kind) else _OTHER.get(kind, kind)
