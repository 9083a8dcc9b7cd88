"""The rows of a history in the order of Kafka's offsets, partition by partition, as far as possible in bounded memory.

Files are opened by their least offset. What is before the least offset of all that is still to come is in order, and
leaves; a table that is written as its topic is has few rows in memory. A row that the table has twice comes once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

import numpy as np
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.history import History
from crossstream.lakehouse.columns import cast_to
from crossstream.lakehouse.versions import LakeVersions, Piece

Ranges = Mapping[int, tuple[int, int]]
"""By partition the first offset, and the one after the last."""
Ordered = tuple[int, np.ndarray, pa.RecordBatch]
"""A partition, offsets in order, and the rows that have them."""
LAST = np.iinfo(np.int64).max


@dataclass(slots=True)
class InOrder:
    """Reads ranges of a version. ``columns``: those that rows have, beside partition and offset.

    ``most``: how many rows it waits for before some leave.
    """

    versions: LakeVersions
    history: History
    version: int
    ranges: Ranges
    columns: Sequence[str]
    most: int
    _heap: list[tuple[int, int, Piece, bool]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _waiting: dict[int, list[tuple[np.ndarray, pa.RecordBatch]]] = field(default_factory=dict)

    def read(self) -> Iterator[Ordered]:
        names = self.history.positions
        pieces = self.versions.pieces(self.version, names) if self.ranges else ()
        self._heap = [self._placed(piece, is_fine=False) for piece in pieces if self._is_wanted(piece)]
        heapify(self._heap)
        rows, enough = 0, self.most
        while self._heap:
            _, _, piece, is_fine = heappop(self._heap)
            if not is_fine:
                for part in self.versions.finer(self.version, piece, names):
                    if self._is_wanted(part):
                        heappush(self._heap, self._placed(part, is_fine=True))
                continue
            rows += self._take(piece)
            if rows >= enough and self._heap:
                for leaving in self._leaving(self._heap[0][0]):
                    rows -= len(leaving[1])
                    yield leaving
                enough = self.most + 2 * rows
        yield from self._leaving(LAST)

    def _placed(self, piece: Piece, *, is_fine: bool) -> tuple[int, int, Piece, bool]:
        return piece.low.get(self.history.offset, -1), next(self._numbers), piece, is_fine

    def _is_wanted(self, piece: Piece) -> bool:
        """Whether a piece may have rows of the ranges."""
        partition, offset = self.history.partition, self.history.offset
        first, last = piece.low.get(partition, 0), piece.high.get(partition, LAST)
        low, high = piece.low.get(offset, 0), piece.high.get(offset, LAST)
        return any(
            first <= number <= last and start <= high and low < end
            for number, (start, end) in self.ranges.items()
        )

    def _take(self, piece: Piece) -> int:
        taken = 0
        columns = tuple(dict.fromkeys((*self.history.positions, *self.columns)))
        for batch in self.versions.rows_of(self.version, piece, columns):
            partitions, offsets = positions_of(self.history, batch, self.version)
            for number in np.unique(partitions).tolist():
                start, end = self.ranges.get(number, (0, 0))
                mine = (partitions == number) & (offsets >= start) & (offsets < end)
                found = int(mine.sum())
                if found:
                    rows = batch if found == batch.num_rows else batch.filter(pa.array(mine))
                    rows = cast_to(self.history.table, rows, self.columns, self.version)
                    self._waiting.setdefault(number, []).append((offsets[mine], rows))
                    taken += found
        return taken

    def _leaving(self, before: int) -> Iterator[Ordered]:
        """The rows with offsets before ``before``, and not more than once."""
        for number, parts in self._waiting.items():
            if not any(int(offsets.min()) < before for offsets, _ in parts):
                continue
            offsets = np.concatenate([one for one, _ in parts])
            rows = parts[0][1] if len(parts) == 1 else pa.concat_batches([one for _, one in parts])
            parts.clear()
            order = _order(offsets)
            if order is not None:
                offsets, rows = offsets[order], rows.take(pa.array(order))
            there = int(np.searchsorted(offsets, before))
            if there < len(offsets):
                parts.append((offsets[there:], rows.slice(there)))
            for start in range(0, there, self.most):
                stop = min(there, start + self.most)
                yield number, offsets[start:stop], rows.slice(start, stop - start)


def _order(offsets: np.ndarray) -> np.ndarray | None:
    """The places of the rows in order, each offset once; None: they are in order."""
    if (np.diff(offsets) > 0).all():
        return None
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    return np.asarray(order[np.append(True, ordered[1:] != ordered[:-1])])


def positions_of(history: History, batch: pa.RecordBatch, version: int) -> tuple[np.ndarray, np.ndarray]:
    """Partitions and offsets of rows. Raises `SourceError` CS-631 where they are null or negative."""
    found = []
    for name in history.positions:
        place = batch.schema.get_field_index(name)
        column = pa.nulls(batch.num_rows, pa.int64()) if place < 0 else batch.column(place).cast(pa.int64())
        if column.null_count:
            raise _no_position(history, name, "is null in", version)
        numbers = column.to_numpy(zero_copy_only=False)
        if len(numbers) and numbers.min() < 0:
            raise _no_position(history, name, "is negative in", version)
        found.append(numbers)
    return found[0], found[1]


def _no_position(history: History, name: str, what: str, version: int) -> CrossStreamError:
    table = history.table
    said = f"the column {name!r} {what} some rows of {table.table}: they have no place before the topic"
    return refuse("CS-631", said, topic=table.topic, version=version)
