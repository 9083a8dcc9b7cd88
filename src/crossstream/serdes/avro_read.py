"""Avro payloads to columns or objects: how values of a writer's schema are read as those of a reader's.

`reading` resolves two schemas into readers, which walk over all payloads at once. A reader gives a Polars series where
the reader's type has a column form, else a list of objects; None for what is only checked. Source: Avro 1.12,
"Schema Resolution".
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.gc_pause import paused_gc
from crossstream.serdes import arrays, refusals
from crossstream.serdes.avro_cursor import DEEPEST, PADDING, Cursor
from crossstream.serdes.avro_schema import (
    NO_DEFAULT,
    Field,
    Node,
    column_type,
    nullable,
    parse,
)
from crossstream.serdes.json_columns import struct_of
from crossstream.serdes.json_shapes import NoColumn

CHUNK = 16_384
"""Payloads read at once: what the steps make stays in the cache."""

ROUNDS = 32
"""Items of an array that are found by stepping through all payloads together; those behind them one by one."""

EMPTY_ITEMS = 1000
"""Items without bytes that one array may have: a few bytes could claim billions of them."""

Column = pl.Series | list[Any] | None


class Reader:
    """Reads one value of each payload. ``column``: the Polars type, None for objects; ``keep``: it is wanted at all."""

    column: pl.DataType | None = None
    keep: bool = True

    def __init__(self, node: Node | None, path: str) -> None:
        self.path, self.keep = path, node is not None
        if node is not None:
            dtype = column_type(node)
            self.column = None if isinstance(dtype, NoColumn) else dtype
            self.node = node

    def read(self, cursor: Cursor) -> Column:
        raise NotImplementedError

    def empty(self) -> Column:
        if not self.keep:
            return None
        return [] if self.column is None else pl.Series([], dtype=self.column)


def objects(column: Column, node: Node) -> list[Any]:
    """The values as Python functions get them."""
    if not isinstance(column, pl.Series):
        assert column is not None
        return column
    if column.null_count():
        rows = objects(column.drop_nulls(), node)
        made = iter(rows)
        return [next(made) if there else None for there in column.is_not_null().to_list()]
    while node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        if not others:
            return [None] * len(column)
        node = others[0]
    if node.kind == "record":
        names = [one.name for one in node.fields]
        if not names:
            return [{} for _ in range(len(column))]
        parts = column.struct.unnest().get_columns()
        lists = [objects(part, one.node) for part, one in zip(parts, node.fields, strict=True)]
        return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
    if node.kind in ("array", "map"):
        ends = np.cumsum(column.list.len().to_numpy(), dtype=np.int64).tolist()
        inner = arrays.series_of(column.to_arrow().flatten())
        item = node.parts[0]
        if node.kind == "array":
            items = objects(inner, item)
        else:
            keys, values = inner.struct.field("key").to_list(), objects(inner.struct.field("value"), item)
            items = list(zip(keys, values, strict=True))
        make: Callable[[Any], Any] = dict if node.kind == "map" else list
        return [make(items[start:end]) for start, end in pairwise([0, *ends])]
    if node.logical == "uuid":
        return [UUID(one) for one in column.to_list()]
    return column.to_list()


# -- single values ----------------------------------------------------------------------------------------

_DAY = 86_400
_FIRST, _LAST = -719_162, 2_932_896  # days of the years 1 and 9999
_UNITS = {"millis": 1_000, "micros": 1_000_000}
_INT = 2**31
_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"


class _Single(Reader):
    """Null, a number, text, bytes, an enum or a fixed."""

    def __init__(self, writer: Node, node: Node | None, path: str) -> None:
        super().__init__(node, path)
        self.writer = writer
        dtype = column_type(writer)
        self.step: Callable[[_Single, Cursor], Column] = _STEPS[writer.kind]
        self.logical = writer.logical
        if node is not None and not writer.logical and node.logical:
            self.logical = node.logical  # bytes that the writer's schema does not interpret
        elif node is not None and not node.logical and self.logical != "uuid":
            self.logical = ""
        if isinstance(dtype, NoColumn) and (node is None or self.column is not None):
            raise ValueError(f"{path or 'the value'} is {dtype.reason}")
        shown = writer if node is None or self.logical == writer.logical else node
        self.precision, self.scale = shown.precision, shown.scale

    def read(self, cursor: Cursor) -> Column:
        made = self.step(self, cursor)
        if not self.keep or self.column is None or not isinstance(made, pl.Series):
            return made if self.keep else None
        return made if made.dtype == self.column else self._cast(made, cursor)

    def _cast(self, made: pl.Series, cursor: Cursor) -> pl.Series:
        assert self.column is not None
        if self.column == pl.String and made.dtype == pl.Binary:
            return _text(made, cursor, self.path)
        cast = made.cast(self.column, strict=False)
        if cast.null_count() > made.null_count():
            wrong = (cast.is_null() & made.is_not_null()).to_numpy()
            cursor.fail(wrong, self.path, f"a value that {self.column} does not hold")
        return cast


def _text(made: pl.Series, cursor: Cursor, path: str) -> pl.Series:
    try:
        return made.cast(pl.String)
    except pl.exceptions.PolarsError:
        texts = [_utf8(one) for one in made.to_list()]
        cursor.fail(np.array([one is None for one in texts]), path, "text that is not UTF-8")
        return pl.Series(texts, dtype=pl.String)


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _null(reader: _Single, cursor: Cursor) -> Column:
    return pl.Series([None], dtype=pl.Null).new_from_index(0, len(cursor))


def _boolean(reader: _Single, cursor: Cursor) -> Column:
    byte = cursor.buffer[cursor.take(1, reader.path)]
    bad = byte > 1
    if bad.any():
        cursor.check(bad & (cursor.faults[cursor.rows] == 0), reader.path, "a boolean that is neither 0 nor 1")
    return pl.Series(byte == 1)


def _integer(reader: _Single, cursor: Cursor) -> Column:
    value = cursor.number(reader.path)
    if reader.writer.kind == "int":
        wrong = (value >= _INT) | (value < -_INT)
        if wrong.any():
            cursor.fail(wrong, reader.path, "an int of more than 32 bits")
            value = np.where(wrong, 0, value)
    logical = reader.logical
    if logical not in ("", "uuid"):
        return _moment(reader, cursor, value, logical)
    return pl.Series(value.astype(np.int32) if reader.writer.kind == "int" else value)


def _moment(reader: _Single, cursor: Cursor, value: Any, logical: str) -> pl.Series:
    """Dates and times, which are refused beyond the years that Python has."""
    per_second = _UNITS.get(logical.rpartition("-")[2], 1)
    if logical == "date":
        low, high = _FIRST, _LAST + 1
    elif logical.startswith("time-"):
        low, high = 0, _DAY * per_second
    else:
        low, high = _FIRST * _DAY * per_second, (_LAST + 1) * _DAY * per_second
    if len(value) and not low <= int(value.min()) <= int(value.max()) < high:
        wrong = (value < low) | (value >= high)
        cursor.fail(wrong, reader.path, f"a {logical} beyond its range")
        value = np.where(wrong, 0, value)
    if logical == "date":
        return pl.Series(value.astype(np.int32)).cast(pl.Date)
    if logical.startswith("time-"):
        return pl.Series(value * (1_000_000_000 // per_second)).cast(pl.Time)
    zone = None if logical.startswith("local") else "UTC"
    return pl.Series(value).cast(pl.Datetime("ms" if per_second == 1000 else "us", zone))


def _float(reader: _Single, cursor: Cursor) -> Column:
    start = cursor.take(8 if reader.writer.kind == "double" else 4, reader.path)
    if reader.writer.kind == "double":
        return pl.Series(cursor.words[start].view(np.float64))
    return pl.Series((cursor.words[start] & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32))


def _bytes(reader: _Single, cursor: Cursor) -> Column:
    start, size = cursor.length(reader.path)
    if reader.logical == "decimal":
        return _decimal(reader, cursor, start, size)
    made = cursor.bytes_at(start, size)
    if reader.writer.kind == "bytes":
        return made
    text = _text(made, cursor, reader.path)
    return _uuid(text, cursor, reader.path) if reader.logical == "uuid" else text


def _uuid(text: pl.Series, cursor: Cursor, path: str) -> pl.Series:
    fits = text.str.contains(_UUID).fill_null(False)
    if not fits.all():
        cursor.fail(~fits.to_numpy(), path, "text that is not a UUID")
    return text.str.to_lowercase()


def _fixed(reader: _Single, cursor: Cursor) -> Column:
    width = reader.writer.size
    start = cursor.take(width, reader.path)
    over = start + width > cursor.end
    if over.any():  # marked already
        start = np.where(over, 0, start)
    size = np.where(over, 0, width)
    if reader.logical == "decimal":
        return _decimal(reader, cursor, start, size)
    if reader.logical == "uuid":
        return uuid_text(cursor.matrix(np.where(over, 0, start), width))
    return cursor.bytes_at(start, size)


_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_DASHES = (8, 13, 18, 23)


def uuid_text(rows: Any) -> pl.Series:
    """The text of UUIDs of 16 bytes."""
    made = np.full((len(rows), 36), ord("-"), np.uint8)
    made[:, [at for at in range(36) if at not in _DASHES]] = _HEX[rows].reshape(len(rows), 32)
    return pl.Series(arrays.from_fixed_rows(made.ravel(), 36, None)).cast(pl.String)


def _decimal(reader: _Single, cursor: Cursor, start: Any, size: Any) -> Column:
    """Two's complement, most significant byte first, as Arrow's 128 bits, least significant first."""
    precision, scale = reader.precision, reader.scale
    if reader.column is None and reader.keep:
        return [_wide_decimal(cursor, *one, scale) for one in zip(start.tolist(), size.tolist(), strict=True)]
    if precision > 38:
        return None
    empty = (size == 0) & (cursor.faults[cursor.rows] == 0)
    cursor.check(empty, reader.path, "a decimal of no bytes")
    if int(size.max(initial=0)) > 16:
        start, size = _narrowed(reader, cursor, start, size)
    made = decimal_rows(cursor, start, size)
    low, high = made.view("<u8")[:, 0], made.view("<i8")[:, 1]
    beyond = ~_within(low, high, 10**precision)
    if beyond.any():
        cursor.fail(beyond, reader.path, f"a decimal of more than {precision} digits")
        made[beyond] = 0
    buffers = [None, pa.py_buffer(np.ascontiguousarray(made))]
    return pl.Series(pa.Array.from_buffers(pa.decimal128(precision, scale), len(made), buffers))


def _narrowed(reader: _Single, cursor: Cursor, start: Any, size: Any) -> tuple[Any, Any]:
    """Decimals without the bytes in front of the last 16, which only repeat the sign."""
    wrong = np.zeros(len(size), np.bool_)
    for width in np.unique(size[size > 16]).tolist():
        rows = np.flatnonzero(size == width)
        front = cursor.matrix(start[rows], width - 15)
        sign = np.where(front[:, -1:] >= 0x80, 0xFF, 0)
        wrong[rows] = (front[:, :-1] != sign).any(axis=1)
    cursor.check(wrong, reader.path, f"a decimal of more than {reader.precision} digits")
    return start + np.maximum(size - 16, 0), np.where(wrong, 0, np.minimum(size, 16))


def decimal_rows(cursor: Cursor, start: Any, size: Any) -> Any:
    """The bytes of numbers of up to 16 bytes, extended to 16, least significant first."""
    empty = size == 0
    sign = np.where((cursor.buffer[start] >= 0x80) & ~empty, 0xFF, 0).astype(np.uint8)
    widest = int(size.max(initial=0))
    made = np.repeat(sign[:, None], 16, axis=1)
    for at in range(widest):  # from the end of the number
        there = size > at
        made[:, at] = np.where(there, cursor.buffer[np.where(there, start + size - 1 - at, 0)], sign)
    return made


def _within(low: Any, high: Any, limit: int) -> Any:
    """Whether -limit < number < limit, of the two halves of 128 bits."""
    top, bottom = limit >> 64, np.uint64(limit & (2**64 - 1))
    below = (high < top) | ((high == top) & (low < bottom))
    least = -limit
    top, bottom = least >> 64, np.uint64(least & (2**64 - 1))
    above = (high > top) | ((high == top) & (low > bottom))
    return below & above


def _wide_decimal(cursor: Cursor, start: int, size: int, scale: int) -> Any:
    from decimal import Context, Decimal

    unscaled = int.from_bytes(cursor.buffer[start : start + size].tobytes(), "big", signed=True)
    return Decimal(unscaled).scaleb(-scale, Context(prec=max(len(str(unscaled)), 1)))


def _enum(reader: _Single, cursor: Cursor) -> Column:
    index = cursor.number(reader.path)
    symbols = reader.writer.symbols
    wrong = (index < 0) | (index >= len(symbols))
    if wrong.any():
        cursor.fail(wrong, reader.path, "a number that no symbol has")
        index = np.where(wrong, 0, index)
    if not reader.keep:
        return None
    if reader.node.kind == "enum":
        known = reader.node.symbols
        mapped = [one if one in known else reader.node.default for one in symbols]
        if None in mapped:
            unknown = np.array([one is None for one in mapped])[index]
            cursor.check(
                unknown & (cursor.faults[cursor.rows] == 0), reader.path, "a symbol that the reader lacks"
            )
    else:
        mapped = list(symbols)
    return pl.Series(mapped, dtype=pl.String).gather(pl.Series(index))


_STEPS: dict[str, Callable[[_Single, Cursor], Column]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _float,
    "double": _float,
    "bytes": _bytes,
    "string": _bytes,
    "fixed": _fixed,
    "enum": _enum,
}


# -- records, unions, arrays and maps ---------------------------------------------------------------------


class _Record(Reader):
    """``steps``: for every field of the writer its reader, and the number of the reader's field it becomes."""

    steps: Sequence[tuple[Reader, int | None]] = ()
    constants: dict[int, Column] = {}  # noqa: RUF012

    def read(self, cursor: Cursor) -> Column:
        if not len(cursor):
            return self.empty()
        cursor.depth += 1
        if cursor.depth > DEEPEST:
            cursor.fail(np.ones(len(cursor), np.bool_), self.path, f"more than {DEEPEST} levels")
            cursor.depth -= 1
            return self._blank(len(cursor))
        found: dict[int, Column] = {}
        for reader, target in self.steps:
            made = reader.read(cursor)
            if target is not None:
                found[target] = made
        cursor.depth -= 1
        if not self.keep:
            return None
        for target, one in self.constants.items():
            found[target] = (
                one.new_from_index(0, len(cursor)) if isinstance(one, pl.Series) else one * len(cursor)  # type: ignore[operator]
            )
        fields = self.node.fields
        if self.column is not None:
            return struct_of({one.name: found[at] for at, one in enumerate(fields)}, len(cursor))  # type: ignore[misc]
        lists = [objects(found[at], one.node) for at, one in enumerate(fields)]
        names = [one.name for one in fields]
        return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]

    def _blank(self, rows: int) -> Column:
        if not self.keep:
            return None
        if self.column is None:
            return [None] * rows
        return pl.Series([None], dtype=self.column).new_from_index(0, rows)


