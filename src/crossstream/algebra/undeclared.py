"""Values without declared type, for expressions: which rows may stand in one column.

A column has one type, and here it is read off the values. So that a record means the same in whatever batch it comes,
only rows stand together that have the same types alone: 1 is an integer beside 2.5, an object has no fields because its
neighbours have them, a null is not of the type of other rows, and a Decimal has as many digits after the point as it
has itself. Source: decision 0030.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from crossstream.algebra.uses import Use
from crossstream.serdes.internal import column_of
from crossstream.serdes.json_columns import spread, struct_of
from crossstream.serdes.json_inferred import columns_of_dicts, fields_of_object, infer, scale_of

_NONE = type(None)
_LISTS = (list, tuple)


class Undeclared:
    """Rows as Python objects, None for null; or, with ``columns``, some fields of each, None where it has none.

    ``serde``: its name, for messages.
    """

    __slots__ = ("_inferred", "columns", "objects", "rows", "serde")

    def __init__(self, serde: str, objects: list[Any], columns: dict[str, list[Any]] | None = None) -> None:
        self.serde = serde
        self.objects = objects
        self.columns = columns
        self.rows = len(objects)
        self._inferred: dict[str, pl.Series] = {}

    def take(self, rows: np.ndarray) -> Undeclared:
        """The rows asked for; a negative number gives a null."""
        picked = rows.tolist()

        def of(values: list[Any]) -> list[Any]:
            return [None if row < 0 else values[row] for row in picked]

        columns = (
            None if self.columns is None else {name: of(values) for name, values in self.columns.items()}
        )
        return Undeclared(self.serde, of(self.objects), columns)

    def holds(self, fields: Collection[str] | None) -> bool:
        """Whether these fields are there; None: whether values are there as a whole."""
        return self.columns is None or (fields is not None and self.columns.keys() >= set(fields))

    def kinds(self, use: Use) -> list[list[Hashable]]:
        """For each row, in each of the lists, a mark that is the same for rows that may stand together.

        No list: all of them may. ``use``: what is read of the values.
        """
        if self.columns is None:
            return list(_kinds(self.objects, use))
        there = [value is None for value in self.objects]
        found: list[list[Hashable]] = [there] if len(set(there)) > 1 else []  # type: ignore[list-item]
        for name, inner in use.fields.items():
            found.extend(_kinds(self.columns[name], inner))
        return found

    def check(self) -> None:
        """Raises `SerdeError` if there is a row that no column holds, not even its own."""
        for name, values in (self.columns or {"": self.objects}).items():
            marks = list(_kinds(values, Use(whole=True)))
            if not marks:
                self._column(name, values)
                continue
            for rows in groups_of(marks):
                infer([values[row] for row in rows.tolist()], self.serde, name)

    def series(self, use: Use) -> pl.Series:
        """The rows as one column; with fields only, a struct of exactly these, sorted. Raises `SerdeError`."""
        names = None if use.whole else sorted(use.fields)
        if self.columns is None or names is None:
            values = self.objects if use.whole else [_pruned(value, use) for value in self.objects]
            return column_of(values, names, self.serde)
        parts = {name: self._part(name, use.fields[name]) for name in names}
        struct = struct_of(parts, self.rows)
        present = [value is not None for value in self.objects]
        return struct if all(present) else spread(struct.filter(pl.Series(present)), self.objects)

    def _part(self, name: str, use: Use) -> pl.Series:
        assert self.columns is not None
        values = self.columns[name]
        if use.whole or not use.fields:
            return self._column(name, values)
        return infer([_pruned(value, use) for value in values], self.serde, name)

    def _column(self, name: str, values: list[Any]) -> pl.Series:
        if name not in self._inferred:
            self._inferred[name] = infer(values, self.serde, name)
        return self._inferred[name]


def groups_of(marks: Sequence[Sequence[Hashable]]) -> list[np.ndarray]:
    """The rows that have the same marks, in groups by their first row."""
    codes: dict[Any, int] = {}
    of_rows = np.fromiter((codes.setdefault(mark, len(codes)) for mark in zip(*marks, strict=True)), np.int64)
    return _in_groups(of_rows)


def groups_of_numbers(numbers: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Likewise of marks that are numbers, small ones, from 0 on."""
    mixed = np.zeros(len(numbers[0]), np.int64)
    for one in numbers:
        mixed = mixed * (one.max(initial=0) + 1) + one
    first = np.empty(mixed.max(initial=0) + 1, np.int64)
    first[mixed[::-1]] = np.arange(len(mixed))[::-1]
    return _in_groups(first[mixed])


