"""Many Avro payloads read at once: a position in each, and numpy steps that move all of them.

A payload that is damaged is marked, its position goes to its end, and the others do not notice. No step reads outside a
buffer: it has `PADDING` bytes behind the last payload.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from crossstream.serdes.arrays import Content, Mask, Offsets

PADDING = 16

DEEPEST = 64
"""Levels of a schema that contains itself; and twice as many arrays in each other."""

_U = np.uint64
_SEVENS, _STOPS = _U(0x7F7F7F7F7F7F7F7F), _U(0x8080808080808080)
_SPREAD = (
    (_U(0x007F007F007F007F), _U(0x7F007F007F007F00), _U(1)),
    (_U(0x00003FFF00003FFF), _U(0x3FFF00003FFF0000), _U(2)),
    (_U(0x000000000FFFFFFF), _U(0x0FFFFFFF00000000), _U(4)),
)
_ONE = _U(1)
_FIRST_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], np.uint64)
_INLINE = 12
"""Bytes that Arrow's views hold themselves."""


class Cursor:
    """Positions in the payloads of a buffer.

    ``rows``: the number of each payload, for ``faults``; ``faults``: by payload, the number of a reason plus 1, 0:
    none. A payload may have several positions, one after the other, as the items of an array. ``empties``: by payload,
    its items without bytes so far; ``depth``, ``lists``: the records and the arrays around what is read.
    """

    __slots__ = ("buffer", "depth", "empties", "end", "faults", "lists", "pos", "reasons", "rows", "words")

    def __init__(self, buffer: Content, pos: Offsets, end: Offsets) -> None:
        self.buffer = buffer
        self.words = np.ndarray((len(buffer) - 7,), "<u8", buffer, strides=(1,))
        self.pos, self.end = pos, end
        self.rows = np.arange(len(pos))
        self.faults = np.zeros(len(pos), np.int32)
        self.empties = np.zeros(len(pos), np.int64)
        self.reasons: list[str] = []
        self.depth = self.lists = 0

    def __len__(self) -> int:
        return len(self.pos)

    def some(self, chosen: Any, pos: Offsets | None = None) -> Cursor:
        """A cursor of some rows (a mask or indices), at their positions or others."""
        made = object.__new__(Cursor)
        made.buffer, made.words = self.buffer, self.words
        made.faults, made.reasons, made.empties = self.faults, self.reasons, self.empties
        made.pos = self.pos[chosen] if pos is None else pos
        made.end, made.rows = self.end[chosen], self.rows[chosen]
        made.depth, made.lists = self.depth, self.lists
        return made

    def broken(self) -> Mask | None:
        """Which payloads are marked, and end here; None: no payload is."""
        return self.faults[self.rows] != 0 if self.reasons else None

    def fail_all(self, path: str, reason: str) -> None:
        self.fail(np.ones(len(self), np.bool_), path, reason)

    def fail(self, wrong: Mask, path: str, reason: str) -> None:
        """Marks payloads, and moves their positions to their ends. The first reason counts."""
        rows = self.rows[wrong]
        self.reasons.append(f"{reason} in {path}" if path else reason)
        rows = rows[self.faults[rows] == 0]
        self.faults[rows] = len(self.reasons)
        self.pos = np.where(wrong, self.end, self.pos)

    def check(self, wrong: Mask, path: str, reason: str) -> None:
        if wrong.any():
            self.fail(wrong, path, reason)

    def take(self, width: Any, path: str) -> Offsets:
        """Where the next ``width`` bytes begin (a number, or one for each row), and moves behind them."""
        start = self.pos
        after = start + width
        if (over := after > self.end).any():
            self.pos = after
            self.fail(over, path, "the payload is too short")
            return np.where(over, self.end, start)
        self.pos = after
        return start

    def varint(self, path: str) -> npt.NDArray[np.uint64]:
        """The next number, without sign; 0 where there is none."""
        start = self.pos
        first = self.buffer[start]
        if not len(first) or int(first.max()) < 0x80:
            value = first.astype(np.uint64)
            width = np.ones(len(first), np.int64)
        else:
            word = self.words[start]
            stops = ~word & _STOPS
            mask = stops ^ (stops - _ONE)  # up to the first stop; all ones if there is none
            value = word & mask & _SEVENS
            for low, high, shift in _SPREAD:
                value = (value & low) | ((value & high) >> shift)
            lowest = stops & (~stops + _ONE)
            width = (np.frexp(lowest.astype(np.float64))[1] >> 3).astype(np.int64)
            if int(stops.min()) == 0:
                long = np.flatnonzero(stops == 0)
                value[long], width[long] = self._long(long, value[long], path)
        self.pos = start + width
        wrong = self.pos > self.end
        if wrong.any():
            self.fail(wrong, path, "the payload is too short")
            value[wrong] = 0
        return value

    def _long(
        self, rows: Offsets, value: npt.NDArray[np.uint64], path: str
    ) -> tuple[npt.NDArray[np.uint64], Offsets]:
        """Numbers of more than 8 bytes, of which ``value`` has the lower 56 bits."""
        start = self.pos[rows]
        ninth, tenth = self.buffer[start + 8], self.buffer[start + 9]
        value = value | ((ninth & np.uint8(0x7F)).astype(np.uint64) << _U(56))
        value |= tenth.astype(np.uint64) << _U(63)
        more = ninth >= 0x80
        value = np.where(more, value, value & _U((1 << 63) - 1))
        wrong = more & (tenth > 1) & (start + 10 <= self.end[rows])
        if wrong.any():
            mask = np.zeros(len(self), np.bool_)
            mask[rows[wrong]] = True
            self.fail(mask, path, "a number of more than 64 bits")
        return value, np.where(wrong, 0, 9 + more)

    def number(self, path: str) -> Offsets:
        """The next number with a sign."""
        value = self.varint(path)
        signed: Offsets = (value >> _ONE).view(np.int64) ^ -(value & _ONE).view(np.int64)
        return signed

    def length(self, path: str) -> tuple[Offsets, Offsets]:
        """Where the next bytes with a length begin, and how many they are."""
        size = self.number(path)
        if int(size.min(initial=0)) < 0:
            wrong = size < 0
            self.fail(wrong, path, "a negative length")
            size = np.where(wrong, 0, size)
        if (over := size > self.end - self.pos).any():
            self.fail(over, path, "the payload is too short")
            size = np.where(over, 0, size)
        start = self.pos
        self.pos = start + size
        return start, size

    def bytes_at(self, start: Offsets, size: Offsets) -> pl.Series:
        """A Binary column of these bytes, of which long ones stay in the buffer."""
        views = np.empty((len(start), 2), np.uint64)
        first, rest = self.words[start], self.words[start + 4]
        length = size.view(np.uint64)
        views[:, 0] = length | ((first & _FIRST_BYTES[np.minimum(size, 4)]) << _U(32))
        inside = rest & _FIRST_BYTES[np.clip(size - 4, 0, 8)]
        views[:, 1] = np.where(size <= _INLINE, inside, start.view(np.uint64) << _U(32))
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self.buffer)]
        return pl.Series(pa.Array.from_buffers(pa.binary_view(), len(start), buffers))

    def matrix(self, start: Offsets, width: int) -> Content:
        """The ``width`` bytes at each position, as rows of a matrix."""
        if width == 0:
            return np.empty((len(start), 0), np.uint8)
        windows = np.lib.stride_tricks.as_strided(self.buffer, (len(self.buffer) - width + 1, width), (1, 1))
        found: Content = windows[start]
        return found
