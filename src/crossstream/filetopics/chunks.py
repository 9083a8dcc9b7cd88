"""Cutting the records for one partition into frames, the same way however they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.records import concat

MAX_ROWS = 32_768
MAX_BYTES = 4 << 20


class Chunks:
    """Collects record batches and gives back full chunks: `MAX_ROWS` rows, or the first to reach `MAX_BYTES`.

    Where a chunk ends depends on the records alone and not on the batches they came in, so that a task that
    runs again makes the same frames.
    """

    __slots__ = ("_bytes", "_parts", "_rows")

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Takes ``records``; yields the chunks that are full now."""
        sizes = np.cumsum(_row_bytes(records))
        start, before = 0, 0
        while start < len(sizes):
            filled = int(np.searchsorted(sizes, MAX_BYTES - self._bytes + before)) + 1
            end = min(filled, start + MAX_ROWS - self._rows)
            full = end <= len(sizes)
            end = min(end, len(sizes))
            self._parts.append(records.slice(start, end - start))
            self._rows += end - start
            self._bytes += int(sizes[end - 1]) - before
            start, before = end, int(sizes[end - 1])
            if full:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields what was collected and is not a full chunk yet, and starts again."""
        parts, self._parts = self._parts, []
        self._rows = self._bytes = 0
        if parts:
            yield concat(parts)


def _row_bytes(records: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Bytes of key, value and headers of each row, and 8 for its timestamp."""
    total = np.full(records.num_rows, 8, dtype=np.int64)
    for name in ("key", "value", "headers"):
        lengths = pc.fill_null(pc.binary_length(records.column(name)), 0)
        total += lengths.to_numpy(zero_copy_only=False)
    return total
