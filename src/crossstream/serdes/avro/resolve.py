"""How values of a writer's schema are read as those of a reader's: resolution, sizes of types, and defaults.

Source: Avro 1.12, "Schema Resolution".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from crossstream.errors import type_and_text
from crossstream.serdes.avro.objects import Column
from crossstream.serdes.avro.read import Items, Record, Union, Wrapped, decoded
from crossstream.serdes.avro.rows import number_at, varint
from crossstream.serdes.avro.schema import NO_DEFAULT, Field, Node
from crossstream.serdes.avro.single import Reader, Single
from crossstream.serdes.avro.sizes import EMPTY_ITEMS, entry_of, fixed_width, least_bytes
from crossstream.serdes.avro.skip import Skipped
from crossstream.serdes.errors import below, show

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}

_MOST_STEPS = 500_000
"""Pairs of types that are compared for two schemas: a second or two."""


class _TooLarge(ValueError):
    """Two schemas that take too long."""


class _Resolver:
    """Makes readers, one for each pair of a writer's and a reader's type: types may be inside themselves, or be part of
    many others. ``_made``: them, or why the pair does not fit."""

    def __init__(self, strict: bool = False) -> None:
        self._made: dict[tuple[int, int], Reader | str] = {}
        self._named: dict[int, dict[str, Node]] = {}
        self._kept: list[Any] = []  # what would be dropped while its id is a key
        self._strict = strict
        self._steps = 0

    def resolve(self, writer: Node, reader: Node | None, path: str) -> Reader:
        """Raises ValueError where the schemas do not fit."""
        key = (id(writer), id(reader))
        known = self._made.get(key)
        if isinstance(known, Reader):
            return known
        if known is not None:
            raise ValueError(known)
        self._count(1)
        before = len(self._made)
        try:
            return self._resolved(key, writer, reader, path)
        except ValueError as error:
            for later in list(self._made)[before:]:
                if isinstance(self._made[later], Reader):  # it may have a part of this pair
                    del self._made[later]
            self._made[key] = str(error)
            raise

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise _TooLarge("the schemas are too large to compare")

    def _resolved(self, key: tuple[int, int], writer: Node, reader: Node | None, path: str) -> Reader:
        if writer.kind == "union":
            return self._union(key, writer, reader, path)
        if reader is not None and reader.kind == "union":
            return self._into_union(key, writer, reader, path)
        if reader is not None and (reason := mismatch(writer, reader, self._strict)):
            raise ValueError(f"{path or 'the value'} {reason}")
        if writer.kind == "record":
            return self._record(key, writer, reader, path)
        if writer.kind in ("array", "map"):
            return self._items(key, writer, reader, path)
        return Single(writer, reader, path)

    def _union(self, key: tuple[int, int], writer: Node, reader: Node | None, path: str) -> Reader:
        made = self._made[key] = Union(reader, path)
        branches: list[Reader | str] = []
        for part in writer.parts:
            try:
                branches.append(self._branch(part, reader, path))
            except _TooLarge:
                raise
            except ValueError as error:
                if self._strict:
                    raise
                branches.append(str(error))
        if all(isinstance(one, str) for one in branches):
            raise ValueError(str(branches[0]))
        made.branches = branches
        return made

    def _branch(self, part: Node, reader: Node | None, path: str) -> Reader:
        if reader is None or reader.kind != "union":
            return self.resolve(part, reader, path)
        return self.resolve(part, self._matching(part, reader, path), path)

    def _matching(self, writer: Node, union: Node, path: str) -> Node:
        if id(union) not in self._named:
            self._named[id(union)] = {part.name: part for part in union.parts if part.name}
        same = self._named[id(union)].get(writer.name)
        if same is not None and same.kind == writer.kind:
            return same
        self._count(len(union.parts))
        return _matching(writer, union, path)

    def _into_union(self, key: tuple[int, int], writer: Node, reader: Node, path: str) -> Reader:
        inner = self.resolve(writer, self._matching(writer, reader, path), path)
        made = self._made[key] = Wrapped(reader, path)
        made.inner = inner
        return made

    def _record(self, key: tuple[int, int], writer: Node, reader: Node | None, path: str) -> Reader:
        made = self._made[key] = Record(reader, path)
        targets: dict[str, int] = {}
        constants: dict[int, Column] = {}
        if reader is not None:
            written = {one.name for one in writer.fields}
            for at, one in enumerate(reader.fields):
                name = next((name for name in (one.name, *one.aliases) if name in written), None)
                if name is not None:
                    targets[name] = at
                elif one.default is NO_DEFAULT:
                    raise ValueError(
                        f"{below(path, one.name)} is not in the writer's schema, and has no default"
                    )
                else:
                    constants[at] = default_column(one)
        made.constants = constants
        steps: list[tuple[Reader, int | None]] = []
        skipped: list[tuple[Node, Reader]] = []
        for one in writer.fields:
            target = targets.get(one.name)
            node = None if reader is None or target is None else reader.fields[target].node
            step = self.resolve(one.node, node, below(path, one.name))
            if target is None:
                if not skipped:
                    steps.append((Skipped(skipped, path), None))
                skipped.append((one.node, step))
            else:
                steps.append((step, target))
                skipped = []
        made.steps = steps
        made.empty = reader is None and fixed_width(writer) == 0
        return made

    def _items(self, key: tuple[int, int], writer: Node, reader: Node | None, path: str) -> Reader:
        made = self._made[key] = Items(reader, path)
        inner = None if reader is None else reader.parts[0]
        if writer.kind == "map":
            made.is_map = True
            entry = entry_of(writer.parts[0])
            made.item = self.resolve(entry, None if inner is None else entry_of(inner), path)
            self._kept += [entry, made.item]
        else:
            entry = writer.parts[0]
            made.item = self.resolve(entry, inner, f"{path}[]")
        made.width, made.least = fixed_width(entry), least_bytes(entry)
        made.skip = skipper(entry)
        return made


def mismatch(writer: Node, reader: Node, strict: bool = False) -> str:
    """Why values of the writer's type cannot be the reader's; no text: they can, as far as one sees here.

    ``strict``: all of them.
    """
    one, other = writer.kind, reader.kind
    if one != other:
        if other in _PROMOTED.get(one, ()):
            return ""
        if one == "enum" and other == "string":
            return ""
        return f"is {_shown(writer)} for the writer, and {_shown(reader)} for the reader"
    if one == "fixed" and writer.size != reader.size:
        return f"has {writer.size} bytes for the writer, and {reader.size} for the reader"
    if strict and (writer.logical != reader.logical or not set(writer.symbols) <= set(reader.symbols)):
        return "has values that the reader may not take"
    return ""


def _shown(node: Node) -> str:
    return f"{node.kind} {node.name}" if node.name else node.kind


def _matching(writer: Node, union: Node, path: str) -> Node:
    """The branch of a reader's union for a type of the writer: the same type first, then one it can become."""
    same = [part for part in union.parts if part.kind == writer.kind]
    if writer.name:
        last = writer.name.rpartition(".")[2]
        named = [part for part in same if part.name == writer.name or writer.name in part.aliases]
        named += [part for part in same if part.name.rpartition(".")[2] == last]
        same = named or (same if len(same) == 1 else [])
    if same:
        return same[0]
    for part in union.parts:
        if not mismatch(writer, part):
            return part
    raise ValueError(
        f"{path or 'the value'} is {_shown(writer)} for the writer, and no branch of the reader's union"
    )


