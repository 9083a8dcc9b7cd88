"""Structs with ``omit_defaults``: the very default in the place of what equals it, so that equal objects have one text.

msgspec leaves out what is the very object that is the default: it would write "eu" that was decoded, and not the "eu"
of the class. Objects are looked at field by field, all rows at once, and only in fields whose type may hold such
structs; where something is to be replaced it is replaced in a copy, for the objects belong to whoever wrote them.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, islice, repeat
from operator import attrgetter, is_, is_not
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi

from crossstream.serdes.json_types import any_class, any_node, plain_class

_Way = Callable[[list[Any], bool], list[Any]]
"""Objects of one class to what is written for them; the list itself if it is the same objects."""

_ONE_TEXT = (str, int, bytes)
"""Classes whose equal objects have one text."""

_NO_OTHER = (type(None), bool)
"""Classes whose equal objects are the very same."""


def omits_defaults(node: mi.Type) -> bool:
    """Whether a class in the type is a struct that is written without its defaults."""
    return any_class(node, _omits)


def with_the_defaults(values: list[Any], together: bool = True) -> list[Any]:
    """The objects, and all that is in them, with the very default where something equals it.

    ``together``: whether the items of containers are looked at all at once.
    """
    kinds = set(map(type, values))
    ways = {kind: way for kind in kinds if (way := _way(kind)) is not None}
    if not ways:
        return values
    if len(kinds) == 1:
        return ways.popitem()[1](values, together)
    made = list(values)
    for kind, way in ways.items():
        rows = [row for row, value in enumerate(values) if type(value) is kind]
        for row, value in zip(rows, way([values[row] for row in rows], together), strict=True):
            made[row] = value
    return made


def is_same(value: Any, default: Any) -> bool:
    """Whether they have one text too: 1.50 and 1.5, or 0.0 and -0.0, are equal and have two."""
    kind = type(value)
    if kind is not type(default) or value != default:
        return False
    return kind in _ONE_TEXT or repr(value) == repr(default)


@lru_cache(maxsize=1024)
def _way(kind: type) -> _Way | None:
    """How objects of a class are looked at; None: there is nothing to look for."""
    if kind is dict:
        return partial(_containers, dict.values, lambda value, items: dict(zip(value, items, strict=True)))
    if kind in (list, tuple, set, frozenset):
        return partial(_containers, iter, lambda value, items: kind(items))
    if issubclass(kind, tuple) and hasattr(kind, "_make"):
        return partial(_containers, iter, lambda value, items: kind._make(items)) if _watched(kind) else None
    if issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind):
        fields = _fields(kind)
        return partial(_records, fields) if fields else None
    return None


def _containers(
    items_of: Callable[[Any], Any],
    of_items: Callable[[Any, list[Any]], Any],
    values: list[Any],
    together: bool,
) -> list[Any]:
    """The items of all containers at once, but those of containers in them one by one.

    So a container that is inside itself ends in a `RecursionError`, and not without memory.
    """
    if not together and len(values) > 1:
        return [made for value in values for made in _containers(items_of, of_items, [value], False)]
    given = [list(items_of(value)) for value in values]
    items = list(chain.from_iterable(given))
    made = with_the_defaults(items, together=False)
    if made is items:
        return values
    rest = iter(made)
    cut = [list(islice(rest, len(own))) for own in given]
    return [
        of_items(value, new) if any(map(is_not, own, new)) else value
        for value, own, new in zip(values, given, cut, strict=True)
    ]


class _Field(NamedTuple):
    """A field that is to be looked at. ``watched``: its type may hold structs that are written without defaults."""

    name: str
    default: Any
    watched: bool


def _records(fields: Sequence[_Field], values: list[Any], together: bool) -> list[Any]:
    copies: dict[int, Any] = {}
    for field in fields:
        column = list(map(attrgetter(field.name), values))
        made = with_the_defaults(column, together) if field.watched else column
        for row, item in _changes(column, _with_the_default(made, field.default)):
            if row not in copies:
                copies[row] = copy.copy(values[row])
            _set(copies[row], field.name, item)
    return [copies.get(row, value) for row, value in enumerate(values)] if copies else values


def _changes(old: list[Any], new: list[Any]) -> Iterator[tuple[int, Any]]:
    if new is not old:
        pairs = enumerate(zip(old, new, strict=True))
        yield from ((row, made) for row, (given, made) in pairs if made is not given)


def _with_the_default(values: list[Any], default: Any) -> list[Any]:
    if default is msgspec.NODEFAULT or isinstance(default, _NO_OTHER):
        return values
    equal = values.count(default)
    if not equal or equal == sum(map(is_, values, repeat(default))):
        return values
    return [default if is_same(value, default) else value for value in values]


def _set(value: Any, name: str, item: Any) -> None:
    if isinstance(value, msgspec.Struct):
        msgspec.structs.force_setattr(value, name, item)
    else:
        object.__setattr__(value, name, item)


def _fields(kind: type) -> Sequence[_Field]:
    defaults, watched = _omitted(kind), _watched(kind)
    looked_at = {name for name, default in defaults.items() if not isinstance(default, _NO_OTHER)} | watched
    return [
        _Field(name, defaults.get(name, msgspec.NODEFAULT), name in watched) for name in sorted(looked_at)
    ]


def _omits(kind: type) -> bool:
    if not issubclass(kind, msgspec.Struct):
        return False
    config = kind.__struct_config__
    return config.omit_defaults and not config.array_like


def _omitted(kind: type) -> dict[str, Any]:
    """The defaults that are not written. An empty list, dict or set never is, whichever it is."""
    fields = msgspec.structs.fields(kind) if _omits(kind) else ()
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


def _watched(kind: Any) -> set[str]:
    """The fields of a class whose types may hold structs that are written without defaults."""
    try:
        fields = mi.type_info(kind).fields  # type: ignore[attr-defined]
    except Exception:  # an annotation that cannot be resolved: of a class that no type declares
        return set(getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ()))
    return {field.name for field in fields if any_node(field.type, _may_omit)}


def _may_omit(node: mi.Type) -> bool:
    return isinstance(node, mi.AnyType) or (isinstance(node, mi.StructType) and _omits(plain_class(node.cls)))
