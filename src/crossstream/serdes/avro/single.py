"""One Avro value of many payloads at once: null, numbers, text, bytes, enums and fixed, and the objects of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays
from crossstream.serdes.avro.cursor import Cursor
from crossstream.serdes.avro.objects import Column
from crossstream.serdes.avro.schema import Node, column_type
from crossstream.serdes.json.shapes import NoColumn


class Reader(ABC):
    """Reads one value of each payload. ``column``: the Polars type, None for objects; ``keep``: it is wanted at all."""

    column: pl.DataType | None = None
    keep: bool = True

    def __init__(self, node: Node | None, path: str) -> None:
        self.path, self.keep = path, node is not None
        if node is not None:
            dtype = column_type(node)
            self.column = None if isinstance(dtype, NoColumn) else dtype
            self.node = node

    @abstractmethod
    def read(self, cursor: Cursor) -> Column:
        """The value of each payload."""

    def nulls(self, rows: int) -> Column:
        if not self.keep:
            return None
        return [None] * rows if self.column is None else arrays.null_series(rows, self.column)


# -- single values ----------------------------------------------------------------------------------------

_DAY = 86_400
_FIRST, _LAST = -719_162, 2_932_896  # days of the years 1 and 9999
_UNITS = {"millis": 1_000, "micros": 1_000_000}
_INT = 2**31
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_UUID = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"


class Single(Reader):
    """Null, a number, text, bytes, an enum or a fixed."""

    def __init__(self, writer: Node, node: Node | None, path: str) -> None:
        super().__init__(node, path)
        self.writer = writer
        dtype = column_type(writer)
        self.step: Callable[[Single, Cursor], Column] = _STEPS[writer.kind]
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


def _null(reader: Single, cursor: Cursor) -> Column:
    return arrays.null_series(len(cursor), pl.Null())


def _boolean(reader: Single, cursor: Cursor) -> Column:
    byte = cursor.buffer[cursor.take(1, reader.path)]
    bad = byte > 1
    if bad.any():
        cursor.check(
            bad & (cursor.faults[cursor.rows] == 0), reader.path, "a boolean that is neither 0 nor 1"
        )
    return pl.Series(byte == 1)


def _integer(reader: Single, cursor: Cursor) -> Column:
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


def limits(logical: str) -> tuple[int, int]:
    """The lowest number that a date or time may be, and the one behind the highest."""
    if logical == "date":
        return _FIRST, _LAST + 1
    day = _DAY * _per_second(logical)
    return (0, day) if logical.startswith("time-") else (_FIRST * day, (_LAST + 1) * day)


def _per_second(logical: str) -> int:
    return _UNITS.get(logical.rpartition("-")[2], 1)


def _moment(reader: Single, cursor: Cursor, value: Any, logical: str) -> pl.Series:
    """Dates and times, which are refused beyond the years that Python has."""
    low, high = limits(logical)
    per_second = _per_second(logical)
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


def _float(reader: Single, cursor: Cursor) -> Column:
    start = cursor.take(8 if reader.writer.kind == "double" else 4, reader.path)
    if reader.writer.kind == "double":
        return pl.Series(cursor.words[start].view(np.float64))
    return pl.Series((cursor.words[start] & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32))


def _bytes(reader: Single, cursor: Cursor) -> Column:
    start, size = cursor.length(reader.path)
    if reader.logical == "decimal":
        return _decimal(reader, cursor, start, size)
    if reader.writer.kind == "bytes" and not reader.keep:
        return None
    made = cursor.bytes_at(start, size)
    if reader.writer.kind == "bytes":
        return made
    text = _text(made, cursor, reader.path)
    return _uuid(text, cursor, reader.path) if reader.logical == "uuid" else text


def _uuid(text: pl.Series, cursor: Cursor, path: str) -> pl.Series:
    fits = text.str.contains(_UUID).fill_null(False)
    if not fits.all():
        cursor.fail(~fits.to_numpy(), path, "text that is not a UUID")
        text = text.zip_with(fits, pl.Series([_NO_UUID]))
    return text.str.to_lowercase()


def _fixed(reader: Single, cursor: Cursor) -> Column:
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


def _decimal(reader: Single, cursor: Cursor, start: Any, size: Any) -> Column:
    """Two's complement, most significant byte first, as Arrow's 128 bits, least significant first."""
    precision, scale = reader.precision, reader.scale
    if reader.column is None and reader.keep:
        return _wide_decimals(reader, cursor, start, size)
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


def _narrowed(reader: Single, cursor: Cursor, start: Any, size: Any) -> tuple[Any, Any]:
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


def _wide_decimals(reader: Single, cursor: Cursor, start: Any, size: Any) -> list[Any]:
    """Decimals of more digits than a column has, one by one."""
    limit, context = 10**reader.precision, Context(prec=reader.precision)
    most = limit.bit_length() // 8 + 1
    made: list[Any] = []
    for at, width in zip(start.tolist(), size.tolist(), strict=True):
        data = cursor.buffer[at : at + min(width, most)].tobytes()
        unscaled = int.from_bytes(data, "big", signed=True)
        fits = width <= most and -limit < unscaled < limit
        made.append(Decimal(unscaled).scaleb(-reader.scale, context) if fits else None)
    wrong = np.array([one is None for one in made])
    cursor.check(wrong, reader.path, f"a decimal of more than {reader.precision} digits")
    return made


def _enum(reader: Single, cursor: Cursor) -> Column:
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


_STEPS: dict[str, Callable[[Single, Cursor], Column]] = {
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
