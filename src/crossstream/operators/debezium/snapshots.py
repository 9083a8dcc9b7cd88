"""At the end of a snapshot, deletes the rows that it did not show (decision 0045).

A snapshot of a database shows every row that is there. A row of the table whose last event is from before the snapshot
was deleted in the database while no connector looked. Rows have the time of their last event, and a snapshot begins at
the least time of the rows that it shows. Readers say in all state partitions which rows of snapshots they saw.

    Story: the events `1 r, 2 r` of a snapshot come at 10, and its end. Row 1 is deleted while the connector is away.
    At 50 another snapshot shows row 2, as its last one. It began at 50: row 1, of 10, is deleted. An event about row 1
    that another partition had kept back since 20 is from before the snapshot, too: it changes nothing.
    Test: `test_a_row_that_the_second_snapshot_does_not_show`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.order import by_key
from crossstream.columns.values import Values
from crossstream.serdes.debezium.events import NO_POSITION
from crossstream.serdes.debezium.snapshots import LAST, LAST_OF_TABLE, NO_GENERATION, origin_of
from crossstream.storage.columns import EMPTY_BYTES, Column, take
from crossstream.storage.snapshot import Marks, Snapshot
from crossstream.storage.sorted_run import Run, merge

SEEN, GENERATION, MARK = "seen", "generation", "mark"
"""Extra columns: the time of the record (ms); the snapshot that shows the row, and how."""

NEWS = 7
"""Numbers of what a reader says: the snapshot, the time of its first row, of its last one or `_NOT_YET`; the place of
that one in the database's log, its timestamp, and its place in the order of arrival."""

_NOT_YET = -1
_ORIGINS = 2
"""Tables of which snapshots are remembered: more than one is too many to say which rows are of which."""
_PENDING = 64
"""Snapshots without an end that are remembered."""


class Cut(NamedTuple):
    """Where a snapshot that has ended begins: the time of its first row, and its place in the database's log."""

    begin: int
    place: int


class End(NamedTuple):
    """The end of a snapshot in a batch, and what it ends; None: it deletes nothing."""

    cut: Cut | None
    ts: int
    major: int
    minor: int


def news_of(changes: Changes, positions: np.ndarray) -> np.ndarray:
    """What a reader says about the snapshots that show some of these rows, `NEWS` numbers each."""
    generation, seen = np.asarray(changes.extra[GENERATION]), np.asarray(changes.extra[SEEN])
    found = [
        [number, int(seen[generation == number].min()), _NOT_YET, NO_POSITION, 0, 0, 0]
        for number in np.unique(generation).tolist()
        if number != NO_GENERATION
    ]
    ends = np.isin(changes.extra[MARK], (LAST, LAST_OF_TABLE)) & (generation != NO_GENERATION)
    for row in np.flatnonzero(ends).tolist():
        time = int(seen[row])
        at = int(changes.ts[row]), int(changes.major[row]), int(changes.minor[row])
        found.append([int(generation[row]), time, time, int(positions[row]), *at])
    return np.array(found, np.int64).reshape(-1, NEWS)


def folded(marks: Marks, news: np.ndarray) -> Marks:
    """What is known of snapshots after a batch: by number the begin, the end or `_NOT_YET`, and the place of it."""
    found = dict(marks)
    for number, begin, end, place in news[:, :4].tolist():
        earliest, latest, at = found.get(number, (begin, end, place))
        found[number] = min(earliest, begin), max(latest, end), max(at, place)
    origins = sorted({origin_of(number) for number in found})[:_ORIGINS]
    return {
        number: mark
        for origin in origins
        for number, mark in _newest({n: one for n, one in found.items() if origin_of(n) == origin}).items()
    }


def _newest(marks: Marks) -> Marks:
    """Without snapshots that began before one that has ended, and the oldest of many that have not."""
    done = max((begin for begin, end, _ in marks.values() if end != _NOT_YET), default=_NOT_YET)
    left = sorted((mark, number) for number, mark in marks.items() if mark[0] >= done)
    return {number: mark for mark, number in left[-_PENDING:]}


def cut_of(marks: Marks) -> Cut | None:
    """The newest snapshot that has ended; None: there is none, or the topic has the rows of several tables."""
    ended = [Cut(begin, place) for begin, end, place in marks.values() if end != _NOT_YET]
    return max(ended) if ended and len(set(map(origin_of, marks))) == 1 else None


