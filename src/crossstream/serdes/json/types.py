"""Python types: their shape, and the one text of equal objects.

Types are dataclasses, msgspec structs, TypedDicts, and what they are made of. Keys are compared by their bytes.
msgspec writes sets in the order of their hashes, TypedDicts in the order in which their fields came, and of a dataclass
only what an object has of its own. The first two get one order here, and objects get the defaults that they lack
(`defaults`). Types for which that is not enough cannot be keys.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, time
from typing import Any, Literal
from uuid import UUID

import msgspec
import msgspec.inspect as mi
import polars as pl

from crossstream.serdes.json import shapes as leaves
from crossstream.serdes.json.bounds import DEEPEST_COLUMN, TOO_DEEP, is_too_deep
from crossstream.serdes.json.rows import Encoder, encoder, sorting_encoder
from crossstream.serdes.json.shapes import (
    DECIMAL_DIGITS,
    KEPT,
    Field,
    Layout,
    Leaf,
    NoColumn,
    Shape,
    limited,
    list_of,
)

Read = tuple["Shape | NoColumn", bool]
"""A shape, and whether null is a value of the type too."""

_RECORDS = (mi.StructType, mi.DataclassType, mi.TypedDictType)

SCALE = "scale"
"""In the ``extra`` of msgspec's `Meta` of a Decimal: the digits after the point."""


def is_scale(given: object) -> bool:
    """Whether a column of Decimals may have so many digits after the point."""
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= DECIMAL_DIGITS[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Scales:
    """In the metadata of an annotated type: the digits after the point of Decimals in it, by their paths."""

    by_path: tuple[tuple[str, int], ...]


def with_scales(node: Any, scales: Mapping[str, int], path: str = "") -> Any:
    """The type with the scales of Decimals in it. A path is names with points between; lists have none."""
    if isinstance(node, mi.DecimalType) and path in scales:
        return mi.Metadata(node, extra={SCALE: scales[path]})
    if not any(f"{one}.".startswith(f"{path}." if path else "") for one in scales):
        return node
    if isinstance(node, mi.UnionType):
        return msgspec.structs.replace(
            node, types=tuple(with_scales(one, scales, path) for one in node.types)
        )
    if isinstance(node, mi.ListType | mi.VarTupleType):
        return msgspec.structs.replace(node, item_type=with_scales(node.item_type, scales, path))
    if not isinstance(node, _RECORDS):
        return node
    below = f"{path}." if path else ""
    fields = [
        msgspec.structs.replace(one, type=with_scales(one.type, scales, below + one.encode_name))
        for one in node.fields
    ]
    return msgspec.structs.replace(node, fields=tuple(fields))


def read_type(node: mi.Type, within: tuple[type, ...] = ()) -> Read:
    """The shape of a type. ``within``: the classes around it, to notice recursion."""
    if isinstance(node, mi.Metadata):
        scale: Any = (node.extra or {}).get(SCALE)
        if isinstance(node.type, mi.DecimalType) and is_scale(scale):
            return leaves.decimal(DECIMAL_DIGITS[0], scale), False
        return read_type(node.type, within)
    if isinstance(node, mi.UnionType):
        return _union(node, within)
    if isinstance(node, mi.NoneType):
        return NoColumn("always null"), True
    if isinstance(node, mi.LiteralType):
        return _literal(tuple(value for value in node.values if value is not None)), None in node.values
    if isinstance(node, mi.EnumType):
        return _enum(node.cls), False
    if isinstance(node, mi.ListType | mi.VarTupleType):
        return _list(node, within), False
    if isinstance(node, _RECORDS):
        layout = read_record(node, within)
        return layout if isinstance(layout, NoColumn) else layout.struct(), False
    return _leaf(node), False


def read_record(node: mi.Type, within: tuple[type, ...] = ()) -> Layout | NoColumn:
    """The fields of a dataclass, struct or TypedDict."""
    if not isinstance(node, _RECORDS):
        return NoColumn("not a record")
    if node.cls in within:
        return NoColumn(f"{type_name(node.cls)} inside itself")
    options: dict[str, Any] = {}
    if isinstance(node, mi.StructType):
        if node.array_like:
            return NoColumn(f"{type_name(node.cls)}, a JSON array (array_like)")
        options = {"forbid_unknown_fields": node.forbid_unknown_fields}
        if node.tag is not None:
            options |= {"tag": node.tag, "tag_field": node.tag_field}
    inner = (*within, node.cls)
    return Layout(type_name(node.cls), tuple(_field(one, inner) for one in fields_of(node)), options)


def fields_of(node: Any) -> Sequence[mi.Field]:
    """The fields of a class in the order in which they are declared and written."""
    fields: Sequence[mi.Field] = node.fields
    if not isinstance(node, mi.TypedDictType):
        return fields
    declared = list((typing.get_origin(node.cls) or node.cls).__annotations__)  # msgspec sorts them by name
    return sorted(fields, key=lambda field: declared.index(field.name))


def derives_values(node: Any) -> bool:
    """Whether objects hold more than their text: a class has ``__post_init__``, or an Enum ``_missing_``."""
    return any(map(_derives, classes_in(node)))


def _derives(cls: type) -> bool:
    if issubclass(cls, enum.Enum):
        return _takes_others(cls)
    return hasattr(cls, "__post_init__") or hasattr(cls, "__attrs_post_init__")


def _takes_others(cls: type[enum.Enum]) -> bool:
    """Whether the Enum has members for other values than those of its own: it has ``_missing_``, or is a Flag."""
    return cls._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]


