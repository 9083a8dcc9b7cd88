"""Reading exact ranges of offsets from file topics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from crossstream.errors import SourceError
from crossstream.filetopics.folders import TopicFolders
from crossstream.filetopics.frames import Frame, checksum_of, decode
from crossstream.filetopics.segments import PartitionLog, Segment
from crossstream.records import RECORDS, concat
from crossstream.topics import Moment, OffsetRange, TopicPartition

_BATCH_BYTES = 16 << 20
"""Payload bytes after which records are handed on, though a batch could hold more rows."""


class FileRangeReader:
    """`RangeReader` of file topics: remembers where frames lie, so a later range costs only its own bytes."""

    def __init__(self, root: Path) -> None:
        self._folders = TopicFolders(root)

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The records of ``span`` in order, in batches of at most ``max_rows`` rows of `RECORDS`.

        File topics have no gaps: every offset of ``span`` is there. Raises `SourceError` if one is not,
        because it was deleted or never written, and if the file is damaged.
        """
        if span.start >= span.end:
            return iter(())
        log = self._folders.partition(TopicPartition(span.topic, span.partition))
        if log.end < span.end or log.begin > span.start:
            log.refresh()
        if span.start < log.begin:
            raise _not_held(span, log.begin)
        if span.end > log.end:
            raise _not_written(span, log.end)
        found = [(segment, list(frames)) for segment, frames in log.frames(span.start, span.end)]
        return _in_batches(found, span, max_rows)

    def close(self) -> None:
        """Nothing is held open between reads."""


def first_at(log: PartitionLog, start: int, timestamp: int) -> Moment | None:
    """The first record from ``start`` on with that timestamp or a later one, as far as ``log`` knows."""
    for segment, frames in log.frames(max(start, log.begin), log.end, timestamp):
        for frame in frames:
            if frame.max_timestamp < timestamp:
                continue
            [(_, records)] = _payloads(segment, [frame])
            times = records.column("timestamp").to_numpy(zero_copy_only=False)
            first = max(start - frame.base, 0)
            late = np.flatnonzero(times[first:] >= timestamp)
            if len(late):
                row = first + int(late[0])
                return Moment(frame.base + row, int(times[row]))
    return None


def _in_batches(
    found: list[tuple[Segment, list[Frame]]], span: OffsetRange, max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Small frames are joined and large ones cut, to batches of ``max_rows`` or about `_BATCH_BYTES`."""
    parts: list[pa.RecordBatch] = []
    offset, rows, size = span.start, 0, 0
    for segment, frames in found:
        for frame, records in _payloads(segment, frames):
            first = max(span.start - frame.base, 0)
            last = min(span.end - frame.base, frame.rows)
            while first < last:
                part = records.slice(first, min(last - first, max_rows - rows))
                parts.append(part)
                first, rows = first + part.num_rows, rows + part.num_rows
                size += frame.length * part.num_rows // frame.rows
                if rows == max_rows or size >= _BATCH_BYTES:
                    yield _numbered(parts, offset)
                    parts, offset, rows, size = [], offset + rows, 0, 0
    if parts:
        yield _numbered(parts, offset)


def _payloads(segment: Segment, frames: list[Frame]) -> Iterator[tuple[Frame, pa.RecordBatch]]:
    """The records of each frame, after checking them against their checksum."""
    try:
        with open(segment.path, "rb", buffering=0) as file:
            for frame in frames:
                payload = os.pread(file.fileno(), frame.length, frame.payload)
                if len(payload) != frame.length or checksum_of(payload) != frame.checksum:
                    raise segment.damaged(frame.base, f"records at byte {frame.payload} fail their checksum")
                yield frame, decode(payload)
    except OSError as error:
        raise segment.unreadable(error) from error


def _numbered(parts: list[pa.RecordBatch], first: int) -> pa.RecordBatch:
    """One batch of `RECORDS` from stored records, the first of which has the offset ``first``."""
    stored = concat(parts)
    offsets = pa.array(np.arange(first, first + stored.num_rows, dtype=np.int64))
    columns = {name: stored.column(name) for name in stored.schema.names} | {"offset": offsets}
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)


def _not_held(span: OffsetRange, begin: int) -> SourceError:
    return SourceError(
        f"Offsets {span.start} to {span.end} are asked for, but the file topic begins at {begin}.",
        code="CS-601",
        where={"topic": span.topic, "partition": span.partition, "offset": span.start},
        next="Its first segments were deleted. Restore them; on_lost_records='skip' goes on, and counts the gap.",
    )


def _not_written(span: OffsetRange, end: int) -> SourceError:
    return SourceError(
        f"Offsets {span.start} to {span.end} are asked for, but the file topic ends at {end}.",
        code="CS-603",
        where={"topic": span.topic, "partition": span.partition, "offset": end},
        next="The topic was made anew or lost records. Restore its folder, or start with a new state_dir.",
    )
