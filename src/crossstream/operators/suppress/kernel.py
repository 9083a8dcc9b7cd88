"""Which changes come out of a suppression, and when.

The changes of a batch and the rows that wait already stand in one sequence, those that wait first. A *stay* is the
time that a row spends in the buffer: from the change that brings it in to the one that makes it leave. All changes of
its key in between belong to the stay; the last one of them counts.

    Story: a limit of 10 ms. `a=1@0` comes in, `a=2@4` replaces it. `b=1@10` makes stream time 10, so `a=2@4` leaves.
    `a=3@12` begins another stay. Test: `test_a_later_change_of_the_row_does_not_prolong_its_stay`.

Without bounds the stays of all keys are found together: each change points to the first one after the stay that it
would begin, and the pointers are followed in as many steps as the longest chain has bits. Where a bound may be hit,
rows leave in order of time among all keys, so changes are taken one after the other. Source: semantics 3.13,
``KTableSuppressProcessorSupplier``, ``InMemoryTimeOrderedKeyValueChangeBuffer``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.changes import Changes
from crossstream.columns.order import by_key, reached
from crossstream.storage.columns import Column

HELD = -1
"""The place of a row that waits already."""


@dataclass(frozen=True, slots=True)
class Moments:
    """When things happen, by row. ``place``: the number of its change in the batch, or `HELD`.

    ``time``: its time in the buffer, should it begin a stay. ``clock``: stream time at each place, which may be that of
    a change or one at which a row leaves.
    """

    place: np.ndarray
    time: np.ndarray
    clock: np.ndarray


@dataclass(frozen=True, slots=True)
class Stays:
    """``first``, ``last``: the first and the last row of each stay. ``leaves``: the place of the change with which it
    ends; the number of changes for one that does not end.
    """

    first: np.ndarray
    last: np.ndarray
    leaves: np.ndarray


def stays(rows: Changes, moments: Moments, duration: int, bits: int) -> Stays:
    """The stays of a buffer without bounds. ``rows``: those that wait, then the changes in order of arrival."""
    order, begins = by_key(rows, rows.hashes(bits))
    place, count = moments.place[order], len(order)
    due = np.searchsorted(moments.clock, moments.time[order] + duration, "left")
    leaves = np.maximum(place, due)
    width = len(moments.clock) + 2
    number = (np.cumsum(begins) - 1) * width
    following = np.searchsorted(number + place + 1, number + leaves + 1, "right")
    ends = np.append(number, -1)[np.minimum(following, count)] != number
    starts = np.flatnonzero(reached(begins, np.where(ends, count, following)))
    last = np.append(starts[1:], count) - 1
    return Stays(order[starts], order[last], leaves[starts])


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most records and bytes that a buffer holds. ``full``: called with (records, bytes, place) to stop instead of
    letting the oldest leave; it raises.
    """

    records: int | None
    size: int | None
    full: Callable[[int, int, int], None] | None

    def exceeded(self, records: int, size: int) -> bool:
        return (self.records is not None and records > self.records) or (
            self.size is not None and size > self.size
        )


def bounded_stays(
    keys: Sequence[bytes], moments: Moments, duration: int, bounds: Bounds, size: Callable[[int, int], int]
) -> Stays:
    """As `stays`, one change after the other. ``size(first, last)``: the bytes of a stay, so far."""
    first: list[int] = []
    last: list[int] = []
    leaves: list[int] = []
    here: dict[bytes, int] = {}
    queue: list[tuple[int, bytes]] = []
    sizes: dict[bytes, int] = {}
    total, clock, count = 0, moments.clock.tolist(), len(moments.clock)

    def leave(place: int) -> int:
        _, key = heapq.heappop(queue)
        leaves[here.pop(key)] = place
        return sizes.pop(key)

    def overdue(place: int) -> int:
        freed = 0
        while queue and queue[0][0] + duration <= clock[place]:
            freed += leave(place)
        return freed

    passed = 0
    for row, (key, place, time) in enumerate(
        zip(keys, moments.place.tolist(), moments.time.tolist(), strict=True)
    ):
        while passed < place:
            total -= overdue(passed)
            passed += 1
        stay = here.get(key)
        if stay is None:
            stay = here[key] = len(first)
            first.append(row)
            last.append(row)
            leaves.append(count)
            heapq.heappush(queue, (time, key))
        last[stay] = row
        if bounds.size is not None:
            sizes_now = size(first[stay], row)
            total += sizes_now - sizes.get(key, 0)
            sizes[key] = sizes_now
        else:
            sizes[key] = 0
        if place == HELD:
            continue
        total -= overdue(place)
        while queue and bounds.exceeded(len(here), total):
            if bounds.full is not None:
                bounds.full(len(here), total, row)
            total -= leave(place)
    for place in range(passed, count):
        overdue(place)
    return Stays(np.array(first, np.int64), np.array(last, np.int64), np.array(leaves, np.int64))


def in_order(time: np.ndarray, leaves: np.ndarray, keys: Column) -> np.ndarray:
    """The order in which rows leave: by change, then by time in the buffer, then by key."""
    rank = np.asarray(pc.rank(keys, tiebreaker="dense")) if len(keys) > 1 else np.zeros(len(keys))
    return np.lexsort((rank, time, leaves))


def lengths(column: pa.LargeBinaryArray) -> np.ndarray:
    """The bytes of each row; 0 of a null."""
    return np.asarray(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)
