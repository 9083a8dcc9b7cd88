"""Time windows, and the one window without an end: the timestamp of a record says which windows it is in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.windows import WindowSpec
from crossstream.operators.aggregate.folding import Fold
from crossstream.operators.aggregate.kernel import START, GroupedRows, look_up, update
from crossstream.operators.windowed.closing import Closing
from crossstream.operators.windowed.store import StoredWindows
from crossstream.operators.windowed.windows import Arrivals, Moved, Opened
from crossstream.storage.sorted_run import expand


@dataclass(frozen=True, slots=True)
class TimeWindowLogic:
    """A record opens all windows that it is in; none of them merge."""

    windows: WindowSpec

    @property
    def closing(self) -> Closing:
        return Closing.of(self.windows)

    def open(self, arrivals: Arrivals) -> Opened:
        rows, starts = windows_of(self.windows, arrivals.records.ts)
        still = self.closing.notify_at(starts) > arrivals.now[rows]
        opened = arrivals.records.take(rows[still])
        opened = replace(opened, extra={**opened.extra, START: starts[still]})
        return Opened(opened, int((~still).sum()))

    def merge(
        self, groups: GroupedRows, store: StoredWindows, fold: Fold, *, every: bool, want_old: bool
    ) -> Moved:
        before = look_up(store.view, groups, store.serde)
        updates = update(groups, before, fold, every=every)
        return Moved(updates.net, updates.every, updates.failures, before=before if want_old else None)


def windows_of(windows: WindowSpec, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair of a record and a time window that it belongs to: the row of the record, the start of the window.

    Starts are multiples of ``advance``, and none is negative. In order of the rows, then of the starts.

    >>> windows_of(WindowSpec("time", 10, 5, 0), np.array([12, 3]))
    (array([0, 0, 1]), array([ 5, 10,  0]))
    """
    if not windows.end:
        rows = np.flatnonzero(ts >= windows.size)
        return rows, np.full(len(rows), windows.size)
    first = np.maximum(0, ts - windows.size + windows.advance) // windows.advance
    rows, number = expand(first, ts // windows.advance + 1)
    return rows, number * windows.advance
