"""Defaults of dataclasses as attributes of their own.

msgspec leaves a default that the class has as an attribute where it is, and writes only what an object has of its own:
an object that was decoded without the field would be written without it, and one that is equal to it with it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi

from crossstream.serdes.json_types import any_class

_CONTAINERS = (list, tuple, set, frozenset)


def leaves_defaults(node: mi.Type) -> bool:
    """Whether a class in the type has defaults that objects do not have of their own."""
    return any_class(node, lambda cls: bool(_members(cls).defaults))


def complete(value: Any) -> None:
    """Gives an object, and all that is in it, such defaults as its own."""
    kind = type(value)
    if kind is dict:
        for item in value.values():
            complete(item)
    elif kind in _CONTAINERS:
        for item in value:
            complete(item)
    else:
        members = _members(kind)  # type: ignore[arg-type]
        if members.defaults:
            own = value.__dict__
            for name, default in members.defaults.items():
                own.setdefault(name, default)
        for name in members.names:
            complete(getattr(value, name))


class _Members(NamedTuple):
    """Of a class: its attributes, if it is a record, and the defaults that objects do not have of their own."""

    names: Sequence[str]
    defaults: Mapping[str, Any]


@lru_cache(maxsize=1024)
def _members(kind: type) -> _Members:
    if issubclass(kind, tuple):
        return _Members(getattr(kind, "_fields", ()), {})
    if issubclass(kind, msgspec.Struct):
        return _Members(kind.__struct_fields__, {})
    if issubclass(kind, enum.Enum) or not dataclasses.is_dataclass(kind):
        return _Members((), {})
    fields = [field for field in dataclasses.fields(kind) if field.init]
    left = {
        field.name: field.default
        for field in fields
        if field.default is not dataclasses.MISSING and _is_of_the_class(kind, field.name)
    }
    return _Members([field.name for field in fields], left)


def _is_of_the_class(kind: type, name: str) -> bool:
    """Whether the class has the default as an attribute, not a slot for it."""
    return not any(name in getattr(base, "__slots__", ()) for base in kind.__mro__)
