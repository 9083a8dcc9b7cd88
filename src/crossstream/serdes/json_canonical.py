"""One text for equal objects of a declared type, because keys are compared by their bytes.

msgspec writes sets in the order of their hashes, TypedDicts in the order in which their fields came, and of a dataclass
only what an object has of its own. The first two get one order here, and objects get the defaults that they lack. Types
for which that is not enough cannot be keys.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import msgspec.inspect as mi

from crossstream.serdes.json_rows import Encoder, encoder, sorting_encoder
from crossstream.serdes.json_types import any_class, any_node, fields_of

_SETS = (mi.SetType, mi.FrozenSetType)
_SORTABLE = (mi.BoolType, mi.BytesType, mi.DateType, mi.FloatType, mi.IntType, mi.StrType, mi.UUIDType)
_CONTAINERS = (list, tuple, set, frozenset)


def encoder_of(node: mi.Type) -> Encoder:
    """The encoder for objects of a type: with sets in it, the one that sorts, if their items can be sorted."""
    sets = any_node(node, lambda one: isinstance(one, _SETS))
    return sorting_encoder if sets and not any_node(node, _is_unsorted) else encoder


def field_order(node: mi.Type) -> Sequence[str]:
    """The fields of a TypedDict as declared; nothing for another type."""
    return tuple(field.encode_name for field in fields_of(node)) if isinstance(node, mi.TypedDictType) else ()


def in_declared_order(values: Sequence[Any], order: Sequence[str]) -> Sequence[Any]:
    """Dicts with their fields in this order. Most have it already, which is found for all of them at once."""
    given = [value for value in values if value is not None]
    if all(names == tuple(name for name in order if name in names) for names in set(map(tuple, given))):
        return values
    return [
        None if value is None else {name: value[name] for name in order if name in value} for value in values
    ]


def unfit_for_keys(node: mi.Type) -> str | None:
    """Why equal objects of a type may have different texts; None: they have one."""
    if any_class(node, _omits_defaults):
        return "a struct in it has omit_defaults, which leaves out only what is the very default"
    if any_node(node, _is_unsorted):
        return "a set in it holds items that cannot be sorted"
    parts = [field.type for field in node.fields] if isinstance(node, mi.TypedDictType) else [node]
    if any(any_node(part, lambda one: isinstance(one, mi.TypedDictType)) for part in parts):
        return "a TypedDict is inside it, whose fields are written in the order in which they come"
    return None


def _omits_defaults(cls: type) -> bool:
    if not issubclass(cls, msgspec.Struct):
        return False
    return cls.__struct_config__.omit_defaults and not cls.__struct_config__.array_like


def _is_unsorted(node: mi.Type) -> bool:
    return isinstance(node, _SETS) and not isinstance(node.item_type, _SORTABLE)


def lacks_defaults(node: mi.Type) -> bool:
    """Whether a class in the type has defaults that its decoded objects do not have of their own."""
    return any_class(node, lambda cls: bool(_defaults(cls)))


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
        if lacks_defaults(field.type) or any_node(field.type, lambda one: isinstance(one, mi.AnyType))
    )
