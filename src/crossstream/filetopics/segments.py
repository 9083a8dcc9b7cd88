"""Segments: the files of a partition, each a sequence of frames (`frame_format`).

A segment is named by the offset of its first record, so the next segment's name is known when this one ends: following
a growing partition takes a ``stat`` of its last file, and reads the headers of what was appended.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.filetopics.frame_format import HEADER, MAGIC, STORED, Frame, parse_header
from crossstream.storage.arrow_file import NO_BATCH, batch_of_message
from crossstream.storage.door import check_plain
from crossstream.topics import TopicPartition

SUFFIX = ".seg"
_WINDOW = 64 * 1024
"""Bytes read at once while looking for headers: many small frames, or one of a large frame."""
_MOST_BYTES = 1 << 50


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
