"""Segments: the files of a partition, each a row of frames, and what a reader remembers of them.

A segment is named by the offset of its first record, so the next segment's name is known when this one ends:
following a growing partition takes a ``stat`` of its last file, and reads the headers of what was appended.
Of frames that came long ago only blocks are remembered; their headers are read again if somebody asks for them.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crossstream.errors import SourceError
from crossstream.filetopics.frames import HEADER, MAGIC, Frame, parse_header
from crossstream.topics import TopicPartition

SUFFIX = ".seg"
_WINDOW = 64 * 1024
"""Bytes read at once while looking for headers: many small frames, or one of a large frame."""
KEPT = 1024
"""Frames at the end of the last segment that are remembered one by one, at least."""
BLOCK = 256
"""Frames that are remembered as one when others have followed: a log of small frames takes little memory."""
_ANY = -(1 << 63)
"""No record is older."""


class Block(NamedTuple):
    """Frames that follow each other from the offset ``base``, at byte ``position``, on; their newest timestamp."""

    base: int
    position: int
    newest: int


def segment_name(base: int) -> str:
    """The file name of the segment whose first record has the offset ``base``."""
    return f"{base:020d}{SUFFIX}"


class Segment:
    """One segment file: the frames seen so far, which end at byte ``size``.

    ``frames``: the last ones of them; ``blocks``: those before.
    """

    __slots__ = ("base", "blocks", "frames", "owner", "path", "size")

    def __init__(self, owner: TopicPartition, path: Path, base: int) -> None:
        self.owner = owner
        self.path = path
        self.base = base
        self.blocks: list[Block] = []
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
                for frame in self._headers(file.fileno(), self.size, self.end, written):
                    self.add(frame)
        except OSError as error:
            raise self.unreadable(error) from error

    def add(self, frame: Frame) -> None:
        """Notes a frame that follows the last one."""
        self.frames.append(frame)
        self.size = frame.next
        if len(self.frames) >= KEPT + BLOCK:
            self.forget(KEPT)

    def forget(self, keep: int) -> None:
        """Makes blocks of the frames before the last ``keep`` ones, at least one, as far as they fill any."""
        whole = max(len(self.frames) - keep, 0) // BLOCK * BLOCK
        for first in range(0, whole, BLOCK):
            block = self.frames[first : first + BLOCK]
            newest = max(frame.max_timestamp for frame in block)
            self.blocks.append(Block(block[0].base, block[0].position, newest))
        del self.frames[:whole]

    def between(self, start: int, end: int, since: int = _ANY) -> Iterator[Frame]:
        """The frames that hold a record with ``start <= offset < end``.

        Those may be left out in which no record has the timestamp ``since``, or a later one.
        """
        if self.blocks and start < self.frames[0].base:
            for place in range(_last_before(self.blocks, start), len(self.blocks)):
                if self.blocks[place].base >= end:
                    return
                if self.blocks[place].newest >= since:
                    yield from _holding(self._read_again(place), start, end)
        yield from _holding(self.frames[_last_before(self.frames, start) :], start, end)

    def _read_again(self, place: int) -> list[Frame]:
        """The frames of a block."""
        block = self.blocks[place]
        following = self.blocks[place + 1] if place + 1 < len(self.blocks) else self.frames[0]
        try:
            with open(self.path, "rb", buffering=0) as file:
                frames = list(self._headers(file.fileno(), block.position, block.base, following.position))
        except OSError as error:
            raise self.unreadable(error) from error
        end = frames[-1].end if frames else block.base
        if end != following.base:
            raise self.damaged(end, "frames that were there are gone")
        return frames

    def damaged(self, offset: int, what: str) -> SourceError:
        """The error for a frame that starts at ``offset`` and cannot be trusted."""
        return SourceError(
            f"A segment of a file topic is damaged: {what}.",
            code="CS-606",
            where=self._place(offset),
            next="Restore the file from a copy. Records before this offset are intact.",
        )

    def unreadable(self, error: OSError) -> SourceError:
        """The error for a file that the system does not let us read, or that is gone."""
        return SourceError(
            f"A segment of a file topic cannot be read: {error.strerror or error}.",
            code="CS-606",
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

    def _headers(self, descriptor: int, position: int, expected: int, written: int) -> Iterator[Frame]:
        """The complete frames from byte ``position``, the offset ``expected``, on; before byte ``written``."""
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
        if self._segments:
            self._segments[-1].forget(1)
        self._segments.append(segment)

    def frames(self, start: int, end: int, since: int = _ANY) -> Iterator[tuple[Segment, Iterator[Frame]]]:
        """The frames that hold ``start <= offset < end``, by segment, in order of offset; ``since``: as `between`."""
        for place in range(_last_before(self._segments, start), len(self._segments)):
            segment = self._segments[place]
            if segment.base >= end or start >= end:
                return
            self._complete(place)
            yield segment, segment.between(start, end, since)

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


def _last_before(parts: Sequence[Frame] | Sequence[Block] | Sequence[Segment], offset: int) -> int:
    """The place of the last part that begins at the offset or before it; 0 if there is none."""
    return max(bisect_right(parts, offset, key=lambda part: part.base) - 1, 0)


def _holding(frames: Iterable[Frame], start: int, end: int) -> Iterator[Frame]:
    """Those of frames in order that hold a record with ``start <= offset < end``."""
    for frame in frames:
        if frame.base >= end:
            return
        if frame.end > start:
            yield frame
