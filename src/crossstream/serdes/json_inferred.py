"""Columns of untyped values: the type is read off the values of one call, every one of them.

int → Int64, float (or int and float) → Float64, str, bool, dict → Struct of all fields seen, list → List, Decimal →
Decimal of 38 digits with as many after the point as any of them has.
A field whose values are of several types has no column type: that is an error, never a silent cast. For expressions
only rows are put together that have the same types alone (`crossstream.algebra.undeclared`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.serdes import refusals
from crossstream.serdes.json_columns import list_series, null_series, spread, struct_of

_NONE = type(None)
_DIGITS = 38
"""The most that a column of Decimals has. With fewer, one row would make another type than the next."""


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
    kind = kinds.pop()
    if kind in _SCALARS:
        return _scalars(values, _SCALARS[kind], serde, field)
    present = [value for value in values if value is not None] if nullable else values
    if kind in (list, tuple):
        dense = _lists(present, serde, field)
    else:
        dense = _structs(records(present, kind, serde, field), serde, field)
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


def _scalars(values: list[Any], make: Callable[[list[Any]], pl.Series], serde: str, field: str) -> pl.Series:
    try:
        return make(values)
    except (TypeError, ValueError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise refusals.undecodable(serde, f"{field or 'a value'} fits no column: {error}") from error


def has_fields(kind: type) -> bool:
    """Whether objects of the class are records: dicts, dataclasses, msgspec structs."""
    return kind is dict or issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)


def fields_of_object(value: Any) -> dict[Any, Any] | None:
    """The fields of a record, not deeply; None: it is none."""
    kind = type(value)
    if kind is dict:
        return value  # type: ignore[no-any-return]
    return records([value], kind, "")[0] if has_fields(kind) else None


def records(values: list[Any], kind: type, serde: str, field: str = "") -> list[dict[Any, Any]]:
    """Objects of one class as dicts of their fields, not deeply. Raises CS-404 if it has none."""
    if kind is dict:
        return values
    if issubclass(kind, msgspec.Struct):
        return list(map(msgspec.structs.asdict, values))
    if dataclasses.is_dataclass(kind):
        names = [one.name for one in dataclasses.fields(kind)]
        return [{name: getattr(value, name) for name in names} for value in values]
    raise refusals.no_column(serde, f"{field or 'a value'} is of the Python type {kind.__name__}")


def _datetimes(values: list[datetime | None]) -> pl.Series:
    offsets = {value.tzinfo is not None for value in values if value is not None}
    if len(offsets) > 1:
        raise ValueError("some times have an offset, some have none")
    return pl.Series(values, dtype=pl.Datetime("us", "UTC" if offsets.pop() else None))


def scale_of(value: Decimal) -> int:
    """Digits after the point; none for NaN and infinities, which no column holds."""
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _decimals(values: list[Decimal | None]) -> pl.Series:
    scale = max(scale_of(value) for value in values if value is not None)
    return pl.Series(pa.array(values, pa.decimal128(_DIGITS, scale)))


def _of_type(dtype: pl.DataType) -> Callable[[list[Any]], pl.Series]:
    return lambda values: pl.Series(values, dtype=dtype)


_SCALARS: dict[type, Callable[[list[Any]], pl.Series]] = {
    str: _of_type(pl.String()),
    bool: _of_type(pl.Boolean()),
    bytes: _of_type(pl.Binary()),
    date: _of_type(pl.Date()),
    datetime: _datetimes,
    time: _of_type(pl.Time()),
    timedelta: _of_type(pl.Duration("us")),
    Decimal: _decimals,
    UUID: lambda values: pl.Series(
        [None if value is None else str(value) for value in values], dtype=pl.String
    ),
}
"""Types of one column each. Untyped JSON has the first two; the others are in pickled objects."""


def _structs(values: list[dict[Any, Any]], serde: str, field: str) -> pl.Series:
    names = dict.fromkeys(chain.from_iterable(values))
    if not {str}.issuperset(map(type, names)):
        raise refusals.no_column(serde, f"{field or 'a value'} is a dict whose keys are not all text")
    if any("\0" in name for name in names):  # Arrow's interface ends names there, and Polars panics
        raise refusals.undecodable(serde, f"{field or 'a value'} has a field name with a NUL character")
    return infer_fields(columns_of_dicts(values, names), len(values), serde, field)


def columns_of_dicts(values: list[dict[Any, Any]], names: Iterable[Any]) -> dict[Any, list[Any]]:
    """The values of each name, None where a dict has none."""
    if len(set(map(tuple, values))) == 1:
        flat = list(chain.from_iterable(map(dict.values, values)))
        return {name: flat[at :: len(values[0])] for at, name in enumerate(values[0])}
    return {name: [value.get(name) for value in values] for name in names}


def _lists(values: list[Any], serde: str, field: str) -> pl.Series:
    return list_series(infer(list(chain.from_iterable(values)), serde, f"{field}[]"), values)
