"""Reading exact ranges of offsets from file topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from crossstream.errors import SourceError
from crossstream.filetopics.folders import TopicFolders
from crossstream.filetopics.segments import Frame, PartitionLog
from crossstream.records import RECORDS, concat
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition

_BATCH_BYTES = 16 << 20
"""Bytes of records after which a batch ends, though it could hold more rows."""


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
        where = {"topic": span.topic, "partition": span.partition}
        wanted = f"Offsets {span.start} to {span.end} are asked for, but the file topic"
        if span.start < log.begin:
            raise SourceError(
                f"{wanted} begins at {log.begin}.",
                code="CS-601",
                where={**where, "offset": span.start},
                next="Its first segments were deleted. Restore them; "
                "on_lost_records='skip' continues, and counts the gap.",
            )
        if span.end > log.end:
            raise SourceError(
                f"{wanted} ends at {log.end}.",
                code="CS-603",
                where={**where, "offset": log.end},
                next="The topic was made again or lost records. "
                "Restore its folder, or start with a new state_dir.",
            )
        return _in_batches(log.read(span.start, span.end), span, max_rows)

    def close(self) -> None:
        """Nothing is held open between reads."""


def first_at(log: PartitionLog, start: int, timestamp: int) -> OffsetAndTimestamp | None:
    """The first record from ``start`` on with that timestamp or a later one, as far as ``log`` knows."""
    for frame, records in log.read(max(start, log.begin), log.end, timestamp):
        times = records.column("timestamp").to_numpy(zero_copy_only=False)
        first = max(start - frame.base, 0)
        late = np.flatnonzero(times[first:] >= timestamp)
        if len(late):
            row = first + int(late[0])
            return OffsetAndTimestamp(frame.base + row, int(times[row]))
    return None


def _in_batches(
    frames: Iterable[tuple[Frame, pa.RecordBatch]], span: OffsetRange, max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Small frames are joined and large ones cut, to batches of ``max_rows`` or about `_BATCH_BYTES`."""
    parts: list[pa.RecordBatch] = []
    offset, rows, size = span.start, 0, 0
    for frame, records in frames:
        first, last = max(span.start - frame.base, 0), min(span.end - frame.base, frame.rows)
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


def _numbered(parts: list[pa.RecordBatch], first: int) -> pa.RecordBatch:
    """One batch of `RECORDS` from stored records, the first of which has the offset ``first``."""
    stored = concat(parts)
    offsets = pa.array(np.arange(first, first + stored.num_rows, dtype=np.int64))
    columns = {name: stored.column(name) for name in stored.schema.names} | {"offset": offsets}
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)
