"""Python types and Avro schemas: the schema of a type, the types that check values, and what a declared pair gives."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import msgspec.inspect as mi
import polars as pl

from crossstream.errors import SerdeError
from crossstream.serdes import errors
from crossstream.serdes.avro.objects import Build, builder, objects
from crossstream.serdes.avro.resolve import default_column, resolved
from crossstream.serdes.avro.rows import Read, Write, row_codec
from crossstream.serdes.avro.schema import (
    NAME,
    NO_DEFAULT,
    Node,
    References,
    column_type,
    fingerprint,
    nodes_in,
    nullable,
    parse,
    record_of,
    unusable,
)
from crossstream.serdes.json import shapes as json_shapes
from crossstream.serdes.json import types as json_types
from crossstream.serdes.json.plain import NATIVE
from crossstream.serdes.json.reading import has_limits
from crossstream.serdes.json.shapes import DECIMAL_DIGITS, NoColumn
from crossstream.serdes.json.typed import TypedJson
from crossstream.serdes.json.types import derives_values, type_name
from crossstream.serdes.json.types import nodes_in as types_in

# Schemas of types


def schema_text(schema: Any) -> str:
    """The JSON of a schema: of text, of a dict or list, or derived from a Python type. Raises `SerdeError` (CS-404)."""
    if isinstance(schema, str):
        try:
            made = json.loads(schema)
        except (ValueError, RecursionError):
            made = schema  # the name of a primitive type, without quotes
    elif isinstance(schema, dict | list):
        made = schema
    else:
        made = derived(schema)
    try:
        return json.dumps(made, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise unusable(schema, f"it is not JSON ({error})") from error


def derived(kind: Any) -> Any:
    """The schema of a Python type, as JSON. Raises `SerdeError` (CS-404)."""
    try:
        return _derive(mi.type_info(kind), set())
    except SerdeError:
        raise
    except Exception as error:  # msgspec's TypeError, NameError of an annotation, ValueError of ours
        raise unusable(kind, str(error)) from error


_SIMPLE: Mapping[type[mi.Type], Any] = {
    mi.BoolType: "boolean",
    mi.IntType: "long",
    mi.FloatType: "double",
    mi.StrType: "string",
    mi.BytesType: "bytes",
    mi.DateType: {"type": "int", "logicalType": "date"},
    mi.TimeType: {"type": "long", "logicalType": "time-micros"},
    mi.DecimalType: {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": DECIMAL_DIGITS[0],
        "scale": DECIMAL_DIGITS[1],
    },
    mi.UUIDType: {"type": "string", "logicalType": "uuid"},
    mi.NoneType: "null",
}
_LISTS = (mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType)
_RECORDS = (mi.StructType, mi.DataclassType, mi.TypedDictType, mi.NamedTupleType)


def _derive(node: Any, known: set[str]) -> Any:
    if type(node) in _SIMPLE:
        return _SIMPLE[type(node)]
    if isinstance(node, mi.DateTimeType):
        logical = "local-timestamp-micros" if node.tz is False else "timestamp-micros"
        return {"type": "long", "logicalType": logical}
    if isinstance(node, mi.EnumType):
        return _derive_values(_avro_name(node.cls), [one.value for one in node.cls], known)
    if isinstance(node, mi.LiteralType):
        return _derive_values("", list(node.values), known)
    if isinstance(node, _LISTS):
        return {"type": "array", "items": _derive(node.item_type, known)}
    if isinstance(node, mi.DictType):
        if not isinstance(node.key_type, mi.StrType):
            raise ValueError("the keys of an Avro map are text: dict[str, …]")
        return {"type": "map", "values": _derive(node.value_type, known)}
    if isinstance(node, mi.UnionType):
        parts = [_derive(one, known) for one in node.types]
        return sorted(parts, key=lambda part: part != "null")
    if isinstance(node, _RECORDS):
        return _derive_record(node, known)
    raise ValueError(f"{type(node).__name__.removesuffix('Type').lower()} has no Avro type")


def _derive_values(name: str, values: Sequence[Any], known: set[str]) -> Any:
    if None in values:
        return ["null", _derive_values(name, [one for one in values if one is not None], known)]
    kinds = set(map(type, values))
    if kinds == {int}:
        return "long"
    if kinds != {str}:
        raise ValueError(f"{name or 'a Literal'} of values that are neither all text nor all integers")
    if not name or not all(map(NAME.fullmatch, values)):
        return "string"
    if name in known:
        return name
    known.add(name)
    return {"type": "enum", "name": name, "symbols": list(values)}


def _avro_name(cls: Any) -> str:
    return re.sub(r"\W", "_", json_types.type_name(cls)).strip("_")


def _derive_record(node: Any, known: set[str]) -> Any:
    name = _avro_name(node.cls)
    if name in known:
        return name
    known.add(name)
    fields = []
    for one in json_types.fields_of(node):
        if not NAME.fullmatch(one.encode_name):
            raise ValueError(f"{one.encode_name!r} is not a valid name of a field")
        made = {"name": one.encode_name, "type": _derive(one.type, known)}
        default = _default(one)
        is_union = isinstance(made["type"], list)
        if default is not NO_DEFAULT:
            if is_union and default is not None:
                made["type"] = sorted(made["type"], key=lambda part: part == "null")
            made["default"] = default
        fields.append(made)
    return {"type": "record", "name": name, "fields": fields}


def _default(one: mi.Field) -> Any:
    """The default as JSON in a schema; `NO_DEFAULT` where it has no simple form there."""
    if one.default is not msgspec.NODEFAULT:
        value = one.default
    elif one.default_factory in (list, dict, set, tuple, frozenset):
        value = {} if one.default_factory is dict else []
    else:
        return NO_DEFAULT
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return round((value - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * 1_000_000)
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(DECIMAL_DIGITS[1]))
        return unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True).decode("latin-1")
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if value in ([], (), set(), frozenset()) and not isinstance(value, str | int | float):
        return []
    if value is None or isinstance(value, str | bool | int | float | dict):
        return value
    return NO_DEFAULT


# Types that check values


_WIRE: dict[str, Any] = {
    "null": None,
    "boolean": bool,
    "int": json_shapes.limited(int, ge=-(2**31), le=2**31 - 1),
    "long": json_shapes.limited(int, ge=-(2**63), le=2**63 - 1),
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "decimal": Decimal,
    "uuid": UUID,
    "date": date,
    "time-millis": json_shapes.limited(time, tz=False),
    "time-micros": json_shapes.limited(time, tz=False),
    "timestamp-millis": json_shapes.limited(datetime, tz=True),
    "timestamp-micros": json_shapes.limited(datetime, tz=True),
    "local-timestamp-millis": json_shapes.limited(datetime, tz=False),
    "local-timestamp-micros": json_shapes.limited(datetime, tz=False),
}


@lru_cache(maxsize=4096)
def wire_type(node: Node, is_part: bool = False) -> Any:
    """The type that msgspec checks objects against; Any where it cannot say it, which `_parts` checks.

    ``is_part``: it is in another one, where a type that is inside itself is Any.
    """
    if node.kind == "union":
        inner = nullable(node)
        if inner is not None:
            wire = wire_type(inner, is_part)
            return Any if wire is Any else wire | None
        return wire_type(node.parts[0], is_part) if len(node.parts) == 1 else Any
    if node.kind == "record":
        return Any if is_part and node.recursive else _wire_record(node)
    if node.kind == "array":
        return list[wire_type(node.parts[0], is_part)]  # type: ignore[misc]
    if node.kind == "map":
        return dict[str, wire_type(node.parts[0], is_part)]  # type: ignore[misc]
    if node.kind == "enum":
        return Literal[node.symbols]
    if node.kind == "fixed" and not node.logical:
        return json_shapes.limited(bytes, min_length=node.size, max_length=node.size)
    return _WIRE[node.logical or node.kind]


def _wire_record(node: Node) -> Any:
    members: list[Any] = []
    for at, one in enumerate(node.fields):
        member: tuple[Any, ...] = (f"f{at}", wire_type(one.node, True))
        if one.default is not NO_DEFAULT:
            value = objects(default_column(one), one.node)[0]
            is_plain = value is None or isinstance(value, str | int | float | bytes)
            made = (
                msgspec.field(default=value)
                if is_plain
                else msgspec.field(default_factory=partial(_given, value))
            )
            member = (*member, made)
        members.append(member)
    names = {f"f{at}": one.name for at, one in enumerate(node.fields)}
    title = node.name.rpartition(".")[2] or "record"
    return msgspec.defstruct(title, members, rename=names, kw_only=True, gc=False, forbid_unknown_fields=True)


def _given(value: Any) -> Any:
    return value


def checked(node: Node, values: Sequence[Any], serde: str) -> list[Any]:
    """Dicts and single values of exactly the fields of the schema, defaults filled in. Raises `SerdeError` (CS-401)."""
    wire = wire_type(node)
    try:
        structs = msgspec.convert(values, list[wire], builtin_types=NATIVE)  # type: ignore[valid-type]
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        for value in values:
            try:
                msgspec.convert(value, wire, builtin_types=NATIVE)
            except (msgspec.MsgspecError, TypeError, ValueError) as reason:
                raise errors.misfit(serde, value, str(reason)) from reason
        raise errors.misfit(serde, values, str(error)) from error
    made: list[Any] = structs if is_flat(node) else msgspec.to_builtins(structs, builtin_types=NATIVE)
    return made


@lru_cache(maxsize=1024)
def is_flat(node: Node) -> bool:
    """Whether it is a record of single values, nulls among them."""
    found = [(nullable(one.node) or one.node).kind for one in node.fields]
    return node.kind == "record" and not {"union", "record", "array", "map"}.intersection(found)


# What a declared schema and type give


class Form(NamedTuple):
    """What is derived from a declared schema and type, once for each process.

    ``is_narrower``: the type refuses values that the schema allows, so that objects are made to see it. ``attributes``:
    the class whose instances are read by their attributes, and those, in the order of the fields.
    """

    node: Node
    title: str
    columns: pl.DataType | NoColumn
    some_columns: pl.DataType | None
    is_narrower: bool
    unfit_for_keys: str | None
    build: Build | None
    rows: tuple[Read, Write] | None
    attributes: tuple[type, list[str]] | None


@lru_cache(maxsize=512)
def form_of(text: str, references: References, of: TypedJson | None) -> Form:
    """Raises `SerdeError` (CS-404) for a schema with which nothing can be read or written."""
    node = parse(text, references)
    try:
        resolved(node, node)
        wire_type(node)
    except ValueError as error:
        raise unusable(text, str(error)) from error
    record, columns, some = record_of(node), column_type(node), None
    if record is not None:
        found = {one.name: column_type(one.node) for one in record.fields}
        some = pl.Struct({name: dtype for name, dtype in found.items() if not isinstance(dtype, NoColumn)})
    title = (record or node).name.rpartition(".")[2] or node.kind
    if of is not None:
        title = type_name(of.type)
    title = f"{title} {fingerprint([text, *map(list, references)] if references else text)}"
    unfit = None
    if any(one.kind == "map" for one in nodes_in(node)):
        unfit = "a map in it has its entries in any order"
    elif of is not None and any(
        isinstance(one, mi.SetType | mi.FrozenSetType) for one in types_in(mi.type_info(of.type))
    ):
        unfit = "a set in it has its items in any order"
    is_narrower = of is not None and _is_narrower(node, of.type)
    build = None if of is None or is_narrower else builder(node, mi.type_info(of.type))
    return Form(
        node,
        title,
        columns,
        some,
        is_narrower,
        unfit,
        build,
        row_codec(node),
        _attributes(node, of, is_narrower),
    )


def _attributes(node: Node, of: TypedJson | None, is_narrower: bool) -> tuple[type, list[str]] | None:
    if of is None or is_narrower or not is_flat(node):
        return None
    info = mi.type_info(of.type)
    if not isinstance(info, mi.DataclassType | mi.StructType):
        return None
    names = {one.encode_name: one.name for one in info.fields}
    if names.keys() != {one.name for one in node.fields}:
        return None
    return info.cls, [names[one.name] for one in node.fields]


def _is_narrower(node: Node, kind: Any) -> bool:
    info = mi.type_info(kind)
    if derives_values(info) or any(map(has_limits, types_in(info))):
        return True
    try:
        resolved(node, parse(schema_text(kind)), strict=True)
    except (ValueError, SerdeError):
        return True
    return False
