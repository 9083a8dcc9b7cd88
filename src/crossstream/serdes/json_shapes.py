"""The shape of a JSON type: what msgspec decodes for a column of it, and the Polars type of that column.

A typed JSON column is decoded by msgspec into *wire structs*, made here: they have the fields that are
wanted and no others, check what the declared type checks, and hold what a column can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import polars as pl

KEPT = (bytes, datetime, date, time, timedelta, Decimal)
"""Types that stay what they are when wire structs become plain dicts."""


@dataclass(frozen=True, slots=True)
class NoColumn:
    """A type that has no column form, and why."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A single value. ``narrow``: what a wire value becomes where the column holds less than its type.

    ``loose``: what Python functions are given, where that is more than the column holds; so in lists and structs.
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
