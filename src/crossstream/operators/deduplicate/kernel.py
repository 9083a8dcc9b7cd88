"""Which records of a batch come out of a deduplication.

A record that comes out is *seen* for as long as stream time is at most ``within`` past it. No two records of one
identity are seen at the same time: the second one would have been a duplicate. So each identity has at most one time
in the store, and the records that are seen one after the other form a chain: each leads to the first record with
which stream time is more than ``within`` past it. A record that is late itself, more than ``within`` behind stream
time, is compared with the one that is seen then. If it is no duplicate it comes out, and is not remembered.

    Story: within 10 ms. `a@0` comes out, `a@8` does not, `a@11` does, for `a@0` is forgotten and `a@8` was a duplicate.
    `b@30` moves stream time. `a@25` comes out, and so does `a@12`: `a@11` is forgotten, and it is not within 10 ms of
    25. `a@16` is a duplicate of `a@25`. Test: `test_duplicates_are_left_out`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.order import by_key, reached
from crossstream.storage.columns import Column, take
from crossstream.storage.snapshot import Snapshot

_NEVER = -(1 << 62)
_FOREVER = 1 << 62


@dataclass(frozen=True, slots=True)
class FirstOnes:
    """``keep``: which records come out. ``hashes``, ``keys``, ``times``: what is seen of identities of the batch."""

    keep: np.ndarray
    hashes: np.ndarray
    keys: Column
    times: np.ndarray


def first_ones(
    view: Snapshot, records: Changes, clock: np.ndarray, within: int, horizon: int, bits: int
) -> FirstOnes:
    """``records`` in order of arrival, none without an identity; ``clock``: stream time with each of them.

    ``horizon``: the oldest time that is still seen when the batch begins.
    """
    hashes = records.hashes(bits)
    order, begins = by_key(records, hashes)
    heads = order[begins]
    group = np.cumsum(begins) - 1
    ts, now = records.ts[order], clock[order]
    head_hashes, head_keys = hashes[heads], take(records.key.wire(), heads)
    before = seen_times(view, head_hashes, head_keys, horizon)
    timely = np.flatnonzero(ts >= now - within)
    width = len(clock) + 1
    place = group[timely] * width + order[timely]
    owner = np.append(group[timely], -1)
    first = np.searchsorted(place, np.arange(len(heads)) * width + _forgotten(clock, before, within), "left")
    starts = first[owner[first] == np.arange(len(heads))]
    following = np.searchsorted(place, owner[:-1] * width + _forgotten(clock, ts[timely], within), "left")
    following = np.where(owner[following] == owner[:-1], following, len(timely))
    seen = np.zeros(len(ts), bool)
    seen[timely[reached(starts, following)]] = True
    newest = _newest_seen(seen, begins, ts, before[group])
    late = ts < now - within
    duplicate = (newest >= now - within) & (np.abs(ts - newest) <= within)
    keep = np.zeros(len(ts), bool)
    keep[order] = seen | (late & ~duplicate)
    last = np.append(np.flatnonzero(begins)[1:], len(ts)) - 1
    times = newest[last]
    fresh = (times != before) & (times >= clock[-1] - within)
    rows = np.flatnonzero(fresh)
    return FirstOnes(keep, head_hashes[rows], take(head_keys, rows), times[rows])


def _forgotten(clock: np.ndarray, times: np.ndarray, within: int) -> np.ndarray:
    """The place of the first record of the batch with which a record of each time is forgotten."""
    return np.searchsorted(clock, times + within, "right")


def _newest_seen(seen: np.ndarray, begins: np.ndarray, ts: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The time of the record that was seen last, up to each row, itself included."""
    rows = np.arange(len(ts))
    last = np.maximum.accumulate(np.where(seen, rows, -1))
    first = np.maximum.accumulate(np.where(begins, rows, 0))
    return np.where(last >= first, ts[np.maximum(last, 0)], before)


def seen_times(view: Snapshot, hashes: np.ndarray, keys: Column, horizon: int) -> np.ndarray:
    """The time of the record of each identity that is seen; long ago where there is none. ``hashes`` sorted."""
    found = np.full(len(hashes), _NEVER)
    low, high = np.full(len(hashes), horizon), np.full(len(hashes), _FOREVER)
    for run in view.segments():
        if run.rows:
            queries, rows = run.match_range(hashes, keys, low, high)
            np.maximum.at(found, queries, run["s"][rows])
    return found