class _Union(Reader):
    """``branches``: for every branch of the writer, its reader; a text: why it cannot be read."""

    branches: Sequence[Reader | str] = ()

    def read(self, cursor: Cursor) -> Column:
        if not len(cursor):
            return self.empty()
        branch = cursor.number(self.path)
        count = len(self.branches)
        if not 0 <= int(branch.min()) <= int(branch.max()) < count:
            wrong = (branch < 0) | (branch >= count)
            cursor.fail(wrong, self.path, "a branch that the union does not have")
            branch = np.where(wrong, -1, branch)
        first = int(branch[0])
        if first >= 0 and (branch == first).all():
            return self._branch(first, cursor)
        parts: list[Column] = []
        order: list[Any] = []
        for at in range(count):
            rows = np.flatnonzero(branch == at)
            if len(rows):
                inner = cursor.some(rows)
                parts.append(self._branch(at, inner))
                cursor.pos[rows] = inner.pos
                order.append(rows)
        return self._joined(parts, order, len(cursor)) if self.keep else None

    def _branch(self, at: int, cursor: Cursor) -> Column:
        reader = self.branches[at]
        if isinstance(reader, str):
            cursor.fail(np.ones(len(cursor), np.bool_), self.path, reader)
            return self._nulls(len(cursor))
        made = reader.read(cursor)
        if not self.keep or isinstance(made, list):
            return made
        if reader.column == pl.Null:
            return self._nulls(len(cursor))
        return made if self.column is not None else objects(made, reader.node)

    def _nulls(self, rows: int) -> Column:
        if not self.keep:
            return None
        if self.column is None:
            return [None] * rows
        return pl.Series([None], dtype=self.column).new_from_index(0, rows)

    def _joined(self, parts: list[Column], order: list[Any], rows: int) -> Column:
        if self.column is None:
            made: list[Any] = [None] * rows
            for part, places in zip(parts, order, strict=True):
                for place, value in zip(places.tolist(), part or (), strict=True):
                    made[place] = value
            return made
        source = np.full(rows, -1, np.int64)
        begin = 0
        kept: list[pl.Series] = []
        for part, places in zip(parts, order, strict=True):
            assert isinstance(part, pl.Series)
            if part.null_count() < len(part):
                source[places] = np.arange(begin, begin + len(places))
                begin += len(places)
                kept.append(part)
        if not kept:
            return self._nulls(rows)
        dense = kept[0] if len(kept) == 1 else pl.concat(kept, rechunk=True)
        return dense.gather(pl.Series(pa.array(source, mask=source < 0)))


