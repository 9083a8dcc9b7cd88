"""A store as one batch sees it: its runs, newest first, and the rows that the batch itself puts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crossstream.storage.columns import Column, concat, concat_all, same_rows, take, take_all, take_or_null
from crossstream.storage.sorted_run import Layout, Run, expand, merge, newest, sort_rows

Marks = Mapping[int, tuple[int, int, int]]
"""What a step knows of all rows of a store, by numbers of its own; see `Version`."""

_NOWHERE = np.array([-1])

_MANY = 512
"""Rows, and keys that are looked up, from which on a sieve is worth its while."""

_SHARE = 4
"""A sieve is used where older runs have more than so many times the rows: there most keys are not found."""

_LOOKED_AT = 1_024
"""Rows at the begin of a run that are looked at first."""

_RECORD = ("h", "s", "key", "n", "gone")
"""Columns that identify a record, and say whether it is deleted."""

_WRITTEN = ("h", "key", "ts")
"""Columns that identify a row of a table, and say when it was written."""


@dataclass(frozen=True, slots=True)
class Level:
    """A sorted run in one or more segments, in its order."""

    segments: tuple[Run, ...]
    rows: int = field(init=False)
    _ends: tuple[np.ndarray, np.ndarray] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", sum([segment.rows for segment in self.segments]))

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The hashes of the first and of the last row of each segment, none of which is empty."""
        if self._ends is None:
            found = tuple(np.array([run["h"][end] for run in self.segments], np.uint64) for end in (0, -1))
            object.__setattr__(self, "_ends", found)
        assert self._ends is not None
        return self._ends

    def spans(self, hashes: np.ndarray) -> Iterator[tuple[int, int, int]]:
        """The segments that may have some of the sorted ``hashes``: their numbers, and where these begin and end."""
        if not self.rows:
            return
        lows, highs = self.ends
        starts, stops = hashes.searchsorted(lows, "left"), hashes.searchsorted(highs, "right")
        asked = np.flatnonzero(stops > starts)
        yield from zip(asked.tolist(), starts[asked].tolist(), stops[asked].tolist(), strict=True)

    def match(
        self, hashes: np.ndarray, keys: Column, places: np.ndarray, *, sieved: bool
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Where in ``keys`` those are that a segment has, and its rows: of each segment that has some.

        ``hashes``, sorted, and ``places`` in ``keys``: of those to look up. The keys found are compared all at once.
        """
        found = []
        for number, start, stop in self.spans(hashes):
            run, asked, at = self.segments[number], hashes[start:stop], places[start:stop]
            if sieved and run.rows >= _MANY:
                passing = run.sieve.passing(asked)
                asked, at = asked[passing], at[passing]
            queries, rows = run.candidates(asked)
            if len(queries):
                found.append((number, at[queries], rows))
        if not found:
            return
        mine = concat([take(self.segments[number]["key"], rows) for number, _, rows in found])
        theirs = found[0][1] if len(found) == 1 else np.concatenate([at for _, at, _ in found])
        same = same_rows(mine, np.arange(len(mine)), keys, theirs)
        begin = 0
        for number, at, rows in found:
            here = same[begin : begin + len(rows)]
            begin += len(rows)
            yield (number, at, rows) if here.all() else (number, at[here], rows[here])


@dataclass(slots=True)
class Match:
    """Where look-ups found their rows: the number of a segment and a row in it, −1 where nothing was found."""

    segments: Sequence[Run]
    segment: np.ndarray
    row: np.ndarray
    _parts: list[tuple[int, np.ndarray]] | None = None
    _place: np.ndarray | None = None

    @property
    def found(self) -> np.ndarray:
        return self.segment >= 0

    def gather(self, name: str) -> Column:
        """The column of the rows found, one for each query: null (bytes) or 0 (numbers) where none was."""
        if len(self.segment) == 1:
            number = int(self.segment[0])
            if number < 0:
                return _missing(self.segments, name, 1)
            return take(self.segments[number][name], self.row)
        parts = self._by_segment()
        if not parts:
            return _missing(self.segments, name, len(self.segment))
        if len(parts) == 1:
            return _take_or_missing(self.segments[parts[0][0]][name], np.where(self.found, self.row, -1))
        values = concat([take(self.segments[number][name], rows) for number, rows in parts])
        assert self._place is not None
        return _take_or_missing(values, self._place)

    def _by_segment(self) -> list[tuple[int, np.ndarray]]:
        """The segments in which rows were found, and the rows there; computed once for all columns."""
        if self._parts is None:
            narrow = np.int16 if len(self.segments) < 1 << 15 else np.int64  # of 16 bits it is a radix sort
            order = np.argsort(self.segment.astype(narrow), kind="stable")
            begins = np.flatnonzero(np.diff(self.segment[order], prepend=-2))
            ends = [*begins[1:].tolist(), len(order)][: len(begins)]
            spans = zip(self.segment[order[begins]].tolist(), begins.tolist(), ends, strict=True)
            rows = self.row[order]
            self._parts = [(number, rows[begin:end]) for number, begin, end in spans if number >= 0]
            missing = len(order) - sum(len(part) for _, part in self._parts)
            self._place = np.full(len(order), -1)
            self._place[order[missing:]] = np.arange(len(order) - missing)
        return self._parts


@dataclass(slots=True)
class Snapshot:
    """Rows of one store partition. ``levels``: newest first. ``memtable``: rows put by this batch."""

    layout: Layout
    levels: tuple[Level, ...] = ()
    memtable: Run | None = field(default=None)

    def runs(self) -> tuple[Level, ...]:
        """The sorted runs, newest first."""
        return self.levels if self.memtable is None else (Level((self.memtable,)), *self.levels)

    def segments(self) -> list[Run]:
        """Every segment, newest first; one without rows if there is none."""
        found = [] if self.memtable is None else [self.memtable]
        for level in self.levels:
            found.extend(level.segments)
        return found or [Run(empty_columns(self.layout))]

    @property
    def rows(self) -> int:
        """Rows in all runs: an upper bound of the keys held."""
        return sum(level.rows for level in self.levels) + (0 if self.memtable is None else self.memtable.rows)

    def lookup(self, hashes: np.ndarray, keys: Column) -> Match:
        """The live row of each key, for layouts without a secondary sort; ``hashes`` sorted."""
        segments = self.segments()
        if len(hashes) == 1:
            return Match(segments, *_find(segments, hashes[0], keys[0].as_py()))
        segment = np.full(len(hashes), -1, np.int64)
        row = np.full(len(hashes), -1, np.int64)
        pending, count, older = np.arange(len(hashes)), 0, self.rows
        for level in self.runs():
            if not len(pending):
                break
            wanted = hashes[pending] if len(pending) < len(hashes) else hashes
            older -= level.rows
            sieved = len(pending) >= _MANY and level.rows * _SHARE < older
            for number, places, r in level.match(wanted, keys, pending, sieved=sieved):
                segment[places] = np.where(level.segments[number]["gone"][r] == 0, count + number, -2)
                row[places] = r
            pending = pending[segment[pending] == -1]
            count += len(level.segments)
        return Match(segments, np.where(segment < 0, -1, segment), row)

    def put(self, columns: dict[str, Column]) -> None:
        """Rows of this batch, newest last put wins; unique by identity within one call."""
        run = sort_rows({name: columns[name] for name in self.layout.names})
        self.memtable = run if self.memtable is None else merge([run, self.memtable], drop_gone=False)

    def scan(
        self, hashes: np.ndarray, keys: Column, chunk: int
    ) -> Iterator[tuple[np.ndarray, dict[str, Column]]]:
        """All live rows under each key (layouts with ``s``): (query of each row, columns), chunk by chunk.

        ``hashes`` sorted, keys unique. A key with more rows than ``chunk`` is cut by ranges of ``s``,
        so that memory is bounded by the chunk and not by the fan-out.
        """
        segments = [run for run in self.segments() if run.rows]
        bounds = [
            (np.searchsorted(r["h"], hashes, "left"), np.searchsorted(r["h"], hashes, "right"))
            for r in segments
        ]
        if not segments or not len(hashes):
            return
        counts = np.sum([last - first for first, last in bounds], axis=0)
        for start, stop in groups_of(counts, chunk):
            part = [
                (run, first[start:stop], last[start:stop])
                for run, (first, last) in zip(segments, bounds, strict=True)
            ]
            keys_here = keys.slice(start, stop - start)
            whole = bool(counts[start:stop].sum() <= chunk) or stop - start > 1
            for window in [part] if whole else _cut_fan_out(part, chunk):
                queries, columns = _collect(window, keys_here)
                if len(queries):
                    yield queries + start, columns

    def live(self) -> Run:
        """Every live row, in one run."""
        return merge(self.segments(), drop_gone=True)

    def live_between(self, low: int, high: int) -> dict[str, Column]:
        """The live rows with ``low <= s <= high``, as one run has them."""
        parts = []
        for run in self.segments():
            if run.rows and run.reaches(low, high):
                parts.append(take_all(run.columns, np.flatnonzero((run["s"] >= low) & (run["s"] <= high))))
        if not any(len(part["h"]) for part in parts):
            return empty_columns(self.layout)
        rows = sort_rows(concat_all(parts))
        return take_all(rows.columns, np.flatnonzero(newest(rows.columns) & (rows["gone"] == 0)))

    def written_in(self, low: int, high: int) -> list[Run]:
        """The segments of a table that may have rows with ``low <= ts <= high``, newest first."""
        found = []
        for run in self.segments():
            first, last = run.written
            if max(first, low) <= min(last, high):
                found.append(run)
        return found

    def written_between(self, low: int, high: int) -> dict[str, Column]:
        """The live rows of a table with ``low <= ts <= high``, in order of the hash: ``h``, ``key`` and ``ts``."""
        parts = []
        for run in self.written_in(low, high):
            ts = run["ts"]
            there = np.flatnonzero((ts >= low) & (ts <= high) & (run["gone"] == 0))
            parts.append({name: take(run[name], there) for name in _WRITTEN})
        if not any(len(part["h"]) for part in parts):
            return {name: column for name, column in empty_columns(self.layout).items() if name in _WRITTEN}
        found = sort_rows(concat_all(parts)).columns
        found = take_all(found, np.flatnonzero(newest(found)))
        match = self.lookup(found["h"], found["key"])
        return take_all(found, np.flatnonzero(match.found & (match.gather("ts") == found["ts"])))

    def oldest_written_from(self, low: int) -> int | None:
        """No live row of a table has a smaller ``ts`` that is at least ``low``; None: none has one from there on."""
        found = []
        for run in self.written_in(low, np.iinfo(np.int64).max):
            ts = run["ts"]
            older = run.written[0] < low
            found.append(int(ts[(ts >= low) & (run["gone"] == 0)].min()) if older else run.written[0])
        return min(found, default=None)

    def has_live_from(self, oldest: int) -> bool:
        """Whether a live row has this timestamp or a newer one, of rows by time; else whether there is a live row.

        Values are not looked at.
        """
        runs = self.segments()
        if self.layout.sort is None and self._has_live_soon(runs):
            return True
        if any(run["gone"].any() for run in runs):
            runs = [
                merge(
                    [Run({name: run[name] for name in _RECORD if name in run.columns}) for run in runs],
                    drop_gone=True,
                )
            ]
        if self.layout.sort is None:
            return any(run.rows for run in runs)
        return any((run["s"] >= oldest).any() for run in runs)

    def _has_live_soon(self, runs: Sequence[Run]) -> bool:
        """Whether one of the first rows of the runs is live, as it mostly is; of layouts without a secondary sort."""
        for run in runs:
            first = np.flatnonzero(run["gone"][:_LOOKED_AT] == 0)
            if len(first) and self.lookup(run["h"][first], take(run["key"], first)).found.any():
                return True
        return False


def _find(segments: Sequence[Run], wanted: np.uint64, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The place of the live row of one key: what `Snapshot.lookup` finds, at a fraction of the fixed cost."""
    for number, run in enumerate(segments):
        h = run.columns["h"]
        row = int(h.searchsorted(wanted))
        while row < run.rows and h[row] == wanted:
            if run.columns["key"][row].as_py() == key:
                found = not run.columns["gone"][row]
                return (np.array([number]), np.array([row])) if found else (_NOWHERE, _NOWHERE)
            row += 1
    return _NOWHERE, _NOWHERE


def empty_columns(layout: Layout) -> dict[str, Column]:
    """No rows of a layout."""
    return {name: _empty(layout, name) for name in layout.names}


def _empty(layout: Layout, name: str) -> Column:
    numbers = {"h": "uint64", "s": layout.sort or "int64", "n": "uint64", "gone": "uint8"}
    kind = numbers.get(name) or dict(layout.values).get(name, "bytes")
    return pa.array([], pa.large_binary()) if kind == "bytes" else np.empty(0, np.dtype(kind))


def _take_or_missing(column: Column, rows: np.ndarray) -> Column:
    """The rows of a column; null (bytes) or 0 (numbers) for negative ones, of which there may be."""
    if not isinstance(column, np.ndarray):
        return take_or_null(column, rows)
    return np.where(rows >= 0, column[np.maximum(rows, 0)], np.zeros(1, column.dtype))


def _missing(segments: Sequence[Run], name: str, rows: int) -> Column:
    sample = segments[0][name] if segments else None
    if isinstance(sample, np.ndarray):
        return np.zeros(rows, sample.dtype)
    return pa.nulls(rows, pa.large_binary())


def groups_of(counts: np.ndarray, chunk: int) -> Iterator[tuple[int, int]]:
    """Cuts queries into consecutive groups of at most ``chunk`` rows (a bigger one stands alone)."""
    start, total = 0, np.cumsum(counts)
    while start < len(counts):
        base = total[start - 1] if start else 0
        stop = max(int(np.searchsorted(total, base + chunk, "right")), start + 1)
        yield start, stop
        start = stop


_Part = list[tuple[Run, np.ndarray, np.ndarray]]


def _cut_fan_out(part: _Part, chunk: int) -> Iterator[_Part]:
    """One key's rows in windows of ``s``, each of about ``chunk`` rows over all runs."""
    cursors = [int(first[0]) for _, first, _ in part]
    lasts = [int(last[0]) for _, _, last in part]
    while any(cursor < last for cursor, last in zip(cursors, lasts, strict=True)):
        left = sum(last - cursor for cursor, last in zip(cursors, lasts, strict=True))
        share = min(1.0, chunk / left)
        steps = [
            min(last, cursor + max(1, int((last - cursor) * share)))
            for cursor, last in zip(cursors, lasts, strict=True)
        ]
        # The least upper bound among the runs: below it every run has been read completely.
        bound = min(
            run["s"][step - 1]
            for (run, _, _), cursor, step, last in zip(part, cursors, steps, lasts, strict=True)
            if cursor < last
        )
        stops = [
            cursor + int(np.searchsorted(run["s"][cursor:last], bound, "right"))
            for (run, _, _), cursor, last in zip(part, cursors, lasts, strict=True)
        ]
        yield [
            (run, np.array([cursor]), np.array([stop]))
            for (run, _, _), cursor, stop in zip(part, cursors, stops, strict=True)
        ]
        cursors = stops


def _collect(part: _Part, keys: pa.Array) -> tuple[np.ndarray, dict[str, Column]]:
    found_queries, found_columns = [], []
    for run, first, last in part:
        queries, rows = expand(first, last)
        if not len(queries):
            continue
        start, stop = int(rows[0]), int(rows[-1]) + 1
        # Keys with one hash have the same rows, so that there may be as many as lie in between, but not these.
        contiguous = stop - start == len(rows) and bool((first[1:] >= last[:-1]).all())
        found_columns.append(run.slice(start, stop).columns if contiguous else take_all(run.columns, rows))
        found_queries.append(queries)
    if not found_queries:
        return np.empty(0, np.int64), {}
    queries = np.concatenate(found_queries)
    columns = concat_all(found_columns)
    same = same_rows(keys, queries, columns["key"], None)
    if not same.all():
        queries, columns = queries[same], take_all(columns, np.flatnonzero(same))
    if len(found_queries) > 1:
        order = np.lexsort((columns["s"], columns["h"]))
        queries, columns = queries[order], take_all(columns, order)
        keep = newest(columns) & (columns["gone"] == 0)
    else:
        keep = columns["gone"] == 0
    if keep.all():
        return queries, columns
    rows = np.flatnonzero(keep)
    return queries[rows], take_all(columns, rows)
