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
    Headers,
    JoinKind,
    LookupCounts,
    both_sides,
    headers_in,
    headers_of,
)
from crossstream.columns.evaluate import evaluate_where
from crossstream.columns.functions import Function
from crossstream.columns.order import by_key
from crossstream.columns.values import Values, concat_values
from crossstream.storage.columns import Column, take_or_null
from crossstream.tables.joined import Joined, Lookup
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


def join_tables(
    kind: JoinKind,
    joiner: Function,
    left: Changes,
    right: Changes,
    left_rows: Lookup,
    right_rows: Lookup,
    asked: LookupCounts,
    *,
    bits: int,
    want_old: bool = False,
    changelog: bool = False,
    wanted: Headers | None = None,
) -> Joined:
    """The changes of the result. Joiner: (left value, right value), None for a missing side.

    ``wanted``: the headers of the result; None: of the event. ``changelog``: keeps the result of each event, not only
    the last one of each key.
    """
    both = both_sides(left, right)
    keys, ts, major, minor = both.key, both.ts, both.major, both.minor
    hashes = both.hashes(bits)
    order, begins = by_key(both, hashes)
    group = np.cumsum(begins) - 1
    is_right = order >= left.rows
    if len(order) > 1:
        arrival = np.lexsort((is_right, minor[order], major[order], group))
        order, is_right = order[arrival], is_right[arrival]

    first = order[begins]
    key_hashes, key_bytes = hashes[first], keys.take(first).wire()
    start = np.flatnonzero(begins)[group]

    def side(changes: Changes, other: Changes, rows: Lookup, own: np.ndarray, offset: int) -> _Side:
        if kind == "inner" and not other.rows and not want_old:  # results do not depend on its old rows
            headers = None if wanted is None else headers_in(changes)
            return _Side(~changes.value.missing(), changes.value, changes.ts, order, order, headers)
        return _side(changes, rows(key_hashes, key_bytes), order, own, group, start, offset)

    lefts = side(left, right, left_rows, ~is_right, 0)
    rights = side(right, left, right_rows, is_right, left.rows)

    merged = np.zeros(len(order), bool)
    if left.rows and right.rows:
        merged = _same_trigger(group, major[order], minor[order], is_right)
        lefts, rights = (
            replace(one, before=np.where(merged, _previous(one.before), one.before))
            for one in (lefts, rights)
        )
    left_now, right_now = lefts.is_now(), rights.is_now()
    _count(asked, left_now, right_now, is_right, merged)
    emit = _emits(kind, left_now, right_now, lefts.was(), rights.was(), ~is_right | merged, is_right)
    if merged.any():
        emit &= ~np.append(merged[1:], False)
    kept = np.flatnonzero(emit) if changelog else _last_of_group(emit, group)

    event = order[kept]
    there = _exists(kind, left_now[kept], right_now[kept])
    given = _picked(lefts, lefts.now[kept]), _picked(rights, rights.now[kept])
    event_keys = keys.take(event)
    results = evaluate_where(there, joiner, event_keys, left=given[0], right=given[1])
    changes = Changes(
        event_keys,
        results.values,
        _timestamps(ts[order], lefts, rights, merged, is_right)[kept],
        major[event],
        minor[event],
        None if both.headers is None else take_or_null(both.headers, event),
    )
    if wanted is not None:
        sides = _picked_headers(lefts, lefts.now[kept]), _picked_headers(rights, rights.now[kept])
        changes = replace(changes, headers=headers_of(wanted, *sides))
    if want_old:
        was = (lefts.before[kept], rights.before[kept]) if changelog else (group[kept], group[kept])
        had = _exists(kind, lefts.present[was[0]], rights.present[was[1]])
        old = evaluate_where(
            had, joiner, event_keys, left=_picked(lefts, was[0]), right=_picked(rights, was[1])
        )
        changes = changes.with_value(results.values, old.values)
    return Joined.of(changes, results.failures, *given)


def _count(
    asked: LookupCounts, left: np.ndarray, right: np.ndarray, is_right: np.ndarray, merged: np.ndarray
) -> None:
    """Counts each change that leaves a row; two changes by one input record count once."""
    asking = np.where(is_right, right | (merged & left), left)
    asking[:-1] &= ~merged[1:]
    asked.count(asking, asking & left & right)


def _side(
    changes: Changes,
    state: TableRows,
    order: np.ndarray,
    own: np.ndarray,
    group: np.ndarray,
    start: np.ndarray,
    offset: int,
) -> _Side:
    if not changes.rows:
        return _Side(state.present, state.values, state.ts, group, group, state.headers)
    keys = len(state.present)
    latest = np.maximum.accumulate(np.where(own, np.arange(len(order)), -1))
    known = latest >= start
    now = np.where(known, keys + order[np.maximum(latest, 0)] - offset, group)
    before = np.where(np.arange(len(order)) == start, group, _previous(now))
    return _Side(
        np.concatenate([state.present, ~changes.value.missing()]),
        concat_values([state.values, as_stored(changes.value, state.values.serde)]),
        np.concatenate([state.ts, changes.ts]),
        now,
        before,
        None if state.headers is None else pa.concat_arrays([state.headers, headers_in(changes)]),
    )


def _same_trigger(
    group: np.ndarray, major: np.ndarray, minor: np.ndarray, is_right: np.ndarray
) -> np.ndarray:
    """Right events that belong to the same input record as the left event before them (semantics 2.2.7)."""
    merged = np.zeros(len(group), bool)
    merged[1:] = (
        (group[1:] == group[:-1])
        & (major[1:] == major[:-1])
        & (minor[1:] == minor[:-1])
        & is_right[1:]
        & ~is_right[:-1]
    )
    return merged


def _previous(values: np.ndarray) -> np.ndarray:
    """For each row the value of the row before."""
    shifted = np.empty_like(values)
    shifted[1:], shifted[:1] = values[:-1], values[-1:]
    return shifted


def _emits(
    kind: JoinKind,
    left_now: np.ndarray,
    right_now: np.ndarray,
    left_was: np.ndarray,
    right_was: np.ndarray,
    from_left: np.ndarray,
    from_right: np.ndarray,
) -> np.ndarray:
    """Whether an event gives a result: the cells of semantics 2.2.4, redundant tombstones included."""
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


def _timestamps(
    ts: np.ndarray, lefts: _Side, rights: _Side, merged: np.ndarray, is_right: np.ndarray
) -> np.ndarray:
    """The later of the triggering timestamp and that of the other side's row; tombstones too (semantics 1.3)."""
    other = np.where(is_right, lefts.time(), rights.time())
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
