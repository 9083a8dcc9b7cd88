"""Where a lake table ends, in Kafka's offsets: by the bounds of its files, or by the columns of positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossstream.graph.history import History
from crossstream.lakehouse.history_order import positions_of
from crossstream.lakehouse.versions import LakeVersions, Piece
from crossstream.storage.log_entries import Seam

Extent = tuple[int, int, int]
"""A partition, the least offset of rows of it, and the greatest one."""


def found_seam(history: History, versions: LakeVersions) -> Seam:
    """The seam of the version that is asked for, or of the newest one; where rows have no offsets, of no partition."""
    newest = versions.newest()
    version = newest if history.table.version is None else min(history.table.version, newest)
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for piece in versions.pieces(version, history.positions) if history.positions else ():
        for partition, first, last in _extents(history, versions, version, piece):
            begins[partition] = min(first, begins.get(partition, first))
            ends[partition] = max(last + 1, ends.get(partition, 0))
    return Seam(versions.table_id(), version, dict(sorted(begins.items())), dict(sorted(ends.items())))


def _extents(history: History, versions: LakeVersions, version: int, piece: Piece) -> Iterator[Extent]:
    """Of a file of one partition its bounds say it; of another one those of its parts, or else its rows."""
    known = _known(history, piece)
    if known is not None:
        yield known
        return
    for part in versions.finer(version, piece, history.positions):
        known = _known(history, part)
        if known is not None:
            yield known
            continue
        for batch in versions.rows_of(version, part, history.positions):
            partitions, offsets = positions_of(history, batch, version)
            for number in np.unique(partitions).tolist():
                mine = offsets[partitions == number]
                yield number, int(mine.min()), int(mine.max())


def _known(history: History, piece: Piece) -> Extent | None:
    partition, offset = history.partition, history.offset
    one, low, high = piece.low.get(partition), piece.low.get(offset), piece.high.get(offset)
    if one is None or one != piece.high.get(partition) or low is None or high is None:
        return None
    return one, low, high
