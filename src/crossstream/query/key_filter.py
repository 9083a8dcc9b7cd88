"""What a reader looks for in a store: rows under some keys, rows between two times, or all.

Runs are sorted by the hash of the key, so the rows of a few keys are found by bisection, in the one state partition
that has them; and of the run files only those are opened that have hashes, and times, in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.planning.plan import StoreDef
from crossstream.serdes.windowed import NO_END
from crossstream.storage.columns import take, take_all
from crossstream.storage.manifest import SegmentRef
from crossstream.storage.sorted_run import Run, merge
from crossstream.storage.store import Version

_FIRST, _LAST = -NO_END - 1, NO_END


@dataclass(frozen=True, slots=True)
class Look:
    """``keys``: serialised; None: all. ``low``, ``high``: of the rows' secondary number, both inclusive."""

    keys: tuple[bytes, ...] | None = None
    low: int = _FIRST
    high: int = _LAST
    hashes: np.ndarray = field(init=False, repr=False, compare=False)
    wire: pa.Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        wire = pa.array(self.keys or (), pa.large_binary())
        hashes = hash_keys(wire)
        order = np.argsort(hashes, kind="stable")
        object.__setattr__(self, "hashes", hashes[order])
        object.__setattr__(self, "wire", take(wire, order))

    @property
    def by_time(self) -> bool:
        return (self.low, self.high) != (_FIRST, _LAST)

    def partitions(self, store: StoreDef, partitions: int) -> Sequence[int]:
        """The state partitions that may have such rows."""
        if self.keys is None or store.anywhere:
            return range(partitions)
        return sorted(set(partition_of(self.hashes, partitions).tolist()))

    def may_be_in(self, segment: SegmentRef) -> bool:
        """Whether rows of a segment may be looked for."""
        oldest, newest = segment.times or (self.low, self.high)
        if self.by_time and (oldest > self.high or newest < self.low):
            return False
        if self.keys is None:
            return True
        first = int(self.hashes.searchsorted(np.uint64(segment.low)))
        return first < len(self.hashes) and int(self.hashes[first]) <= segment.high

    def live(self, version: Version) -> Run:
        """The live rows of a version that are looked for."""
        snapshot = version.snapshot()
        if self.keys is None:
            return Run(snapshot.live_between(self.low, self.high)) if self.by_time else snapshot.live()
        parts = []
        for run in snapshot.segments():
            if self.by_time:
                low, high = (np.full(len(self.hashes), bound) for bound in (self.low, self.high))
                rows = run.match_range(self.hashes, self.wire, low, high)[1]
            else:
                rows = run.match(self.hashes, self.wire)[1]
            parts.append(Run(take_all(run.columns, rows)))
        return merge(parts, drop_gone=True)


EVERYTHING = Look()
