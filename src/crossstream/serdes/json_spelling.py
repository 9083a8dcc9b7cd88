"""One spelling for what could be written in several: sets are sorted, fields of TypedDicts are in declared order.

Keys are compared by their bytes. msgspec writes a set in the order of its hashes, which for text is another one in each
process, and a TypedDict, being a dict, in the order in which its fields came. Only types that have one of them in them
are looked at, and of those the values as a whole where that is possible. The order of other dicts is their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any

import msgspec
import msgspec.inspect as mi

from crossstream.serdes.json_rows import encoder
from crossstream.serdes.json_shapes import KEPT
from crossstream.serdes.json_types import any_node, fields_of

Spelling = Callable[[Sequence[Any]], Sequence[Any]]
"""Values of one type to the same values in the one spelling."""

_KEPT = (*KEPT, msgspec.Raw)
_MISTYPED = (AttributeError, LookupError, TypeError, ValueError)
"""What an object leads to in which something is not what its class says; Python lets it be, and it is left as it is."""

_SETS = (mi.SetType, mi.FrozenSetType)
_LISTS = (mi.ListType, mi.VarTupleType)
_ARRAYS = (*_SETS, *_LISTS, mi.TupleType, mi.NamedTupleType)
_CLASSES = (mi.StructType, mi.DataclassType, mi.NamedTupleType)
_RECORDS = (*_CLASSES, mi.TypedDictType)


def spelling(node: mi.Type) -> Spelling | None:
    """How objects that `msgspec.convert` gave are spelled before they are encoded; None: there is nothing to do.

    It raises `RecursionError` for objects in one another that are too many.
    """
    plain = _plain(node, {})
    if plain is None:
        return None
    made_plain = any_node(node, lambda one: isinstance(one, (*_SETS, *_CLASSES)))

    def spelled(values: Sequence[Any]) -> Sequence[Any]:
        try:
            given = msgspec.to_builtins(values, builtin_types=_KEPT) if made_plain else values
        except Exception:  # an object that cannot be written: encoding it tells which, and why
            return values
        try:
            return _where(given, lambda value: value is not None, plain)
        except _MISTYPED:
            return (
                list(chain.from_iterable(spelled([value]) for value in values)) if len(values) > 1 else values
            )

    return spelled


def holds_sets(values: Sequence[Any]) -> bool:
    """Whether there are sets among values without declared type, or in arrays among them; dicts are not searched."""
    while True:
        kinds = set(map(type, values))
        if not kinds.isdisjoint((set, frozenset)):
            return True
        if kinds.isdisjoint((list, tuple)):
            return False
        arrays = (
            values if kinds <= {list, tuple} else [value for value in values if type(value) in (list, tuple)]
        )
        values = list(chain.from_iterable(arrays))


def with_sets_in_order(value: Any) -> Any:
    """An object without declared type; what `holds_sets` finds as sorted lists."""
    if type(value) in (set, frozenset):
        return in_order([with_sets_in_order(item) for item in value])
    return [with_sets_in_order(item) for item in value] if type(value) in (list, tuple) else value


def in_order(items: Collection[Any]) -> list[Any]:
    """The items of a set in an order that depends on nothing but them: by size, or else by their JSON."""
    kinds = set(map(type, items))
    if kinds <= {str} or kinds <= {int} or (kinds == {float} and all(map(math.isfinite, items))):
        return sorted(items)
    return sorted(items, key=encoder.encode)


_Known = dict[Any, Spelling]
"""Spellings of the classes around, which may be inside themselves."""


def _plain(node: mi.Type, known: _Known) -> Spelling | None:
    """The spelling of plain values, as `msgspec.to_builtins` makes them, none of them None. Changes dicts in place."""
    if not any_node(node, lambda one: isinstance(one, (*_SETS, mi.TypedDictType))):
        return None
    if isinstance(node, mi.UnionType):
        return _union(node, known)
    if isinstance(node, _RECORDS):
        return known.get(node.cls) or _record(node, known)
    if isinstance(node, mi.TupleType):
        return _tuple(node, known)
    if isinstance(node, _SETS):
        return _set(_plain(node.item_type, known))
    if isinstance(node, _LISTS):
        return _lists(_plain(node.item_type, known))
    return _dicts(_plain(node.value_type, known)) if isinstance(node, mi.DictType) else None


def _set(item: Spelling | None) -> Spelling:
    if item is None:
        return lambda values: list(map(in_order, values))
    return lambda values: [in_order(item(items)) for items in values]


def _lists(item: Spelling | None) -> Spelling | None:
    return None if item is None else lambda values: [item(items) for items in values]


def _dicts(item: Spelling | None) -> Spelling | None:
    if item is None:
        return None
    return lambda values: [dict(zip(one, item([*one.values()]), strict=True)) for one in values]


def _tuple(node: mi.TupleType, known: _Known) -> Spelling:
    parts = {at: _plain(part, known) for at, part in enumerate(node.item_types)}

    def spelled(values: Sequence[Any]) -> Sequence[Any]:
        return _replaced(list(map(list, values)), parts)

    return spelled


def _record(node: Any, known: _Known) -> Spelling:
    """Of a class whose objects are JSON objects, or arrays with the tag, if there is one, as first item."""
    fields, array = fields_of(node), _is_array(node)
    order = tuple(field.encode_name for field in fields) if isinstance(node, mi.TypedDictType) else ()
    parts: dict[Any, Spelling | None] = {}

    def spelled(values: Sequence[Any]) -> Sequence[Any]:
        rows = list(map(list, values)) if array else values
        return _declared(_replaced(rows, parts), order)

    known[node.cls] = spelled
    tagged = _tag(node) is not None
    for at, field in enumerate(fields, start=int(tagged)):
        parts[at if array else field.encode_name] = _plain(field.type, known)
    return spelled


def _declared(values: Sequence[dict[str, Any]], order: Sequence[str]) -> Sequence[dict[str, Any]]:
    """TypedDicts with their fields in this order. Most have it already, which is found for all of them at once."""
    if not order or all(found == _only(order, found) for found in set(map(tuple, values))):
        return values
    return [{name: value[name] for name in _only(order, value)} for value in values]


def _only(order: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in order if name in names)


def _union(node: mi.UnionType, known: _Known) -> Spelling:
    parts = [(part, _plain(part, known)) for part in node.types]

    def spelled(values: Sequence[Any]) -> Sequence[Any]:
        for part, plain in parts:
            if plain is not None:
                values = _where(values, _fits(part), plain)
        return values

    return spelled


def _fits(node: mi.Type) -> Callable[[Any], bool]:
    """Which plain values of a union are of this type: its arrays and objects have tags, or it has one of each."""
    array, tag, name = _is_array(node), _tag(node), getattr(node, "tag_field", None)
    kinds: Any = (list, tuple) if array else dict

    def fits(value: Any) -> bool:
        return isinstance(value, kinds) and (tag is None or tag == (value[0] if array else value.get(name)))

    return fits


def _is_array(node: mi.Type) -> bool:
    return isinstance(node, _ARRAYS) or bool(getattr(node, "array_like", False))


def _tag(node: mi.Type) -> Any:
    return getattr(node, "tag", None)


def _where(values: Sequence[Any], holds: Callable[[Any], bool], plain: Spelling) -> Sequence[Any]:
    """The values, those in the spelling of which ``holds`` is true."""
    rows = [row for row, value in enumerate(values) if holds(value)]
    if not rows:  # and a class that may be inside itself is not asked for what is inside nothing
        return values
    if len(rows) == len(values):
        return plain(values)
    found = list(values)
    for row, value in zip(rows, plain([values[row] for row in rows]), strict=True):
        found[row] = value
    return found


def _replaced(rows: Sequence[Any], parts: dict[Any, Spelling | None]) -> Sequence[Any]:
    """Lists, or dicts, with these items in their spelling."""
    for place, plain in parts.items():
        if plain is None:
            continue
        there = [row for row in rows if isinstance(row, list) or place in row]
        for row, value in zip(there, plain([row[place] for row in there]), strict=True):
            row[place] = value
    return rows
