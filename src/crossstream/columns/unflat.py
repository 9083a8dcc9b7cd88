"""The columns of a table, back to keys and values: the reverse of `flat.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from crossstream.columns.flat import VALUE, Layout
from crossstream.serdes.arrays import struct_of

Columns = Mapping[str, pl.Series]


class Inexact(Exception):
    """A column with a value that the type of the key or the value does not have; the text says which."""


def keys_in(columns: Columns, layout: Layout, dtype: pl.DataType) -> pl.Series:
    """The keys of a table's rows, in their own type. Raises `Inexact`."""
    return _nested(columns, iter(layout.keys), dtype)


def values_in(columns: Columns, dtype: pl.DataType) -> pl.Series:
    """The values of a table's rows, in their own type. Raises `Inexact`."""
    if not isinstance(dtype, pl.Struct):
        return _typed(columns, VALUE, dtype)
    return struct_of(
        {field.name: _typed(columns, field.name, _made(field.dtype)) for field in dtype.fields},
        _rows(columns),
    )


def _nested(columns: Columns, names: Iterator[str], dtype: pl.DataType) -> pl.Series:
    """Structs of the columns, one after the other, in structs of any depth."""
    if not isinstance(dtype, pl.Struct):
        return _typed(columns, next(names), dtype)
    fields = {field.name: _nested(columns, names, _made(field.dtype)) for field in dtype.fields}
    return struct_of(fields, _rows(columns))


def _typed(columns: Columns, name: str, dtype: pl.DataType) -> pl.Series:
    column = columns[name]
    if column.dtype == dtype:
        return column
    try:
        found = column.cast(dtype)
        same = found.cast(column.dtype).equals(column, null_equal=True)
    except pl.exceptions.PolarsError as error:
        raise Inexact(f"the column {name!r} has a value that is not {dtype}") from error
    if not same:
        raise Inexact(f"the column {name!r} has a value that is not {dtype}")
    return found


def _made(dtype: object) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype  # type: ignore[assignment]
    return made


def _rows(columns: Columns) -> int:
    return next((len(column) for column in columns.values()), 0)
