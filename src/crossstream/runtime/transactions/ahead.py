"""What was read ahead of a partition: to which transaction each of its records belongs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from crossstream.topics import TopicPartition

NOTHING = -1
"""The rank of a record that is of no transaction: of a snapshot, a tombstone, a heartbeat."""
PENDING = 1 << 62
"""The rank of an event whose transaction has not ended, as far as it is known."""


class High(NamedTuple):
    """How far in the transactions the records before a place have come: the rank, and the place in that transaction."""

    rank: int = NOTHING
    order: int = 0


START = High()
"""Before the first transaction."""


class Events(NamedTuple):
    """Records of a partition. ``ranks``: of their transactions, which they are ordered by: offsets of END events.

    ``codes``: of collections; -1: it is no event. Others: as in `Marks`.
    """

    offsets: np.ndarray
    times: np.ndarray
    ranks: np.ndarray
    orders: np.ndarray
    codes: np.ndarray
    snapshots: np.ndarray
    lsns: np.ndarray
    ids: pl.Series

    def part(self, start: int, stop: int | None = None) -> Events:
        """The records of some rows."""
        return Events(*(column[start:stop] for column in self))  # type: ignore[arg-type]

    def then(self, more: Events) -> Events:
        """These and those that follow."""
        columns = [np.concatenate(both) for both in zip(self[:-1], more[:-1], strict=True)]
        return Events(*columns, self.ids.clone().append(more.ids))  # type: ignore[call-arg, arg-type]


def no_events() -> Events:
    whole = np.empty(0, np.int64)
    return Events(
        whole, whole, whole, whole, whole, np.empty(0, np.uint8), whole, pl.Series("id", [], pl.String)
    )


@dataclass(slots=True)
class Ahead:
    """A partition from where it was read to where it was looked at.

    ``begin``: the offset that a batch reads next; ``end``: up to where its records are known. ``high``: of what was
    taken before.
    """

    tp: TopicPartition
    begin: int
    end: int
    high: High = START
    events: Events = field(default_factory=no_events)

    def add(self, events: Events, end: int) -> None:
        """Takes in the records up to ``end``, which follow."""
        self.events = self.events.then(events) if len(self.events.offsets) else events
        self.end = end

    def advance(self, position: int) -> None:
        """Leaves out what was taken, and remembers how far it came."""
        if position == self.begin:
            return
        if not self.begin < position <= self.end:  # the topic was made again, or records were lost
            self.begin = self.end = position
            self.events, self.high = no_events(), START
            return
        rows = int(np.searchsorted(self.events.offsets, position))
        self.high = high_of(self.events.part(0, rows), self.high)
        self.events, self.begin = self.events.part(rows), position

    def taken(self, position: int) -> Ahead:
        """What is known of the partition behind a batch, without the records that follow."""
        rows = int(np.searchsorted(self.events.offsets, position))
        return Ahead(self.tp, position, position, high_of(self.events.part(0, rows), self.high))


def high_of(events: Events, before: High) -> High:
    """How far some records have come."""
    known = np.where(events.ranks == PENDING, NOTHING, events.ranks)
    rank = int(known.max(initial=before.rank))
    orders = events.orders[events.ranks == rank]
    order = int(orders.max(initial=before.order if rank == before.rank else 0))
    return High(rank, order)
