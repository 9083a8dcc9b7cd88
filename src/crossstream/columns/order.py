"""Arrival order inside a batch, grouping by key, and the order of rows where branches meet again.

Each source partition stays first-in-first-out. Partitions merge like Kafka's `PartitionGroup`: the
partition with the smallest head goes first, which is the order by the running maximum of the
timestamps in each partition. So a row carries two numbers:

    major   the running maximum of its partition's timestamps, from the start of the batch's range
    minor   the source partition's rank (upper bits) and the offset within the range (lower bits)

Sorting by timestamp alone would reorder an out-of-order record inside its own partition, and change which
value of a table is last. Source: semantics 1.2, KIP-353.

An operator passes one row to all operators below it before it makes the next row (semantics 1.2). So where a stream
branches, each row is tagged with (row number, branch). Where branches merge, rows of one record are sorted by these
tags, those of forks further up first. Only row-wise operators lie in between, and they keep the tags.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.hashing import hash_keys
from crossstream.storage.columns import Column, same_rows, take
from crossstream.storage.sorted_run import Run, bisect, identities, is_sorted, stable_order

OFFSET_BITS = 40
"""Lower bits of `minor`: an offset relative to the start of the range."""


def minor_of(rank: int, offsets: np.ndarray, start: int) -> np.ndarray:
    """The second order column of records at ``offsets`` of the source partition with this rank."""
    return (np.int64(rank) << OFFSET_BITS) + (offsets - start)


def place_of(minor: int) -> tuple[int, int]:
    """(rank of the source partition, offset relative to the start of the range) of a row."""
    return minor >> OFFSET_BITS, minor & ((1 << OFFSET_BITS) - 1)


@dataclass(frozen=True, slots=True)
class TopicOrder:
    """The order in which sinks write to a topic: by arrival, rows of one record by ``forks``, then by ``sinks``."""

    sinks: tuple[str, ...]
    forks: tuple[Fork, ...]


def running_maximum(ts: np.ndarray, before: int) -> np.ndarray:
    """The maximum of ``before`` and all timestamps up to each record."""
    if not len(ts) or (len(ts) == 1 and ts[0] >= before):
        return ts
    return np.maximum(np.maximum.accumulate(ts), before)


def by_arrival(changes: Changes) -> Changes:
    """The rows in arrival order; rows of one trigger keep the order they have."""
    order = arrival_of(changes)
    return changes if order is None else changes.take(order)


def arrival_of(changes: Changes) -> np.ndarray | None:
    """The rows in arrival order; None if that is the order they have."""
    major, minor = changes.major, changes.minor
    later = (major[1:] > major[:-1]) | ((major[1:] == major[:-1]) & (minor[1:] >= minor[:-1]))
    return None if later.all() else np.lexsort((minor, major))


class InTime(Protocol):
    """Rows with positions in time, in arrival order."""

    @property
    def major(self) -> np.ndarray: ...

    @property
    def minor(self) -> np.ndarray: ...


def came_before(
    major: np.ndarray, minor: np.ndarray, events: InTime, *, or_with: bool | np.ndarray
) -> np.ndarray:
    """For each position (``major``, ``minor``) the number of ``events`` that came before it.

    ``or_with``: those that the same input record caused count too, everywhere or at these positions.
    """
    low, high = events.major.searchsorted(major, "left"), events.major.searchsorted(major, "right")
    return bisect(events.minor, low, high, minor + or_with, right=False)


def by_key(
    changes: Changes, hashes: np.ndarray, arrival: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows grouped by key: their order by (hash, key), arrival order within a key; and where keys begin.

    Two keys with one hash stay apart: the serialised bytes decide. ``arrival``: see `arrival_of`.
    """
    order = stable_order(hashes) if arrival is None else arrival[stable_order(hashes[arrival])]
    if len(hashes) == 1:
        return order, np.ones(1, bool)
    h = hashes[order]
    tied = np.flatnonzero(h[1:] == h[:-1])
    begins = np.ones(len(h), bool)
    if len(tied):
        keys = changes.key.wire()
        same = same_rows(keys, order[tied], keys, order[tied + 1])
        if not same.all():
            arrived = np.arange(len(h)) if arrival is None else np.argsort(arrival)
            order = np.lexsort((arrived, identities([keys]), hashes))
            h = hashes[order]
            tied = np.flatnonzero(h[1:] == h[:-1])
            same = same_rows(keys, order[tied], keys, order[tied + 1])
        begins[tied[same] + 1] = False
    return order, begins


def in_hash_order(keys: Column, codes: np.ndarray, bits: int) -> tuple[Column, np.ndarray, np.ndarray]:
    """Different keys in order of their hashes, the hashes, and the new numbers of keys for ``codes`` (−1: none)."""
    hashes = hash_keys(keys, bits)
    order = stable_order(hashes)
    number = np.full(len(order) + 1, -1)
    number[order] = np.arange(len(order))
    return take(keys, order), hashes[order], number[codes]


