"""Fields of Avro that nothing reads: passed over all at once where payloads look alike.

Story: the `source` of ten fields in each event of Debezium has the same lengths in almost every record. The first
payload gives a pattern: which bytes must be equal (lengths, branches), and which may be anything (what is in them).
Payloads of that pattern need one step for all these fields. Where most have another one, each half of the fields is
tried by itself, down to single fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from crossstream.serdes.avro.cursor import DEEPEST, Cursor
from crossstream.serdes.avro.rows import number_at
from crossstream.serdes.avro.schema import Node
from crossstream.serdes.avro.single import Reader

_FEW = 64
"""Payloads up to which a pattern costs more than it saves; and so many are tried before all."""

_LONGEST = 1024
"""Bytes that a pattern has at most."""


class Skipped(Reader):
    """``fields``: their types as the writer has them, and how each is checked by itself."""

    fields: Sequence[tuple[Node, Reader]] = ()

    def __init__(self, fields: Sequence[tuple[Node, Reader]], path: str) -> None:
        super().__init__(None, path)
        self.fields = fields

    def read(self, cursor: Cursor) -> None:
        if len(cursor):
            _skip(cursor, self.fields)


def _skip(cursor: Cursor, fields: Sequence[tuple[Node, Reader]]) -> None:
    pattern = _pattern_at(cursor, [node for node, _ in fields]) if len(cursor) > _FEW else None
    if pattern is not None and _fits(cursor, pattern, slice(None, None, len(cursor) // _FEW)).mean() > 0.5:
        fits = _fits(cursor, pattern, slice(None))
        others = np.flatnonzero(~fits)
        if len(others) <= len(cursor) // 2:
            after = cursor.pos + pattern.width
            if len(others):
                inner = cursor.some(others)
                _skip(inner, fields)
                after[others] = inner.pos
            cursor.pos = after
            return
    if len(fields) == 1:
        fields[0][1].read(cursor)
        return
    middle = len(fields) // 2
    _skip(cursor, fields[:middle])
    _skip(cursor, fields[middle:])


class _Pattern(NamedTuple):
    """``words``: of 8 bytes at an offset, those that are looked at, and what they must be."""

    width: int
    words: list[tuple[int, np.uint64, np.uint64]]


def _fits(cursor: Cursor, pattern: _Pattern, rows: slice) -> Any:
    pos = cursor.pos[rows]
    fits = pos + pattern.width <= cursor.end[rows]
    if not fits.all():
        pos = np.where(fits, pos, cursor.pos[0])
    for offset, mask, wanted in pattern.words:
        fits &= (cursor.words[pos + offset] & mask) == wanted
    return fits


def _pattern_at(cursor: Cursor, nodes: Sequence[Node]) -> _Pattern | None:
    """The pattern of the first payload; None: it takes a step for each field."""
    start = int(cursor.pos[0])
    end = min(int(cursor.end[0]), start + _LONGEST)
    mask, wanted = bytearray(), bytearray()
    data = cursor.buffer[start:end].tobytes()
    if not all(_add(node, data, mask, wanted, cursor.depth) for node in nodes):
        return None
    width = len(mask)
    padding = bytes(-width % 8)
    masks, values = (np.frombuffer(bytes(part) + padding, "<u8") for part in (mask, wanted))
    return _Pattern(width, [(8 * int(at), masks[at], values[at]) for at in np.flatnonzero(masks)])


def _add(node: Node, data: bytes, mask: bytearray, wanted: bytearray, depth: int) -> bool:
    """Adds what a value may look like; False: that depends on more than single bytes."""
    kind = node.kind
    if kind == "record":
        inside = depth < DEEPEST
        return inside and all(_add(one.node, data, mask, wanted, depth + 1) for one in node.fields)
    if node.logical or kind in ("array", "map"):
        return False
    if kind in ("null", "boolean", "float", "double", "fixed"):
        width = {"null": 0, "boolean": 1, "float": 4, "double": 8}.get(kind, node.size)
        _extend(mask, wanted, 0xFE if kind == "boolean" else 0, width)
        return len(mask) <= len(data)
    begin = len(mask)
    number, after = number_at(data, begin, len(data))
    if after > len(data):
        return False
    if kind in ("int", "long"):
        mask += bytes([0x80]) * (after - begin)
        wanted += bytes([0x80]) * (after - begin - 1) + b"\0"
        return after - begin <= (4 if kind == "int" else 9)
    mask += b"\xff" * (after - begin)
    wanted += data[begin:after]
    if kind == "enum":
        return 0 <= number < len(node.symbols)
    if kind == "union":
        return 0 <= number < len(node.parts) and _add(node.parts[number], data, mask, wanted, depth)
    if not 0 <= number <= len(data) - after:
        return False
    _extend(mask, wanted, 0x80 if kind == "string" else 0, number)
    return True


def _extend(mask: bytearray, wanted: bytearray, bits: int, width: int) -> None:
    """Bytes in which these bits must be 0."""
    mask += bytes([bits]) * width
    wanted += bytes(width)
