"""The records of a stream–stream join: in order of arrival, kept, and waiting for their windows to close."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, both_sides
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import arrival_numbers
from crossstream.operators.stream_join.partners import (
    FRESH,
    LEFT,
    RIGHT,
    SIDES,
    Hits,
    Pieces,
    Times,
    Window,
    numbers_in,
)
from crossstream.storage.columns import EMPTY_BYTES, Column, Columns, concat_all, take, take_all, valid
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import Run, is_sorted, newest, sort_rows, sorted_order


@dataclass(frozen=True, slots=True)
class Records:
    """Columns by place. ``row``: of the record among those of its side; ``key``: in wire form, may be null.

    ``kept``: whether key and value are there.
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
    kept: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", self.has_key & self.has_value)

    @property
    def count(self) -> int:
        return len(self.ts)

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """The arrival numbers of records."""
        return arrival_numbers(places, self.batch)

    def run(self, side: int, mask: np.ndarray, values: Column) -> Run:
        """Those records of a side for which the mask holds, sorted as in a store; ``values``: of all of the side."""
        places = np.flatnonzero(mask & (self.side == side))
        if not len(places):
            return _NO_ROWS
        order = sorted_order({"h": self.hashes[places], "s": self.ts[places]})
        places = places if is_sorted(order) else places[order]
        count = len(places)
        return Run(
            {
                "h": self.hashes[places],
                "s": self.ts[places],
                "key": take(self.key, places),
                "n": self.numbers(places),
                "value": take(values, self.row[places]),
                "headers": pa.nulls(count, pa.large_binary())
                if self.headers is None
                else take(self.headers, places),
                "place": places,
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
        "place": np.empty(0, np.int64),
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
        both, sides = left, [left, left]
    else:
        both, sides = both_sides(left, right), [left, right]
        of_side = np.repeat(np.array(SIDES, np.int8), [left.rows, right.rows])
        order = np.arange(1)
        if both.rows > 1:
            order = np.lexsort((of_side ^ right_first(both.minor), both.minor, both.major))
        side = of_side[order]
        row = np.where(side == RIGHT, order - left.rows, order)
    key = both.key.wire() if _is_all(order, both.rows) else take(both.key.wire(), order)
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
    )


def _is_all(order: np.ndarray, rows: int) -> bool:
    return len(order) == rows and is_sorted(order)


_IDENTITY = ("h", "s", "key", "n")


class Kept(Protocol):
    """A store of the join: its rows, the stream time it keeps, and the oldest timestamp it still has rows of."""

    view: Snapshot
    stream_time: int
    horizon: int


def closing(
    window: Window, outer: tuple[bool, bool], waiting: Kept | None, pieces: Pieces, times: Times
) -> Hits:
    """The waiting records whose windows close by the end of the batch.

    ``outer``: by side, whether its records come out alone. Those that wait on another side began to when the
    topology had a join of another kind: they stay until the horizon passes them.
    """
    due = None if waiting is None else _due(window, waiting, int(times.join[-1]))
    parts = []
    for side in SIDES if due is not None else ():
        assert due is not None
        rows = _picked(due, (due["side"] == side) & outer[side])
        for number in pieces.stored(side) if rows.rows else ():
            if not pieces.runs[number].reaches(*rows.times):
                continue
            queries, found = _same_rows(pieces.runs[number], rows)
            ts, n = rows["s"][queries], rows["n"][queries]
            trigger = times.first_after(window.closes(side, ts))
            parts.append((trigger, np.full(len(found), number), found, ts, n, np.full(len(found), side)))
    return Hits.of(parts)


def _due(window: Window, waiting: Kept, stream_time: int) -> Run | None:
    """The same as rows of the store of waiting records."""
    limits = np.array([window.closing(side, stream_time) for side in SIDES])
    last = int(limits.max()) - 1
    parts: list[Columns] = []
    for run in waiting.view.segments():
        if not run.rows or not run.reaches(waiting.horizon, last):
            continue
        found = np.flatnonzero((run["s"] < limits[run["side"]]) & (run["s"] >= waiting.horizon))
        if len(found):
            parts.append(take_all(run.columns, found))
    if not parts:
        return None
    rows = sort_rows(concat_all(parts))
    return _picked(rows, newest(rows.columns) & (rows["gone"] == 0))


def waits_on(waiting: Kept, side: int) -> bool:
    """Whether stored records of that side wait, or did so lately."""
    return any(
        bool(((run["side"] == side) & (run["s"] >= waiting.horizon)).any())
        for run in waiting.view.segments()
        if run.rows and run.times[1] >= waiting.horizon
    )


def _picked(run: Run, mask: np.ndarray) -> Run:
    return run if mask.all() else Run(take_all(run.columns, np.flatnonzero(mask)))


def _same_rows(run: Run, wanted: Run) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (wanted row, row of the run) of one identity."""
    queries, rows = run.match_range(wanted["h"], wanted["key"], wanted["s"], wanted["s"])
    same = run["n"][rows] == wanted["n"][queries]
    return queries[same], rows[same]


def put_records(
    store: Kept, run: Run, stays: np.ndarray, waits: np.ndarray, left: Iterable[tuple[int, Columns]]
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
    store: Kept, waits: Iterable[tuple[int, Columns, np.ndarray]], ended: Iterable[tuple[int, Columns]]
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


def _put(store: Kept, parts: list[Columns]) -> None:
    there = [part for part in parts if len(part["h"])]
    if there:
        store.view.put(concat_all(there))


def rows_of(pieces: Pieces, piece: np.ndarray, row: np.ndarray) -> Iterable[tuple[int, Columns]]:
    """Stored rows and their side, piece by piece."""
    for number in numbers_in(piece[piece >= FRESH]):
        yield pieces.side[number], take_all(pieces.runs[number].columns, row[piece == number])
