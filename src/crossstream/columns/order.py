"""Arrival order inside a batch, and grouping by key.

Each source partition stays first-in-first-out. Partitions merge like Kafka's `PartitionGroup`: the
partition with the smallest head goes first, which is the order by the running maximum of the
timestamps in each partition. So a row carries two numbers:

    major   the running maximum of its partition's timestamps, from the start of the batch's range
    minor   the source partition's rank (upper bits) and the offset within the range (lower bits)

Sorting by timestamp alone would reorder an out-of-order record inside its own partition, and change which
value of a table is last. Source: semantics 1.2, KIP-353.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.hashing import hash_keys
from crossstream.storage.columns import Column, same_rows, take
from crossstream.storage.sorted_run import bisect, identities, stable_order

OFFSET_BITS = 40
"""Lower bits of `minor`: an offset relative to the start of the range."""


def minor_of(rank: int, offsets: np.ndarray, start: int) -> np.ndarray:
    """The second order column of records at ``offsets`` of the source partition with this rank."""
    return (np.int64(rank) << OFFSET_BITS) + (offsets - start)


def place_of(minor: int) -> tuple[int, int]:
    """(rank of the source partition, offset relative to the start of the range) of a row."""
    return minor >> OFFSET_BITS, minor & ((1 << OFFSET_BITS) - 1)


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
