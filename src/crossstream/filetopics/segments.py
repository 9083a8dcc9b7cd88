"""Segments: the files of a partition, each a sequence of frames, and appending to them.

    header, 64 bytes, little-endian                           payload                         padding
    magic rows length base_offset max_timestamp               one Arrow IPC record batch      zeros up to a
    checksum(payload) tag checksum(header so far)             message, uncompressed           multiple of 64

A header never crosses a disk sector, so after a crash it is there, or absent, or all zeros; anything else is damage.
The layout is described for other readers in ``docs/spec/file-topics.md``. Decision 0001.

A segment is named by the offset of its first record, so the next segment's name is known when this one ends: following
a growing partition takes a ``stat`` of its last file, and reads the headers of what was appended.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.records import RECORDS
from crossstream.storage.arrow_file import NO_BATCH, batch_of_message
from crossstream.storage.door import check_plain
from crossstream.storage.files import force, locked
from crossstream.topics import TopicPartition

STORED = pa.schema([RECORDS.field(name) for name in ("key", "value", "timestamp", "headers")])
"""The columns of a payload: `RECORDS` without ``offset``, which follows from the frame's base offset."""

MAGIC = b"XSF\x01"
HEADER = struct.Struct("<4sIQqqQ16sQ")
_CHECKED = HEADER.size - 8
NO_TAG = bytes(16)
UNPLACED = -1
"""The base offset of a staged frame, which gets its offset when it is published."""
SUFFIX = ".seg"
_WINDOW = 64 * 1024
"""Bytes read at once while looking for headers: many small frames, or one of a large frame."""
_MOST_BYTES = 1 << 50
_LAST_OFFSET = 1 << 62
_ANY = -(1 << 63)
"""No record is older."""


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
    """The unplaced frame of ``records`` (columns of `STORED`, at least one row), and its payload."""
    payload = records.serialize()
    newest = pc.max(records.column("timestamp")).as_py()
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