class _Items(Reader):
    """An array, or a map, whose items are records of key and value."""

    item: Reader
    width: int | None = None
    least: int = 0
    is_map: bool = False
    skip: Callable[[Any, int, int], int]

    def read(self, cursor: Cursor) -> Column:
        if not len(cursor):
            return self.empty()
        owners, parts = [], []
        left = np.zeros(len(cursor), np.int64)
        active = np.arange(len(cursor))
        rounds = 0
        empties = np.zeros(len(cursor), np.int64)
        while len(active):
            headed = active[left[active] == 0]
            if len(headed):
                counts = self._counts(cursor, headed)
                left[headed] = counts
                if self.least == 0:
                    empties[headed] += counts
                    wrong = empties > EMPTY_ITEMS
                    if wrong.any():
                        cursor.fail(wrong, self.path, f"more than {EMPTY_ITEMS} items without bytes")
                        left[wrong] = 0
                active = active[left[active] > 0]
                if not len(active):
                    break
            rounds += 1
            if self.width is not None:
                rows, positions = self._fixed_items(cursor, active, left)
            elif rounds > ROUNDS:
                rows, positions = self._walked(cursor, active, left)
            else:
                rows, positions = active, None
            inner = cursor.some(rows, None if positions is None else positions)
            parts.append(self.item.read(inner))
            owners.append(rows)
            if positions is None:
                cursor.pos[active] = inner.pos
                left[active] -= 1
            broken = cursor.faults[cursor.rows[active]] != 0
            if broken.any():
                cursor.pos[active[broken]] = cursor.end[active[broken]]
                left[active[broken]] = 0
                active = active[~broken]
        return self._lists(cursor, owners, parts) if self.keep else None

    def _counts(self, cursor: Cursor, rows: Any) -> Any:
        """The items of the next block of these rows; 0: there are no more."""
        inner = cursor.some(rows)
        counts = inner.number(self.path)
        negative = counts < 0
        if negative.any():  # the size of the block in bytes follows
            sized = inner.some(negative)
            sizes = sized.number(self.path)
            inner.pos[negative] = sized.pos
            wrong = np.zeros(len(inner), np.bool_)
            wrong[negative] = (sizes < 0) | (sizes > sized.end - sized.pos)
            inner.check(wrong, self.path, "a block that is longer than the payload")
            counts = np.where(wrong, 0, np.abs(counts))
        over = counts < 0  # the lowest number of 64 bits
        if self.least:
            over |= counts > (inner.end - inner.pos) // self.least
        if over.any():
            inner.fail(over, self.path, "more items than the payload has bytes for")
            counts = np.where(over, 0, counts)
        counts = np.where(inner.faults[inner.rows] != 0, 0, counts)
        cursor.pos[rows] = inner.pos
        return counts

    def _fixed_items(self, cursor: Cursor, active: Any, left: Any) -> tuple[Any, Any]:
        counts = left[active]
        rows = np.repeat(active, counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        positions = np.repeat(cursor.pos[active], counts) + within * self.width
        cursor.pos[active] += counts * self.width
        left[active] = 0
        return rows, positions

    def _walked(self, cursor: Cursor, active: Any, left: Any) -> tuple[Any, Any]:
        """All items of the blocks, found one by one: few payloads have arrays of that length."""
        rows: list[int] = []
        positions: list[int] = []
        for row in active.tolist():
            at, end = int(cursor.pos[row]), int(cursor.end[row])
            data = memoryview(cursor.buffer)  # type: ignore[arg-type]
            for _ in range(int(left[row])):
                rows.append(row)
                positions.append(min(at, end))
                at = self.skip(data, at, end)
                if at > end:
                    break
            cursor.pos[row] = min(at, end)
            left[row] = 0
        return np.array(rows, np.int64), np.array(positions, np.int64)

    def _lists(self, cursor: Cursor, owners: list[Any], parts: list[Column]) -> Column:
        owner = np.concatenate(owners) if owners else np.empty(0, np.int64)
        counts = np.bincount(owner, minlength=len(cursor))
        order = np.argsort(owner, kind="stable") if len(parts) > 1 else None
        if self.column is None:
            items = [one for part, rows in zip(parts, owners, strict=True) for one in self._objects(part, rows)]
            if order is not None:
                items = [items[at] for at in order.tolist()]
            ends = np.cumsum(counts).tolist()
            make: Callable[[Any], Any] = self._dict if self.is_map else list
            return [make(items[start:end]) for start, end in pairwise([0, *ends])]
        kept = [part for part in parts if isinstance(part, pl.Series)]
        dense = pl.concat(kept, rechunk=True) if kept else self.item.empty()
        assert isinstance(dense, pl.Series)
        if order is not None:
            dense = dense.gather(pl.Series(order))
        ends = np.zeros(len(cursor) + 1, np.int64)
        np.cumsum(counts, out=ends[1:])
        values = dense.to_arrow()
        made = arrays.series_of(pa.LargeListArray.from_arrays(pa.array(ends), values))
        return made if made.dtype == self.column else made.cast(self.column)  # type: ignore[arg-type]

    def _objects(self, part: Column, rows: Any) -> list[Any]:
        return objects(part, self.item.node)

    @staticmethod
    def _dict(items: list[Any]) -> dict[str, Any]:
        return {one["key"]: one["value"] for one in items}


# -- resolution -------------------------------------------------------------------------------------------

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_COMPOUND = ("record", "union", "array", "map")


class _Resolver:
    """Makes readers; those of types that contain themselves once."""

    def __init__(self, strict: bool = False) -> None:
        self._made: dict[tuple[int, int], Reader] = {}
        self._strict = strict

    def resolve(self, writer: Node, reader: Node | None, path: str) -> Reader:
        """Raises ValueError where the schemas do not fit."""
        key = (id(writer), id(reader))
        if key in self._made:
            return self._made[key]
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
        return _Single(writer, reader, path)

    def _union(self, key: tuple[int, int], writer: Node, reader: Node | None, path: str) -> Reader:
        made = self._made[key] = _Union(reader, path)
        branches: list[Reader | str] = []
        for part in writer.parts:
            try:
                branches.append(self._branch(part, reader, path))
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
        return self.resolve(part, _matching(part, reader, path), path)

    def _into_union(self, key: tuple[int, int], writer: Node, reader: Node, path: str) -> Reader:
        inner = self.resolve(writer, _matching(writer, reader, path), path)
        made = self._made[key] = _Wrapped(reader, path)
        made.inner = inner
        return made

    def _record(self, key: tuple[int, int], writer: Node, reader: Node | None, path: str) -> Reader:
        made = self._made[key] = _Record(reader, path)
        targets: dict[str, int] = {}
        if reader is not None:
            written = {one.name for one in writer.fields}
            for at, one in enumerate(reader.fields):
                name = next((name for name in (one.name, *one.aliases) if name in written), None)
                if name is not None:
                    targets[name] = at
                elif one.default is NO_DEFAULT:
                    raise ValueError(f"{below(path, one.name)} is not in the writer's schema, and has no default")
                else:
                    made.constants = {**made.constants, at: default_column(one)}
        steps = []
        for one in writer.fields:
            target = targets.get(one.name)
            node = None if reader is None or target is None else reader.fields[target].node
            steps.append((self.resolve(one.node, node, below(path, one.name)), target))
        made.steps = steps
        return made

    def _items(self, key: tuple[int, int], writer: Node, reader: Node | None, path: str) -> Reader:
        made = self._made[key] = _Items(reader, path)
        inner = None if reader is None else reader.parts[0]
        if writer.kind == "map":
            made.is_map = True
            entry = _entry(writer.parts[0])
            made.item = self.resolve(entry, None if inner is None else _entry(inner), path)
            self._kept = (*getattr(self, "_kept", ()), entry, made.item)  # their ids stay theirs
        else:
            entry = writer.parts[0]
            made.item = self.resolve(entry, inner, f"{path}[]")
        made.width, made.least = fixed_width(entry), least_bytes(entry)
        if made.width == 0:
            made.width = None
        made.skip = skipper(entry)
        return made


class _Wrapped(Reader):
    """A value that becomes a branch of the reader's union."""

    inner: Reader

    def read(self, cursor: Cursor) -> Column:
        made = self.inner.read(cursor)
        if self.column is not None and isinstance(made, pl.Series) and made.dtype == pl.Null:
            return made.cast(self.column)
        return made if self.column is not None else objects(made, self.inner.node)


def _entry(value: Node) -> Node:
    return Node("record", "entry", fields=[Field("key", Node("string")), Field("value", value)])


def below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


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
    if strict and (one != other or writer.logical != reader.logical or not set(writer.symbols) <= set(reader.symbols)):
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
    raise ValueError(f"{path or 'the value'} is {_shown(writer)} for the writer, and no branch of the reader's union")


# -- sizes ------------------------------------------------------------------------------------------------


def fixed_width(node: Node) -> int | None:
    """The bytes of every value of a type; None: they differ."""
    if node.kind == "record":
        widths = [] if any(one.node.kind in _COMPOUND for one in node.fields) else node.fields
        if len(widths) < len(node.fields):
            return None
        found = [fixed_width(one.node) for one in node.fields]
        return None if None in found else sum(width or 0 for width in found)
    return {"null": 0, "boolean": 1, "float": 4, "double": 8, "fixed": node.size}.get(node.kind)


def least_bytes(node: Node, within: tuple[int, ...] = ()) -> int:
    """The bytes that a value of the type has at least."""
    if node.kind == "record":
        if id(node) in within:
            return 0
        return sum(least_bytes(one.node, (*within, id(node))) for one in node.fields)
    width = fixed_width(node)
    return 1 if width is None else width


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
            branch, at = _number(data, at, end)
            return branches[branch](data, at, end) if 0 <= branch < len(branches) and at <= end else end + 1

        return skip_union
    if node.kind in ("array", "map"):
        entry = _entry(node.parts[0]) if node.kind == "map" else node.parts[0]
        item, least = skipper(entry, known), least_bytes(entry)

        def skip_items(data: Any, at: int, end: int) -> int:
            while at <= end:
                count, at = _number(data, at, end)
                if count < 0:
                    _, at = _number(data, at, end)
                    count = -count
                if count == 0 or at > end:
                    return at
                if count > ((end - at) // least if least else EMPTY_ITEMS):
                    return end + 1
                for _ in range(count):
                    at = item(data, at, end)
                    if at > end:
                        return at
            return at

        return skip_items
    return lambda data, at, end: _number(data, at, end)[1]


def _skip_sized(data: Any, at: int, end: int) -> int:
    size, at = _number(data, at, end)
    return at + size if size >= 0 else end + 1


def _number(data: Any, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return 0, end + 1


# -- defaults ---------------------------------------------------------------------------------------------


def default_column(field: Field) -> Column:
    """One row with the default of a field."""
    data = default_bytes(field.node, field.default)
    made, faults = decoded(_Resolver().resolve(field.node, field.node, field.name), pa.array([data], pa.large_binary()))
    if faults:
        raise ValueError(f"the default of field {field.name} is not valid: {faults[0]}")
    return made


def varint(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))


def default_bytes(node: Node, value: Any) -> bytes:
    """The Avro bytes of a default, which is JSON. Raises ValueError, TypeError or KeyError if it is not of the type."""
    kind = node.kind
    if kind == "union":
        for at, part in enumerate(node.parts):
            try:
                return varint(at) + default_bytes(part, value)
            except (ValueError, TypeError, KeyError, OverflowError, struct.error):
                continue
        raise ValueError(f"the default {value!r} is of no branch of the union")
    if kind == "record":
        given = {one.name: value.get(one.name, one.default) for one in node.fields}
        if not isinstance(value, dict) or NO_DEFAULT in given.values():
            raise ValueError(f"the default {value!r} is not a {node.name}")
        return b"".join(default_bytes(one.node, given[one.name]) for one in node.fields)
    if kind in ("array", "map"):
        if not isinstance(value, list if kind == "array" else dict):
            raise ValueError(f"the default {value!r} is not an {kind}")
        if kind == "array":
            items = [default_bytes(node.parts[0], one) for one in value]
        else:
            items = [_sized(key.encode()) + default_bytes(node.parts[0], one) for key, one in value.items()]
        return (varint(len(items)) + b"".join(items) if items else b"") + b"\x00"
    return _default_leaf(node, value)


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
            raise ValueError(f"the default {value!r} is beyond {kind}")
        return varint(value)
    if kind in ("float", "double") and not is_bool and isinstance(value, int | float | str):
        if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            raise ValueError(f"the default {value!r} is not a number")
        return struct.pack("<f" if kind == "float" else "<d", float(value))
    if kind == "string" and isinstance(value, str):
        return _sized(value.encode())
    if kind == "bytes" and isinstance(value, str):
        return _sized(value.encode("latin-1"))
    if kind == "fixed" and isinstance(value, str) and len(value) == node.size:
        return value.encode("latin-1")
    if kind == "enum" and value in node.symbols:
        return varint(node.symbols.index(value))
    raise ValueError(f"the default {value!r} is not {kind}")


# -- whole columns ----------------------------------------------------------------------------------------


def resolved(writer: Node, reader: Node, strict: bool = False) -> Reader:
    """How values of the writer's schema are read as the reader's. Raises ValueError where they do not fit.

    ``strict``: also where only some of the values fit.
    """
    resolver = _Resolver(strict)
    made = resolver.resolve(writer, reader, "")
    made.resolver = resolver  # type: ignore[attr-defined]
    return made


def decoded(reader: Reader, data: pa.LargeBinaryArray) -> tuple[Column, dict[int, str]]:
    """The values of payloads without nulls, and the reasons of those that cannot be read. With reasons: no values."""
    positions, content = arrays.offsets(data), arrays.content(data)
    parts: list[Column] = []
    faults: dict[int, str] = {}
    for first in range(0, len(data), CHUNK):
        last = min(first + CHUNK, len(data))
        begin, after = int(positions[first]), int(positions[last])
        buffer = np.zeros(after - begin + PADDING, np.uint8)
        buffer[: after - begin] = content[begin:after]
        cursor = Cursor(buffer, positions[first:last] - begin, positions[first + 1 : last + 1] - begin)
        parts.append(reader.read(cursor))
        if (left := cursor.end - cursor.pos).any():
            cursor.fail((left > 0) & (cursor.faults == 0), "", "bytes are left over behind the value")
        if cursor.reasons and cursor.faults.any():
            rows = np.flatnonzero(cursor.faults)
            faults.update(
                {first + row: cursor.reasons[cursor.faults[row] - 1] for row in rows.tolist()}
            )
    if faults:
        return None, faults
    if not parts:
        return reader.empty(), {}
    if len(parts) == 1:
        return parts[0], {}
    if isinstance(parts[0], list):
        return [one for part in parts for one in part or ()], {}  # type: ignore[union-attr]
    return pl.concat([part for part in parts if isinstance(part, pl.Series)], rechunk=True), {}
