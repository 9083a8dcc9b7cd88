"""The shape of a JSON type: what msgspec decodes for it, and the Polars type of its column. And Python types as shapes."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import msgspec.inspect as mi
import numpy as np
import polars as pl

KEPT = (bytes, datetime, date, time, timedelta, Decimal)
"""Types that stay unchanged when wire structs become plain dicts."""


@dataclass(frozen=True, slots=True)
class NoColumn:
    """A type that has no column form, and why."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A single value. ``narrow``: makes of a wire value what the column holds, where that is less.

    ``loose``: the wire type of Python functions, where it is wider than the column; also in lists and structs.
    """

    dtype: pl.DataType
    wire: Any
    narrow: Callable[[Any], Any] | None = None
    loose: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class ListOf:
    """A list; ``nullable``: its items may be null."""

    item: Shape
    nullable: bool
    dtype: pl.DataType
    wire: Any
    loose: Any = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct. ``name`` is that in JSON, ``attribute`` that of the wire struct.

    ``default``: a `msgspec.field` for the value where the text has none; None: it must be there.
    """

    name: str
    attribute: str
    shape: Shape | NoColumn
    nullable: bool
    default: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class StructOf:
    """A JSON object with known fields, all of which have a column form.

    ``tagged``: here or below there is a tag, which is in the text and not in the column.
    """

    title: str
    fields: tuple[Field, ...]
    dtype: pl.DataType
    wire: Any
    tagged: bool
    loose: Any = None


Shape = Leaf | ListOf | StructOf


@dataclass(frozen=True, slots=True)
class Layout:
    """All fields of a class or schema, those without a column form too. ``options``: those of `defstruct`."""

    title: str
    fields: tuple[Field, ...]
    options: Mapping[str, Any]

    def struct(self, names: Collection[str] | None = None) -> StructOf | NoColumn:
        """The struct of some fields, in the order of the type; None: of all."""
        fields = tuple(field for field in self.fields if names is None or field.name in names)
        for field in fields:
            if isinstance(field.shape, NoColumn):
                return NoColumn(f"field {field.name} of {self.title} is {field.shape.reason}")
        options = dict(self.options)
        if names is not None:
            options.pop("forbid_unknown_fields", None)
        tagged = bool(options.get("tag")) or any(is_tagged(field.shape) for field in fields)
        dtype = pl.Struct({field.name: column(field).dtype for field in fields})
        wire, loose = _wire_struct(self.title, fields, options), None
        if any(column(field).loose for field in fields):
            loose = _wire_struct(self.title, fields, options, {field.name for field in fields})
        return StructOf(self.title, fields, dtype, wire, tagged, loose)

    def wire_for(self, names: Collection[str]) -> Any:
        """A wire struct of all fields, of which only those of ``names`` are to fit into columns.

        Others that have no column form are left out.
        """
        fields = tuple(field for field in self.fields if not isinstance(field.shape, NoColumn))
        options = dict(self.options)
        if len(fields) < len(self.fields):
            options.pop("forbid_unknown_fields", None)
        return _wire_struct(self.title, fields, options, {field.name for field in fields}.difference(names))


def column(field: Field) -> Shape:
    """The shape of a field of a `StructOf`."""
    assert not isinstance(field.shape, NoColumn)
    return field.shape


def is_tagged(shape: Shape | NoColumn) -> bool:
    if isinstance(shape, ListOf):
        return is_tagged(shape.item)
    return isinstance(shape, StructOf) and shape.tagged


def list_of(item: Shape, nullable: bool, **limits: Any) -> ListOf:
    """A list; ``limits``: those of msgspec's `Meta`."""
    wire, loose = (
        limited(list[optional(one, nullable)], **limits)  # type: ignore[misc]
        for one in (item.wire, item.loose or item.wire)
    )
    return ListOf(item, nullable, pl.List(item.dtype), wire, loose if item.loose else None)


def optional(wire: Any, nullable: bool) -> Any:
    return wire | None if nullable else wire


def nameable(name: str) -> bool:
    """Whether a field of a msgspec struct can have this name in JSON."""
    return not any(char in '"\\' or char < " " for char in name)


def rows_of(wire: Any) -> Any:
    """The type of a list of rows, any of which may be null."""
    return list[optional(wire, True)]  # type: ignore[misc]


def limited(wire: Any, **limits: Any) -> Any:
    """The type with those limits of msgspec's `Meta` that are not None."""
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return Annotated[wire, msgspec.Meta(**given)] if given else wire


