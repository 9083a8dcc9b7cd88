"""Defaults that only a class has: msgspec leaves them out of its objects, and of their JSON.

Of a dataclass msgspec writes only what an object has of its own, so that equal objects would have several texts.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec.inspect as mi

from crossstream.serdes.json.types import classes_in, nodes_in

_CONTAINERS = (list, tuple, set, frozenset)


def lacks_defaults(node: mi.Type) -> bool:
    """Whether a class in the type has defaults that its decoded objects do not have of their own."""
    return any(map(_defaults, classes_in(node)))


def add_defaults(value: Any) -> None:
    """Gives an object, and all that is in it, the defaults that only its class has."""
    kind: Any = type(value)
    if kind is dict:
        for item in value.values():
            add_defaults(item)
    elif kind in _CONTAINERS:
        for item in value:
            add_defaults(item)
    else:
        if defaults := _defaults(kind):
            own = value.__dict__
            if len(own) < len(kind.__dataclass_fields__):
                for name, default in defaults.items():
                    own.setdefault(name, default)
        for name in _searched(kind):
            add_defaults(getattr(value, name))


@lru_cache(maxsize=1024)
def _defaults(kind: type) -> Mapping[str, Any]:
    """The defaults of a dataclass that are attributes of the class, and not slots of its objects."""
    if issubclass(kind, enum.Enum) or not dataclasses.is_dataclass(kind):
        return {}
    slots = {name for base in kind.__mro__ for name in getattr(base, "__slots__", ())}
    fields = [field for field in dataclasses.fields(kind) if field.init and field.name not in slots]
    return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}


@lru_cache(maxsize=1024)
def _searched(kind: type) -> Sequence[str]:
    """The fields of a class in which objects may lack defaults."""
    try:
        fields = getattr(mi.type_info(kind), "fields", ())
    except Exception:  # an annotation that cannot be resolved: of a class that no type declares
        return tuple(getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ()))
    return tuple(
        field.name
        for field in fields
        if lacks_defaults(field.type) or any(isinstance(one, mi.AnyType) for one in nodes_in(field.type))
    )
