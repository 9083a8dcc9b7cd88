"""The shape of a JSON type: what msgspec decodes for it, and the Polars type of its column. Schemas as shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import lru_cache
from typing import Annotated, Any
from uuid import UUID

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.serdes import errors

KEPT = (bytes, datetime, date, time, timedelta, Decimal)
"""Types that stay unchanged when wire structs become plain dicts."""

DECIMAL_DIGITS = (38, 18)
"""Precision and scale of the column of a `Decimal` that declares neither: Spark's choice for the same case."""


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
        return StructOf(fields, dtype, wire, tagged, loose)

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
    bounds = np.iinfo(str(dtype).lower())
    if limits.get("gt") is None and limits.get("ge") is None:
        limits["ge"] = int(bounds.min)
    if dtype == pl.UInt64:  # Meta takes limits of 64 bits with a sign only
        return Leaf(dtype, limited(int, **limits), narrow=_unsigned64)
    if limits.get("lt") is None and limits.get("le") is None:
        limits["le"] = int(bounds.max)
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


def _unsigned64(value: int) -> int:
    if value >= 2**64:
        raise ValueError(f"{value} is beyond UInt64")
    return value


def _to_milliseconds(value: datetime) -> datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def struct_dtype(given: Any) -> pl.Struct | None:
    """The Polars struct of a schema; None if ``given`` is not a schema. Raises CS-404."""
    if isinstance(given, pa.StructType):
        given = pa.schema(list(given))
    if isinstance(given, pa.Schema):
        frame = pl.from_arrow(given.empty_table())
        assert isinstance(frame, pl.DataFrame)
        return pl.Struct(dict(frame.schema))
    if isinstance(given, pl.Struct):
        return given
    if isinstance(given, dict):
        if not all(isinstance(name, str) for name in given):
            raise errors.unusable_type(given, "not all field names are text")
        try:
            return pl.Struct(dict(pl.Schema(given)))
        except Exception as error:
            raise errors.unusable_type(given, f"not all values are Polars types ({error})") from error
    return None


def read_schema(dtype: pl.Struct, strict: bool = False) -> Layout:
    """The fields of a schema. ``strict``: unknown ones are errors. Raises CS-404 for a type that JSON does not have."""
    for one in dtype.fields:
        if any(char in '"\\' or char < " " for char in one.name):  # no name for a field of a msgspec struct
            reason = f"{one.name!r} as a field name, with quotes or control characters"
            raise errors.unusable_type(dtype, reason)
    fields = tuple(
        Field(
            one.name,
            f"f{position}",
            shape_of(instance_of(one.dtype), strict),
            True,
            msgspec.field(default=None),
        )
        for position, one in enumerate(dtype.fields)
    )
    return Layout("schema", fields, {"forbid_unknown_fields": strict})


def schema_name(dtype: pl.DataType) -> str:
    """A type as text that no release of Polars changes: ``{id: Int64, tags: [String]}``."""
    if isinstance(dtype, pl.Struct):
        fields = (f"{field.name}: {schema_name(instance_of(field.dtype))}" for field in dtype.fields)
        return "{" + ", ".join(fields) + "}"
    if isinstance(dtype, pl.List):
        return f"[{schema_name(instance_of(dtype.inner))}]"
    if isinstance(dtype, pl.Datetime):
        return f"Datetime({dtype.time_unit}, {dtype.time_zone})"
    if isinstance(dtype, pl.Decimal):
        return f"Decimal({dtype.precision}, {dtype.scale})"
    return type(dtype).__name__


Narrow = Callable[[Any], Any]


@lru_cache(maxsize=512)
def narrowing(shape: Shape) -> Narrow | None:
    """A function from a plain value of the shape (never None) to what the column holds; None: nothing to do.

    Changes dicts in place. Raises ValueError for a value that does not fit.
    """
    if isinstance(shape, Leaf):
        return shape.narrow
    if isinstance(shape, ListOf):
        item = narrowing(shape.item)
        return None if item is None else lambda values: [None if one is None else item(one) for one in values]
    return _struct_narrowing(shape)


def narrowed(values: list[Any], shape: Shape) -> list[Any]:
    """Plain values, or nulls, as the column holds them: for some decimals Arrow would end the process."""
    narrow = narrowing(shape)
    return values if narrow is None else [None if one is None else narrow(one) for one in values]


def _struct_narrowing(shape: StructOf) -> Narrow | None:
    found = {field.name: narrowing(column(field)) for field in shape.fields}
    steps = {name: step for name, step in found.items() if step is not None}
    if not steps:
        return None

    def narrow(value: dict[str, Any]) -> dict[str, Any]:
        for name, step in steps.items():
            if value[name] is not None:
                value[name] = step(value[name])
        return value

    return narrow


_LEAVES = {
    pl.Float32(): float32(),
    pl.Float64(): FLOAT64,
    pl.String(): STRING,
    pl.Boolean(): BOOLEAN,
    pl.Binary(): BINARY,
    pl.Date(): DATE,
    pl.Time(): TIME,
    pl.Duration("us"): DURATION,
}

_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)


def shape_of(dtype: pl.DataType, strict: bool = False) -> Shape:
    """The shape of a column. ``strict``: as in `read_schema`. Raises CS-404 for a type that JSON does not have."""
    if isinstance(dtype, pl.Struct):
        struct = read_schema(dtype, strict).struct()
        assert isinstance(struct, StructOf)
        return struct
    if isinstance(dtype, pl.List):
        return list_of(shape_of(instance_of(dtype.inner), strict), nullable=True)
    if dtype in _INTEGERS:
        return integer(dtype)
    if isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns":
        return timestamp(dtype.time_unit, dtype.time_zone)
    if isinstance(dtype, pl.Decimal):
        return decimal(dtype.precision or 38, dtype.scale)
    leaf = _LEAVES.get(dtype)
    if leaf is None:
        raise errors.unusable_type(dtype, f"JSON values are not read as {dtype}; times are of 'us' or 'ms'")
    return leaf


def instance_of(dtype: Any) -> pl.DataType:
    """The type itself where Polars takes its class for it."""
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
