"""Avro schemas as trees of nodes: read from JSON, derived from Python types, and the Polars types of their columns."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import polars as pl

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.serdes.json.bounds import DEEPEST_COLUMN, TOO_DEEP
from crossstream.serdes.json.shapes import DECIMAL_DIGITS, NoColumn

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULLNAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z_][A-Za-z0-9_]*")

NO_DEFAULT = object()

MOST_TYPES = 20_000
"""Types that a schema has at most, each field with its own."""

MOST_LEVELS = 100
"""Types that are in each other at most."""

MOST_PARTS = 10_000
"""Fields of a record, with those of the records that are directly in it."""

_MOST_COLUMNS = 4096
"""Columns of a type: of more of them, a type is for callables."""

_MOST_DIGITS = 4000
"""Digits of a decimal: of more Python makes no text."""


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record. ``default``: JSON, or `NO_DEFAULT`."""

    name: str
    node: Node
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Node:
    """A type of a schema. ``parts``: the items of an array, the values of a map, the branches of a union.

    ``logical``: a logical type that is known and valid here; others are ignored, as the specification says.
    ``connect``: the name of the type that Kafka Connect wrote into the schema. ``recursive``: it is inside itself.
    ``column``: what `column_type` found.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[Field] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0
    connect: str = ""
    recursive: bool = False
    column: Column | None = field(default=None, init=False)


def unusable(given: object, reason: str) -> CrossStreamError:
    """The error of a schema, or of a type from which none can be derived."""
    shown = given if isinstance(given, str) else repr(given)
    shown = shown if len(shown) <= 80 else shown[:80] + "…"
    step = (
        "pass an Avro schema, as JSON text or as a dict, or a dataclass or msgspec.Struct; docs/avro.md has the "
        "types"
    )
    return refuse("CS-404", f"no Avro schema: {reason}: {shown}", step, serde="avro")


References = tuple[tuple[str, str], ...]
"""Names and texts of the schemas that another one refers to, in their order."""


@lru_cache(maxsize=1024)
def parse(text: str, references: References = ()) -> Node:
    """The tree of a schema. Raises `SerdeError` (CS-404), also for one that takes too long to work with."""
    names: dict[str, Node] = {}
    try:
        for _, other in references:
            _read(json.loads(other), "", names)
        made = _read(json.loads(text), "", names)
        _Bounds().visit(made)
        return made
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise unusable(text, str(error) or type(error).__name__) from error


class _Bounds:
    """Refuses a schema with too many types, and marks types that are inside themselves (Tarjan's components).

    Story: of 30 records, each has two fields of the record before it. The schema has 2 kB, its columns and its empty
    value have 2**30 parts. In a union or an array each part has a byte of its own, so there the payload is the bound.
    """

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._open: dict[int, Node] = {}
        self._heights: dict[int, int] = {}
        self._parts: dict[int, int] = {}

    def visit(self, node: Node) -> int:
        """The place of the first type that this one leads back to. Raises ValueError."""
        if len(self._places) == MOST_TYPES:
            raise ValueError(f"it has more than {MOST_TYPES} types")
        lowest = place = self._places[id(node)] = len(self._places)
        self._open[id(node)] = node
        height = 0
        for part in (*node.parts, *(one.node for one in node.fields)):
            if id(part) not in self._places:
                lowest = min(lowest, self.visit(part))
            elif id(part) in self._open:
                lowest = min(lowest, self._places[id(part)])
            height = max(height, self._heights.get(id(part), 0))
        if height == MOST_LEVELS:
            raise ValueError(f"more than {MOST_LEVELS} of its types are in each other")
        self._heights[id(node)] = height + 1
        if lowest == place:
            self._close(node)
        return lowest

    def _close(self, node: Node) -> None:
        """Takes the types of a cycle, or a single one, from those that may lead back."""
        cycle = [self._open.popitem()[1]]
        while cycle[-1] is not node:
            cycle.append(self._open.popitem()[1])
        for one in cycle:
            one.recursive = len(cycle) > 1
        for one in cycle:
            self._count(one)

    def _count(self, node: Node) -> int:
        """The fields of a record, with those of the records directly in it."""
        if id(node) not in self._parts:
            self._parts[id(node)] = MOST_PARTS  # so that one directly inside itself is refused
            made = 1 + sum(self._count(one.node) for one in node.fields)
            if made > MOST_PARTS:
                raise ValueError(
                    f"{node.name} has more than {MOST_PARTS} fields, with those of the records in it"
                )
            self._parts[id(node)] = made
        return self._parts[id(node)]


def fingerprint(texts: Any) -> str:
    """Some letters that are the same for the same schema: a text, or a list of it and those that it refers to."""
    return sha256(json.dumps(texts).encode()).hexdigest()[:8]


def _read(given: Any, space: str, names: dict[str, Node]) -> Node:
    if isinstance(given, str):
        if given in PRIMITIVES:
            return Node(given)
        name = given if "." in given or not space else f"{space}.{given}"
        node = names.get(name) or names.get(given)
        if node is None:
            raise ValueError(f"the type {given!r} is not known")
        return node
    if isinstance(given, list):
        return _read_union(given, space, names)
    if not isinstance(given, dict) or "type" not in given:
        raise ValueError(f"{given!r} is not a type")
    kind = given["type"]
    if kind in ("record", "error", "enum", "fixed"):
        return _read_named(given, space, names)
    if kind == "array":
        return Node("array", parts=[_read(given["items"], space, names)])
    if kind == "map":
        return Node("map", parts=[_read(given["values"], space, names)])
    if isinstance(kind, str) and kind in PRIMITIVES:
        return _with_logical(Node(kind, connect=_connect_name(given)), given)
    return _read(kind, space, names)


def _connect_name(given: Mapping[str, Any]) -> str:
    name = given.get("connect.name")
    return name if isinstance(name, str) else ""


def _read_union(given: list[Any], space: str, names: dict[str, Node]) -> Node:
    parts = [_read(one, space, names) for one in given]
    if any(part.kind == "union" for part in parts):
        raise ValueError("a union directly inside a union")
    seen = [part.name or part.kind for part in parts]
    if not parts or len(set(seen)) < len(seen):
        raise ValueError(f"the branches of a union are not all different: {seen}")
    return Node("union", parts=parts)


def _read_named(given: Mapping[str, Any], space: str, names: dict[str, Node]) -> Node:
    name = given.get("name")
    if not isinstance(name, str) or not _FULLNAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name")
    if "." not in name:
        own = given.get("namespace", space)
        name = f"{own}.{name}" if own else name
    if name in names:
        raise ValueError(f"the name {name} is defined twice")
    space = name.rpartition(".")[0]
    kind = "record" if given["type"] == "error" else given["type"]
    aliases = tuple(given.get("aliases", ()))
    node = names[name] = Node(kind, name, aliases, connect=_connect_name(given))
    if kind == "fixed":
        size = given["size"]
        if not isinstance(size, int) or not 0 <= size < 2**31:
            raise ValueError(f"{size!r} is not a size")
        node.size = size
        return _with_logical(node, given)
    if kind == "enum":
        node.symbols, node.default = tuple(given["symbols"]), given.get("default")
        if not node.symbols or len(set(node.symbols)) < len(node.symbols):
            raise ValueError(f"the symbols of {name} are missing, or not all different")
        if not all(isinstance(one, str) for one in node.symbols):
            raise ValueError(f"the symbols of {name} are not all text")
        if node.default is not None and node.default not in node.symbols:
            raise ValueError(f"the default {node.default!r} of {name} is not one of its symbols")
        return node
    for one in given["fields"]:
        if not isinstance(one.get("name"), str):
            raise ValueError(f"a field of {name} without a name")
        part = _read(one["type"], space, names)
        default = one.get("default", NO_DEFAULT)
        node.fields.append(Field(one["name"], part, default, tuple(one.get("aliases", ()))))
    if len({one.name for one in node.fields}) < len(node.fields):
        raise ValueError(f"two fields of {name} have one name")
    return node


_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
}


def _with_logical(node: Node, given: Mapping[str, Any]) -> Node:
    logical = given.get("logicalType")
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision, scale = given.get("precision"), given.get("scale", 0)
        if (
            isinstance(precision, int)
            and isinstance(scale, int)
            and 0 <= scale <= precision
            and 0 < precision <= _MOST_DIGITS
        ):
            node.logical, node.precision, node.scale = "decimal", precision, scale
    elif logical == "uuid" and (node.kind == "string" or (node.kind == "fixed" and node.size == 16)):
        node.logical = "uuid"
    elif logical in _LOGICAL and _LOGICAL[logical] == node.kind:
        node.logical = logical
    return node


# -- columns ----------------------------------------------------------------------------------------------

_DTYPES: Mapping[str, pl.DataType] = {
    "null": pl.Null(),
    "boolean": pl.Boolean(),
    "int": pl.Int32(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "bytes": pl.Binary(),
    "fixed": pl.Binary(),
    "string": pl.String(),
    "enum": pl.String(),
    "date": pl.Date(),
    "time-millis": pl.Time(),
    "time-micros": pl.Time(),
    "timestamp-millis": pl.Datetime("ms", "UTC"),
    "timestamp-micros": pl.Datetime("us", "UTC"),
    "local-timestamp-millis": pl.Datetime("ms"),
    "local-timestamp-micros": pl.Datetime("us"),
    "uuid": pl.String(),
}


def nullable(node: Node) -> Node | None:
    """X of a union of null and X; None for another type."""
    if node.kind == "union" and len(node.parts) == 2:
        others = [part for part in node.parts if part.kind != "null"]
        return others[0] if len(others) == 1 else None
    return None


class Column(NamedTuple):
    """The type of a column; ``parts``: the columns in it; ``levels``: the lists and structs that are in each other."""

    dtype: pl.DataType | NoColumn
    parts: int = 1
    levels: int = 0


def column_type(node: Node) -> pl.DataType | NoColumn:
    """The type of a column of these values."""
    return _column(node).dtype


def _column(node: Node) -> Column:
    if node.column is None:
        made = _made_column(node)
        if made.levels > DEEPEST_COLUMN:
            made = Column(TOO_DEEP)
        if made.parts > _MOST_COLUMNS:
            made = Column(NoColumn(f"a type of more than {_MOST_COLUMNS} columns"))
        node.column = made
    return node.column


def _made_column(node: Node) -> Column:
    if node.kind == "record":
        return _struct(node)
    if node.kind == "union":
        inner = node.parts[0] if len(node.parts) == 1 else nullable(node)
        return Column(NoColumn("a union of several types")) if inner is None else _column(inner)
    if node.kind in ("array", "map"):
        item, parts, levels = _column(node.parts[0])
        if isinstance(item, NoColumn):
            return Column(item)
        if node.kind == "map":
            item = pl.Struct({"key": pl.String(), "value": item})
        return Column(pl.List(item), parts + 1, levels + (2 if node.kind == "map" else 1))
    if node.logical != "decimal":
        return Column(_DTYPES[node.logical or node.kind])
    if node.precision <= DECIMAL_DIGITS[0]:
        return Column(pl.Decimal(node.precision, node.scale))
    reason = f"a decimal of {node.precision} digits, and a column has up to {DECIMAL_DIGITS[0]}"
    return Column(NoColumn(reason))


def _struct(node: Node) -> Column:
    if node.recursive:
        return Column(NoColumn(f"{node.name} inside itself"))
    found = {one.name: _column(one.node) for one in node.fields}
    dtypes: dict[str, pl.DataType] = {}
    for name, column in found.items():
        if isinstance(column.dtype, NoColumn):
            return Column(NoColumn(f"field {name} of {node.name} is {column.dtype.reason}"))
        dtypes[name] = column.dtype
    parts = 1 + sum(column.parts for column in found.values())
    return Column(pl.Struct(dtypes), parts, 1 + max((column.levels for column in found.values()), default=0))


def nodes_in(node: Node, seen: set[int] | None = None) -> Iterator[Node]:
    """The type and those in it, each once."""
    seen = set() if seen is None else seen
    if id(node) not in seen:
        seen.add(id(node))
        yield node
        for part in (*node.parts, *(one.node for one in node.fields)):
            yield from nodes_in(part, seen)


def with_fields(
    node: Node, names: Collection[str], inside: Mapping[str, Collection[str]] | None = None
) -> Node:
    """A record, or the records of a union, with only these fields. ``inside``: those of the records in them."""
    if node.kind == "union":
        return replace(node, parts=[with_fields(part, names, inside) for part in node.parts])
    if node.kind != "record":
        return node
    fields = [
        replace(one, node=with_fields(one.node, inside[one.name])) if inside and one.name in inside else one
        for one in node.fields
        if one.name in names
    ]
    return replace(node, fields=fields, recursive=False)


def record_of(node: Node) -> Node | None:
    """The record that a value is, if it is not null."""
    inner = nullable(node) or node
    return inner if inner.kind == "record" else None