class Segment:
    """One segment file, known up to byte ``size`` and the offset ``end``.

    Of each frame it remembers offset, position and newest timestamp: 24 bytes, for a partition gets a frame with every
    small batch.
    """

    __slots__ = ("_bases", "_newest", "_positions", "base", "end", "owner", "path", "size")

    def __init__(self, owner: TopicPartition, folder: Path, base: int) -> None:
        self.owner = owner
        self.path = folder / f"{base:020d}{SUFFIX}"
        self.base = self.end = base
        self.size = 0
        self._bases, self._positions, self._newest = array("q"), array("q"), array("q")

    def scan(self) -> None:
        """Notes the frames appended since the last scan; an unfinished one at the end does not count yet.

        Raises `SourceError` for a damaged header, or a file that lost frames it had.
        """
        try:
            written = os.stat(self.path).st_size
        except OSError as error:
            raise self._unreadable(error) from error
        if written == self.size:
            return
        if written < self.size:
            raise self.damaged(self.end, "the file became shorter than it was")
        with self._opened() as file:
            window, start = b"", self.size
            while self.size + HEADER.size <= written:
                if self.size + HEADER.size > start + len(window):
                    window, start = os.pread(file, _WINDOW, self.size), self.size
                frame = parse_header(window, self.size - start)
                if frame is None:
                    if self._never_written(file, written):
                        return
                    raise self.damaged(self.end, f"the frame header at byte {self.size} is damaged")
                if frame.base != self.end or frame.rows == 0:
                    raise self.damaged(self.end, f"the frame at byte {self.size} starts at {frame.base}")
                if self.size + frame.size > written:
                    return
                self.add(frame)

    def add(self, frame: Frame) -> None:
        """Notes a frame that follows the last one."""
        self._bases.append(self.end)
        self._positions.append(self.size)
        self._newest.append(frame.max_timestamp)
        self.size += frame.size
        self.end += frame.rows

    def holding(self, start: int, end: int) -> range:
        """The frames that hold a record with ``start <= offset < end``, by their number."""
        return range(max(bisect_right(self._bases, start) - 1, 0), bisect_left(self._bases, end))

    def read(self, frames: range, since: int) -> Iterator[tuple[Frame, pa.RecordBatch]]:
        """The frames and their records, after a check of their checksums.

        It leaves out frames whose records are all older than the timestamp ``since``.
        """
        with self._opened() as file:
            for number in frames:
                if self._newest[number] >= since:
                    yield self._frame(file, number)

    def tags(self, frames: range) -> Iterator[bytes]:
        with self._opened() as file:
            for number in frames:
                yield self._header(os.pread(file, HEADER.size, self._positions[number]), number).tag

    def _frame(self, file: int, number: int) -> tuple[Frame, pa.RecordBatch]:
        position = self._positions[number]
        end = self._positions[number + 1] if number + 1 < len(self._positions) else self.size
        content = os.pread(file, end - position, position)
        frame = self._header(content, number)
        payload = memoryview(content)[HEADER.size : HEADER.size + frame.length]
        if not frame.describes(payload):
            raise self.damaged(frame.base, f"records at byte {position} fail their checksum")
        try:
            records = batch_of_message(pa.py_buffer(payload), STORED)
        except NO_BATCH as error:
            raise self.damaged(frame.base, f"there are no records at byte {position}: {error}") from error
        if records.num_rows != frame.rows or records.column("timestamp").null_count:
            raise self.damaged(frame.base, f"there are other records at byte {position} than its header says")
        return frame, records

    def _header(self, content: bytes, number: int) -> Frame:
        frame = parse_header(content)
        if frame is None or frame.base != self._bases[number]:
            raise self.damaged(self._bases[number], "a frame that was there is gone")
        return frame

    @contextmanager
    def _opened(self) -> Iterator[int]:
        try:
            check_plain(self.path, _MOST_BYTES)
            with open(self.path, "rb", buffering=0) as file:
                yield file.fileno()
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> CrossStreamError:
        what = f"A segment of a file topic cannot be read: {error.strerror or error}."
        step = "Restore the file or the right to read it; stop readers before deleting parts of a topic."
        return refuse("CS-606", what, step, **self._where(self.base))

    def damaged(self, offset: int, what: str) -> CrossStreamError:
        """CS-606, for a frame that starts at ``offset``."""
        step = "Restore the file from a copy. Records before this offset are intact."
        return refuse("CS-606", f"A segment of a file topic is damaged: {what}.", step, **self._where(offset))

    def _where(self, offset: int) -> dict[str, object]:
        owner = self.owner
        return {"topic": owner.topic, "partition": owner.partition, "offset": offset, "file": str(self.path)}

    def _never_written(self, file: int, written: int) -> bool:
        """Whether the next header is zeros with no frame after it: space that a crash left unused."""
        position = self.size
        if os.pread(file, HEADER.size, position).strip(b"\0"):
            return False
        while position + HEADER.size <= written:
            content = os.pread(file, min(1 << 24, written - position), position)
            whole = len(content) // HEADER.size * HEADER.size
            words = np.frombuffer(content[:whole], dtype="<u4")[:: HEADER.size // 4]
            for header in np.flatnonzero(words == int.from_bytes(MAGIC, "little")).tolist():
                if parse_header(content, header * HEADER.size) is not None:
                    return False
            position += max(whole, HEADER.size)
        return True


class PartitionLog:
    """The segments of one partition, known as far as they were looked at; not shared between threads."""

    def __init__(self, owner: TopicPartition, folder: Path) -> None:
        self.owner = owner
        self.folder = folder
        self.segments: list[Segment] = []

    @property
    def begin(self) -> int:
        """The first offset held, as of the last look at the folder."""
        return self.segments[0].base if self.segments else 0

    @property
    def end(self) -> int:
        """The offset one past the last record, as of the last `refresh`."""
        return self.segments[-1].end if self.segments else 0

    def refresh(self) -> None:
        """Follows what any process appended; raises `SourceError` for damage."""
        if not self.segments:
            bases = sorted(int(path.stem) for path in self.folder.glob("[0-9]" * 20 + SUFFIX))
            self.segments = [self._segment(base) for base in bases]
            if bases and bases[-1] > _LAST_OFFSET:
                raise self.segments[-1].damaged(bases[-1], "no topic has so many records")
        if not self.segments:
            return
        self.segments[-1].scan()
        while self.segments[-1].size and (following := self._segment(self.end)).path.exists():
            following.scan()
            self.segments.append(following)

    def trim(self) -> None:
        """Forgets leading segments whose files were deleted, so that `begin` is what is still held."""
        while self.segments and not self.segments[0].path.exists():
            del self.segments[0]

    def start_segment(self) -> Segment:
        """Makes the file of the segment that begins where the last one ends."""
        segment = self._segment(self.end)
        segment.path.touch(0o644)
        self.segments.append(segment)
        return segment

    def holding(self, start: int, end: int) -> list[tuple[Segment, range]]:
        """The frames that hold a record with ``start <= offset < end``; raises `SourceError` if some are gone."""
        found = []
        first = max(bisect_right(self.segments, start, key=lambda segment: segment.base) - 1, 0)
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            if segment.base >= end or start >= end:
                break
            if index + 1 < len(self.segments):
                self._complete(segment, self.segments[index + 1].base)
            found.append((segment, segment.holding(start, end)))
        return found

    def read(self, start: int, end: int, since: int = _ANY) -> Iterator[tuple[Frame, pa.RecordBatch]]:
        """The frames that hold these offsets, as `Segment.read` gives them."""
        parts = self.holding(start, end)
        return (one for segment, frames in parts for one in segment.read(frames, since))

    def tags(self, start: int) -> list[bytes]:
        """The tags of the frames that hold records at or after ``start``."""
        parts = self.holding(max(start, self.begin), self.end)
        return [tag for segment, frames in parts for tag in segment.tags(frames)]

    def _segment(self, base: int) -> Segment:
        return Segment(self.owner, self.folder, base)

    def _complete(self, segment: Segment, following: int) -> None:
        """Scans a segment that was closed long ago: it must reach to the next one."""
        if segment.end != following:
            segment.scan()
        if segment.end != following:
            raise segment.damaged(segment.end, f"its records end before the next segment, {following}")


class Appender:
    """Appends to one partition; made by `appending`, which holds the partition's lock."""

    def __init__(self, log: PartitionLog, segment_bytes: int, durable: bool) -> None:
        self._log = log
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._file: int | None = None

    def append(self, frame: Frame, payload: memoryview | pa.Buffer) -> None:
        """Appends one unplaced frame: all of it or, when the disk fails, nothing."""
        segment, file = self._open()
        placed = frame._replace(base=segment.end)
        try:
            os.lseek(file, segment.size, os.SEEK_SET)
            for piece in (placed.header(), payload, placed.padding):
                _write(file, piece)
        except BaseException:
            os.ftruncate(file, segment.size)
            raise
        segment.add(placed)

    def close(self) -> None:
        """Makes what was appended durable, if it is to be."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            if self._durable:
                os.fsync(file)
        finally:
            os.close(file)

    def _open(self) -> tuple[Segment, int]:
        """The segment to append to, and its file, without the torn tail that a crash may have left."""
        segments = self._log.segments
        if not segments or segments[-1].size >= self._segment_bytes:
            self.close()
            made = self._log.start_segment()
            if self._durable:
                force(made.path.parent)
        segment = segments[-1]
        if self._file is None:
            self._file = os.open(segment.path, os.O_RDWR | os.O_NOFOLLOW)
            if os.fstat(self._file).st_size > segment.size:
                os.ftruncate(self._file, segment.size)
        return segment, self._file


@contextmanager
def appending(log: PartitionLog, segment_bytes: int, durable: bool) -> Iterator[Appender]:
    """Holds the partition's lock, with ``log`` brought up to date, while frames are appended.

    Raises `SinkError` if the disk refuses; frames appended before that stay.
    """
    try:
        with locked(log.folder / "lock"):
            log.refresh()
            appender = Appender(log, segment_bytes, durable)
            try:
                yield appender
            finally:
                appender.close()
    except OSError as error:
        what = f"Records could not be appended to a file topic: {error}."
        step = "Check the free space and the permissions of the folder, then write again."
        raise refuse(
            "CS-665", what, step, topic=log.owner.topic, partition=log.owner.partition, folder=str(log.folder)
        ) from error


def _write(file: int, content: bytes | memoryview | pa.Buffer) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
