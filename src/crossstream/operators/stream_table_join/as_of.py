"""The row that was there when a record arrived, and records that wait for the table (grace)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.order import by_key
from crossstream.columns.values import Values
from crossstream.serdes import Serde
from crossstream.storage.columns import Column, concat_all, take, take_all
from crossstream.storage.snapshot import View
from crossstream.storage.sorted_run import Run, is_sorted


@dataclass(frozen=True, slots=True)
class Puts:
    """Puts in order of their keys, in arrival order within a key.

    ``rank``: the place of each in arrival order; ``starts``: where each key begins; ``hashes``, ``keys``: of each key.
    """

    changes: Changes
    rank: np.ndarray
    starts: np.ndarray
    hashes: np.ndarray
    keys: Column

    @classmethod
    def of(cls, puts: Changes, bits: int) -> Puts:
        if not puts.rows:
            none = np.empty(0, np.int64)
            return cls(puts, none, none, none.astype(np.uint64), puts.key.wire())
        hashes = puts.hashes(bits)
        rank, begins = by_key(puts, hashes)
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


PLACE_BITS = 32
"""Lower bits of an arrival number: the place of the record in its batch."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The records that wait when a batch begins: those of the store from ``horizon`` (a timestamp) on.

    ``clock``: the newest timestamp of any that ever waited, −1: none.
    """

    view: View
    grace: int
    clock: int
    horizon: int
    key: Serde | None
    value: Serde | None

    def horizon_at(self, clock: int) -> int:
        """From which timestamp on records wait when the clock shows ``clock``."""
        return max(self.horizon, clock - self.grace + 1)

    def due(self, clock: int) -> Changes:
        """Those that leave by the time the clock shows ``clock``, in arrival order; placed nowhere yet."""
        parts: list[dict[str, Column]] = []
        for run in self.view.pieces():
            rows = np.flatnonzero((run["s"] >= self.horizon) & (run["s"] <= clock - self.grace))
            if len(rows) or not parts:
                parts.append(take_all(run.columns, rows))
        together = concat_all(parts)
        columns = take_all(together, np.argsort(together["n"]))
        nowhere = np.zeros(len(columns["n"]), np.int64)
        return Changes(
            Values(self.key, wire=columns["key"]),
            Values(self.value, wire=columns["value"]),
            columns["s"],
            nowhere,
            nowhere,
            columns["headers"],
        )


@dataclass(frozen=True, slots=True)
class Departure:
    """``leaving``: the records that look now, in order, each placed at the record it leaves with.

    ``staying``: which of the batch's records wait on; ``clock``, ``horizon``: after the batch.
    """

    leaving: Changes
    staying: np.ndarray
    clock: int
    horizon: int


def depart(stream: Changes, buffer: Buffer) -> Departure:
    """Lets a batch of admitted records, in arrival order, pass through the buffer."""
    grace, keyed = buffer.grace, ~stream.key.missing()
    times = np.maximum.accumulate(np.append(buffer.clock, np.where(keyed, stream.ts, buffer.clock)))
    before, after = times[:-1], times[1:]
    own = np.arange(stream.rows)
    at_once = ~keyed | (stream.ts < before - grace)
    leaves = np.where(at_once, own, np.maximum(own, after.searchsorted(stream.ts + grace)))
    due = buffer.due(int(times[-1]))
    together = concat_changes([due, stream]) if due.rows else stream
    moment = np.concatenate([after.searchsorted(due.ts + grace), leaves])
    going = np.flatnonzero(moment < stream.rows)
    order = going[np.lexsort((going, together.ts[going], moment[going]))]
    order = _by_key_where_tied(together, order, moment)
    placed = moment[order]
    leaving = replace(together.take(order), major=stream.major[placed], minor=stream.minor[placed])
    clock = int(times[-1])
    return Departure(leaving, np.flatnonzero(leaves == stream.rows), clock, buffer.horizon_at(clock))


def depart_in_silence(buffer: Buffer, clock: int, major: int) -> Departure:
    """Lets those go that are due when time has come to ``clock`` without any record; ``major``: when that is."""
    due = buffer.due(clock)
    order = _by_key_where_tied(due, np.argsort(due.ts, kind="stable"), np.zeros(due.rows, np.int64))
    leaving = replace(
        due.take(order), major=np.full(due.rows, major), minor=np.arange(-due.rows, 0, dtype=np.int64)
    )
    return Departure(leaving, np.empty(0, np.int64), clock, buffer.horizon_at(clock))


def _by_key_where_tied(records: Changes, order: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Records that leave at one moment with one timestamp in order of their keys."""
    ts, at = records.ts[order], moment[order]
    tied = (ts[1:] == ts[:-1]) & (at[1:] == at[:-1])
    if not tied.any():
        return order
    places = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
    keys = records.key.take(order[places]).wire()
    rank = np.asarray(pc.rank(keys, tiebreaker="dense"))
    sorted_ = order.copy()
    sorted_[places] = order[places][np.lexsort((np.arange(len(places)), rank, ts[places], at[places]))]
    return sorted_


def waiting_rows(
    records: Changes, places: np.ndarray, batch: int, serde: Serde | None, bits: int
) -> dict[str, Column]:
    """The rows of the store for records that wait on; ``places``: theirs among the records of the batch."""
    headers = pa.nulls(records.rows, pa.large_binary()) if records.headers is None else records.headers
    return {
        "h": records.hashes(bits),
        "s": records.ts,
        "key": records.key.wire(),
        "n": places.astype(np.uint64) + np.uint64(batch << PLACE_BITS),
        "value": records.value.wire(serde),
        "headers": headers,
        "gone": np.zeros(records.rows, np.uint8),
    }
