"""What a stream–stream join keeps: the records of both sides, and which of them wait for their windows to close.

The store of a side holds its records for as long as they may get partners. One that comes out unmatched gets none any
more, and leaves. The store of those who wait names records that are in the stores of the sides: without value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from crossstream.algebra.partners import FRESH, Pieces, numbers_in
from crossstream.algebra.windows import SIDES, Times, Window
from crossstream.state.columns import Column, Columns, concat_all, take_all
from crossstream.state.run import Run, newest, sort_rows
from crossstream.state.view import View

_IDENTITY = ("h", "s", "key", "n")


class Kept(Protocol):
    """A store of the join: its rows, the stream time it keeps, and the oldest timestamp it still has rows of."""

    view: View
    stream_time: int
    horizon: int


@dataclass(frozen=True, slots=True)
class Closing:
    """Stored records that wait and whose windows close in this batch. ``first``: the record that closes each."""

    piece: np.ndarray
    row: np.ndarray
    side: np.ndarray
    ts: np.ndarray
    n: np.ndarray
    first: np.ndarray

    def where(self, mask: np.ndarray) -> Closing:
        return Closing(
            self.piece[mask], self.row[mask], self.side[mask], self.ts[mask], self.n[mask], self.first[mask]
        )


def closing(
    window: Window, outer: tuple[bool, bool], waiting: Kept | None, pieces: Pieces, times: Times
) -> Closing:
    """Who of those that wait has waited long enough.

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
            first = times.first_after(window.closes(side, ts))
            parts.append((np.full(len(found), number), found, np.full(len(found), side), ts, n, first))
    if not parts:
        none = np.empty(0, np.int64)
        return Closing(none, none, none, none, np.empty(0, np.uint64), none)
    return Closing(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _due(window: Window, waiting: Kept, stream_time: int) -> Run | None:
    """The rows of those who wait whose windows are closed at the end of the batch."""
    limits = np.array([window.closing(side, stream_time) for side in SIDES])
    last = int(limits.max()) - 1
    parts: list[Columns] = []
    for run in waiting.view.pieces():
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
    """Whether stored records of that side wait, or did not long ago."""
    return any(
        bool(((run["side"] == side) & (run["s"] >= waiting.horizon)).any())
        for run in waiting.view.pieces()
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
    """Notes who has begun to wait, and who has found a partner or is out; each with the side."""
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
