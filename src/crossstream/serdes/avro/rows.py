"""Single Avro values, one by one: for stores and queries that look at one row, where columns cost more than the row.

These functions raise for anything that is not plain and right. Then the columns decide, and say why.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from crossstream.serdes.avro.schema import Node, column_type, nodes_in, nullable
from crossstream.serdes.avro.sizes import EMPTY_ITEMS, least_bytes
from crossstream.serdes.json.shapes import NoColumn

Read = Callable[[bytes, int], tuple[Any, int]]
Write = Callable[[Any, bytearray], None]

_EPOCH, _DAY = datetime(1970, 1, 1), date(1970, 1, 1)
_UTC_EPOCH = _EPOCH.replace(tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_UUID = re.compile("[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_EXACT = Context(prec=100)
_NAN = float("nan")

_EMPTY_ITEMS = 4
"""Items without bytes in a block, in payloads so short that all of their blocks have `EMPTY_ITEMS` at most."""


class NotPlain(Exception):
    """The value is left to the columns."""


@lru_cache(maxsize=1024)
def row_codec(node: Node) -> tuple[Read, Write] | None:
    """How single values are read and written; None: not one by one, as types that are no column."""
    if isinstance(column_type(node), NoColumn):
        return None
    if any(one.kind == "union" and nullable(one) is None for one in nodes_in(node)):
        return None
    return _reader(node), _writer(node)


def read_row(read: Read, data: bytes, at: int = 0) -> Any:
    value, end = read(data, at)
    if end != len(data):
        raise NotPlain
    return value


def write_row(write: Write, value: Any) -> bytes:
    out = bytearray()
    write(value, out)
    return bytes(out)


def number_at(data: Any, at: int, end: int) -> tuple[int, int]:
    """The number there, and the position behind it, which is beyond the end if there is none."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return 0, end + 1


def varint(number: int) -> bytes:
    """A number as Avro writes it: zigzag, seven bits to a byte."""
    out = bytearray()
    _put_long(number, out)
    return bytes(out)


# -- reading ----------------------------------------------------------------------------------------------


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise NotPlain
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    if value >= 2**64:
        raise NotPlain
    return (value >> 1) ^ -(value & 1), at + 1


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    return _some(data, at, size)


