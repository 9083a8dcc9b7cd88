"""Sliding windows: one for each set of records that are at most a difference apart. Source: semantics 3.4, KIP-450.

A record at t is in the window [t − d, t], which it creates, and in the window [t + 1, t + 1 + d] are the records after
it, if there are any. So there is a window wherever one record more or less fits in. None begins before 0: the window
[0, d] has all records before d. The aggregate of a new window is copied from the window that has its records.

Records are taken one after the other, as Kafka's ``KStreamSlidingWindowAggregate`` takes them. A record that comes in
time sees all windows before it that it needs, so what it changes depends on the records of its key and on stream time
(semantics 8.27).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crossstream.columns.values import Values
from crossstream.columns.windows import WindowSpec
from crossstream.operators.aggregate.folding import STATE, Fold, HeldWindows, WindowFold
from crossstream.operators.aggregate.kernel import GroupedRows, rows_within
from crossstream.operators.windowed.closing import Closing
from crossstream.operators.windowed.log import Log, WindowChange
from crossstream.operators.windowed.store import StoredWindows
from crossstream.operators.windowed.windows import NOW, Arrivals, Moved, Opened
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.snapshot import Snapshot

PLACE = "place"
"""Extra column: the number of a record in order of arrival."""


@dataclass(frozen=True, slots=True)
class SlidingWindowLogic:
    """Records open windows and copy those that they find, one record after the other; none of them merge."""

    windows: WindowSpec

    @property
    def closing(self) -> Closing:
        return Closing.of(self.windows)

    def open(self, arrivals: Arrivals) -> Opened:
        records = arrivals.timed()
        return Opened(replace(records, extra={**records.extra, PLACE: np.arange(records.rows)}))

    def merge(
        self, groups: GroupedRows, store: StoredWindows, fold: Fold, *, every: bool, want_old: bool
    ) -> Moved:
        held = held_windows(store.view, groups, store.serde, self.windows, store.horizon)
        sliding = Sliding(self.windows, groups, held, fold.in_windows(groups.rows))
        sliding.run()
        return sliding.moved(store.serde, every=every, want_old=want_old)


class Stop(Exception):
    """A record failed: its other windows are left as they are. ``last``: no other record may be tried."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.last = last


@dataclass(slots=True)
class _Windows:
    """The windows of a key: starts in order, and (aggregate, timestamp) by start."""

    starts: list[int] = field(default_factory=list)
    rows: dict[int, tuple[Any, int]] = field(default_factory=dict)

    def put(self, start: int, aggregate: Any, ts: int) -> None:
        if aggregate is None:
            if self.rows.pop(start, None) is not None:
                del self.starts[bisect_left(self.starts, start)]
            return
        if start not in self.rows:
            insort(self.starts, start)
        self.rows[start] = aggregate, ts

    def between(self, low: int, high: int) -> list[int]:
        return self.starts[bisect_left(self.starts, low) : bisect_right(self.starts, high)]


def held_windows(
    view: Snapshot, groups: GroupedRows, serde: EngineSerde, windows: WindowSpec, horizon: int
) -> HeldWindows:
    """The windows of the store that the records may change or copy."""
    firsts = np.flatnonzero(groups.begins)
    low = np.maximum(np.minimum.reduceat(groups.rows.ts, firsts) - 2 * windows.size, max(horizon, 0))
    high = np.maximum.reduceat(groups.rows.ts, firsts) + 1
    group, columns = rows_within(view, groups.hashes, groups.keys, low, high)
    starts = np.asarray(columns["s"])
    values = Values(serde, wire=columns["value"])
    return HeldWindows(
        group, starts, starts + windows.size, np.asarray(columns["ts"]), values, columns.get(STATE)
    )


