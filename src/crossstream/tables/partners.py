"""The partners of records in a stream–stream join: windows of time, and a range search by key and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.stream_time import Rows, Timeline
from crossstream.storage.columns import Column, concat, cut, same_rows, take
from crossstream.storage.sorted_run import Run, bisect, expand, places_of, stable_order

_NOTHING = np.empty(0, np.int64)
FRESH = 4
"""The first so many pieces hold the records of the batch: left and right ones, then those without a key of each."""
_NO_SIDE = -1


@dataclass(frozen=True, slots=True)
class Pieces:
    """The rows of both sides. ``side``: on which a piece is searched; ``first``: rows in the pieces before each."""

    runs: tuple[Run, ...]
    side: tuple[int, ...]
    first: np.ndarray

    @classmethod
    def of(cls, fresh: Sequence[Run], keyless: Sequence[Run], stored: Sequence[Sequence[Run]]) -> Pieces:
        """Each of the left and of the right side. ``keyless``: records that no search finds."""
        runs = [*zip(fresh, SIDES, strict=True), *((run, _NO_SIDE) for run in keyless)]
        runs += [(run, side) for side in SIDES for run in stored[side] if run.rows]
        first = np.cumsum([0, *(run.rows for run, _ in runs)])
        return cls(tuple(run for run, _ in runs), tuple(side for _, side in runs), first)

    @property
    def rows(self) -> int:
        return int(self.first[-1])

    def of_side(self, side: int) -> list[int]:
        return [number for number, one in enumerate(self.side) if one == side and self.runs[number].rows]

    def stored(self, side: int) -> list[int]:
        return [number for number in self.of_side(side) if number >= FRESH]

    def number(self, piece: np.ndarray, row: np.ndarray) -> np.ndarray:
        """A number for each row, unique among all pieces."""
        return np.asarray(self.first[piece] + row)

    def located(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(piece, row) of numbered rows."""
        piece = np.searchsorted(self.first, numbers, "right") - 1
        return piece, numbers - self.first[piece]

    def gather(self, name: str, piece: np.ndarray, row: np.ndarray) -> tuple[Column, np.ndarray]:
        """A column, and where in it the value of each row asked for is; −1 for a negative piece.

        Rows that are asked for many times over are there once, if they are neighbours in their pieces.
        """
        index = np.full(len(piece), -1, np.int64)
        parts: list[Column] = []
        count = 0
        for one in numbers_in(piece[piece >= 0]):
            positions = np.flatnonzero(piece == one)
            rows, column = row[positions], self.runs[one][name]
            low, high = int(rows.min()), int(rows.max()) + 1
            if high - low <= len(rows):
                part, index[positions] = cut(column, low, high), count + rows - low
            else:
                part, index[positions] = take(column, rows), count + np.arange(len(rows))
            parts.append(part)
            count += len(part)
        return (concat(parts) if parts else self.runs[0][name][:0]), index


def numbers_in(piece: np.ndarray) -> list[int]:
    """The numbers of pieces that occur, ascending."""
    found: list[int] = np.flatnonzero(np.bincount(piece)).tolist()
    return found


@dataclass(frozen=True, slots=True)
class Found:
    """Ranges of rows of one piece: each record at ``positions``, ascending, found those from ``start`` to ``stop``.

    The rows have the hash of the record, and are in its reach.
    """

    piece: int
    positions: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    def between(self, first: int, last: int) -> Found:
        """What the records from position ``first`` to ``last`` found."""
        begin, end = np.searchsorted(self.positions, (first, last))
        return Found(self.piece, self.positions[begin:end], self.start[begin:end], self.stop[begin:end])


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows that records find as partners, or whose windows they close. ``trigger``: that record's position.

    Of the rows: timestamp, arrival number, side.
    """

    trigger: np.ndarray
    piece: np.ndarray
    row: np.ndarray
    ts: np.ndarray
    n: np.ndarray
    side: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[Sequence[np.ndarray]]) -> Hits:
        """Together; each part has the columns in the order above."""
        if parts:
            return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        none = _NOTHING
        return cls(none, none, none, none, none.astype(np.uint64), none)

    def where(self, mask: np.ndarray) -> Hits:
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def take(self, rows: np.ndarray) -> Hits:
        columns = (self.trigger, self.piece, self.row, self.ts, self.n, self.side)
        return Hits(*(column[rows] for column in columns))


def search(
    pieces: Pieces, other: int, positions: np.ndarray, hashes: np.ndarray, low: np.ndarray, high: np.ndarray
) -> Iterator[Found]:
    """Searches all pieces of the side ``other`` for each record, at least one: position, hash, and reach in time."""
    order = stable_order(hashes)
    hashes, oldest, newest = hashes[order], int(low.min()), int(high.max())
    for number in pieces.of_side(other):
        if number >= FRESH and not pieces.runs[number].reaches(oldest, newest):
            continue
        hits, start, stop = _ranges(pieces.runs[number], hashes, order, low, high)
        if len(hits):
            place = places_of(hits, len(order))
            by_position = place[place >= 0]
            yield Found(number, positions[hits[by_position]], start[by_position], stop[by_position])


def _ranges(
    run: Run, hashes: np.ndarray, order: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The records that found rows, and which. ``hashes`` ascend; ``order``: of which record each is."""
    h, s = run["h"], run["s"]
    first = h.searchsorted(hashes, "left")
    if len(first) == 1 and (first[0] == run.rows or h[first[0]] != hashes[0]):
        return _NOTHING, _NOTHING, _NOTHING
    known = h.take(first, mode="clip") == hashes
    if not known.any():
        return _NOTHING, _NOTHING, _NOTHING
    first, hits = first[known], order[known]
    last = h.searchsorted(hashes[known], "right")
    start = bisect(s, first, last, low[hits], right=False)
    some = (start < last) & (s.take(start, mode="clip") <= high[hits])
    hits, start = hits[some], start[some]
    return hits, start, bisect(s, start, last[some], high[hits], right=True)


