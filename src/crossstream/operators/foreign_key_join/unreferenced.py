"""The other half of right and outer joins by foreign key: right rows that no left row refers to.

    law    the result holds joiner(None, right row) for each right row that the foreign key of no left row names,
           under the key of the right row

How many left rows refer to a foreign key is counted, so a row that comes or goes costs no look at the others.
What one input record does to both sides is one event. Source: decision 0018.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.changes import Changes, both_sides, headers_of
from crossstream.columns.evaluate import evaluate_where
from crossstream.columns.order import by_key, same_trigger
from crossstream.columns.values import Values
from crossstream.operators.foreign_key_join.subscriptions import REFERS
from crossstream.serdes import arrays
from crossstream.serdes.keys import RIGHT
from crossstream.storage.columns import EMPTY_BYTES, take, take_or_null
from crossstream.storage.snapshot import Snapshot
from crossstream.tables.join_spec import Emit, JoinSpec, TableSide
from crossstream.tables.joined import Joined
from crossstream.tables.rows import TableRows, as_changed

_NEVER = np.iinfo(np.int64).min


def unreferenced(spec: JoinSpec, store: Snapshot, subscriptions: Changes, right: TableSide) -> Joined | None:
    """The changes of the rows of right keys, or None.

    ``subscriptions``: in arrival order, with `REFERS`; ``right``: its net changes, or every one. ``store``: of the
    counts of referrers, which this updates.
    """
    moves = subscriptions.where(subscriptions.extra[REFERS] != 0)
    if not moves.rows and not right.changes.rows:
        return None
    events = _Events.of(moves, right.changes, spec.bits)
    first, last, group = events.steps(spec.emit)
    heads = np.flatnonzero(np.diff(group, prepend=-1))
    ends = np.append(heads[1:], len(group)) - 1
    h, keys = events.hashes[first[heads]], take(events.changes.key.wire(), first[heads])
    count = np.asarray(store.lookup(h, keys).gather("count"))
    moved = np.add.reduceat(events.refers, first)
    total = np.cumsum(moved)
    now_count = (count - (total - moved)[heads])[group] + total
    was_count = now_count - moved
    kept = np.flatnonzero(now_count[ends] != count)
    if len(kept):
        left = now_count[ends][kept]
        gone = (left == 0).astype(np.uint8)
        store.put({"h": h[kept], "key": take(keys, kept), "count": left, "gone": gone})

    before = right.rows(h, keys)
    was, now = (
        as_changed(before, right.changes, group, events.newest(at, group)) for at in (first - 1, last)
    )
    alone_before, alone = was.present & (was_count == 0), now.present & (now_count == 0)
    changed = np.logical_or.reduceat(events.is_right, first)
    turned = (was_count == 0) != (now_count == 0)
    rows = np.flatnonzero((alone & (changed | turned)) | (alone_before & ~alone))
    if not len(rows):
        return None
    result = replace(
        events.changes.take(last[rows]),
        key=Values(spec.serdes.either, wire=arrays.with_first_byte(RIGHT, take(keys, group[rows]))),
        ts=events.times(first, last, now)[rows],
    )
    lefts = Values(spec.serdes.left, wire=EMPTY_BYTES).take(np.full(len(rows), -1))
    rights = now.values.take(rows)
    made = evaluate_where(alone[rows], spec.joiner, result.key, left=lefts, right=rights)
    result = result.with_value(made.values)
    if spec.headers is not None:
        of_rows = None if now.headers is None else take_or_null(now.headers, rows)
        result = replace(result, headers=headers_of(spec.headers, None, of_rows))
    return Joined.of(result, made.failures, lefts, rights)


@dataclass(frozen=True, slots=True)
class _Events:
    """What happened to each foreign key: its changes, grouped by key (sorted by hash), in arrival order within.

    ``row``: of a right change among those of its side, else −1. ``refers``: by how many referrers an event raised the
    count; 0 for changes of the right row. ``begins``: where keys begin.
    """

    changes: Changes
    hashes: np.ndarray
    row: np.ndarray
    refers: np.ndarray
    begins: np.ndarray

    @classmethod
    def of(cls, moves: Changes, right: Changes, bits: int) -> _Events:
        """Of events of one trigger the left one comes last: it says what the trigger did."""
        both = both_sides(moves, right)
        hashes = both.hashes(bits)
        order, begins = by_key(both, hashes)
        group = np.cumsum(begins)
        order = order[np.lexsort((order < moves.rows, both.minor[order], both.major[order], group))]
        refers = np.concatenate([np.asarray(moves.extra[REFERS]), np.zeros(right.rows, np.int64)])
        row = np.maximum(order - moves.rows, -1)
        return cls(both.take(order), hashes[order], row, refers[order], begins)

    @property
    def is_right(self) -> np.ndarray:
        return self.row >= 0

    def steps(self, emit: Emit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the events begin and end that have one result, and the number of their key.

        Net: all events of a key; else those that one input record caused.
        """
        begins, changes = self.begins, self.changes
        if emit == "changelog":
            rows = np.arange(changes.rows)
            same = same_trigger(changes.major, changes.minor, rows[:-1], rows[1:])
            begins = begins | np.append(True, ~same)
        first = np.flatnonzero(begins)
        return first, np.append(first[1:], changes.rows) - 1, (np.cumsum(self.begins) - 1)[first]

    def newest(self, at: np.ndarray, group: np.ndarray) -> np.ndarray:
        """The last right change of each key ``group`` up to an event ``at``; −1: none."""
        positions = np.arange(len(self.row))
        position = np.append(np.maximum.accumulate(np.where(self.is_right, positions, -1)), -1)[at]
        return np.where(position >= np.flatnonzero(self.begins)[group], self.row[position], -1)

    def times(self, first: np.ndarray, last: np.ndarray, now: TableRows) -> np.ndarray:
        """That of the last trigger; where it moved left rows, the newest of theirs and of the right row."""
        changes = self.changes
        end = np.repeat(last, np.diff(first, append=changes.rows))
        left = (changes.major == changes.major[end]) & (changes.minor == changes.minor[end]) & ~self.is_right
        moved = np.maximum.reduceat(np.where(left, changes.ts, _NEVER), first)
        with_left = np.maximum(moved, np.where(now.present, now.ts, _NEVER))
        return np.where(moved > _NEVER, with_left, changes.ts[last])
