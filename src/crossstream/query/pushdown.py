"""Conditions of a query as what is looked for in a store.

All rows that meet the conditions are found, and others may be: who asks applies the conditions again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl

from crossstream.errors import SerdeError
from crossstream.query.key_filter import EVERYTHING, Look
from crossstream.query.table import Column, StoreTable
from crossstream.serdes import calls

MOST_KEYS = 10_000
"""So many keys are looked up; of a condition that names more all rows are read."""


class Condition(NamedTuple):
    """``column`` ``operator`` ``value``; operators are those of SQL, and ``in`` with a sequence of values."""

    column: str
    operator: str
    value: Any


def look_for(table: StoreTable, conditions: Sequence[Condition]) -> Look:
    """What has to be read of a store for rows that meet all of the conditions."""
    keys = _keys(table, conditions)
    low, high = _times(table, conditions)
    return Look(keys, low, high)


def _keys(table: StoreTable, conditions: Sequence[Condition]) -> tuple[bytes, ...] | None:
    """The serialised keys that may meet them; None: any."""
    serde = table.committed.store.key
    columns = [column for column in table.columns if column.part == "key"]
    named = [_named(conditions, column.name) for column in columns]
    if serde.columns is None or serde.knows_topics or None in named:
        return None
    values = [found for found in named if found is not None]
    types = [_type(serde.columns, column) for column in columns]
    fit = all(_fits(value, kind) for found, kind in zip(values, types, strict=True) for value in found)
    if not fit or prod(map(len, values)) > MOST_KEYS:
        return None
    names = [column.field for column in columns]
    try:
        return tuple({_wire(serde, names, row) for row in product(*values)})
    except SerdeError:  # a value that no key has, or of a class that is not there
        return None


def _named(conditions: Sequence[Condition], column: str) -> list[Any] | None:
    """The only values that a column may have; None: any."""
    found: list[Any] | None = None
    for condition in conditions:
        if condition.column != column or condition.operator not in ("=", "in"):
            continue
        values = [condition.value] if condition.operator == "=" else list(condition.value)
        values = [value for value in values if value is not None]
        found = values if found is None else [value for value in found if value in values]
    return found


def _type(key: pl.DataType, column: Column) -> Any:
    if column.field is None:
        return key
    assert isinstance(key, pl.Struct)
    return next(field.dtype for field in key.fields if field.name == column.field)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of SQL has one form only as a key of this type."""
    if isinstance(value, bool):
        return bool(kind == pl.Boolean)
    if isinstance(value, int):
        return bool(kind.is_integer())
    return bool(
        kind == (pl.String if isinstance(value, str) else pl.Binary if isinstance(value, bytes) else None)
    )


def _wire(serde: Any, names: Sequence[str | None], row: tuple[Any, ...]) -> bytes:
    value = row[0] if names == [None] else dict(zip(names, row, strict=True))
    data = calls.serialize(serde, value)
    assert data is not None, "no value is None"
    return data


_BOUNDS: Mapping[str, Callable[[int], tuple[int, int]]] = MappingProxyType(
    {
        "=": lambda ms: (ms, ms),
        ">": lambda ms: (ms, EVERYTHING.high),
        ">=": lambda ms: (ms, EVERYTHING.high),
        "<": lambda ms: (EVERYTHING.low, ms),
        "<=": lambda ms: (EVERYTHING.low, ms),
    }
)


def _times(table: StoreTable, conditions: Sequence[Condition]) -> tuple[int, int]:
    """The times by which rows are sorted that may meet the conditions."""
    low, high = EVERYTHING.low, EVERYTHING.high
    by_time = table.shown.by_time
    if by_time is None:
        return low, high
    sorted_by = {"records": "ts", "windows": "start", "sessions": "end"}[by_time.content]
    names = {column.name for column in table.columns if column.part == sorted_by}
    for condition in conditions:
        if condition.column not in names or not isinstance(condition.value, datetime):
            continue
        if condition.operator in _BOUNDS:
            first, last = _BOUNDS[condition.operator](_floor(condition.value))
            low, high = max(low, first), min(high, last)
    return low, high


def _floor(at: datetime) -> int:
    """The millisecond of a time."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // _MILLISECOND


_EPOCH = datetime.fromtimestamp(0, timezone.utc)
_MILLISECOND = datetime.resolution * 1000
