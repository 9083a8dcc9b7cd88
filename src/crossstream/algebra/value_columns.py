"""Columns of values: decoded of their bytes, cut to the fields that are wanted."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.algebra.plain_types import is_alike, read_fields
from crossstream.algebra.undeclared import Undeclared
from crossstream.serdes import Serde, calls
from crossstream.serdes.internal import pickled
from crossstream.serdes.json_columns import with_nulls_of
from crossstream.serdes.serde import Checking


def missing_in(series: pl.Series) -> np.ndarray:
    """Row by row, whether the value is null; where all or none are, counting them tells, at a hundredth of the cost."""
    count = series.null_count()
    return np.full(len(series), count > 0) if count in (0, len(series)) else series.is_null().to_numpy()


def decoded_series(
    serde: Serde, wire: pa.LargeBinaryArray, fields: Collection[str] | None, checked: bool
) -> pl.Series:
    """A series of bytes; ``fields``, ``checked``: as in `Values.series`. Raises `SerdeError`."""
    if fields is None or not checked:
        return calls.decode_series(serde, wire, fields)
    return (
        serde.decode_checked(wire, fields)
        if isinstance(serde, Checking)
        else calls.decode_series(serde, wire)
    )


def open_rows(series: pl.Series, fields: Collection[str] | None) -> Undeclared | None:
    """The rows of a column without declared type; None: each has alone the types that are read of the column."""
    read = read_fields(series, fields)
    there = series.null_count() == 0
    if there and all(is_alike(part) for part in read.values()):
        return None
    name = pickled().name
    if fields is None or not isinstance(series.dtype, pl.Struct):
        return Undeclared(name, series.to_list())
    present = series.is_not_null().to_list()
    columns = {name: read[name].to_list() if name in read else [None] * len(series) for name in fields}
    if not there:
        columns = {
            name: [item if one else None for item, one in zip(column, present, strict=True)]
            for name, column in columns.items()
        }
    return Undeclared(name, [one or None for one in present], columns)


def only(series: pl.Series, fields: Collection[str]) -> pl.Series | None:
    """The struct with these fields; None if it has not all of them."""
    if not isinstance(series.dtype, pl.Struct) or not has_fields(series, fields):
        return None
    chosen = [name for name in series.struct.fields if name in fields]
    if len(chosen) == len(series.struct.fields):
        return series
    return with_nulls_of(series.struct.unnest().select(chosen).to_struct(series.name), series)


def has_fields(series: pl.Series, fields: Collection[str]) -> bool:
    """Whether these are among the fields of the series, if it has any."""
    if not isinstance(series.dtype, pl.Struct):
        return True
    return {field.name for field in series.dtype.fields}.issuperset(fields)