def _some(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or at + size > len(data):
        raise NotPlain
    return data[at : at + size], at + size


def _within(value: int, low: int, high: int) -> int:
    if not low <= value < high:
        raise NotPlain
    return value


def _moment(logical: str, value: int) -> Any:
    if logical == "date":
        return _DAY + timedelta(days=value)
    micros = value * (1000 if logical.endswith("millis") else 1)
    if logical.startswith("time-"):
        return (_EPOCH + timedelta(microseconds=_within(micros, 0, 86_400_000_000))).time()
    return (_EPOCH if logical.startswith("local") else _UTC_EPOCH) + timedelta(microseconds=micros)


def _decimal(node: Node, data: bytes) -> Decimal:
    if not data or len(data) > 16:
        raise NotPlain
    unscaled = int.from_bytes(data, "big", signed=True)
    _within(abs(unscaled), 0, 10**node.precision)
    return Decimal(unscaled).scaleb(-node.scale, _EXACT)


def _uuid(text: str) -> UUID:
    if not _UUID.fullmatch(text):
        raise NotPlain
    return UUID(text)


def _reader(node: Node) -> Read:
    if node.kind == "record":
        return _record_reader(node)
    if node.kind == "union":
        return _union_reader(node)
    if node.kind in ("array", "map"):
        return _items_reader(node)
    return _single_reader(node)


def _record_reader(node: Node) -> Read:
    steps = [(one.name, _reader(one.node)) for one in node.fields]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        made = {}
        for name, step in steps:
            made[name], at = step(data, at)
        return made, at

    return read


def _union_reader(node: Node) -> Read:
    branches = [_reader(part) for part in node.parts]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long(data, at)
        return branches[_within(branch, 0, len(branches))](data, at)

    return read


def _items_reader(node: Node) -> Read:
    item, is_map = _reader(node.parts[0]), node.kind == "map"
    has_bytes = is_map or least_bytes(node.parts[0]) > 0

    def read(data: bytes, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        while True:
            count, at = _long(data, at)
            if count == 0:
                return (dict(items) if is_map else items), at
            most = len(data) if has_bytes else _EMPTY_ITEMS * (len(data) <= EMPTY_ITEMS // _EMPTY_ITEMS)
            for _ in range(_within(count, 1, most + 1)):  # more, and blocks with sizes: left to the columns
                if is_map:
                    key, at = _sized(data, at)
                    value, at = item(data, at)
                    items.append((key.decode(), value))
                else:
                    value, at = item(data, at)
                    items.append(value)

    return read


def _single_reader(node: Node) -> Read:
    kind, logical = node.kind, node.logical
    if kind == "null":
        return lambda data, at: (None, at)
    if kind == "boolean":
        return lambda data, at: (bool(_within(data[at], 0, 2)), at + 1)
    if kind in ("float", "double"):
        unpack = struct.Struct("<f" if kind == "float" else "<d")
        return lambda data, at: (unpack.unpack_from(data, at)[0], at + unpack.size)
    if kind == "enum":
        symbols = node.symbols

        def read_enum(data: bytes, at: int) -> tuple[Any, int]:
            index, at = _long(data, at)
            return symbols[_within(index, 0, len(symbols))], at

        return read_enum
    if kind in ("int", "long"):
        bound = 2 ** (31 if kind == "int" else 63)

        def read_number(data: bytes, at: int) -> tuple[Any, int]:
            value, at = _long(data, at)
            _within(value, -bound, bound)
            return (_moment(logical, value) if logical else value), at

        return read_number if kind == "int" or logical else _long
    make: Callable[[bytes], Any] = bytes
    if logical == "decimal":
        make = lambda data: _decimal(node, data)  # noqa: E731
    elif kind == "string":
        make = (lambda data: _uuid(data.decode())) if logical == "uuid" else bytes.decode
    elif logical == "uuid":
        make = lambda data: UUID(bytes=data)  # noqa: E731
    size = node.size if kind == "fixed" else None

    def read_bytes(data: bytes, at: int) -> tuple[Any, int]:
        found, at = _sized(data, at) if size is None else _some(data, at, size)
        return make(found), at

    return read_bytes


# -- writing ----------------------------------------------------------------------------------------------


def _put_long(value: int, out: bytearray) -> None:
    coded = (value << 1) ^ (value >> 63)
    while coded > 0x7F:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    out.append(coded)


def _put_sized(data: bytes, out: bytearray) -> None:
    _put_long(len(data), out)
    out += data


def _writer(node: Node) -> Write:
    if node.kind == "record":
        steps = [(one.name, _writer(one.node)) for one in node.fields]

        def write_record(value: Any, out: bytearray) -> None:
            for name, step in steps:
                step(value[name], out)

        return write_record
    if node.kind == "union":
        null = next(at for at, part in enumerate(node.parts) if part.kind == "null")
        inner = _writer(node.parts[1 - null])

        def write_union(value: Any, out: bytearray) -> None:
            _put_long(null if value is None else 1 - null, out)
            if value is not None:
                inner(value, out)

        return write_union
    if node.kind in ("array", "map"):
        return _items_writer(node)
    return _single_writer(node)


def _items_writer(node: Node) -> Write:
    item, is_map = _writer(node.parts[0]), node.kind == "map"

    def write(value: Any, out: bytearray) -> None:
        if value:
            _put_long(len(value), out)
        for one in value:
            if is_map:
                _put_sized(one.encode(), out)
                item(value[one], out)
            else:
                item(one, out)
        out.append(0)

    return write


def _ticks(logical: str, value: Any) -> int:
    if logical == "date":
        return int((value - _DAY).days)
    if logical.startswith("time-"):
        since = datetime.combine(_DAY, value) - _EPOCH
    else:
        since = value - (_EPOCH if logical.startswith("local") else _UTC_EPOCH)
    micros = since // _MICROSECOND
    if not logical.endswith("millis"):
        return micros
    if micros % 1000:
        raise NotPlain
    return micros // 1000


def _unscaled(node: Node, value: Decimal) -> int:
    made = value.scaleb(node.scale, _EXACT)
    unscaled = int(made)
    if made != unscaled:
        raise NotPlain
    _within(abs(unscaled), 0, 10**node.precision)
    return unscaled


def _single_writer(node: Node) -> Write:
    kind, logical, size = node.kind, node.logical, node.size
    if kind == "null":
        return lambda value, out: None
    if kind == "boolean":
        return lambda value, out: out.append(value)
    if kind in ("float", "double"):
        pack = struct.Struct("<f" if kind == "float" else "<d").pack
        return lambda value, out: out.extend(pack(value if value == value else _NAN))
    if kind == "enum":
        places = {symbol: at for at, symbol in enumerate(node.symbols)}
        return lambda value, out: _put_long(places[value], out)
    if kind in ("int", "long"):
        return (lambda value, out: _put_long(_ticks(logical, value), out)) if logical else _put_long
    if logical == "decimal" and kind == "fixed":
        return lambda value, out: out.extend(_unscaled(node, value).to_bytes(size, "big", signed=True))
    if logical == "decimal":

        def write_decimal(value: Any, out: bytearray) -> None:
            unscaled = _unscaled(node, value)
            bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
            _put_sized(unscaled.to_bytes(bits // 8 + 1, "big", signed=True), out)

        return write_decimal
    if kind == "fixed":
        return lambda value, out: out.extend(value.bytes if logical == "uuid" else value)
    if kind == "bytes":
        return _put_sized
    return lambda value, out: _put_sized(str(value).encode(), out)
