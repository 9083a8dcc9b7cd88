"""The deletes of rows that nothing wrote for so long, among the records of a batch.

A row of time t is deleted when the clock reaches t + ttl, unless another record of its key has come by then. So each
row needs to know of two things only: the rise of the clock that reaches its end, and the next record of its key.

    Story: a ttl of 10 ms. `a=1@0`, `b=1@4`, `a=2@8`: `a` was written again. `c=1@14` makes it 14, so `b` is deleted,
    at 14. `a=3@20` comes at 20, when `a=2@8` would have gone with it: it is one change, to 3. `b=2@9` comes at 20: it
    ended at 19, and is a delete. Test: `test_a_row_that_is_not_written_is_deleted`.

What a rise deletes comes after the rows of the record that made it: which of them is the first is free, as they may be
in several state partitions. Source: semantics 3.21.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.order import Puts, by_arrival, came_before
from crossstream.columns.stream_time import BY_CLOCK, Timeline
from crossstream.columns.values import Values, concat_values, nulls
from crossstream.storage.columns import Column, take


@dataclass(frozen=True, slots=True)
class Due:
    """Rows of the store that end in this batch if nothing writes them before: hashes (sorted), keys, timestamps."""

    hashes: np.ndarray
    keys: Column
    ts: np.ndarray


@dataclass(frozen=True, slots=True)
class Expired:
    """Records and deletes in order of arrival. ``late``: how many records had expired when they came."""

    changes: Changes
    late: int


def clock_of_batch(now: int) -> Timeline:
    """The clock on the wall: it shows one time in a batch, from before its first record on."""
    nowhere = np.zeros(1, np.int64)
    return Timeline(-1, np.array([now]), nowhere, nowhere + BY_CLOCK)


def with_deletes(records: Changes, due: Due, timeline: Timeline, ttl: int, bits: int) -> Expired:
    """``records`` in order of arrival; those without a key pass. ``ttl`` in ms."""
    if not len(due.ts) and not (records.ts + ttl <= timeline.last).any():
        return Expired(replace(records, old=None, extra={}), 0)
    there = ~(records.key.missing() | records.value.missing())
    late = there & (timeline.at(records, or_with=False) >= records.ts + ttl)
    rise = np.where(there & ~late, timeline.first(records.ts + ttl), len(timeline.time))
    kept = _deleted_at_once(records, late, ttl)
    ends = np.flatnonzero(rise < len(timeline.time))
    if not len(ends) and not len(due.ts):
        return Expired(kept, int(late.sum()))
    hashes = records.hashes(bits)
    met = np.isin(hashes, np.concatenate([due.hashes, hashes[ends]])) & ~records.key.missing()
    rows = np.flatnonzero(met)
    puts = Puts.of(records.take(rows), bits)
    passed = np.append(
        came_before(puts.changes.major, puts.changes.minor, timeline, or_with=False), len(timeline.time)
    )
    first, last = puts.places(due.hashes, due.keys)
    of_due = timeline.first(due.ts + ttl)
    gone = np.flatnonzero(of_due < passed[np.where(first < last, first, -1)])
    following = passed[1:].copy()
    following[puts.starts[1:] - 1] = len(timeline.time)
    of_put = rise[rows][puts.rank]
    ended = np.flatnonzero(of_put < following)
    deletes = _deletes(
        [Values(records.key.serde, wire=take(due.keys, gone)), puts.changes.key.take(ended)],
        np.append(due.ts[gone], puts.changes.ts[ended]) + ttl,
        timeline,
        np.append(of_due[gone], of_put[ended]),
        records,
    )
    if not deletes.rows:
        return Expired(kept, int(late.sum()))
    return Expired(by_arrival(concat_changes([kept, deletes])), int(late.sum()))


def _deleted_at_once(records: Changes, late: np.ndarray, ttl: int) -> Changes:
    """Records that have expired are deletes, of the time at which their rows ended."""
    plain = replace(records, old=None, extra={})
    if not late.any():
        return plain
    value = records.value.take(np.where(late, -1, np.arange(records.rows)))
    return replace(plain, value=value, ts=np.where(late, records.ts + ttl, records.ts))


def _deletes(
    keys: list[Values], ts: np.ndarray, timeline: Timeline, rises: np.ndarray, records: Changes
) -> Changes:
    return Changes(
        concat_values(keys),
        nulls(len(ts), records.value.serde),
        ts,
        timeline.major[rises],
        timeline.minor[rises],
    )
