"""Decoded objects to Polars series: a column for every field, built from one list each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, refusals
from crossstream.serdes.calendar import beyond
from crossstream.serdes.json_shapes import KEPT, Leaf, ListOf, Shape, column

_FEW = 64
"""Rows up to which one call for all columns is cheaper than one for each."""


CHUNK = 8192
"""Rows decoded at once: an object for each, between text and columns, stays in the cache (decision 0027)."""


def in_chunks(data: pa.LargeBinaryArray, decode: Callable[[pa.LargeBinaryArray], pl.Series]) -> pl.Series:
    """What ``decode`` makes of the rows, some thousands of them at a time."""
    if len(data) <= CHUNK:
        return decode(data)
    parts = [decode(data.slice(start, CHUNK)) for start in range(0, len(data), CHUNK)]
    return pl.concat(parts, rechunk=True)


def to_series(values: list[Any], shape: Shape, serde: str) -> pl.Series:
    """A series of wire values, None → null. Raises `SerdeError` (CS-402) for what the column cannot hold."""
    try:
        series = _at_once(values, shape) if len(values) <= _FEW else _series(values, shape)
        if beyond(series) is not None:
            raise ValueError("a time before the year 1 or after 9999 in UTC")
        return series
    except (TypeError, ValueError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise refusals.undecodable(serde, f"beyond what a column of {shape.dtype} holds: {error}") from error


def null_series(rows: int, dtype: pl.DataType) -> pl.Series:
    return pl.Series([None], dtype=dtype).new_from_index(0, rows)


def _at_once(values: list[Any], shape: Shape) -> pl.Series:
    return arrays.series_of(pa.array(msgspec.to_builtins(values, builtin_types=KEPT), _arrow_type(shape)))


@lru_cache(maxsize=512)
def _arrow_type(shape: Shape) -> pa.DataType:
    return pl.Series([], dtype=shape.dtype).to_arrow().type


def _series(values: list[Any], shape: Shape) -> pl.Series:
    if isinstance(shape, Leaf):
        return _leaves(values, shape)
    present = values
    if type(None) in set(map(type, values)):
        present = [value for value in values if value is not None]
    dense = _lists(present, shape) if isinstance(shape, ListOf) else _structs(present, shape)
    return dense if present is values else spread(dense, values)


def _leaves(values: list[Any], shape: Leaf) -> pl.Series:
    if shape.wire is UUID:
        values = [None if value is None else str(value) for value in values]
    if isinstance(shape.dtype, pl.Decimal):  # Polars would round
        return pl.Series(pa.array(values, pa.decimal128(shape.dtype.precision or 38, shape.dtype.scale)))
    return pl.Series(values, dtype=shape.dtype)


def _lists(values: list[list[Any]], shape: ListOf) -> pl.Series:
    return list_series(_series(list(chain.from_iterable(values)), shape.item), values)


def _structs(values: list[Any], shape: Any) -> pl.Series:
    return struct_of(
        {
            field.name: _series(list(map(attrgetter(field.attribute), values)), column(field))
            for field in shape.fields
        },
        len(values),
    )


def struct_of(parts: dict[str, pl.Series], rows: int) -> pl.Series:
    """A struct series of those columns; with none, rows of a struct without fields."""
    if not parts:
        return pl.Series([{}], dtype=pl.Struct({})).new_from_index(0, rows)
    if "" in parts:  # a list of series would be cheaper, but there Polars gives it another name
        return pl.DataFrame(parts).to_struct()
    return pl.DataFrame([part.alias(name) for name, part in parts.items()]).to_struct()


def with_nulls_of(values: pl.Series, like: pl.Series) -> pl.Series:
    """``values`` with null rows where ``like`` has them."""
    if not like.null_count():
        return values
    if like.null_count() == len(like):
        return null_series(len(like), values.dtype)
    missing = like.is_null().to_numpy()
    return values.gather(pl.Series(pa.array(np.arange(len(like)), mask=missing), dtype=pl.Int64))


def list_series(items: pl.Series, values: Sequence[Sequence[Any]]) -> pl.Series:
    """A list series of all items, cut to the lengths of ``values``."""
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    return arrays.series_of(pa.LargeListArray.from_arrays(pa.array(ends), items.to_arrow()))


def spread(dense: pl.Series, values: list[Any]) -> pl.Series:
    """The rows of ``dense`` where ``values`` are not None, and nulls in between."""
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if not len(dense):
        return null_series(len(values), dense.dtype)
    rows = pl.Series(pa.array(np.cumsum(present) - 1, mask=~present), dtype=pl.Int64)
    return dense.gather(rows)