def _in_groups(of_rows: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(of_rows, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(of_rows[order])) + 1)


def _kinds(values: list[Any], use: Use) -> Iterator[list[Hashable]]:
    """Marks of values that an expression reads: of their types, nulls among them, and of what is read of them."""
    distinct = set(map(type, values))
    if use.whole or not use.fields:
        yield from _types(values, distinct)
        if not distinct.isdisjoint(_LISTS):
            yield from _items(values)
        yield from _inside(values, distinct)
    elif len(distinct - {_NONE}) > 1:
        yield list(map(type, values))
    for name, inner in use.fields.items():
        yield from _kinds([_field(value, name) for value in values], inner)


def _inside(values: list[Any], distinct: set[type]) -> Iterator[list[Hashable]]:
    """Marks of what is in objects that are taken as a whole: a null in them may be of any type."""
    if distinct <= _NO_RECORDS:
        return
    if distinct == {dict}:
        records: list[dict[Any, Any]] = values
        names = set(map(tuple, records))
    else:
        found = [fields_of_object(value) for value in values]
        records = [record or {} for record in found]
        names = {tuple(record) for record in found if record is not None}
    if len(names) > 1:
        yield [None if record is None else tuple(record) for record in map(fields_of_object, values)]
    for column in columns_of_dicts(records, dict.fromkeys(chain.from_iterable(names))).values():
        yield from _one_type(column)


def _one_type(values: list[Any]) -> Iterator[list[Hashable]]:
    distinct = set(map(type, values))
    yield from _types(values, distinct, nulls=False)
    if not distinct.isdisjoint(_LISTS):
        yield from _items(values, empty=False)
    yield from _inside(values, distinct)


def _types(values: list[Any], distinct: set[type], nulls: bool = True) -> Iterator[list[Hashable]]:
    """Marks of the types of values. ``nulls``: they are of a type, too."""
    if Decimal in distinct:
        marks = list(map(_type_of, values))
        if len(set(marks) if nulls else set(marks) - {_type_of(None)}) > 1:
            yield marks
    elif len(distinct if nulls else distinct - {_NONE}) > 1:
        yield list(map(type, values))


def _type_of(value: Any) -> Hashable:
    """The type of a value; that of a Decimal tells how many digits are after the point."""
    return (Decimal, scale_of(value)) if type(value) is Decimal else (type(value),)


def _items(values: list[Any], empty: bool = True) -> Iterator[list[Hashable]]:
    """Marks of the types of lists' items, nulls apart. ``empty``: also of whether there are any."""
    lists = [value if type(value) in _LISTS else () for value in values]
    kinds = set(map(type, chain.from_iterable(lists)))
    if len(kinds) == 1 and kinds < _PLAIN:
        marks: list[Hashable] = [bool(items) for items in lists] if empty and _NONE not in kinds else []
    else:
        marks = [_items_of(items) for items in lists]
    different = set(marks)
    if len(different if empty else different - {()}) > 1:
        yield marks


def _items_of(values: Sequence[Any]) -> Hashable:
    """The types of the items of a list, nulls apart."""
    kinds = dict.fromkeys(map(type, values))
    kinds.pop(_NONE, None)
    if _PLAIN.issuperset(kinds):
        return tuple(sorted(kind.__name__ for kind in kinds))
    if kinds.keys() == {Decimal}:
        return (Decimal, max(scale_of(value) for value in values if value is not None))
    return tuple(dict.fromkeys(_kind_of(value) for value in values if value is not None))


def _kind_of(value: Any) -> Hashable:
    if type(value) in _LISTS:
        return (list, _items_of(value))
    record = fields_of_object(value)
    if record is None:
        return _type_of(value)
    return tuple((name, _kind_of(item)) for name, item in record.items())


_PLAIN = frozenset({str, int, float, bool, bytes, _NONE})
_NO_RECORDS = _PLAIN | {*_LISTS}


def _field(value: Any, name: str) -> Any:
    record = fields_of_object(value)
    return None if record is None else record.get(name)


def _pruned(value: Any, use: Use) -> Any:
    """A value with nothing in it but the fields that are read."""
    record = fields_of_object(value)
    if record is None or use.whole or not use.fields:
        return value
    return {name: _pruned(record.get(name), inner) for name, inner in use.fields.items()}
