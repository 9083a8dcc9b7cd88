"""Frames, of which the files of a topic consist: their layout, and how they are written and recognised.

    header, 64 bytes, little-endian                           payload                         padding
    magic rows length base_offset max_timestamp               one Arrow IPC record batch      zeros up to a
    checksum(payload) tag checksum(header so far)             message, uncompressed           multiple of 64

A header never crosses a disk sector, so after a crash it is there, or absent, or all zeros; anything else is damage.
The layout is described for other readers in ``docs/spec/file-topics.md``. Decision 0001.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from crossstream.records import RECORDS

STORED = pa.schema([RECORDS.field(name) for name in ("key", "value", "timestamp", "headers")])
"""The columns of a payload: `RECORDS` without ``offset``, which follows from the frame's base offset."""

MAGIC = b"XSF\x01"
HEADER = struct.Struct("<4sIQqqQ16sQ")
_CHECKED = HEADER.size - 8
NO_TAG = bytes(16)
UNPLACED = -1
"""The base offset of a staged frame, which gets its offset when it is published."""


class Frame(NamedTuple):
    """A frame's header.

    ``length``: payload bytes; ``base``: offset of the first of ``rows`` records; ``checksum``: xxh3_64 of the payload;
    ``tag``: 16 bytes of the writer's choosing, zeros for none.
    """

    rows: int
    length: int
    base: int
    max_timestamp: int
    checksum: int
    tag: bytes

    @property
    def size(self) -> int:
        """Bytes of header, payload and padding."""
        return (HEADER.size + self.length + 63) & ~63

    @property
    def padding(self) -> bytes:
        return bytes(self.size - HEADER.size - self.length)

    def header(self) -> bytes:
        head = HEADER.pack(
            MAGIC, self.rows, self.length, self.base, self.max_timestamp, self.checksum, self.tag, 0
        )[:_CHECKED]
        return head + _checksum(head).to_bytes(8, "little")

    def describes(self, payload: memoryview) -> bool:
        """Whether this is the payload that was written with the header."""
        return len(payload) == self.length and _checksum(payload) == self.checksum


def encode(records: pa.RecordBatch, tag: bytes = NO_TAG) -> tuple[Frame, pa.Buffer]:
    """The unplaced frame of ``records`` (columns of `STORED`), and its payload; of no rows the time is 0."""
    payload = records.serialize()
    newest = pc.max(records.column("timestamp")).as_py() or 0
    return Frame(records.num_rows, payload.size, UNPLACED, newest, _checksum(payload), tag), payload


def parse_header(content: bytes, start: int = 0) -> Frame | None:
    """The frame whose header is ``content[start:]``; None if it is damaged or cut short."""
    if len(content) - start < HEADER.size:
        return None
    magic, rows, length, base, max_timestamp, checksum, tag, own = HEADER.unpack_from(content, start)
    if magic != MAGIC or own != _checksum(content[start : start + _CHECKED]):
        return None
    return Frame(rows, length, base, max_timestamp, checksum, tag)


def _checksum(content: bytes | memoryview | pa.Buffer) -> int:
    return xxhash.xxh3_64_intdigest(content)
