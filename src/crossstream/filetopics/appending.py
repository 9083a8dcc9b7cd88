"""Appending frames to a partition: one writer at a time, by any process, torn tails cut off first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pyarrow as pa

from crossstream.errors import SinkError
from crossstream.filetopics.frames import Frame
from crossstream.filetopics.segments import PartitionLog, Segment
from crossstream.storage.files import force

Pieces = Iterable["bytes | pa.Buffer"]


class Appender:
    """Appends to one partition; made by `appending`, which holds the partition's lock."""

    def __init__(self, log: PartitionLog, segment_bytes: int, durable: bool) -> None:
        self._log = log
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._file: int | None = None

    def append(self, frame: Frame, payload: Pieces) -> None:
        """Appends one unplaced frame, whose payload comes in pieces.

        All of it or nothing: when the disk or ``payload`` fails, what was written is cut off again.
        """
        segment, file = self._open()
        placed = frame.at(segment.size, segment.end)
        try:
            os.lseek(file, placed.position, os.SEEK_SET)
            for piece in chain((placed.header(),), payload, (placed.padding,)):
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
        """The segment to append to, and its file."""
        segment = self._log.last
        if segment is None or segment.size >= self._segment_bytes:
            self.close()
            segment = self._log.following()
            self._file = os.open(segment.path, os.O_RDWR | os.O_CREAT, 0o644)
            self._log.add(segment)
            if self._durable:
                force(segment.path.parent)
        elif self._file is None:
            self._file = os.open(segment.path, os.O_RDWR)
            _cut_torn_tail(self._file, segment)
        assert self._file is not None
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
        raise SinkError(
            f"Records could not be appended to a file topic: {error}.",
            code="CS-665",
            where={"topic": log.owner.topic, "partition": log.owner.partition, "folder": str(log.folder)},
            next="Check the free space and the permissions of the folder, then write again.",
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file ``path``, waiting for whoever has it; a crash releases it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _cut_torn_tail(file: int, segment: Segment) -> None:
    if os.fstat(file).st_size > segment.size:
        os.ftruncate(file, segment.size)


def _write(file: int, content: bytes | pa.Buffer) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