def chunks(found: Sequence[Found], records: int, size: int) -> Iterator[tuple[int, int]]:
    """Cuts a batch of ``records`` into stretches with at most ``size`` rows found; a record alone may have more."""
    counts = np.zeros(records, np.int64)
    for one in found:
        counts[one.positions] += one.stop - one.start
    total = np.cumsum(counts)
    start = 0
    while start < records:
        before = total[start - 1] if start else 0
        stop = max(int(np.searchsorted(total, before + size, "right")), start + 1)
        yield start, stop
        start = stop


def pairs(pieces: Pieces, found: Sequence[Found], keys: Column, start: int, stop: int) -> Hits:
    """What the records from ``start`` to ``stop`` found: rows with the very same key that were there before them."""
    return Hits.of([_pairs(pieces, one.between(start, stop), keys) for one in found])


def _pairs(pieces: Pieces, found: Found, keys: Column) -> tuple[np.ndarray, ...]:
    run = pieces.runs[found.piece]
    queries, rows = expand(found.start, found.stop)
    trigger = found.positions[queries]
    if found.piece < FRESH:
        earlier = run["position"][rows] < trigger
        trigger, rows = trigger[earlier], rows[earlier]
    same = same_rows(run["key"], rows, keys, trigger)
    if not same.all():
        trigger, rows = trigger[same], rows[same]
    piece, side = np.full(len(rows), found.piece), np.full(len(rows), pieces.side[found.piece])
    return trigger, piece, rows, run["s"][rows], run["n"][rows], side


LEFT, RIGHT = 0, 1
SIDES = (LEFT, RIGHT)
NEVER = -1
"""Stream time before any record."""


@dataclass(frozen=True, slots=True)
class Window:
    """Bounds and grace in ms. A bound may be negative; together they are not."""

    before: int
    after: int
    grace: int = 0

    @property
    def ahead(self) -> tuple[int, int]:
        """By side: how much newer than a record a partner may be."""
        return (self.after, self.before)

    @property
    def retention(self) -> int:
        return self.before + self.after + self.grace

    def closes(self, side: int, ts: np.ndarray) -> np.ndarray:
        """The last stream time at which the windows of these records are open."""
        return ts + (self.ahead[side] + self.grace)

    def closing_at(self, side: np.ndarray, ts: np.ndarray) -> np.ndarray:
        """As `closes`, of records of both sides."""
        return np.where(side == LEFT, *(self.closes(one, ts) for one in SIDES))

    def closing(self, side: int, stream_time: int) -> int:
        """Records of a side with older timestamps than this have closed windows."""
        return stream_time - self.ahead[side] - self.grace

    def horizon(self, side: int, newest: int | np.ndarray) -> int | np.ndarray:
        """The oldest timestamp that is visible on a side; ``newest``: of that side."""
        return np.minimum(newest - self.retention + 1, newest - self.ahead[side] - self.grace)


@dataclass(frozen=True, slots=True)
class Times:
    """After each record of a batch: stream time, and the newest timestamp put on either side; ``last``: after all."""

    join: np.ndarray
    newest: tuple[np.ndarray, np.ndarray]
    last: int

    @classmethod
    def of(
        cls, rows: Rows, side: np.ndarray, first: np.ndarray, join: Timeline, sides: tuple[Timeline, Timeline]
    ) -> Times:
        """``side``: of each row; ``first``: the side that the rows of its record come to first.

        ``join``, ``sides``: stream time of the join, and of the records put on each side.
        """
        newest = []
        for one in SIDES:
            before, after = sides[one].beside(rows)
            other = np.where(side == first, before, after)
            newest.append(np.where(side == one, sides[one].around(rows)[1], other))
        return cls(np.maximum.accumulate(join.around(rows)[1]), (newest[LEFT], newest[RIGHT]), join.last)

    def within_join(self) -> Times:
        """With sides that are not ahead of the join: a row that waits to come out alone stays until it does.

        Story: views have had rows in one partition only, up to 1059, and clicks in another one, up to 1024. A view of
        1012 waits for clicks up to 1032, and is no longer retained by the time of the views.
        """
        left, right = (np.minimum(one, self.join) for one in self.newest)
        return replace(self, newest=(left, right))

    def first_after(self, closes: np.ndarray) -> np.ndarray:
        """The first record at which windows that are open up to ``closes`` are closed; past the last: none."""
        return np.searchsorted(self.join, closes, "right")

    def reach(
        self, window: Window, side: int, positions: np.ndarray, ts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The oldest and newest timestamps of visible partners, for records of a side at these positions."""
        other = RIGHT - side
        seen = window.horizon(other, self.newest[other][positions])
        return np.maximum(ts - window.ahead[other], seen), ts + window.ahead[side]
