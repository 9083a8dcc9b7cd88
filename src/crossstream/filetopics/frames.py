"""A frame: the unit that is appended to a segment, and what is known of it without reading its records.

    header, 64 bytes, little-endian                           payload                         padding
    magic rows length base_offset max_timestamp               one Arrow IPC record batch      zeros up to a
    checksum(payload) tag checksum(header so far)             message, uncompressed           multiple of 64

A header never crosses a disk sector, so after a crash it is either there, or absent, or all zeros; anything
else is damage. The layout is described for other readers in ``docs/spec/file-topics.md``. Decision 0001.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's header, and the byte ``position`` of that header in its file.

    ``length``: payload bytes; ``base``: offset of the first of ``rows`` records; ``checksum``: xxh3_64 of
    the payload; ``tag``: 16 bytes of the writer's choosing, zeros for none.
    """

    position: int
    length: int
    base: int
    rows: int
    max_timestamp: int
    checksum: int
    tag: bytes

    @property
    def end(self) -> int:
        """The offset one past the last record."""
        return self.base + self.rows

    @property
    def payload(self) -> int:
        """The byte position of the payload."""
        return self.position + HEADER.size

    @property
    def next(self) -> int:
        """The byte position where the next frame's header belongs."""
        return aligned(self.payload + self.length)

    @property
    def padding(self) -> bytes:
        """The zeros between the payload and the next header."""
        return bytes(self.next - self.payload - self.length)

    def at(self, position: int, base: int) -> Frame:
        """The same frame, placed."""
        return replace(self, position=position, base=base)

    def header(self) -> bytes:
        """The 64 bytes of the header."""
        head = HEADER.pack(
            MAGIC, self.rows, self.length, self.base, self.max_timestamp, self.checksum, self.tag, 0
        )[:_CHECKED]
        return head + checksum_of(head).to_bytes(8, "little")


def aligned(position: int) -> int:
    """``position`` rounded up to a multiple of 64."""
    return (position + 63) & ~63


def checksum_of(content: bytes | pa.Buffer) -> int:
    """xxh3_64 of ``content``."""
    return xxhash.xxh3_64_intdigest(content)


def encode(records: pa.RecordBatch, tag: bytes = NO_TAG) -> tuple[Frame, pa.Buffer]:
    """The unplaced frame of ``records`` (columns of `STORED`, at least one row), and its payload."""
    payload = records.serialize()
    frame = Frame(
        position=0,
        length=payload.size,
        base=UNPLACED,
        rows=records.num_rows,
        max_timestamp=pc.max(records.column("timestamp")).as_py(),
        checksum=checksum_of(payload),
        tag=tag,
    )
    return frame, payload


def decode(payload: bytes) -> pa.RecordBatch:
    """The records of a payload whose checksum was right, without copying their bytes."""
    return pa.ipc.read_record_batch(pa.py_buffer(payload), STORED)


def parse_header(content: bytes, start: int, position: int) -> Frame | None:
    """The frame whose header is ``content[start:]``, ``position`` in its file; None if it is not sound."""
    magic, rows, length, base, max_timestamp, checksum, tag, own = HEADER.unpack_from(content, start)
    if magic != MAGIC or own != checksum_of(content[start : start + _CHECKED]):
        return None
    return Frame(position, length, base, rows, max_timestamp, checksum, tag)