def _wire_struct(
    title: str, fields: tuple[Field, ...], options: Mapping[str, Any], loose: Collection[str] = ()
) -> Any:
    members: list[Any] = []
    for field in fields:
        shape = column(field)
        wire = shape.loose if shape.loose and field.name in loose else shape.wire
        kind = optional(wire, field.nullable)
        default = () if field.default is None else (field.default,)
        members.append((field.attribute, kind, *default))
    names = {field.attribute: field.name for field in fields}
    return msgspec.defstruct(title, members, rename=names, kw_only=True, gc=False, **options)


_EXACT = Context(prec=100, traps=[])
"""Gives NaN for a number with more digits."""


_CHECKED = (
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32),
    *(pl.Float32, pl.Float64, pl.Boolean, pl.String),
)


def is_checked(shape: Shape | NoColumn) -> bool:
    """Whether everything that msgspec accepts for the shape fits into its column."""
    if isinstance(shape, StructOf):
        return all(is_checked(field.shape) for field in shape.fields)
    if isinstance(shape, ListOf):
        return is_checked(shape.item)
    return isinstance(shape, Leaf) and shape.dtype in _CHECKED


def integer(dtype: pl.DataType, **limits: Any) -> Leaf:
    """An integer of the column's width; ``limits``: further ones, of msgspec's `Meta`."""
    low, high = _range(dtype)
    if limits.get("gt") is None and limits.get("ge") is None:
        limits["ge"] = low
    if dtype == pl.UInt64:  # Meta takes limits of 64 bits with a sign only
        return Leaf(dtype, limited(int, **limits), narrow=_unsigned64)
    if limits.get("lt") is None and limits.get("le") is None:
        limits["le"] = high
    return Leaf(dtype, limited(int, **limits))


def float32() -> Leaf:
    """A float of 32 bits: rounded, and refused beyond its range."""
    largest = float(np.finfo(np.float32).max)
    return Leaf(
        pl.Float32(), limited(float, ge=-largest, le=largest), narrow=lambda value: float(np.float32(value))
    )


def timestamp(unit: Any, zone: str | None) -> Leaf:
    """A point in time (with an offset in the text), or, with ``zone`` None, a local time (without one)."""
    wire = limited(datetime, tz=zone is not None)
    return Leaf(pl.Datetime(unit, zone), wire, narrow=_to_milliseconds if unit == "ms" else None)


def decimal(precision: int, scale: int) -> Leaf:
    """A decimal; one with more digits than the column has is refused, never rounded."""
    step = Decimal(1).scaleb(-scale)

    def narrow(value: Decimal) -> Decimal:
        exact = value.quantize(step, context=_EXACT) if value.is_finite() else None
        if exact is None or exact != value or len(exact.as_tuple().digits) > precision:
            raise ValueError(f"{value} is not a decimal of {precision} digits, {scale} after the point")
        return exact

    return Leaf(pl.Decimal(precision, scale), Decimal, narrow)


FLOAT64 = Leaf(pl.Float64(), float)
STRING = Leaf(pl.String(), str)
BOOLEAN = Leaf(pl.Boolean(), bool)
BINARY = Leaf(pl.Binary(), bytes)
DATE = Leaf(pl.Date(), date)
TIME = Leaf(pl.Time(), limited(time, tz=False))
DURATION = Leaf(pl.Duration("us"), timedelta)
UUID_TEXT = Leaf(pl.String(), UUID)


def _range(dtype: pl.DataType) -> tuple[int, int]:
    bits = {"8": 8, "16": 16, "32": 32, "64": 64}[str(dtype).removeprefix("U").removeprefix("Int")]
    return (0, 2**bits - 1) if dtype.is_unsigned_integer() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _unsigned64(value: int) -> int:
    if value >= 2**64:
        raise ValueError(f"{value} is beyond UInt64")
    return value


def _to_milliseconds(value: datetime) -> datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


Read = tuple["Shape | NoColumn", bool]
"""A shape, and whether null is a value of the type too."""

DECIMAL_DIGITS = (38, 18)
"""Precision and scale of the column of a `Decimal` that declares neither: Spark's choice for the same case."""

_RECORDS = (mi.StructType, mi.DataclassType, mi.TypedDictType)


