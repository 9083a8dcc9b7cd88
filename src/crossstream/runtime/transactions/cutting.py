"""Where a batch ends: behind the last transaction whose events, and those of all before it, are there.

In a partition, events are in the order of their transactions, which is that of the END events, their ranks. So a
partition that shows an event of a later transaction has all of an earlier one that it will ever get. Otherwise events
are counted, each once, by its place in the transaction.

A connector that starts again repeats events, and rows go back to earlier states. The rank that counts is the largest
one so far; and no batch ends where the last event is behind the furthest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from crossstream.runtime.transactions.ahead import NOTHING, PENDING, Ahead, Events, High
from crossstream.runtime.transactions.ends import Ends

YOUNG_MS = 60_000
"""Records of a topic that are younger than this are not compacted."""


@dataclass(frozen=True, slots=True)
class Course:
    """How the records of a partition come further in the transactions, from the offset ``begin`` to below ``end``.

    ``reach``: up to each record, the largest rank; `PENDING` from one on that has to wait. ``settled``: whether a batch
    may end behind it. ``shown``: the largest rank of an event, `PENDING` if the transaction of one has not ended: of
    earlier ones nothing more will come.
    """

    offsets: np.ndarray
    reach: np.ndarray
    settled: np.ndarray
    begin: int
    end: int
    shown: int

    def offset(self, rank: int, limit: int | None = None) -> int:
        """The offset before which a batch stops that ends behind the transaction, and before the limit."""
        rows = int(np.searchsorted(self.reach, rank, side="right"))
        if limit is not None:
            rows = min(rows, int(np.searchsorted(self.offsets, limit)))
        if rows and not self.settled[rows - 1]:
            there = np.flatnonzero(self.settled[:rows])
            rows = int(there[-1]) + 1 if len(there) else 0
        if rows == len(self.offsets):
            return self.end
        return int(self.offsets[rows]) if rows else self.begin

    def within(self, limit: int) -> int:
        """The last rank behind which a batch ends that stops before an offset."""
        rows = int(np.searchsorted(self.offsets, limit))
        return PENDING - 1 if rows == len(self.offsets) else int(self.reach[rows]) - 1

    @property
    def first(self) -> int:
        """The rank behind which a batch ends that takes the first record; `PENDING`: there is none."""
        return int(self.reach[0]) if len(self.reach) else PENDING

    def holes(self, ranks: np.ndarray) -> np.ndarray:
        """How many offsets have no record where events of each of these transactions would be; 0: none came later."""
        below = np.concatenate([[self.begin - 1], self.offsets])
        first = np.searchsorted(self.reach, ranks, side="left")
        after = np.searchsorted(self.reach, ranks, side="right")
        there = after < len(self.offsets)
        found = np.zeros(len(ranks), np.int64)
        first, after = first[there], after[there]
        found[there] = self.offsets[after] - below[first] - 1 - (after - first)
        return found


def course_of(ahead: Ahead, held: np.ndarray | None = None) -> Course:
    """``held``: the records that wait, as a mask."""
    events, high = ahead.events, ahead.high
    ranks = _with_lost(events.ranks, high.rank)
    waits = ranks if held is None else np.where(held, PENDING, ranks)
    reach = np.maximum.accumulate(np.concatenate([[high.rank], waits]))[1:]
    shown = int(ranks.max(initial=high.rank))
    settled = _settled(ranks, events.orders, high)
    return Course(events.offsets, reach, settled, ahead.begin, ahead.end, shown)


def _with_lost(ranks: np.ndarray, before: int) -> np.ndarray:
    """Ranks for events whose END is not known, in front of one of a later transaction: their END was lost.

    One that comes again behind events of a transaction that has not ended is no later one.
    """
    pending = ranks == PENDING
    if not pending.any():
        return ranks
    known = np.maximum.accumulate(np.concatenate([[before], np.where(pending, NOTHING, ranks)]))[1:]
    lost = pending & (known < known[-1])
    if not lost.any():
        return ranks
    made = ranks.copy()
    made[lost] = known[np.searchsorted(known, known[lost], side="right")]
    return made


def _settled(ranks: np.ndarray, orders: np.ndarray, high: High) -> np.ndarray:
    """Whether a record is the furthest one so far; one of no transaction is as the one before."""
    rows = np.flatnonzero(ranks != NOTHING)
    if not len(rows):
        return np.ones(len(ranks), np.bool_)
    _, dense = np.unique(np.concatenate([[high.rank], ranks[rows]]), return_inverse=True)
    places = (dense.astype(np.int64) << 32) | np.concatenate([[high.order], orders[rows]])
    furthest = places[1:] >= np.maximum.accumulate(places)[:-1]
    last = np.zeros(len(ranks), np.int64)
    last[rows] = np.arange(1, len(rows) + 1)
    return np.concatenate([[True], furthest])[np.maximum.accumulate(last)]


class Collections(NamedTuple):
    """What is read of the tables of a database. ``codes``: of collections; ``read_by``: the topics that have each."""

    codes: Mapping[str, int]
    read_by: Mapping[int, Sequence[str]]


class Missing(NamedTuple):
    """Events that are not there yet of the first transaction that is not whole."""

    rank: int
    collection: str
    events: int


def first_missing(
    ends: Ends,
    parts: Sequence[tuple[Ahead, Course]],
    collections: Collections,
    taken: Mapping[str, int],
) -> Missing | None:
    """What the first transaction lacks of which not all events are there; None: all that ended are whole.

    ``taken``: of the first transaction, as it was split, how many events were taken before.
    """
    codes, read_by = collections
    first = ends.row(ends.position)
    start = int(np.searchsorted(ends.counted, ends.position))
    wanted = np.fromiter((codes.get(name, -1) for name in ends.names[start:]), np.int64)
    rows = np.flatnonzero(wanted >= 0)
    if first == len(ends.ranks) or not len(rows):
        return None
    needed = pl.DataFrame(
        {"rank": ends.counted[start:][rows], "code": wanted[rows], "count": ends.counts[start:][rows]}
    )
    shown = {code: _shown(topics, parts) for code, topics in read_by.items()}
    needed = needed.with_columns(
        shown=pl.col("code").replace_strict(shown, default=NOTHING, return_dtype=pl.Int64)
    )
    open_ = needed.filter(pl.col("shown") <= pl.col("rank"))
    if not len(open_):
        return None
    there = _counted([ahead.events for ahead, _ in parts], int(open_["rank"].min()))  # type: ignore[arg-type]
    found = open_.join(there, on=["rank", "code"], how="left").with_columns(pl.col("events").fill_null(0))
    if taken:
        early = {codes[name]: count for name, count in taken.items() if name in codes}
        head = int(ends.ranks[first])
        more = pl.col("code").replace_strict(early, default=0, return_dtype=pl.Int64)
        found = found.with_columns(
            events=pl.col("events") + pl.when(pl.col("rank") == head).then(more).otherwise(0)
        )
    lacking = found.filter(pl.col("events") < pl.col("count")).sort("rank", "code")
    lacking = lacking.filter(~_compacted(lacking, ends, parts, read_by))
    if not len(lacking):
        return None
    rank, code, count, _, events = lacking.row(0)
    names = {code: name for name, code in codes.items()}
    return Missing(rank, names[code], count - events)


def _compacted(
    lacking: pl.DataFrame,
    ends: Ends,
    parts: Sequence[tuple[Ahead, Course]],
    read_by: Mapping[int, Sequence[str]],
) -> pl.Series:
    """Of which transactions the missing events are gone for good: offsets have no records where they would be.

    So it is after compaction, and behind each transaction of Kafka. Compaction leaves young records alone.
    """
    ranks = lacking["rank"].to_numpy()
    newest = max((int(ahead.events.times.max(initial=-1)) for ahead, _ in parts), default=-1)
    is_old = ends.moments[np.searchsorted(ends.ranks, ranks)] <= newest - YOUNG_MS
    holes = np.zeros(len(ranks), np.int64)
    for code in lacking["code"].unique().to_list():
        rows = is_old & (lacking["code"].to_numpy() == code)
        for ahead, course in parts if rows.any() else ():
            if ahead.tp.topic in read_by[code]:
                holes[rows] += course.holes(ranks[rows])
    return pl.Series(holes >= (lacking["count"] - lacking["events"]).to_numpy())


def _shown(topics: Sequence[str], parts: Sequence[tuple[Ahead, Course]]) -> int:
    """Up to below which rank all partitions of some topics have shown a later event."""
    return min((course.shown for ahead, course in parts if ahead.tp.topic in topics), default=NOTHING)


def _counted(parts: Sequence[Events], first: int) -> pl.DataFrame:
    """How many events there are from a rank on, by rank and collection; one that was repeated is one."""
    frames = []
    for events in parts:
        rows = np.flatnonzero((events.ranks >= first) & (events.ranks < PENDING))
        columns = {"rank": events.ranks[rows], "code": events.codes[rows], "order": events.orders[rows]}
        frames.append(pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64)))
    return pl.concat(frames).unique().group_by("rank", "code").agg(events=pl.len().cast(pl.Int64))
