"""The types that values have by themselves: what an expression gave, as the next function reads it.

Polars has many types for one kind of value: `len` gives 32 bits without sign, `dt.hour` eight with sign. A store, a
topic or an object keeps nothing of that. So it depends on none of them, nor on the rows of the batch, what the next
expression reads: whole numbers have 64 bits with sign, other numbers are doubles, points in time are microseconds in
UTC. Source: decision 0030.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

import polars as pl

from crossstream.serdes import refusals
from crossstream.serdes.json_columns import with_nulls_of


@lru_cache(maxsize=512)
def _other(dtype: Any) -> Any:
    """The plain type, if it is another one; else None."""
    found = plain(dtype)
    return None if found == dtype else found


def plain(dtype: Any) -> Any:
    """The type that the values of a column have by themselves."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: plain(field.dtype) for field in dtype.fields})
    if isinstance(dtype, pl.List | pl.Array):
        return pl.List(plain(dtype.inner))
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime("us", None if dtype.time_zone is None else "UTC")
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String()
    if dtype.is_integer():
        return pl.Int64()
    return {pl.Float32: pl.Float64(), pl.Duration: pl.Duration("us")}.get(dtype.base_type(), dtype)


def as_plain(series: pl.Series, fields: Collection[str] | None = None) -> pl.Series:
    """The column with its plain types; of a struct, if they have others, these ``fields`` only; None: all.

    Raises `SerdeError`, CS-402, for a whole number that does not have 64 bits with sign.
    """
    dtype = _other(series.dtype)
    if dtype is None:
        return series
    if fields is not None and isinstance(dtype, pl.Struct):
        series = _only(series, fields)
        dtype = plain(series.dtype)
    try:
        return series.cast(dtype)
    except pl.exceptions.PolarsError as error:
        raise refusals.undecodable("pickled", "a value has an integer of more than 64 bits") from error


def is_alike(series: pl.Series) -> bool:
    """Whether each row has alone the plain type of the column: no null and no empty list has any."""
    dtype = series.dtype
    if dtype == pl.Null or not len(series):
        return True
    if series.null_count():
        return False
    if isinstance(dtype, pl.Struct):
        return all(map(is_alike, series.struct.unnest().get_columns()))
    if isinstance(dtype, pl.List):
        return bool(series.list.len().min()) and is_alike(series.explode())
    return not isinstance(dtype, pl.Array | pl.Object) and _has_64_bits(series)


def _has_64_bits(series: pl.Series) -> bool:
    """Whether its whole numbers, if it has any, are of no more than 64 bits with sign."""
    if not series.dtype.is_integer() or series.dtype in _NARROW:
        return True
    return bool((series.is_between(_LEAST, _LARGEST)).all())


_NARROW = frozenset({pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32})
_LEAST, _LARGEST = pl.lit(-(2**63), pl.Int128), pl.lit(2**63 - 1, pl.Int128)


def read_fields(series: pl.Series, fields: Collection[str] | None) -> dict[str, pl.Series]:
    """These of the fields of a struct that it has; None: it as a whole, under no name."""
    if fields is None or not isinstance(series.dtype, pl.Struct):
        return {"": series}
    return {part.name: part for part in series.struct.unnest().get_columns() if part.name in fields}


def _only(series: pl.Series, fields: Collection[str]) -> pl.Series:
    """A struct with these of its fields."""
    found = list(read_fields(series, fields).values())
    if not found or len(found) == len(series.struct.fields):
        return series
    return with_nulls_of(pl.DataFrame(found).to_struct(series.name), series)