# -- where values end ---------------------------------------------------------------------------------


def skipper(node: Node, known: dict[int, list[Any]] | None = None) -> Callable[[Any, int, int], int]:
    """A function (bytes, position, end) → the position behind a value; beyond the end where there is none."""
    known = {} if known is None else known
    if id(node) in known:
        box = known[id(node)]
        return lambda data, at, end: box[0](data, at, end)
    box = known[id(node)] = []
    made = _skipper(node, known)
    box.append(made)
    return made


def _skipper(node: Node, known: dict[int, list[Any]]) -> Callable[[Any, int, int], int]:
    width = fixed_width(node)
    if width is not None:
        return lambda data, at, end: at + width
    if node.kind in ("bytes", "string"):
        return _skip_sized
    if node.kind == "record":
        steps = [skipper(one.node, known) for one in node.fields]

        def skip_record(data: Any, at: int, end: int) -> int:
            for step in steps:
                at = step(data, at, end)
                if at > end:
                    return at
            return at

        return skip_record
    if node.kind == "union":
        branches = [skipper(part, known) for part in node.parts]

        def skip_union(data: Any, at: int, end: int) -> int:
            branch, at = number_at(data, at, end)
            return branches[branch](data, at, end) if 0 <= branch < len(branches) and at <= end else end + 1

        return skip_union
    if node.kind in ("array", "map"):
        entry = entry_of(node.parts[0]) if node.kind == "map" else node.parts[0]
        item, least = skipper(entry, known), least_bytes(entry)

        def skip_items(data: Any, at: int, end: int) -> int:
            while at <= end:
                count, at = number_at(data, at, end)
                if count < 0:
                    _, at = number_at(data, at, end)
                    count = -count
                if count == 0 or at > end:
                    return at
                if count > ((end - at) // least if least else EMPTY_ITEMS):
                    return end + 1
                for _ in range(count if least else 0):
                    at = item(data, at, end)
                    if at > end:
                        return at
            return at

        return skip_items
    return lambda data, at, end: number_at(data, at, end)[1]


def _skip_sized(data: Any, at: int, end: int) -> int:
    size, at = number_at(data, at, end)
    return at + size if size >= 0 else end + 1


# -- defaults ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def default_column(field: Field) -> Column:
    """One row with the default of a field. Raises ValueError."""
    try:
        data = _Defaults().bytes_of(field.node, field.default)
    except (TypeError, KeyError, AttributeError, OverflowError, struct.error, RecursionError) as error:
        raise ValueError(f"the default of field {field.name} is not valid: {type_and_text(error)}") from error
    made, faults = decoded(
        _Resolver().resolve(field.node, field.node, field.name), pa.array([data], pa.large_binary())
    )
    if faults:
        raise ValueError(f"the default of field {field.name} is not valid: {faults[0]}")
    return made


_LONGEST_DEFAULT = 2**13
"""Bytes of a default: the defaults of a record may have others in them, which double."""


class _Defaults:
    """The Avro bytes of defaults, which are JSON, each made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], bytes | None] = {}

    def bytes_of(self, node: Node, value: Any) -> bytes:
        """Raises ValueError, TypeError or others if it is not of the type."""
        key = (id(node), id(value))
        found = self._made.get(key, b"")
        if found is None:
            raise ValueError("a default inside itself")
        if key not in self._made:
            self._made[key] = None
            found = self._made[key] = self._of_type(node, value)
            if len(found) > _LONGEST_DEFAULT:
                raise _TooLarge(f"a default of more than {_LONGEST_DEFAULT} bytes")
        return found

    def _of_type(self, node: Node, value: Any) -> bytes:
        kind = node.kind
        if kind == "union":
            return self._of_union(node, value)
        if kind == "record":
            given = {one.name: one.default for one in node.fields} | (
                value if isinstance(value, dict) else {}
            )
            if not isinstance(value, dict) or any(one is NO_DEFAULT for one in given.values()):
                raise ValueError(f"the default {show(value)} is not a {node.name}")
            return b"".join(self.bytes_of(one.node, given[one.name]) for one in node.fields)
        if kind == "array" and isinstance(value, list):
            items = [self.bytes_of(node.parts[0], one) for one in value]
        elif kind == "map" and isinstance(value, dict):
            items = [_sized(key.encode()) + self.bytes_of(node.parts[0], one) for key, one in value.items()]
        else:
            return _default_leaf(node, value)
        return (varint(len(items)) + b"".join(items) if items else b"") + b"\x00"

    def _of_union(self, node: Node, value: Any) -> bytes:
        for at, part in enumerate(node.parts):
            try:
                return varint(at) + self.bytes_of(part, value)
            except _TooLarge:
                raise
            except (ValueError, TypeError, KeyError, OverflowError, struct.error):
                continue
        raise ValueError(f"the default {show(value)} is of no branch of the union")


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def _default_leaf(node: Node, value: Any) -> bytes:
    kind, is_bool = node.kind, isinstance(value, bool)
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and is_bool:
        return bytes([value])
    if kind in ("int", "long") and isinstance(value, int) and not is_bool:
        if not -(2 ** (31 if kind == "int" else 63)) <= value < 2 ** (31 if kind == "int" else 63):
            raise ValueError(f"the default {show(value)} is beyond {kind}")
        return varint(value)
    if kind in ("float", "double") and not is_bool and isinstance(value, int | float | str):
        if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            raise ValueError(f"the default {show(value)} is not a number")
        return struct.pack("<f" if kind == "float" else "<d", float(value))
    if kind == "string" and isinstance(value, str):
        return _sized(value.encode())
    if kind == "bytes" and isinstance(value, str):
        return _sized(value.encode("latin-1"))
    if kind == "fixed" and isinstance(value, str) and len(value) == node.size:
        return value.encode("latin-1")
    if kind == "enum" and value in node.symbols:
        return varint(node.symbols.index(value))
    raise ValueError(f"the default {show(value)} is not {kind}")


def resolved(writer: Node, reader: Node, strict: bool = False) -> Reader:
    """How values of the writer's schema are read as the reader's. Raises ValueError where they do not fit.

    ``strict``: also where only some of the values fit.
    """
    try:
        return _Resolver(strict).resolve(writer, reader, "")
    except RecursionError:
        raise ValueError("too many of the types are in each other") from None
