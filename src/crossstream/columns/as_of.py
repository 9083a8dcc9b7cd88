"""What a table held at a moment of a batch: its puts by key, and searches among them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.order import by_key
from crossstream.storage.columns import Column, take
from crossstream.storage.sorted_run import Run, is_sorted

_PLACE_BITS = 32
"""Lower bits of an arrival number: the place of the record in its batch."""


def arrival_numbers(places: np.ndarray, batch: int) -> np.ndarray:
    """Numbers that order stored records by arrival, from their places in a batch."""
    return places.astype(np.uint64) + np.uint64(batch << _PLACE_BITS)


@dataclass(frozen=True, slots=True)
class Puts:
    """Puts in order of their keys, in arrival order within a key.

    ``rank``: of each its place in arrival order, or with ``arrival`` (see `arrival_of`) its row as given; ``starts``:
    where each key begins; ``hashes``, ``keys``: of each key.
    """

    changes: Changes
    rank: np.ndarray
    starts: np.ndarray
    hashes: np.ndarray
    keys: Column

    @classmethod
    def of(cls, puts: Changes, bits: int, arrival: np.ndarray | None = None) -> Puts:
        if not puts.rows:
            none = np.empty(0, np.int64)
            return cls(puts, none, none, none.astype(np.uint64), puts.key.wire())
        hashes = puts.hashes(bits)
        rank, begins = by_key(puts, hashes, arrival)
        heads = rank[begins]
        ordered = puts if is_sorted(rank) else puts.take(rank)
        return cls(ordered, rank, np.flatnonzero(begins), hashes[heads], take(puts.key.wire(), heads))

    def places(self, hashes: np.ndarray, keys: Column) -> tuple[np.ndarray, np.ndarray]:
        """Where the puts of each wanted key begin and end."""
        first, last = np.zeros(len(hashes), np.int64), np.zeros(len(hashes), np.int64)
        wanted, found = Run({"h": self.hashes, "key": self.keys}).match(hashes, keys)
        first[wanted] = self.starts[found]
        last[wanted] = np.append(self.starts[1:], len(self.rank))[found]
        return first, last


def last_below(values: np.ndarray, first: np.ndarray, last: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """For each i the last position in ``[first, last)`` whose value is below the bound; −1 where there is none.

    All searches advance together, in log n steps: minima of the 1, 2, 4, … values that end at a position say
    how many can be passed over at once.

    >>> last_below(np.array([5, 1, 7, 3]), np.array([0, 2]), np.array([3, 4]), np.array([4, 3])).tolist()
    [1, -1]
    """
    end = last.copy()
    open_ = np.flatnonzero(first < last)
    open_ = open_[values[end[open_] - 1] >= bound[open_]]
    minima = _minima(values, int((last - first)[open_].max(initial=0)))
    for step in reversed(range(len(minima))):
        fits = open_[end[open_] - (1 << step) >= first[open_]]
        end[fits] -= np.where(minima[step][end[fits] - 1] >= bound[fits], 1 << step, 0)
    return np.where(end > first, end - 1, -1)


def _minima(values: np.ndarray, longest: int) -> list[np.ndarray]:
    """For each position the minimum of the 1, 2, 4, … values that end there, up to ``longest`` of them."""
    minima: list[np.ndarray] = []
    while (size := 1 << len(minima)) <= longest:
        wider = values.copy() if not minima else minima[-1].copy()
        if minima:
            wider[size // 2 :] = np.minimum(wider[size // 2 :], minima[-1][: -(size // 2)])
        minima.append(wider)
    return minima


def running_maximum_of(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The maximum so far within each group; ``starts``: where the groups begin."""
    ordered, rank = np.unique(values, return_inverse=True)
    # Ranks lifted by the number of the group: one running maximum serves all groups.
    lift = np.repeat(np.arange(len(starts)) * len(ordered), np.diff(starts, append=len(values)))
    return np.asarray(ordered[np.maximum.accumulate(rank + lift) - lift])
