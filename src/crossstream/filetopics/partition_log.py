"""The log of a partition: its segments as one sequence of records, and appending to it."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.filetopics.frame_format import Frame
from crossstream.filetopics.segments import SUFFIX, Segment
from crossstream.storage.files import force, locked
from crossstream.topics import TopicPartition

_LAST_OFFSET = 1 << 62
_ANY = -(1 << 63)
"""No record is older."""


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