def last_per_key(changes: Changes, hashes: np.ndarray, arrival: np.ndarray | None = None) -> np.ndarray:
    """The last row of each key, in order of the hash. ``changes`` in arrival order, or that is ``arrival``."""
    order, begins = by_key(changes, hashes, arrival)
    if len(order) == 1:
        return order
    ends = np.append(begins[1:], True)
    return order if ends.all() else order[ends]


def last_per_trigger(
    changes: Changes, order: np.ndarray, begins: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of rows grouped by key (see `by_key`) the last that each input record makes, and where keys begin among them."""
    follows = ~begins[1:] & same_trigger(changes.major, changes.minor, order[:-1], order[1:])
    if not follows.any():
        return order, begins
    kept = np.flatnonzero(~np.append(follows, False))
    group = np.cumsum(begins)[kept]
    return order[kept], np.diff(group, prepend=0) > 0


def same_trigger(major: np.ndarray, minor: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Pair by pair, whether two rows come from one input record."""
    return np.asarray((major[rows] == major[others]) & (minor[rows] == minor[others]))


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
    if len(starts) == 1:
        return np.maximum.accumulate(values)
    ordered, rank = np.unique(values, return_inverse=True)
    # Ranks lifted by the number of the group: one running maximum serves all groups.
    lift = np.repeat(np.arange(len(starts)) * len(ordered), np.diff(starts, append=len(values)))
    return np.asarray(ordered[np.maximum.accumulate(rank + lift) - lift])


_PREFIX = "branch order "
"""Of the extra columns, before the name of the flow that branches."""

CameFrom = Callable[[Collection[str], np.ndarray], np.ndarray]
"""Which rows, by their time positions (`minor`), come from records of these sources."""

_BRANCH_BITS = 16
"""Lower bits of a tag: the number of the branch."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A flow from which several branches lead to one merge.

    ``ranks``: the order of the merge's inputs, where one branch leads to each; None: rows are sorted by their tags.
    ``sources``: the sources whose records reach the flow.
    """

    flow: str
    ranks: Mapping[str, int] | None = None
    sources: frozenset[str] = frozenset()

    def renamed(self, names: Mapping[str, str]) -> Fork:
        """The fork with other names for the inputs of the merge."""
        if self.ranks is None:
            return self
        return replace(self, ranks={names.get(end, end): rank for end, rank in self.ranks.items()})


class BranchTags:
    """Tags the rows at the start of a branch. ``branches``: a flow that forks, and the number of this branch."""

    def __init__(self, branches: Iterable[tuple[str, int]]) -> None:
        self._branches = dict(branches)
        self._rows = dict.fromkeys(self._branches, 0)

    def added(self, flow: str, changes: Changes) -> Changes:
        """The next rows of a flow, with tags if it forks."""
        if flow not in self._branches:
            return changes
        first = self._rows[flow]
        self._rows[flow] += changes.rows
        tags = (np.arange(first, self._rows[flow]) << _BRANCH_BITS) + self._branches[flow]
        return replace(changes, extra={**changes.extra, _PREFIX + flow: tags})


def without_tags(changes: Changes) -> Changes:
    """The rows as operators take them that are not row-wise."""
    if not changes.extra:
        return changes
    extra = {name: column for name, column in changes.extra.items() if not name.startswith(_PREFIX)}
    return changes if len(extra) == len(changes.extra) else replace(changes, extra=extra)


def in_branch_order(
    parts: Sequence[tuple[str, Changes]], forks: Sequence[Fork], came_from: CameFrom
) -> Changes:
    """Merges rows: by arrival, then by the ``forks``, those further up first, then by the order of ``parts``.

    Each part comes with the name of its input.
    """
    names = dict.fromkeys(name for _, part in parts for name in part.extra)
    merged = concat_changes([_with_all(part, names) for _, part in parts])
    if not forks:
        return by_arrival(merged)
    keys = [merged.major, merged.minor]
    for fork in forks:
        if fork.ranks is not None:
            ranks = [np.full(part.rows, fork.ranks.get(end, 0)) for end, part in parts]
            keys.append(np.where(came_from(fork.sources, merged.minor), np.concatenate(ranks), 0))
        elif _PREFIX + fork.flow in merged.extra:
            keys.append(np.asarray(merged.extra[_PREFIX + fork.flow]))
    return merged.take(np.lexsort(keys[::-1]))


def _with_all(changes: Changes, names: Mapping[str, None]) -> Changes:
    """The rows with a column of each name; 0 in columns of forks that the rows did not pass."""
    zeros = np.zeros(changes.rows, np.int64)
    return replace(changes, extra={name: changes.extra.get(name, zeros) for name in names})


def reached(starts: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Row by row, whether a chain comes there. ``starts``: where chains begin, as a mask or as row numbers.

    ``following``: from each row to the next of its chain, a later one; the number of rows at the end of a chain. It
    takes as many steps as the length of the longest chain has bits.

    >>> reached(np.array([0]), np.array([2, 2, 3, 4])).tolist()
    [True, False, True, True]
    """
    count = len(following)
    found = np.zeros(count, bool)
    found[starts] = True
    jump = np.append(following, count)
    while True:
        targets = jump[np.flatnonzero(found)]
        targets = targets[targets < count]
        if not len(targets):
            return found
        found[targets] = True
        jump = jump[jump]
