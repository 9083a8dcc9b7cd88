"""Sessions: records of a key that are at most a gap apart. Source: semantics 3.4, KIP-94.

A record joins the sessions within the gap before and after it, and the store still shows: those that end later than the
stream time before the record, less the retention. It is dropped if the session that it makes has closed, and counted
if it begins one of its own beside a session that is not shown: so these stay in the store for one gap more. Sessions
are kept by key and end, and those of a key are more than a gap apart.

Where nothing depends on the order of arrival, sessions are merged as intervals, in columns. A key needs its records one
after the other if one of them may be late, or comes within the gap of a session that the store may not show any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.order import running_maximum_of
from crossstream.columns.values import Values, nulls
from crossstream.graph.nodes import WindowSpec
from crossstream.operators.aggregate.kernel import END, GROUP, START, Groups, rows_within
from crossstream.operators.aggregate.windows import BEFORE, NOW, Held, Log, Moved, MovingFold, Note, Steps
from crossstream.operators.table.kernel import Rows
from crossstream.serdes import Serde
from crossstream.storage.columns import Column
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import begins_of, bisect, places_of

_FOREVER = np.iinfo(np.int64).max


class Components:
    """Numbers the sessions that records end up in, without their aggregates.

    ``of``: for each row, then each session of the store, a number; `roots` gives equal ones to what was merged.
    """

    def __init__(self, rows: int, sessions: int) -> None:
        self._parents = list(range(rows + sessions))
        self._rows = rows

    def read(self, values: Values) -> list[Any]:
        return list(range(self._rows, len(self._parents)))

    def add(self, row: int, aggregate: Any) -> Any:
        if aggregate is not None:
            self._parents[row] = aggregate
        return row if aggregate is None else aggregate

    def merge(self, row: int, aggregates: Sequence[Any]) -> Any:
        for other in aggregates[1:]:
            self._parents[other] = aggregates[0]
        return aggregates[0]

    def copy(self, aggregate: Any) -> Any:
        return aggregate

    def values(self, aggregates: list[Any]) -> Values:
        raise AssertionError("there are no aggregates")

    def roots(self) -> np.ndarray:
        """The number of the session of each row, then of each session."""
        parents = np.array(self._parents, np.int64)
        while not np.array_equal(above := parents[parents], parents):
            parents = above
        return parents


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a batch. ``retention``: how long (ms) after their end the store shows them to records.

    ``final``: they come out when they have closed.
    """

    windows: WindowSpec
    retention: int
    final: bool
    groups: Groups
    held: Held
    serde: Serde

    @property
    def gap(self) -> int:
        return self.windows.size

    @classmethod
    def of(
        cls,
        view: Snapshot,
        groups: Groups,
        serde: Serde,
        windows: WindowSpec,
        *,
        retention: int,
        horizon: int,
        final: bool,
        column: str = "value",
    ) -> Sessions:
        """With those of the store that a record may join. ``horizon``: the store has no sessions that end before.

        ``column``: that of the aggregates.
        """
        firsts = np.flatnonzero(groups.begins)
        earliest = np.minimum.reduceat(groups.rows.ts, firsts) - windows.size
        latest = np.maximum.reduceat(groups.rows.ts, firsts) + windows.size
        low = np.maximum(earliest, horizon)
        group, columns = rows_within(view, groups.hashes, groups.keys, low, np.full(len(low), _FOREVER))
        near = np.flatnonzero(columns["start"] <= latest[group])
        values = Values(serde, wire=columns[column]).take(near)
        starts, ends = np.asarray(columns["start"])[near], np.asarray(columns["s"])[near]
        return cls(windows, retention, final, groups, Held(group[near], starts, ends, ends, values), serde)

    def update(self, fold: MovingFold, steps: Steps, *, every: bool, want_old: bool) -> Moved:
        """Applies the rows of the batch. Extra columns of the rows: `BEFORE` and `NOW`."""
        if every or fold.by_record:
            log = Log()
            aggregates = steps.read(self.held.values)
            self._walk(range(len(self.groups.hashes)), aggregates, steps, log)
            return log.moved(self.groups, self.held, steps, self.serde, every=every, want_old=want_old)
        return self._merge(fold, want_old)

    # -- one record after the other --------------------------------------------------------------------

    def _walk(self, numbers: Iterable[int], aggregates: list[object], steps: Steps, log: Log) -> None:
        """The rows of the keys with these numbers, as Kafka's ``KStreamSessionWindowAggregate`` takes them."""
        firsts = np.append(np.flatnonzero(self.groups.begins), self.groups.rows.rows)
        bounds = np.searchsorted(self.held.group, np.arange(len(firsts))).tolist()
        starts, ends = self.held.starts.tolist(), self.held.ends.tolist()
        rows, gap = self.groups.rows, self.gap
        ts, before, now = rows.ts, np.asarray(rows.extra[BEFORE]), np.asarray(rows.extra[NOW])
        hidden = (before - self.retention).tolist()
        closed = (now - gap - self.windows.grace).tolist()
        times = ts.tolist()
        for number in numbers:
            those = slice(bounds[number], bounds[number + 1])
            sessions = list(zip(starts[those], ends[those], aggregates[those], strict=True))
            order = ends[those]
            for row in range(firsts[number], firsts[number + 1]):
                time = times[row]
                near = bisect_left(order, time - gap)
                first = stop = bisect_left(order, max(time - gap, hidden[row] + 1))
                if self.final and hidden[row] == time >= closed[row]:
                    first = stop = self._beside(sessions, order, time, first)
                while stop < len(sessions) and sessions[stop][0] <= time + gap:
                    stop += 1
                joined = sessions[first:stop]
                start = min(time, joined[0][0]) if joined else time
                end = max(time, joined[-1][1]) if joined else time
                if end < closed[row]:
                    log.late += 1
                    continue
                try:
                    made = steps.merge(row, [one[2] for one in joined]) if joined else None
                    made = steps.add(row, made)
                except BaseException as error:
                    if log.fail(row, "aggregator", error):
                        continue
                    return
                log.apart += near < first
                if start != end or start != time:
                    for one in joined:
                        log.notes.append(Note(row, number, one[0], one[1], one[1], None, swallowed=True))
                log.notes.append(Note(row, number, start, end, end, steps.copy(made)))
                sessions[first:stop] = [] if made is None else [(start, end, made)]
                order[first:stop] = [] if made is None else [end]

    def _beside(
        self, sessions: list[tuple[int, int, object]], order: list[int], time: int, first: int
    ) -> int:
        """Where the joined sessions begin: a longer one with the same end would be lost, and has yet to come out."""
        place = bisect_left(order, time)
        return place if place < first and order[place] == time and sessions[place][0] < time else first

    # -- as intervals ----------------------------------------------------------------------------------

    def _merge(self, fold: MovingFold, want_old: bool) -> Moved:
        rows, held, groups = self.groups.rows, self.held, self.groups
        hard = self._in_order_only(groups.number)
        number, log = self._components(hard)
        mine, theirs = number[: rows.rows], number[rows.rows :]
        kept = np.flatnonzero(mine >= 0)
        if not len(kept):
            return Moved(_none(rows), None, log.late, [])
        components, component = np.unique(mine[kept], return_inverse=True)
        order = np.argsort(component, kind="stable")
        kept, component = kept[order], component[order]
        begins = begins_of(component)
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts[1:], len(kept)) - 1
        place = np.searchsorted(components, theirs).clip(max=len(components) - 1)
        swallowed = np.flatnonzero((components[place] == theirs) & (theirs >= 0))
        swallowed = swallowed[np.lexsort((held.ends[swallowed], place[swallowed]))]
        into = place[swallowed]
        starts = np.minimum.reduceat(rows.ts[kept], firsts)
        ends = np.maximum.reduceat(rows.ts[kept], firsts)
        np.minimum.at(starts, into, held.starts[swallowed])
        np.maximum.at(ends, into, held.ends[swallowed])
        before = self._before(fold, swallowed, into, len(components))
        folded = fold.fold(replace(rows, extra={}).take(kept), begins, before, False)
        code = np.cumsum(begins) - 1
        result = code[folded.rows]
        last = kept[folded.rows]
        same = (held.starts[swallowed] == starts[into]) & (held.ends[swallowed] == ends[into])
        lost = np.flatnonzero(~same & np.isin(into, result))
        old = np.full(len(components), -1)
        old[into[same]] = swallowed[same]
        made = self._changes(last, starts[result], ends[result], folded.values)
        gone = self._changes(
            kept[lasts][into], held.starts[swallowed], held.ends[swallowed], nulls(len(swallowed), self.serde)
        )
        if want_old:
            made = replace(made, old=held.values.take(old[result]))
            gone = replace(gone, old=held.values.take(swallowed))
        if len(hard):
            made = made.take(_last_of_window(made))
        single = lasts[into] == firsts[into]
        renewed = np.flatnonzero(same & single & (starts[into] < ends[into]))
        repeated = _in_order(gone.take(np.union1d(lost, renewed)), made) if len(renewed) else None
        failures = [failure.at(kept[failure.row]) for failure in folded.failures]
        return Moved(_in_order(gone.take(lost), made), None, log.late, failures, repeated, log.apart)

    def _before(self, fold: MovingFold, swallowed: np.ndarray, into: np.ndarray, components: int) -> Rows:
        """The aggregate that each session begins with."""
        if not len(swallowed):
            return Rows(
                np.zeros(components, bool), nulls(components, self.serde), np.zeros(components, np.int64)
            )
        values = self.held.values.take(swallowed)
        begins = begins_of(into)
        rows = Rows(np.ones(len(into), bool), values, self.held.ts[swallowed])
        merged = rows if begins.all() else fold.merge(rows, begins)
        place = places_of(into[begins], components)
        return Rows(place >= 0, merged.values.take(place), np.where(place >= 0, merged.ts[place], 0))

    def _changes(self, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, values: Values) -> Changes:
        made = replace(self.groups.rows, extra={}).take(rows)
        extra: dict[str, Column] = {GROUP: self.groups.number[rows], START: starts, END: ends}
        return replace(made, value=values, ts=ends, old=None, extra=extra)

    def _components(self, hard: np.ndarray) -> tuple[np.ndarray, Log]:
        """A number for each row, then each session of the store, equal where they end up in one session.

        −1: a row that is late. Also the log of ``hard``: the keys whose records are taken in order.
        """
        rows, held, log = self.groups.rows, self.held, Log()
        number = self.groups.number
        if len(hard) == len(self.groups.hashes):
            found = np.full(rows.rows + len(held.group), -1)
        else:
            starts, ends = np.append(rows.ts, held.starts), np.append(rows.ts, held.ends)
            found = self._intervals(np.append(number, held.group), starts, ends)
        if not len(hard):
            return found, log
        steps = Components(rows.rows, len(held.group))
        self._walk(hard.tolist(), steps.read(held.values), steps, log)
        taken = np.zeros(rows.rows + len(held.group), bool)
        taken[[one.row for one in log.notes]] = True
        taken[rows.rows :] = True
        walked = np.isin(np.append(number, held.group), hard)
        roots = np.where(taken, steps.roots() + len(found), -1)
        return np.where(walked, roots, found), log

    def _in_order_only(self, number: np.ndarray) -> np.ndarray:
        """The keys whose records have to be taken in order of arrival."""
        rows, held = self.groups.rows, self.held
        hidden = np.asarray(rows.extra[BEFORE]) - self.retention
        late = rows.ts < np.asarray(rows.extra[NOW]) - self.gap - self.windows.grace
        suspect = np.flatnonzero(late | (rows.ts - self.gap <= hidden))
        if not len(suspect):
            return suspect
        keys, ends = np.append(number, held.group), np.append(rows.ts, held.ends)
        order = np.lexsort((ends, keys))
        keys, ends = keys[order], ends[order]
        mine = number[suspect]
        first, last = np.searchsorted(keys, mine, "left"), np.searchsorted(keys, mine, "right")
        low = bisect(ends, first, last, rows.ts[suspect] - self.gap, right=False)
        high = bisect(ends, first, last, hidden[suspect], right=True)
        return np.unique(mine[late[suspect] | (high > low)])

    def _intervals(self, keys: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Numbers intervals, equal ones for those of a key that are at most the gap apart."""
        order = np.lexsort((ends, starts, keys))
        k, s, e = keys[order], starts[order], ends[order]
        other = begins_of(k)
        reach = running_maximum_of(e, np.flatnonzero(other))
        begins = other | np.append(True, s[1:] - self.gap > reach[:-1])
        return np.asarray((np.cumsum(begins) - 1)[places_of(order, len(order))])


def _none(rows: Changes) -> Changes:
    none = np.empty(0, np.int64)
    return replace(replace(rows, extra={}).take(none), extra={GROUP: none, START: none, END: none})


def _last_of_window(made: Changes) -> np.ndarray:
    """The rows without those of a window that another record made again: the store did not show it any more."""
    group, starts, ends = (np.asarray(made.extra[name]) for name in (GROUP, START, END))
    order = np.lexsort((made.minor, made.major, ends, starts, group))
    begins = begins_of(group[order], starts[order], ends[order])
    return np.sort(order[np.append(begins[1:], True)[: len(order)]])


def _in_order(gone: Changes, made: Changes) -> Changes:
    """By arrival, of each record the tombstones first."""
    both = concat_changes([gone, made]) if gone.rows else made
    return both.take(np.lexsort((np.arange(both.rows) >= gone.rows, both.minor, both.major)))


def put_sessions(view: Snapshot, net: Changes, hashes: np.ndarray) -> None:
    """Keeps sessions by key and end: a tombstone counts unless another session has the same end now."""
    missing = net.value.missing()
    order = np.lexsort((missing, net.extra[END], net.extra[GROUP]))
    net, missing, hashes = net.take(order), missing[order], hashes[order]
    group, ends = np.asarray(net.extra[GROUP]), np.asarray(net.extra[END])
    first = begins_of(group, ends)
    net, missing, hashes = net.where(first), missing[first], hashes[first]
    columns: dict[str, Column] = {
        "h": hashes,
        "s": np.asarray(net.extra[END]),
        "key": net.key.wire(),
        "value": net.value.wire(),
        "ts": net.ts,
        "start": np.asarray(net.extra[START]),
        "gone": missing.astype(np.uint8),
    }
    columns.update({name: net.extra[name] for name, _ in view.layout.values if name not in columns})
    view.put(columns)
