"""The records of a stream–stream join: in order of arrival, kept, waiting for their windows to close, and joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, both_sides, headers_of
from crossstream.columns.evaluate import evaluate
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import arrival_numbers
from crossstream.columns.values import Values
from crossstream.storage.columns import (
    EMPTY_BYTES,
    Column,
    Columns,
    concat_all,
    take,
    take_all,
    take_or_null,
    valid,
)
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import Run, is_sorted, sorted_order
from crossstream.tables.join_spec import JoinSpec
from crossstream.tables.joined import Joined
from crossstream.tables.partners import FRESH, LEFT, RIGHT, SIDES, Hits, Pieces, Times, Window, numbers_in


@dataclass(frozen=True, slots=True)
class Records:
    """Columns by position. ``row``: of the record among those of its side; ``key``: in wire form, may be null.

    ``kept``: whether key and value are there. ``sides``: the records of both sides themselves.
    """

    side: np.ndarray
    row: np.ndarray
    ts: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    key: Column
    hashes: np.ndarray
    headers: pa.LargeBinaryArray | None
    has_key: np.ndarray
    has_value: np.ndarray
    batch: int
    sides: tuple[Changes, Changes]
    kept: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", self.has_key & self.has_value)

    @property
    def count(self) -> int:
        return len(self.ts)

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        """The arrival numbers of records."""
        return arrival_numbers(positions, self.batch)

    def run(self, side: int, mask: np.ndarray, values: Column) -> Run:
        """Those records of a side for which the mask holds, sorted as in a store; ``values``: of all of the side."""
        positions = np.flatnonzero(mask & (self.side == side))
        if not len(positions):
            return _NO_ROWS
        order = sorted_order({"h": self.hashes[positions], "s": self.ts[positions]})
        positions = positions if is_sorted(order) else positions[order]
        count = len(positions)
        return Run(
            {
                "h": self.hashes[positions],
                "s": self.ts[positions],
                "key": take(self.key, positions),
                "n": self.numbers(positions),
                "value": take(values, self.row[positions]),
                "headers": pa.nulls(count, pa.large_binary())
                if self.headers is None
                else take(self.headers, positions),
                "position": positions,
            },
            count,
        )


_NO_ROWS = Run(
    {
        "h": np.empty(0, np.uint64),
        "s": np.empty(0, np.int64),
        "key": EMPTY_BYTES,
        "n": np.empty(0, np.uint64),
        "value": EMPTY_BYTES,
        "headers": EMPTY_BYTES,
        "position": np.empty(0, np.int64),
    }
)


def records_of(
    left: Changes,
    right: Changes,
    *,
    itself: bool,
    right_first: Callable[[np.ndarray], np.ndarray],
    batch: int,
    bits: int,
) -> Records:
    """The records of both sides by arrival; keys and values are in wire form.

    ``itself``: both sides are the same stream, in arrival order. ``right_first``: says of which input records, by
    their `minor`, the rows that came to the right side arrived first.
    """
    if itself:
        side = np.tile(np.array(SIDES, np.int8), left.rows)
        row = np.repeat(np.arange(left.rows), 2)
        order = row
        both, sides = left, (left, left)
    else:
        both, sides = both_sides(left, right), (left, right)
        of_side = np.repeat(np.array(SIDES, np.int8), [left.rows, right.rows])
        order = np.arange(1)
        if both.rows > 1:
            order = np.lexsort((of_side ^ right_first(both.minor), both.minor, both.major))
        side = of_side[order]
        row = np.where(side == RIGHT, order - left.rows, order)
    is_all = len(order) == both.rows and is_sorted(order)
    key = both.key.wire() if is_all else take(both.key.wire(), order)
    there = np.concatenate([~one.value.missing() for one in sides])
    return Records(
        side,
        row,
        both.ts[order],
        both.major[order],
        both.minor[order],
        key,
        hash_keys(key, bits),
        both.headers if both.headers is None else take(both.headers, order),
        valid(key),
        there[np.where(side == LEFT, row, sides[LEFT].rows + row)],
        batch,
        sides,
    )


_IDENTITY = ("h", "s", "key", "n")


class RecordStore(Protocol):
    """A store of the join: its rows, the stream time it keeps, and the oldest timestamp it still has rows of."""

    view: Snapshot
    stream_time: int
    horizon: int


@dataclass(frozen=True, slots=True)
class Stores:
    """``sides``: of left and of right records. ``waiting``: of those that wait for their windows; None: none do."""

    sides: tuple[RecordStore, RecordStore]
    waiting: RecordStore | None


def closing(
    window: Window, outer: tuple[bool, bool], waiting: RecordStore | None, pieces: Pieces, times: Times
) -> Hits:
    """The waiting records whose windows close by the end of the batch.

    ``outer``: by side, whether its records come out alone. Those that wait on another side began to when the
    topology had a join of another kind: they stay until the horizon passes them.
    """
    due = None if waiting is None else due_until(window, waiting, times.last)
    parts = []
    for side in SIDES if due is not None else ():
        assert due is not None
        rows = _picked(due, (due["side"] == side) & outer[side])
        for number in pieces.stored(side) if rows.rows else ():
            if not pieces.runs[number].reaches(*rows.times):
                continue
            run = pieces.runs[number]
            queries, found = run.match_range(rows["h"], rows["key"], rows["s"], rows["s"])
            same = run["n"][found] == rows["n"][queries]
            queries, found = queries[same], found[same]
            ts, n = rows["s"][queries], rows["n"][queries]
            trigger = times.first_after(window.closes(side, ts))
            parts.append((trigger, np.full(len(found), number), found, ts, n, np.full(len(found), side)))
    return Hits.of(parts)


def due_until(window: Window, waiting: RecordStore, stream_time: int) -> Run | None:
    """The waiting records whose windows are closed at a stream time, as rows of their store."""
    limits = np.array([window.closing(side, stream_time) for side in SIDES])
    rows = Run(waiting.view.live_between(waiting.horizon, int(limits.max()) - 1))
    return _picked(rows, rows["s"] < limits[rows["side"]]) if rows.rows else None


def waits_on(waiting: RecordStore, side: int) -> bool:
    """Whether stored records of that side wait, or did so lately."""
    return any(
        bool(((run["side"] == side) & (run["s"] >= waiting.horizon)).any())
        for run in waiting.view.segments()
        if run.rows and run.times[1] >= waiting.horizon
    )


def _picked(run: Run, mask: np.ndarray) -> Run:
    return run if mask.all() else Run(take_all(run.columns, np.flatnonzero(mask)))


def put_records(
    store: RecordStore, run: Run, stays: np.ndarray, waits: np.ndarray, left: Iterable[tuple[int, Columns]]
) -> None:
    """Puts the records of a batch that stay into the store of their side. ``left``: stored ones that leave it."""
    parts: list[Columns] = []
    if run.rows:
        columns = {
            **{name: run[name] for name in _IDENTITY},
            "value": run["value"],
            "headers": run["headers"],
            "alone": waits.astype(np.uint8),
            "gone": np.zeros(run.rows, np.uint8),
        }
        parts.append(columns if stays.all() else take_all(columns, np.flatnonzero(stays)))
    for _, leaving in left:
        count = len(leaving["h"])
        nothing: Column = pa.nulls(count, pa.large_binary())
        gone = {"value": nothing, "headers": nothing, "gone": np.ones(count, np.uint8)}
        parts.append({**{name: leaving[name] for name in (*_IDENTITY, "alone")}, **gone})
    _put(store, parts)


def put_waiting(
    store: RecordStore, waits: Iterable[tuple[int, Columns, np.ndarray]], ended: Iterable[tuple[int, Columns]]
) -> None:
    """Notes the records that begin to wait, and those that have found a partner or are out; each with the side."""
    parts = [_identity(_those(rows, mask), side, 0) for side, rows, mask in waits if mask.any()]
    parts += [_identity(_those(rows, rows["s"] >= store.horizon), side, 1) for side, rows in ended]
    _put(store, parts)


def _those(rows: Columns, mask: np.ndarray) -> Columns:
    return take_all({name: rows[name] for name in _IDENTITY}, np.flatnonzero(mask))


def _identity(rows: Columns, side: int, gone: int) -> Columns:
    count = len(rows["h"])
    return {**rows, "side": np.full(count, side, np.uint8), "gone": np.full(count, gone, np.uint8)}


def _put(store: RecordStore, parts: list[Columns]) -> None:
    there = [part for part in parts if len(part["h"])]
    if there:
        store.view.put(concat_all(there))


def rows_of(pieces: Pieces, piece: np.ndarray, row: np.ndarray) -> Iterable[tuple[int, Columns]]:
    """Stored rows and their side, piece by piece."""
    for number in numbers_in(piece[piece >= FRESH]):
        yield pieces.side[number], take_all(pieces.runs[number].columns, row[piece == number])


CLOSED, PAIR, ALONE = 0, 1, 2
"""What an event is, in the order in which one record gives them: a row whose window it closes, a pair, its own row."""


@dataclass(frozen=True, slots=True)
class Events:
    """Results to be made. ``trigger``: the position of the record that gives them.

    ``piece``, ``row``, ``side``: of the record whose key and headers the result has: of a pair the one that came
    second, else the one that is alone. ``partner_piece``, ``partner_row``: of the other one, −1 for none. ``ts``: of
    the partner, or of the record that is alone; ``n``: its arrival number.
    """

    what: np.ndarray
    trigger: np.ndarray
    piece: np.ndarray
    row: np.ndarray
    side: np.ndarray
    partner_piece: np.ndarray
    partner_row: np.ndarray
    ts: np.ndarray
    n: np.ndarray

    @classmethod
    def alone(cls, what: int, rows: Hits) -> Events:
        none = np.full(len(rows.trigger), -1, np.int64)
        kinds = np.full(len(rows.trigger), what, np.int8)
        return cls(kinds, rows.trigger, rows.piece, rows.row, rows.side, none, none, rows.ts, rows.n)

    @classmethod
    def together(cls, parts: Sequence[Events]) -> Events:
        """All of them, in the order of semantics 1.6; between different keys that of arrival."""
        parts = [part for part in parts if len(part.trigger)] or list(parts[:1])
        one = parts[0]
        if len(parts) > 1:
            one = cls(*(np.concatenate(same) for same in zip(*map(_columns, parts), strict=True)))
        if len(one.trigger) <= 1:
            return one
        left_last = np.where(one.what == CLOSED, RIGHT - one.side, 0)
        return one.take(np.lexsort((one.n, left_last, one.ts, one.what, one.trigger)))

    def take(self, rows: np.ndarray | slice) -> Events:
        return Events(*(column[rows] for column in _columns(self)))

    def slices(self, size: int) -> Iterator[Events]:
        """At most ``size`` events at a time. Those after the last one that looks back behind the batch stay apart."""
        count = len(self.trigger)
        if count <= 1:
            yield self
            return
        stored = np.flatnonzero((self.piece >= FRESH) | (self.partner_piece >= FRESH))
        back = int(stored[-1]) + 1 if len(stored) else 0
        for first, last in ((0, back), (back, count)):
            for start in range(first, last, size):
                yield self.take(slice(start, min(start + size, last)))


def _columns(events: Events) -> list[np.ndarray]:
    return [getattr(events, name) for name in Events.__slots__]


def results(spec: JoinSpec, records: Records, pieces: Pieces, events: Events) -> Joined:
    """One result for each event; without ``headers`` in the spec with those of the record whose key it has."""
    key = _key(spec, records, pieces, events)
    left, right = (_values(spec, records, pieces, events, side) for side in SIDES)
    outcome = evaluate(spec.joiner, key, left=left, right=right)
    own = records.ts[events.trigger]
    changes = Changes(
        key,
        outcome.values,
        np.where(events.what == PAIR, np.maximum(events.ts, own), events.ts),
        records.major[events.trigger],
        records.minor[events.trigger],
        _headers_of(spec, pieces, events),
    )
    return Joined.of(changes, outcome.failures, left, right, events.side)


def _headers_of(spec: JoinSpec, pieces: Pieces, events: Events) -> pa.LargeBinaryArray | None:
    if spec.headers is None:
        return _headers(pieces, events.piece, events.row)
    sides = (_headers(pieces, *_of_side(events, side)) for side in SIDES)
    return headers_of(spec.headers, *sides)


def _key(spec: JoinSpec, records: Records, pieces: Pieces, events: Events) -> Values:
    position = _positions(pieces, events.piece, events.row)
    if position is not None:
        return Values(spec.serdes.key, wire=take(records.key, position))
    column, index = pieces.gather("key", events.piece, events.row)
    return Values(spec.serdes.key, wire=column).take(index)


def _values(spec: JoinSpec, records: Records, pieces: Pieces, events: Events, side: int) -> Values:
    """Of a side; those of its records in the batch may be decoded already."""
    piece, row = _of_side(events, side)
    position, values = _positions(pieces, piece, row), records.sides[side].value
    if position is not None and values.rows:
        return values.take(np.where(position < 0, -1, records.row[position]))
    column, index = pieces.gather("value", piece, row)
    return Values(spec.serdes.of_values[side], wire=column).take(index)


def _of_side(events: Events, side: int) -> tuple[np.ndarray, np.ndarray]:
    """The piece and row of each event's record of a side, −1 for none."""
    own = events.side == side
    return np.where(own, events.piece, events.partner_piece), np.where(own, events.row, events.partner_row)


def _positions(pieces: Pieces, piece: np.ndarray, row: np.ndarray) -> np.ndarray | None:
    """The positions of rows in the batch, −1 for no row; None if some rows are stored ones."""
    if (piece >= FRESH).any():
        return None
    position = np.full(len(piece), -1, np.int64)
    for number in range(FRESH):
        mine = np.flatnonzero(piece == number)
        position[mine] = pieces.runs[number]["position"][row[mine]]
    return position


def _headers(pieces: Pieces, piece: np.ndarray, row: np.ndarray) -> pa.LargeBinaryArray | None:
    if all(run["headers"].null_count == run.rows for run in pieces.runs):
        return None
    column, index = pieces.gather("headers", piece, row)
    return take_or_null(column, index)
