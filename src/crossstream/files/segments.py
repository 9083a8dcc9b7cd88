"""Segments: the files of a partition, each a row of frames, and what a reader remembers of them.

A segment is named by the offset of its first record, so the next segment's name is known when this one ends:
following a growing partition takes a ``stat`` of its last file, and reads the headers of what was appended.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from crossstream.errors import SourceError
from crossstream.files.frames import HEADER, MAGIC, Frame, parse_header
from crossstream.topics import TopicPartition

SUFFIX = ".seg"
_WINDOW = 64 * 1024
"""Bytes read at once while looking for headers: many small frames, or one of a large frame."""


def segment_name(base: int) -> str:
    """The file name of the segment whose first record has the offset ``base``."""
    return f"{base:020d}{SUFFIX}"


class Segment:
    """One segment file: the frames seen so far, which end at byte ``size``."""

    __slots__ = ("base", "frames", "owner", "path", "size")

    def __init__(self, owner: TopicPartition, path: Path, base: int) -> None:
        self.owner = owner
        self.path = path
        self.base = base
        self.frames: list[Frame] = []
        self.size = 0

    @property
    def end(self) -> int:
        """The offset one past the last record seen."""
        return self.frames[-1].end if self.frames else self.base

    def scan(self) -> None:
        """Notes the frames appended since the last scan; an unfinished one at the end does not count yet.

        Raises `SourceError` for a damaged header, or a file that lost frames it had.
        """
        try:
            written = os.stat(self.path).st_size
            if written == self.size:
                return
            if written < self.size:
                raise self.damaged(self.end, "the file became shorter than it was")
            with open(self.path, "rb", buffering=0) as file:
                for frame in self._headers(file.fileno(), written):
                    self.add(frame)
        except OSError as error:
            raise self.unreadable(error) from error

    def add(self, frame: Frame) -> None:
        """Notes a frame that follows the last one."""
        self.frames.append(frame)
        self.size = frame.next

    def between(self, start: int, end: int) -> Iterator[Frame]:
        """The frames that hold a record with ``start <= offset < end``."""
        first = max(bisect_right(self.frames, start, key=lambda frame: frame.base) - 1, 0)
        for frame in self.frames[first:]:
            if frame.base >= end:
                return
            if frame.end > start:
                yield frame

    def damaged(self, offset: int, what: str) -> SourceError:
        """The error for a frame that starts at ``offset`` and cannot be trusted."""
        return SourceError(
            f"A segment of a file topic is damaged: {what}.",
            code="CS-613",
            where=self._place(offset),
            next="Restore the file from a copy. Records before this offset are intact.",
        )

    def unreadable(self, error: OSError) -> SourceError:
        """The error for a file that the system does not let us read, or that is gone."""
        return SourceError(
            f"A segment of a file topic cannot be read: {error.strerror or error}.",
            code="CS-614",
            where=self._place(self.base),
            next="Restore the file or the right to read it; stop readers before deleting parts of a topic.",
        )

    def _place(self, offset: int) -> dict[str, object]:
        return {
            "topic": self.owner.topic,
            "partition": self.owner.partition,
            "offset": offset,
            "file": str(self.path),
        }

    def _headers(self, descriptor: int, written: int) -> Iterator[Frame]:
        """The complete frames from byte ``size`` on, in a file of ``written`` bytes."""
        position, expected = self.size, self.end
        window, window_at = b"", position
        while position + HEADER.size <= written:
            if position + HEADER.size > window_at + len(window):
                window, window_at = os.pread(descriptor, _WINDOW, position), position
                if len(window) < HEADER.size:
                    return
            frame = parse_header(window, position - window_at, position)
            if frame is None:
                if self._never_written(descriptor, position, written):
                    return
                raise self.damaged(expected, f"the frame header at byte {position} is not sound")
            if frame.base != expected or frame.rows == 0:
                raise self.damaged(expected, f"the frame at byte {position} says it starts at {frame.base}")
            if frame.next > written:
                return
            yield frame
            position, expected = frame.next, frame.end

    def _never_written(self, descriptor: int, position: int, written: int) -> bool:
        """Whether the header at ``position`` is zeros with no frame after it: space a crash left unused."""
        if os.pread(descriptor, HEADER.size, position).strip(b"\0"):
            return False
        while position + HEADER.size <= written:
            content = os.pread(descriptor, min(1 << 24, written - position), position)
            whole = len(content) // HEADER.size * HEADER.size
            words = np.frombuffer(content[:whole], dtype="<u4")[:: HEADER.size // 4]
            for place in np.flatnonzero(words == int.from_bytes(MAGIC, "little")).tolist():
                if parse_header(content, place * HEADER.size, 0) is not None:
                    return False
            position += max(whole, HEADER.size)
        return True


class PartitionLog:
    """The segments of one partition, known as far as they were looked at; not shared between threads."""

    def __init__(self, owner: TopicPartition, folder: Path) -> None:
        self.owner = owner
        self.folder = folder
        self._segments: list[Segment] = []

    @property
    def begin(self) -> int:
        """The first offset held, as of the last look at the folder."""
        return self._segments[0].base if self._segments else 0

    @property
    def end(self) -> int:
        """The offset one past the last record, as of the last `refresh`."""
        return self._segments[-1].end if self._segments else 0

    @property
    def last(self) -> Segment | None:
        """The segment that is being appended to."""
        return self._segments[-1] if self._segments else None

    def refresh(self) -> None:
        """Follows what was appended by anyone; raises `SourceError` for damage."""
        if not self._segments:
            self._list()
        if not self._segments:
            return
        self._segments[-1].scan()
        while self._segments[-1].frames and (following := self.following()).path.exists():
            following.scan()
            self.add(following)

    def trim(self) -> None:
        """Forgets leading segments whose files were deleted, so that `begin` tells what is still held."""
        while self._segments and not self._segments[0].path.exists():
            del self._segments[0]

    def following(self) -> Segment:
        """The segment, whether it exists or not, that begins where the last one ends."""
        return Segment(self.owner, self.folder / segment_name(self.end), self.end)

    def add(self, segment: Segment) -> None:
        """Notes that the `following` segment exists."""
        self._segments.append(segment)

    def frames(self, start: int, end: int) -> list[tuple[Segment, list[Frame]]]:
        """The frames that hold ``start <= offset < end``, by segment, in order of offset."""
        if start >= end:
            return []
        first = max(bisect_right(self._segments, start, key=lambda segment: segment.base) - 1, 0)
        found = []
        for place in range(first, len(self._segments)):
            segment = self._segments[place]
            if segment.base >= end:
                break
            self._complete(place)
            found.append((segment, list(segment.between(start, end))))
        return found

    def since(self, start: int) -> Iterator[Frame]:
        """The frames that hold records at or after ``start``."""
        for _, frames in self.frames(max(start, self.begin), self.end):
            yield from frames

    def _list(self) -> None:
        names = sorted(path.name for path in self.folder.glob("[0-9]" * 20 + SUFFIX))
        bases = [int(name.removesuffix(SUFFIX)) for name in names]
        self._segments = [Segment(self.owner, self.folder / segment_name(base), base) for base in bases]

    def _complete(self, place: int) -> None:
        """Scans a segment that was rolled long ago: it must reach to the next one."""
        if place + 1 == len(self._segments):
            return
        segment, following = self._segments[place], self._segments[place + 1]
        if segment.end != following.base:
            segment.scan()
        if segment.end != following.base:
            raise segment.damaged(segment.end, f"its records end before the next segment, {following.base}")
