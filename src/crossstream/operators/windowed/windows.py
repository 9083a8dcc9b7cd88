"""Which windows a record belongs to, which of them are closed, and the changes of windows. Times in ms.

The bounds of time windows are known. Those of sliding windows and sessions depend on the records: for these the changes
are noted in order (`Log`), and what is left of them at the end of a batch is put into the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, raised
from crossstream.columns.values import concat_values, nulls
from crossstream.columns.windows import WindowSpec
from crossstream.operators.aggregate.folding import HeldWindows, Made, Window, WindowFold
from crossstream.operators.aggregate.kernel import END, GROUP, START, Groups
from crossstream.serdes import Serde
from crossstream.serdes.windowed import NO_END
from crossstream.storage.columns import Column
from crossstream.storage.sorted_run import expand, places_of


def ends_of(windows: WindowSpec, starts: np.ndarray) -> np.ndarray:
    """Where windows end that begin at ``starts``."""
    if windows.kind == "unlimited":
        return np.full(len(starts), NO_END)
    return starts + windows.size


def windows_of(windows: WindowSpec, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair of a record and a time window that it belongs to: the row of the record, the start of the window.

    Starts are multiples of ``advance``, and none is negative. In order of the rows, then of the starts.

    >>> windows_of(WindowSpec("time", 10, 5, 0), np.array([12, 3]))
    (array([0, 0, 1]), array([ 5, 10,  0]))
    """
    if windows.kind == "unlimited":
        rows = np.flatnonzero(ts >= windows.size)
        return rows, np.full(len(rows), windows.size)
    first = np.maximum(0, ts - windows.size + windows.advance) // windows.advance
    rows, number = expand(first, ts // windows.advance + 1)
    return rows, number * windows.advance


def is_open(windows: WindowSpec, starts: np.ndarray, stream_time: np.ndarray | int) -> np.ndarray:
    """Whether windows still take records at a stream time: their end is later than it, less the grace period."""
    return np.asarray(ends_of(windows, starts) > stream_time - windows.grace)


def first_open(windows: WindowSpec, stream_time: int) -> int:
    """The smallest position of a window that is open at a stream time: its start, of a session its end."""
    if windows.kind == "unlimited":
        return 0
    return stream_time - windows.grace - windows.size + (1 if windows.kind == "time" else 0)


def closing_time(windows: WindowSpec, positions: np.ndarray) -> np.ndarray:
    """The stream time at which windows close. ``positions``: their starts, of sessions their ends.

    The end of a time window does not belong to it; that of a sliding window or, with the gap, of a session does.
    """
    if windows.kind == "unlimited":
        return np.full(len(positions), NO_END)
    return positions + (windows.size + windows.grace + (0 if windows.kind == "time" else 1))


def retention_of(windows: WindowSpec, asked: int | None) -> int | None:
    """How long (ms) the store keeps a window after its start, a sliding window or a session after its end, at least.

    None: for good. Source: KIP-328.
    """
    if windows.kind == "unlimited":
        return None
    if windows.kind != "sliding":
        return max(asked or 0, windows.size + windows.grace)
    # A record that is late by the size and the grace still changes a window. What it copies, and the record before
    # it, are in windows that begin up to twice the size before it. So they ended twice the size and the grace before.
    return max(asked or 0, 2 * windows.size + windows.grace)


def remembered(windows: WindowSpec | None) -> int:
    """How long (ms) a window stays that is over: a late record may yet belong to a session, and is counted then."""
    return windows.size + 1 if windows is not None and windows.kind == "session" else 0


BEFORE = "before"
"""Extra column: the stream time before a record."""

NOW = "now"
"""Extra column: the stream time with a record."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a batch changes. ``net``: the last change of each window; ``every``: each, if it was asked for.

    Both have the columns `GROUP`, `START` and `END`. ``late``: windows that were closed for a record; ``apart``:
    records that began a session beside one that they belong to, for it was closed. ``repeated``: the net changes, and
    those before them of windows that only one record changes: it gives a tombstone for a session and then its new row,
    or the same row of a sliding window twice.
    """

    net: Changes
    every: Changes | None
    late: int
    failures: list[Failure]
    repeated: Changes | None = None
    apart: int = 0


class Note(NamedTuple):
    """A change of a window. ``row``: the record that made it; ``aggregate`` None: a tombstone, of a session that
    became part of a longer one.
    """

    row: int
    group: int
    start: int
    end: int
    ts: int
    aggregate: Any
    swallowed: bool = False


@dataclass(slots=True)
class Log:
    """Changes of windows, in order."""

    notes: list[Note] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    late: int = 0
    apart: int = 0

    def fail(self, row: int, role: str, error: BaseException) -> bool:
        """Notes a failure; False if no other record may be tried."""
        self.failures.append(Failure(row, raised(error), role))
        return not isinstance(error, KeyboardInterrupt)

    def moved(
        self,
        groups: Groups,
        held: HeldWindows,
        fold: WindowFold,
        serde: Serde,
        *,
        every: bool,
        want_old: bool,
    ) -> Moved:
        """The changes as columns."""
        there, last = held.numbers(), dict[Window, int]()
        windows = [(one.group, one.start, one.end) for one in self.notes]
        # What a window was before: another change, a window of the store, or nothing, in this order of numbers.
        nothing = len(windows) + len(held.group)
        stored = [len(windows) + there[one] if one in there else nothing for one in windows]
        before, changed = list(stored), dict[Window, set[int]]()
        for number, window in enumerate(windows):
            before[number] = last.get(window, stored[number])
            last[window] = number
            changed.setdefault(window, set()).add(self.notes[number].row)
        kept = {
            number for window, number in last.items() if window in there or not self.notes[number].swallowed
        }
        alone = [
            number
            for number, window in enumerate(windows)
            if last[window] in kept and len(changed[window]) == 1
        ]
        # Only the aggregates that are given out are worked out, and of single changes only what is shown.
        shown = kept.union(alone)
        numbers = _numbers(range(len(windows)) if every else sorted(shown))
        place = np.append(places_of(numbers, len(windows)), len(numbers) + np.arange(len(held.group) + 1))
        aggregates = [self.notes[number].aggregate for number in numbers.tolist()]
        net = _numbers(sorted(kept))
        if every:
            changes = self._changes(groups, numbers, Made(fold.shown(aggregates)))
            final = self._changes(
                groups, net, fold.values([self.notes[number].aggregate for number in net.tolist()])
            )
        else:
            changes = self._changes(groups, numbers, fold.values(aggregates))
            final = changes.take(place[net])
        if want_old:
            values = concat_values([changes.value, held.values, nulls(1, serde)])
            changes = replace(changes, old=values.take(place[_numbers(before)[numbers]]))
            final = replace(final, old=values.take(place[_numbers(stored)[net]]))
        repeated = None
        if not kept.issuperset(alone):
            repeated = changes.take(place[_numbers(sorted(shown))])
        return Moved(final, changes if every else None, self.late, self.failures, repeated, self.apart)

    def _changes(self, groups: Groups, numbers: np.ndarray, made: Made) -> Changes:
        notes = [self.notes[number] for number in numbers.tolist()]
        names = ("row", "group", "start", "end", "ts")
        row, group, start, end, ts = (
            np.array([getattr(one, name) for one in notes], np.int64) for name in names
        )
        extra: Mapping[str, Column] = {GROUP: group, START: start, END: end, **made.extra}
        changes = replace(groups.rows, extra={}).take(row)
        return replace(changes, value=made.values, ts=ts, old=None, extra=extra)


def _numbers(found: Iterable[int]) -> np.ndarray:
    return np.fromiter(found, np.int64)