def nodes_in(node: Any, around: frozenset[Any] = frozenset()) -> Iterator[mi.Type]:
    """The type and those in it. ``around``: the classes around it, to notice recursion."""
    if isinstance(node, tuple):
        for part in node:
            yield from nodes_in(part, around)
    elif isinstance(node, mi.Field):
        yield from nodes_in(node.type, around)
    elif isinstance(node, mi.Type) and (cls := getattr(node, "cls", None)) not in around:
        yield node
        below = around if cls is None else around | {cls}
        for name in node.__struct_fields__:
            yield from nodes_in(getattr(node, name), below)


def classes_in(node: mi.Type) -> Iterator[type]:
    """The classes in the type: ``Envelope`` of ``Envelope[Order]``."""
    for one in nodes_in(node):
        if (cls := getattr(one, "cls", None)) is not None:
            yield typing.get_origin(cls) or cls


def type_name(kind: Any) -> str:
    """The type as a person writes it, the same in every process: ``list[Order]``, ``int | None``."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is type(None) or kind is None:
        return "None"
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(type_name, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None:
        inner = ", ".join("..." if one is Ellipsis else type_name(one) for one in arguments)
        return f"{origin.__name__}[{inner}]"
    return str(getattr(kind, "__name__", None) or kind)


def _union(node: mi.UnionType, within: tuple[type, ...]) -> Read:
    nullable = any(isinstance(part, mi.NoneType) for part in node.types)
    parts = [part for part in node.types if not isinstance(part, mi.NoneType)]
    if len(parts) == 1:
        return read_type(parts[0], within)[0], nullable
    if set(map(type, parts)) == {mi.IntType, mi.FloatType}:
        return NoColumn("a union of int and float, of which a column would make floats"), nullable
    return NoColumn("a union of several types"), nullable


def _enum(cls: type[enum.Enum]) -> Leaf | NoColumn:
    leaf = _literal(tuple(member.value for member in cls))
    if isinstance(leaf, NoColumn) or not _takes_others(cls):
        return leaf
    return leaves.STRING if leaf.dtype == pl.String else leaves.integer(pl.Int64())


def _literal(values: tuple[Any, ...]) -> Leaf | NoColumn:
    kinds = set(map(type, values))
    if kinds == {str}:
        return Leaf(pl.String(), Literal[values])
    if kinds == {int}:
        return Leaf(pl.Int64(), Literal[values])
    return NoColumn("an Enum or Literal of values that are neither all text nor all integers")


def _part(node: mi.Type, within: tuple[type, ...]) -> Read:
    """As `read_type`, for a type in a list or a struct."""
    shape, nullable = read_type(node, within)
    if not isinstance(shape, NoColumn) and is_too_deep(shape.dtype, DEEPEST_COLUMN - 1):
        return TOO_DEEP, nullable
    return shape, nullable


def _list(node: mi.ListType | mi.VarTupleType, within: tuple[type, ...]) -> Shape | NoColumn:
    item, nullable = _part(node.item_type, within)
    if isinstance(item, NoColumn):
        return NoColumn(f"a list of {item.reason}")
    return list_of(item, nullable, min_length=node.min_length, max_length=node.max_length)


def _field(field: mi.Field, within: tuple[type, ...]) -> Field:
    shape, nullable = _part(field.type, within)
    default = None
    if not isinstance(shape, NoColumn) and not field.required:
        make = _default_of(field)
        if make is None:
            if not nullable:
                shape = NoColumn("not required, and a column cannot leave it out")
            default = msgspec.field(default=None)
        else:
            default, shape = _wire_default(make, shape)
    return Field(field.encode_name, field.name, shape, nullable, default)


def _default_of(field: mi.Field) -> Callable[[], Any] | None:
    if field.default_factory is not msgspec.NODEFAULT:
        made: Callable[[], Any] = field.default_factory
        return made
    return None if field.default is msgspec.NODEFAULT else lambda: field.default


_UNCHANGING = (str, int, float, UUID, *KEPT)
"""Wire values that rows can share."""


def _wire_default(make: Callable[[], Any], shape: Shape) -> tuple[Any, Shape | NoColumn]:
    """The default of the declared type as the wire struct has it."""

    def convert() -> Any:
        value = make()
        if value is None:
            return None
        return msgspec.convert(msgspec.to_builtins(value, builtin_types=KEPT), shape.wire)

    try:
        value = convert()
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        return None, NoColumn(f"with a default that does not fit ({error})")
    if value is None or isinstance(value, _UNCHANGING):
        return msgspec.field(default=value), shape
    return msgspec.field(default_factory=list if value == [] else convert), shape


_NUMBERS = ("gt", "ge", "lt", "le", "multiple_of")

_LENGTHS = ("min_length", "max_length")


def _limits(node: mi.Type, *names: str) -> dict[str, Any]:
    return {name: getattr(node, name) for name in names}


def _loosely(leaf: Leaf, kind: type, node: mi.Type, *limits: str) -> Leaf:
    """The leaf of a type whose column holds less than the type allows."""
    return replace(leaf, loose=limited(kind, **_limits(node, *limits)))


_LEAVES: dict[type[mi.Type], Callable[[Any], Leaf | NoColumn]] = {
    mi.BoolType: lambda node: leaves.BOOLEAN,
    mi.IntType: lambda node: _loosely(
        leaves.integer(pl.Int64(), **_limits(node, *_NUMBERS)), int, node, *_NUMBERS
    ),
    mi.FloatType: lambda node: Leaf(pl.Float64(), limited(float, **_limits(node, *_NUMBERS))),
    mi.StrType: lambda node: Leaf(pl.String(), limited(str, **_limits(node, *_LENGTHS, "pattern"))),
    mi.BytesType: lambda node: Leaf(pl.Binary(), limited(bytes, **_limits(node, *_LENGTHS))),
    mi.DateTimeType: lambda node: _loosely(
        leaves.timestamp("us", None if node.tz is False else "UTC"), datetime, node, "tz"
    ),
    mi.DateType: lambda node: leaves.DATE,
    mi.TimeType: lambda node: (
        NoColumn("a time of day with an offset") if node.tz else _loosely(leaves.TIME, time, node, "tz")
    ),
    mi.TimeDeltaType: lambda node: leaves.DURATION,
    mi.DecimalType: lambda node: leaves.decimal(*DECIMAL_DIGITS),
    mi.UUIDType: lambda node: leaves.UUID_TEXT,
}


def _leaf(node: mi.Type) -> Leaf | NoColumn:
    make = _LEAVES.get(type(node))
    if make is None:
        return NoColumn(f"of a type without fixed shape ({type(node).__name__.removesuffix('Type').lower()})")
    return make(node)


_SETS = (mi.SetType, mi.FrozenSetType)

_SORTABLE = (mi.BoolType, mi.BytesType, mi.DateType, mi.FloatType, mi.IntType, mi.StrType, mi.UUIDType)


def encoder_of(node: mi.Type) -> Encoder:
    """The encoder for objects of a type: with sets in it, the one that sorts, if their items can be sorted."""
    sets = [one for one in nodes_in(node) if isinstance(one, _SETS)]
    return sorting_encoder if sets and not any(map(_is_unsorted, sets)) else encoder


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
    if any(map(_omits_defaults, classes_in(node))):
        return "a struct in it has omit_defaults, which leaves out only what is the very default"
    if any(map(_is_unsorted, nodes_in(node))):
        return "a set in it holds items that cannot be sorted"
    parts = [field.type for field in node.fields] if isinstance(node, mi.TypedDictType) else [node]
    if any(isinstance(one, mi.TypedDictType) for part in parts for one in nodes_in(part)):
        return "a TypedDict is inside it, whose fields are written in the order in which they come"
    return None


def _omits_defaults(cls: type) -> bool:
    if not issubclass(cls, msgspec.Struct):
        return False
    return cls.__struct_config__.omit_defaults and not cls.__struct_config__.array_like


def _is_unsorted(node: mi.Type) -> bool:
    return isinstance(node, _SETS) and not isinstance(node.item_type, _SORTABLE)
