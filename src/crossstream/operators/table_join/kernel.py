"""KTable–KTable join by primary key.

One event is a change of the left row, of the right row, or of both by the same input record. The events of a
key are taken in arrival order, each against the other side as of that moment; of the results of a batch the
last one for each key stays. Source: semantics 2.2.3, 2.2.4, 8.7, 8.8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import (
    Changes,
    JoinKind,
    LookupCounts,
    both_sides,
    headers_in,
    headers_of,
)
from crossstream.columns.evaluate import evaluate_where
from crossstream.columns.order import by_key, same_trigger
from crossstream.columns.values import Values, concat_values
from crossstream.storage.columns import Column, take_or_null
from crossstream.tables.join_spec import JoinSpec, TableSide
from crossstream.tables.joined import Joined
from crossstream.tables.rows import TableRows, as_stored

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class _Side:
    """Every row a side has in this batch: first the row of each key before the batch, then its changes."""

    present: np.ndarray
    values: Values
    ts: np.ndarray
    now: np.ndarray
    before: np.ndarray
    headers: Column | None = None

    def is_now(self) -> np.ndarray:
        return np.asarray(self.present[self.now])

    def was(self) -> np.ndarray:
        return np.asarray(self.present[self.before])

    def time(self) -> np.ndarray:
        """Timestamp of the current row; before all times for a missing row."""
        return np.where(self.is_now(), self.ts[self.now], _NEVER)


@dataclass(frozen=True, slots=True)
class _Events:
    """Changes of both sides, ``order``: grouped by key, in arrival order within. ``group``: number of the key of each.

    ``begins``: where keys begin. ``merged``: right events that belong to the same input record as the left event
    before them (semantics 2.2.7).
    """

    order: np.ndarray
    group: np.ndarray
    begins: np.ndarray
    is_right: np.ndarray
    merged: np.ndarray

    @classmethod
    def of(cls, both: Changes, hashes: np.ndarray, lefts: int) -> _Events:
        """``both``: the changes of the left side, of which there are ``lefts``, and then those of the right one."""
        order, begins = by_key(both, hashes)
        group = np.cumsum(begins) - 1
        is_right = order >= lefts
        if len(order) > 1:
            arrival = np.lexsort((is_right, both.minor[order], both.major[order], group))
            order, is_right = order[arrival], is_right[arrival]
        merged = np.zeros(len(order), bool)
        if 0 < lefts < both.rows:
            same = same_trigger(both.major, both.minor, order[:-1], order[1:])
            merged[1:] = (group[1:] == group[:-1]) & same & is_right[1:] & ~is_right[:-1]
        return cls(order, group, begins, is_right, merged)

    def side(self, changes: Changes, state: TableRows, is_right: bool, offset: int) -> _Side:
        """The rows of a side; ``offset``: the number of its first change among all. ``state``: before the batch."""
        order, group = self.order, self.group
        if not changes.rows:
            return _Side(state.present, state.values, state.ts, group, group, state.headers)
        keys = len(state.present)
        latest = np.maximum.accumulate(np.where(self.is_right == is_right, np.arange(len(order)), -1))
        known = latest >= np.flatnonzero(self.begins)[group]
        now = np.where(known, keys + order[np.maximum(latest, 0)] - offset, group)
        before = np.where(self.begins, group, _previous(now))
        return _Side(
            np.concatenate([state.present, ~changes.value.missing()]),
            concat_values([state.values, as_stored(changes.value, state.values.serde)]),
            np.concatenate([state.ts, changes.ts]),
            now,
            np.where(self.merged, _previous(before), before) if self.merged.any() else before,
            None if state.headers is None else pa.concat_arrays([state.headers, headers_in(changes)]),
        )


def join_tables(
    spec: JoinSpec, left: TableSide, right: TableSide, counts: LookupCounts, *, want_old: bool = False
) -> Joined:
    """The changes of the result. Joiner: (left value, right value), None for a missing side.

    For a changelog the result of each event is kept, else only the last one of each key.
    """
    both = both_sides(left.changes, right.changes)
    hashes = both.hashes(spec.bits)
    events = _Events.of(both, hashes, left.changes.rows)
    order, group, merged = events.order, events.group, events.merged
    first = order[events.begins]
    key_hashes, key_bytes = hashes[first], both.key.take(first).wire()

    def side(one: TableSide, other: TableSide, is_right: bool, offset: int) -> _Side:
        changes = one.changes
        if spec.kind == "inner" and not other.changes.rows and not want_old:
            # No result depends on its old rows.
            headers = None if spec.headers is None else headers_in(changes)
            return _Side(~changes.value.missing(), changes.value, changes.ts, order, order, headers)
        return events.side(changes, one.rows(key_hashes, key_bytes), is_right, offset)

    lefts = side(left, right, False, 0)
    rights = side(right, left, True, left.changes.rows)
    left_now, right_now = lefts.is_now(), rights.is_now()
    _count(counts, left_now, right_now, events)
    emit = _emits(spec.kind, (left_now, right_now), (lefts.was(), rights.was()), events)
    if merged.any():
        emit &= ~np.append(merged[1:], False)
    kept = np.flatnonzero(emit) if spec.emit == "changelog" else _last_of_group(emit, group)

    event = order[kept]
    there = _exists(spec.kind, left_now[kept], right_now[kept])
    inputs = _picked(lefts, lefts.now[kept]), _picked(rights, rights.now[kept])
    event_keys = both.key.take(event)
    results = evaluate_where(there, spec.joiner, event_keys, left=inputs[0], right=inputs[1])
    changes = Changes(
        event_keys,
        results.values,
        _timestamps(both.ts[order], lefts, rights, events)[kept],
        both.major[event],
        both.minor[event],
        None if both.headers is None else take_or_null(both.headers, event),
    )
    if spec.headers is not None:
        sides = _picked_headers(lefts, lefts.now[kept]), _picked_headers(rights, rights.now[kept])
        changes = replace(changes, headers=headers_of(spec.headers, *sides))
    if want_old:
        is_net = spec.emit == "net"
        was = (group[kept], group[kept]) if is_net else (lefts.before[kept], rights.before[kept])
        had = _exists(spec.kind, lefts.present[was[0]], rights.present[was[1]])
        old = evaluate_where(
            had, spec.joiner, event_keys, left=_picked(lefts, was[0]), right=_picked(rights, was[1])
        )
        changes = changes.with_value(results.values, old.values)
    return Joined.of(changes, results.failures, *inputs)


def _count(counts: LookupCounts, left: np.ndarray, right: np.ndarray, events: _Events) -> None:
    """Counts each change that leaves a row; two changes by one input record count once."""
    asking = np.where(events.is_right, right | (events.merged & left), left)
    asking[:-1] &= ~events.merged[1:]
    counts.count(asking, asking & left & right)


def _previous(values: np.ndarray) -> np.ndarray:
    """For each row the value of the row before."""
    shifted = np.empty_like(values)
    shifted[1:], shifted[:1] = values[:-1], values[-1:]
    return shifted


def _emits(
    kind: JoinKind,
    now: tuple[np.ndarray, np.ndarray],
    was: tuple[np.ndarray, np.ndarray],
    events: _Events,
) -> np.ndarray:
    """Whether an event gives a result: the cells of semantics 2.2.4, redundant tombstones included.

    ``now``, ``was``: whether there is, and was, a row on the left and on the right.
    """
    (left_now, right_now), (left_was, right_was) = now, was
    from_left, from_right = ~events.is_right | events.merged, events.is_right
    if kind == "inner":
        had = from_left & from_right & left_was & right_was
        return np.asarray((from_left & right_now) | (from_right & left_now) | had)
    any_left = from_left & (right_now | left_now | left_was)
    if kind == "left":
        return np.asarray(any_left | (from_right & left_now))
    return np.asarray(any_left | (from_right & (left_now | right_now | right_was)))


def _last_of_group(emit: np.ndarray, group: np.ndarray) -> np.ndarray:
    events = np.flatnonzero(emit)
    groups = group[events]
    return events[np.append(groups[1:] != groups[:-1], True)] if len(events) > 1 else events


def _exists(kind: JoinKind, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left & right if kind == "inner" else left if kind == "left" else left | right


def _timestamps(ts: np.ndarray, lefts: _Side, rights: _Side, events: _Events) -> np.ndarray:
    """The later of the triggering timestamp and that of the other side's row; tombstones too (semantics 1.3)."""
    merged, other = events.merged, np.where(events.is_right, lefts.time(), rights.time())
    if not merged.any():
        return np.asarray(np.maximum(ts, other))
    own = np.where(merged, np.maximum(ts, _previous(ts)), ts)
    return np.maximum(own, np.where(merged, np.maximum(lefts.time(), rights.time()), other))


def _picked_headers(side: _Side, rows: np.ndarray) -> Column | None:
    return (
        None if side.headers is None else take_or_null(side.headers, np.where(side.present[rows], rows, -1))
    )


def _picked(side: _Side, rows: np.ndarray) -> Values:
    return side.values.take(np.where(side.present[rows], rows, -1))