class Sliding:
    """Applies records."""

    def __init__(self, windows: WindowSpec, groups: GroupedRows, held: HeldWindows, fold: WindowFold) -> None:
        self._size, self._grace = windows.size, windows.grace
        self._groups, self._held, self._fold = groups, held, fold
        self.log = Log()
        self._windows = [_Windows() for _ in groups.hashes]
        aggregates = fold.read(held)
        for number, start, ts, aggregate in zip(
            held.group.tolist(), held.starts.tolist(), held.ts.tolist(), aggregates, strict=True
        ):
            one = self._windows[number]
            one.starts.append(start)
            one.rows[start] = aggregate, ts

    def run(self) -> None:
        """Takes the records in order of arrival. Extra columns of the rows: `NOW` and `PLACE`."""
        rows, number = self._groups.rows, self._groups.number.tolist()
        ts, closed = rows.ts.tolist(), (np.asarray(rows.extra[NOW]) - self._grace).tolist()
        for row in np.argsort(np.asarray(rows.extra[PLACE])).tolist():
            if ts[row] + self._size < closed[row]:
                self.log.late += 1
                continue
            record = _Record(self, row, number[row], ts[row], closed[row], self._windows[number[row]])
            try:
                record.take_early() if ts[row] < self._size else record.take()
            except Stop as stop:
                if stop.last:
                    return

    def moved(self, serde: EngineSerde, *, every: bool, want_old: bool) -> Moved:
        """What the records changed."""
        return self.log.moved(self._groups, self._held, self._fold, serde, every=every, want_old=want_old)


@dataclass(frozen=True, slots=True)
class _Record:
    """A record at work. ``closed``: windows that end before are closed for it."""

    sliding: Sliding
    row: int
    number: int
    time: int
    closed: int
    windows: _Windows

    def take(self) -> None:
        """Kafka's ``processReverse``."""
        time, size = self.time, self.sliding._size
        right = left = previous = None
        has_left = False
        starts = self.windows.between(max(time - 2 * size, 0), time + 1)
        has_right = starts[-1:] == [time + 1]
        for start in reversed(starts):
            if start == time + 1:
                continue
            aggregate, ts = self.windows.rows[start]
            if start + size > time:
                if right is None:
                    right = self._copied(aggregate, ts)
                self._update(start, aggregate, ts)
            elif start + size == time:
                has_left = True
                self._update(start, aggregate, ts)
                if ts >= time:
                    return
                previous = ts
            else:
                left, previous = aggregate, ts
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + size >= time:
            self._update(previous + 1, None, time)
        if not has_left:
            follows = previous is not None and time - size <= previous
            self._update(time - size, self.sliding._fold.copy(left) if follows else None, time)
        if not has_right:
            self._begin_right(right)

    def take_early(self) -> None:
        """Kafka's ``processEarly``: windows do not begin before 0."""
        time = self.time
        right = previous = combined = None
        starts = self.windows.between(0, time + 1)
        for start in starts:
            if start == time + 1:
                continue
            aggregate, ts = self.windows.rows[start]
            if start == 0:
                combined = aggregate, ts
                previous = ts if ts < time else None
            else:
                right = self._copied(aggregate, ts)
                self._update(start, aggregate, ts)
        if right is None and combined is not None and combined[1] > time:
            right = self._copied(*combined)
        if time + 1 not in starts:
            self._begin_right(right)
        if previous is not None and previous + 1 not in starts:
            self._update(previous + 1, None, time)
        self._update(0, *(combined or (None, time)))

    def _copied(self, aggregate: Any, ts: int) -> tuple[Any, int]:
        """What the window after the record begins with; it is used only if it has a record after this one."""
        return (self.sliding._fold.copy(aggregate) if ts > self.time else aggregate), ts

    def _begin_right(self, right: tuple[Any, int] | None) -> None:
        if right is not None and right[1] > self.time:
            self._put(self.time + 1, *right)

    def _update(self, start: int, aggregate: Any, ts: int) -> None:
        if start + self.sliding._size < self.closed:
            self.sliding.log.late += 1
            return
        try:
            made = self.sliding._fold.add(self.row, aggregate)
        except BaseException as error:
            raise Stop(not self.sliding.log.fail(self.row, "aggregator", error)) from None
        self._put(start, made, self.time if aggregate is None else max(ts, self.time))

    def _put(self, start: int, aggregate: Any, ts: int) -> None:
        sliding = self.sliding
        self.windows.put(start, aggregate, ts)
        copy = sliding._fold.copy(aggregate)
        sliding.log.notes.append(WindowChange(self.row, self.number, start, start + sliding._size, ts, copy))
