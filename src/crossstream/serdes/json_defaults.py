"""Defaults as attributes of objects, so that equal objects have one text.

msgspec leaves the default of a dataclass with the class, if it is an attribute there, and writes only what an object
has of its own: an object that was decoded without the field would be written without it, and one that is equal to it
with it. Of a struct with ``omit_defaults`` it leaves out what is the very object that is the default: it would write
"eu" that was decoded, and not the "eu" of the class.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi

from crossstream.serdes.json_types import any_class

_CONTAINERS = (list, tuple, set, frozenset)


def leaves_defaults(node: mi.Type) -> bool:
    """Whether a class in the type has defaults that objects do not have of their own."""
    return any_class(node, lambda cls: bool(_members(cls).defaults))


def omits_defaults(node: mi.Type) -> bool:
    """Whether a class in the type is a struct that is written without its defaults."""
    return any_class(node, lambda cls: bool(_members(cls).omitted))


def complete(value: Any) -> None:
    """Gives an object, and all that is in it, such defaults as its own, and for what equals an omitted one that one."""
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
        for name, default in members.omitted.items():
            if _is_same(getattr(value, name), default):
                msgspec.structs.force_setattr(value, name, default)
        for name in members.names:
            complete(getattr(value, name))


def _is_same(value: Any, default: Any) -> bool:
    """Whether they have one text too: 1.50 and 1.5, or 0.0 and -0.0, are equal and have two."""
    return type(value) is type(default) and value == default and repr(value) == repr(default)


class _Members(NamedTuple):
    """Of a class: its attributes, if it is a record, and the defaults that objects do not have of their own.

    ``omitted``: those that are not written. An empty list, dict or set never is, whichever it is.
    """

    names: Sequence[str]
    defaults: Mapping[str, Any]
    omitted: Mapping[str, Any] = MappingProxyType({})


@lru_cache(maxsize=1024)
def _members(kind: type) -> _Members:
    if issubclass(kind, tuple):
        return _Members(getattr(kind, "_fields", ()), {})
    if issubclass(kind, msgspec.Struct):
        return _Members(kind.__struct_fields__, {}, _omitted(kind))
    if issubclass(kind, enum.Enum) or not dataclasses.is_dataclass(kind):
        return _Members((), {})
    fields = [field for field in dataclasses.fields(kind) if field.init]
    left = {
        field.name: field.default
        for field in fields
        if field.default is not dataclasses.MISSING and _is_of_the_class(kind, field.name)
    }
    return _Members([field.name for field in fields], left)


def _omitted(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    if not kind.__struct_config__.omit_defaults:
        return {}
    fields = msgspec.structs.fields(kind)
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


def _is_of_the_class(kind: type, name: str) -> bool:
    """Whether the class has the default as an attribute, not a slot for it."""
    return not any(name in getattr(base, "__slots__", ()) for base in kind.__mro__)
