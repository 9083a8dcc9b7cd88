"""The other half of right and outer joins by foreign key: right rows that no left row refers to.

    law    the result holds joiner(None, right row) for each right row that the foreign key of no left row names,
           under the key of the right row

How many left rows refer to a foreign key is counted, so a row that comes or goes costs no look at the others.
Of the changes of a batch only the net effect on each right row is told. Source: decision 0018.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.changes import Changes, both_sides
from crossstream.columns.functions import Function
from crossstream.columns.order import by_key
from crossstream.columns.values import Values
from crossstream.operators.foreign_key_join.kernel import REFERS
from crossstream.operators.table.kernel import Rows
from crossstream.operators.table_join.kernel import Joined, Lookup, call_joiner
from crossstream.serdes import Serde
from crossstream.serdes.keys import RIGHT, tagged
from crossstream.storage.columns import EMPTY_BYTES, Column, take
from crossstream.storage.snapshot import View

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Events:
    """What happened to each foreign key: its changes, grouped by key (sorted by hash), in arrival order within.

    ``row``: of the event among those of its side. ``refers``: by how many referrers an event raised the count; 0 for
    changes of the right row. ``first``, ``last``: places of the first and the last event of each key.
    """

    changes: Changes
    hashes: np.ndarray
    row: np.ndarray
    refers: np.ndarray
    is_right: np.ndarray
    first: np.ndarray
    last: np.ndarray


def unreferenced(
    joiner: Function,
    referrers: View,
    subscriptions: Changes,
    right: Changes,
    before: Lookup,
    after: Lookup,
    either: Serde,
    left_value: Serde | None,
    *,
    bits: int,
) -> Joined | None:
    """The changes of the rows of right keys, or None. ``either``: serde of the result's keys.

    ``subscriptions``: in arrival order, with `REFERS`; ``right``: net right changes. ``before``, ``after`` look up
    the right table. ``referrers``: the store of counts, which this updates.
    """
    moves = subscriptions.where(subscriptions.extra[REFERS] != 0)
    if not moves.rows and not right.rows:
        return None
    events = events_of(moves, right, bits)
    h = events.hashes[events.first]
    keys = take(events.changes.key.wire(), events.first)
    count = np.asarray(referrers.lookup(h, keys).gather("count"))
    moved = np.add.reduceat(events.refers, events.first)
    keep_counts(referrers, h, keys, count + moved, moved != 0)

    was, now = before(h, keys), after(h, keys)
    alone_before, alone_now = was.present & (count == 0), now.present & (count + moved == 0)
    right_changed = np.logical_or.reduceat(events.is_right, events.first)
    turned = (count == 0) != (count + moved == 0)
    emits = (alone_now & (right_changed | turned)) | (alone_before & ~alone_now)
    rows = np.flatnonzero(emits)
    if not len(rows):
        return None
    result = _triggers(events, now, rows)
    result = replace(result, key=Values(either, wire=tagged(RIGHT, take(keys, rows))))
    lefts = Values(left_value, wire=EMPTY_BYTES).take(np.full(len(rows), -1))
    rights = now.values.take(rows)
    value, failures = call_joiner(joiner, result.key, lefts, rights, alone_now[rows])
    return Joined.of(result.with_value(value), failures, lefts, rights)


def events_of(moves: Changes, right: Changes, bits: int) -> Events:
    """Of events of one trigger the left one comes last: it says what the trigger did."""
    both = both_sides(moves, right)
    hashes = both.hashes(bits)
    order, begins = by_key(both, hashes)
    is_left = order < moves.rows
    group = np.cumsum(begins) - 1
    order = order[np.lexsort((is_left, both.minor[order], both.major[order], group))]
    first = np.flatnonzero(begins)
    refers = np.concatenate([np.asarray(moves.extra[REFERS]), np.zeros(right.rows, np.int64)])
    return Events(
        both.take(order),
        hashes[order],
        np.where(order < moves.rows, order, order - moves.rows),
        refers[order],
        order >= moves.rows,
        first,
        np.append(first[1:], len(order)) - 1,
    )


def keep_counts(
    referrers: View, hashes: np.ndarray, keys: Column, counts: np.ndarray, changed: np.ndarray
) -> None:
    rows = np.flatnonzero(changed)
    if len(rows):
        gone = (counts[rows] == 0).astype(np.uint8)
        referrers.put({"h": hashes[rows], "key": take(keys, rows), "count": counts[rows], "gone": gone})


def _triggers(events: Events, now: Rows, rows: np.ndarray) -> Changes:
    """The last trigger of each key: its timestamp, or of a left one the later of it and the right row's."""
    picked = events.changes.take(events.last[rows])
    moved = _newest_left(events)[rows]
    with_left = np.maximum(moved, np.where(now.present[rows], now.ts[rows], _NEVER))
    return replace(picked, ts=np.where(moved > _NEVER, with_left, picked.ts))


def _newest_left(events: Events) -> np.ndarray:
    """For each key the newest timestamp of the left events of its last trigger; `_NEVER` if it has none."""
    changes = events.changes
    end = np.repeat(events.last, np.diff(events.first, append=changes.rows))
    same = (changes.major == changes.major[end]) & (changes.minor == changes.minor[end])
    return np.maximum.reduceat(np.where(same & ~events.is_right, changes.ts, _NEVER), events.first)