def ends_of(marks: Marks, news: np.ndarray) -> tuple[Cut | None, list[End]]:
    """What counts at the start of a batch, and the ends of snapshots in it, in order. ``marks``: before it."""
    begins = news.copy()
    begins[:, 2:4] = _NOT_YET, NO_POSITION
    known = folded(marks, begins)
    cut, ends = cut_of(known), []
    last = news[news[:, 2] != _NOT_YET]
    for row in last[np.lexsort((last[:, 6], last[:, 5]))]:
        known = folded(known, row[None])
        ends.append(End(cut_of(known), *row[4:].tolist()))
    return cut, ends


def around_ends(changes: Changes, ends: list[End]) -> Iterator[tuple[Changes, End | None]]:
    """The changes up to each end, with its own row, and that end; at last the rest."""
    begin = 0
    for end in ends:
        low, high = np.searchsorted(changes.major, [end.major, end.major + 1])
        stop = int(low + np.searchsorted(changes.minor[low:high], end.minor, "right"))
        yield changes.slice(begin, stop), end
        begin = stop
    yield changes.slice(begin, changes.rows), None


def on_time(
    view: Snapshot, changes: Changes, cut: Cut, positions: np.ndarray, bits: int
) -> np.ndarray | None:
    """Which events are not from before the snapshot; None: all.

    An event about a row that the snapshot left in place is newer, whatever its time: events of a row are in order.
    """
    late = np.asarray(changes.extra[SEEN]) < cut.begin
    if cut.place != NO_POSITION:
        late &= positions < cut.place
    if not late.any():
        return None
    rows = np.flatnonzero(late)
    asked = changes.take(rows)
    hashes = asked.hashes(bits)
    order, begins = by_key(asked, hashes)
    first = order[np.flatnonzero(begins)]
    found = view.lookup(hashes[first], take(asked.key.wire(), first))
    there = found.found
    if "value" in view.layout.names:
        there = there & _valid(found.gather("value"))
    late[rows[order]] = ~there[np.cumsum(begins) - 1]
    return ~late


def not_shown(view: Snapshot, cut: Cut, hashes: tuple[np.uint64, np.uint64] | None) -> pa.LargeBinaryArray:
    """The keys of the rows that a snapshot did not show, which the store loses.

    ``hashes``: those of the keys that are looked at; None: all. Where events are ordered, the place after the last
    event of such a row stays: a repetition of that event does not bring it back.
    """
    ordered = "seen" in view.layout.names
    time = "seen" if ordered else "ts"
    runs = [_between(run, hashes) for run in view.segments()]
    if all(_times(run, time).min(initial=cut.begin) >= cut.begin for run in runs):
        return EMPTY_BYTES
    live = merge([_without_values(run) for run in runs], drop_gone=True)
    seen = np.asarray(live[time])
    gone = (seen < cut.begin) & (seen != NO_POSITION) & (np.asarray(live["there"]) == 1)
    if ordered and cut.place != NO_POSITION:
        gone &= np.asarray(live["ts"]) < cut.place
    rows = np.flatnonzero(gone)
    keys = take(live["key"], rows)
    places = np.asarray(live["ts"])[rows]
    known = ordered & (places != NO_POSITION)
    columns: dict[str, Column] = {
        "h": live["h"][rows],
        "key": keys,
        "value": pa.nulls(len(rows), pa.large_binary()),
        "ts": places + known,
        "seen": seen[rows],
        "gone": (~known).astype(np.uint8),
    }
    if len(rows):
        view.put(columns)
    return keys


def _times(run: Run, name: str) -> np.ndarray:
    return np.asarray(run[name])


def _between(run: Run, hashes: tuple[np.uint64, np.uint64] | None) -> Run:
    if hashes is None or not run.rows:
        return run
    start = run["h"].searchsorted(hashes[0], "left")
    return run.slice(int(start), int(run["h"].searchsorted(hashes[1], "right")))


def _without_values(run: Run) -> Run:
    columns = {name: column for name, column in run.columns.items() if name != "value"}
    value = run.columns.get("value")
    columns["there"] = np.ones(run.rows, np.uint8) if value is None else _valid(value).astype(np.uint8)
    return Run(columns)


def _valid(values: Column) -> np.ndarray:
    return np.asarray(values.is_valid())


def deletes(changes: Changes, keys: pa.LargeBinaryArray, end: End) -> Changes:
    """The deletes of rows at the end of a snapshot. ``changes``: of the table, for their serdes."""
    rows = len(keys)
    return replace(
        changes,
        key=Values(changes.key.serde, wire=keys),
        value=Values(changes.value.serde, wire=pa.nulls(rows, pa.large_binary())),
        ts=np.full(rows, end.ts),
        major=np.full(rows, end.major),
        minor=np.full(rows, end.minor),
        headers=None,
        extra={},
    )