def read_type(node: mi.Type, within: tuple[type, ...] = ()) -> Read:
    """The shape of a type. ``within``: the classes around it, to notice recursion."""
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
    declared = list(plain_class(node.cls).__annotations__)  # msgspec sorts them by name
    return sorted(fields, key=lambda field: declared.index(field.name))


def plain_class(cls: Any) -> type:
    """The class itself: ``Envelope`` of ``Envelope[Order]``."""
    plain: type = typing.get_origin(cls) or cls
    return plain


def derives_values(node: Any) -> bool:
    """Whether objects hold more than their text: a class has ``__post_init__``, or an Enum ``_missing_``."""
    return any_class(node, _derives)


def _derives(cls: type) -> bool:
    if issubclass(cls, enum.Enum):
        return _takes_others(cls)
    return hasattr(cls, "__post_init__") or hasattr(cls, "__attrs_post_init__")


def _takes_others(cls: type[enum.Enum]) -> bool:
    """Whether the Enum has members for other values than those of its own: it has ``_missing_``, or is a Flag."""
    return cls._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]


def any_class(node: Any, holds: Callable[[type], bool]) -> bool:
    """Whether ``holds`` is true of a class in the type."""
    return any_node(
        node, lambda one: (cls := getattr(one, "cls", None)) is not None and holds(plain_class(cls))
    )


def classes_of(node: mi.Type) -> tuple[type, ...]:
    """The classes in the type."""
    found: dict[type, None] = {}

    def note(cls: type) -> bool:
        found[cls] = None
        return False

    any_class(node, note)
    return tuple(found)


def any_node(node: Any, holds: Callable[[mi.Type], bool], seen: frozenset[Any] = frozenset()) -> bool:
    """Whether ``holds`` is true of the type, or of one in it."""
    if isinstance(node, tuple):
        return any(any_node(part, holds, seen) for part in node)
    if isinstance(node, mi.Field):
        return any_node(node.type, holds, seen)
    if not isinstance(node, mi.Type):
        return False
    cls = getattr(node, "cls", None)
    if cls is not None:
        if cls in seen:
            return False
        seen |= {cls}
    return holds(node) or any(any_node(getattr(node, name), holds, seen) for name in node.__struct_fields__)


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
    return STRING if leaf.dtype == pl.String else integer(pl.Int64())


def _literal(values: tuple[Any, ...]) -> Leaf | NoColumn:
    kinds = set(map(type, values))
    if kinds == {str}:
        return Leaf(pl.String(), Literal[values])
    if kinds == {int}:
        return Leaf(pl.Int64(), Literal[values])
    return NoColumn("an Enum or Literal of values that are neither all text nor all integers")


def _list(node: mi.ListType | mi.VarTupleType, within: tuple[type, ...]) -> Shape | NoColumn:
    item, nullable = read_type(node.item_type, within)
    if isinstance(item, NoColumn):
        return NoColumn(f"a list of {item.reason}")
    return list_of(item, nullable, min_length=node.min_length, max_length=node.max_length)


def _field(field: mi.Field, within: tuple[type, ...]) -> Field:
    shape, nullable = read_type(field.type, within)
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
    mi.BoolType: lambda node: BOOLEAN,
    mi.IntType: lambda node: _loosely(
        integer(pl.Int64(), **_limits(node, *_NUMBERS)), int, node, *_NUMBERS
    ),
    mi.FloatType: lambda node: Leaf(pl.Float64(), limited(float, **_limits(node, *_NUMBERS))),
    mi.StrType: lambda node: Leaf(pl.String(), limited(str, **_limits(node, *_LENGTHS, "pattern"))),
    mi.BytesType: lambda node: Leaf(pl.Binary(), limited(bytes, **_limits(node, *_LENGTHS))),
    mi.DateTimeType: lambda node: _loosely(
        timestamp("us", None if node.tz is False else "UTC"), datetime, node, "tz"
    ),
    mi.DateType: lambda node: DATE,
    mi.TimeType: lambda node: (
        NoColumn("a time of day with an offset") if node.tz else _loosely(TIME, time, node, "tz")
    ),
    mi.TimeDeltaType: lambda node: DURATION,
    mi.DecimalType: lambda node: decimal(*DECIMAL_DIGITS),
    mi.UUIDType: lambda node: UUID_TEXT,
}


def _leaf(node: mi.Type) -> Leaf | NoColumn:
    make = _LEAVES.get(type(node))
    if make is None:
        return NoColumn(f"of a type without fixed shape ({type(node).__name__.removesuffix('Type').lower()})")
    return make(node)
