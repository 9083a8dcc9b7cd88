"""Columns of untyped values: the type is read off the values of one call, every one of them.

int → Int64, float (or int and float) → Float64, str, bool, dict → Struct of all fields seen, list → List.
A field whose values are of several types has no column type: that is an error, never a silent cast.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import polars as pl

from crossstream.serdes import refusals
from crossstream.serdes.json_columns import list_series, null_series, spread, struct_of

_NONE = type(None)


def infer(values: list[Any], serde: str, field: str = "") -> pl.Series:
    """A series of Python values, None → null; nothing but None: of type Null. ``field``: for messages.

    Raises `SerdeError`: CS-406 for several types, CS-404 for a type no column is of, CS-402 for an integer of
    more than 64 bits.
    """
    kinds = set(map(type, values))
    nullable = _NONE in kinds
    kinds.discard(_NONE)
    if not kinds:
        return null_series(len(values), pl.Null())
    if kinds <= {int, float}:
        return _numbers(values, float in kinds, serde, field)
    if len(kinds) > 1:
        raise refusals.mixed_types(serde, field, (kind.__name__ for kind in kinds))
    if not kinds & {dict, list, tuple}:
        return _scalars(values, serde, field)
    present = [value for value in values if value is not None] if nullable else values
    dense = _structs(present, serde, field) if dict in kinds else _lists(present, serde, field)
    return spread(dense, values) if nullable else dense


def infer_fields(columns: dict[str, list[Any]], rows: int, serde: str, field: str = "") -> pl.Series:
    """A struct series of columns of Python values."""
    prefix = f"{field}." if field else ""
    return struct_of({name: infer(column, serde, prefix + name) for name, column in columns.items()}, rows)


def _numbers(values: list[Any], floats: bool, serde: str, field: str) -> pl.Series:
    try:
        return pl.Series(values, dtype=pl.Float64 if floats else pl.Int64)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        place = f"field {field}" if field else "a value"
        raise refusals.undecodable(serde, f"{place} has an integer of more than 64 bits") from error


def _scalars(values: list[Any], serde: str, field: str) -> pl.Series:
    try:
        series = pl.Series(values)
    except Exception as error:  # of whatever kind the type's conversion raises
        raise refusals.no_column(serde, f"{field or 'value'}: {error}") from error
    if series.dtype == pl.Object:
        kind = next(type(value).__name__ for value in values if value is not None)
        raise refusals.no_column(serde, f"{field or 'a value'} is of the Python type {kind}")
    return series


def _structs(values: list[dict[Any, Any]], serde: str, field: str) -> pl.Series:
    names = dict.fromkeys(chain.from_iterable(values))
    if not {str}.issuperset(map(type, names)):
        raise refusals.no_column(serde, f"{field or 'a value'} is a dict whose keys are not all text")
    if any("\0" in name for name in names):  # Arrow's interface ends names there, and Polars panics
        raise refusals.undecodable(serde, f"{field or 'a value'} has a field name with a NUL character")
    columns = {name: [value.get(name) for value in values] for name in names}
    return infer_fields(columns, len(values), serde, field)


def _lists(values: list[Any], serde: str, field: str) -> pl.Series:
    return list_series(infer(list(chain.from_iterable(values)), serde, f"{field}[]"), values)
