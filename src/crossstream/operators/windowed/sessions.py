"""Sessions: records of a key that are at most a gap apart. Source: semantics 3.4, KIP-94.

A record joins the sessions within the gap before and after it, and the store still shows: those that end later than the
stream time before the record, less the retention. It is dropped if the session that it makes has closed, and counted
if it begins one of its own beside a session that is not shown: so these stay in the store for one gap more. Sessions
are kept by key and end, and those of a key are more than a gap apart.

Sessions are found as intervals, in columns, and each is folded once. A key needs its records one after the other if one
of them may be late, comes within the gap of a session that the store may not show any more, or joins two sessions where
their order counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.order import running_maximum_of
from crossstream.columns.values import Values, nulls
from crossstream.columns.windows import WindowSpec
from crossstream.operators.aggregate.folding import STATE, Aggregated, Fold, HeldWindows, WindowFold
from crossstream.operators.aggregate.kernel import END, GROUP, START, GroupedRows, rows_within
from crossstream.operators.windowed.closing import Closing
from crossstream.operators.windowed.log import Log, WindowChange
from crossstream.operators.windowed.store import StoredWindows
from crossstream.operators.windowed.windows import BEFORE, NOW, Arrivals, Moved, Opened
from crossstream.serdes import arrays
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column, take_all
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import begins_of, bisect, places_of

_FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class SessionLogic:
    """Each record opens a session of its own, which merges with those within the gap."""

    windows: WindowSpec

    @property
    def closing(self) -> Closing:
        return Closing.of(self.windows)

    def open(self, arrivals: Arrivals) -> Opened:
        return Opened(arrivals.timed())

    def merge(
        self, groups: GroupedRows, store: StoredWindows, fold: Fold, *, every: bool, want_old: bool
    ) -> Moved:
        # Where sessions come out once, one that has come out takes no more records.
        shown = self.closing.retention(None) if store.final else store.retention
        assert shown is not None, "sessions end"
        sessions = Sessions.of(
            store.view,
            groups,
            store.serde,
            self.windows,
            retention=shown,
            horizon=store.horizon - self.closing.remembered,
            final=store.final,
        )
        return sessions.update(fold.in_windows(groups.rows), every=every, want_old=want_old)


@dataclass(frozen=True, slots=True)
class MergedSessions:
    """What sessions have, by session, those of the store first, then by arrival.

    ``elements``: as in `WindowFold.folded`; ``begins``: where sessions begin; ``keys``: the number of each one's key;
    ``starts``, ``ends``: bounds. ``in_turn``: the keys that have to be taken one record after the other.
    """

    elements: np.ndarray
    begins: np.ndarray
    keys: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    in_turn: np.ndarray

    def tangled(self, gap: int) -> np.ndarray:
        """The keys of sessions that did not grow one record at a time: two were there, and were joined."""
        firsts = np.flatnonzero(self.begins)
        if not len(firsts):
            return self.keys
        low = -running_maximum_of(-self.starts, firsts)
        high = running_maximum_of(self.ends, firsts)
        apart = (self.starts[1:] > high[:-1] + gap) | (self.ends[1:] < low[:-1] - gap)
        return np.unique(self.keys[1:][apart & ~self.begins[1:]])

    def without(self, keys: np.ndarray) -> MergedSessions:
        """Without these keys, which have to be taken one record after the other, too."""
        if not len(keys):
            return self
        kept = ~np.isin(self.keys, keys)
        return MergedSessions(
            self.elements[kept],
            self.begins[kept],
            self.keys[kept],
            self.starts[kept],
            self.ends[kept],
            np.union1d(self.in_turn, keys),
        )


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a batch. ``retention``: how long (ms) after their end the store shows them to records.

    ``final``: they come out when they have closed.
    """

    windows: WindowSpec
    retention: int
    final: bool
    groups: GroupedRows
    held: HeldWindows
    serde: EngineSerde

    @property
    def gap(self) -> int:
        return self.windows.size

    @classmethod
    def of(
        cls,
        view: Snapshot,
        groups: GroupedRows,
        serde: EngineSerde,
        windows: WindowSpec,
        *,
        retention: int,
        horizon: int,
        final: bool,
    ) -> Sessions:
        """With those of the store that a record may join. ``horizon``: the store has no sessions that end before."""
        firsts = np.flatnonzero(groups.begins)
        earliest = np.minimum.reduceat(groups.rows.ts, firsts) - windows.size
        latest = np.maximum.reduceat(groups.rows.ts, firsts) + windows.size
        low = np.maximum(earliest, horizon)
        group, columns = rows_within(view, groups.hashes, groups.keys, low, np.full(len(low), _FOREVER))
        near = np.flatnonzero(columns["start"] <= latest[group])
        columns = take_all(columns, near)
        ends = np.asarray(columns["s"])
        values, states = Values(serde, wire=columns["value"]), columns.get(STATE)
        held = HeldWindows(group[near], np.asarray(columns["start"]), ends, ends, values, states)
        return cls(windows, retention, final, groups, held, serde)

    def update(self, fold: WindowFold, *, every: bool, want_old: bool) -> Moved:
        """Applies the rows of the batch. Extra columns of the rows: `BEFORE` and `NOW`."""
        aggregates = fold.read(self.held)
        found = None if every or fold.by_record else self._found(fold)
        in_turn = np.arange(len(self.groups.hashes)) if found is None else found.in_turn
        if found is not None and not len(in_turn):
            return self._merge(found, fold, want_old)
        log = Log()
        self._walk(in_turn.tolist(), aggregates, fold, log)
        walked = log.moved(self.groups, self.held, fold, self.serde, every=every, want_old=want_old)
        return walked if found is None else _both(self._merge(found, fold, want_old), walked)

    # -- one record after the other --------------------------------------------------------------------

    def _walk(self, numbers: Iterable[int], aggregates: list[object], fold: WindowFold, log: Log) -> None:
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
                    made = fold.merge(row, [one[2] for one in joined]) if joined else None
                    made = fold.add(row, made)
                except BaseException as error:
                    if log.fail(row, "aggregator", error):
                        continue
                    return
                log.apart += near < first
                if start != end or start != time:
                    for one in joined:
                        log.notes.append(
                            WindowChange(row, number, one[0], one[1], one[1], None, swallowed=True)
                        )
                log.notes.append(WindowChange(row, number, start, end, end, fold.copy(made)))
                sessions[first:stop] = [] if made is None else [(start, end, made)]
                order[first:stop] = [] if made is None else [end]

    def _beside(
        self, sessions: list[tuple[int, int, object]], order: list[int], time: int, first: int
    ) -> int:
        """Where the joined sessions begin: a longer one with the same end would be lost, and has yet to come out."""
        place = bisect_left(order, time)
        return place if place < first and order[place] == time and sessions[place][0] < time else first

    # -- as intervals ----------------------------------------------------------------------------------

    def _found(self, fold: WindowFold) -> MergedSessions:
        """The sessions that records end up in, where the order of arrival does not decide about them."""
        rows, held = self.groups.rows, self.held
        key_of_row = self.groups.number
        bad = [failure.row for failure in fold.failures]
        in_turn = self._in_order_only(key_of_row)
        mine = np.ones(rows.rows, bool)
        mine[bad] = False
        mine = np.flatnonzero(mine & ~np.isin(key_of_row, in_turn))
        theirs = np.flatnonzero(~np.isin(held.group, in_turn))
        elements = np.append(-1 - theirs, mine)
        keys = np.append(held.group[theirs], key_of_row[mine])
        starts, ends = (
            np.append(held.starts[theirs], rows.ts[mine]),
            np.append(held.ends[theirs], rows.ts[mine]),
        )
        session = self._intervals(keys, starts, ends)
        there = np.isin(session, session[len(theirs) :])
        order = np.flatnonzero(there)[np.argsort(session[there], kind="stable")]
        found = MergedSessions(
            elements[order], begins_of(session[order]), keys[order], starts[order], ends[order], in_turn
        )
        return found.without(found.tangled(self.gap)) if fold.in_order else found

    def _merge(self, found: MergedSessions, fold: WindowFold, want_old: bool) -> Moved:
        """The changes of the sessions that were found."""
        rows, held = self.groups.rows, self.held
        number = self.groups.number
        failures = [
            failure for failure in fold.failures if number[failure.row] not in set(found.in_turn.tolist())
        ]
        if not len(found.elements):
            return Moved(_none(rows), None, failures)
        firsts = np.flatnonzero(found.begins)
        lasts = np.append(firsts[1:], len(found.elements)) - 1
        there = found.elements < 0
        swallowed, into = -1 - found.elements[there], (np.cumsum(found.begins) - 1)[there]
        last = found.elements[lasts]
        starts, ends = np.minimum.reduceat(found.starts, firsts), np.maximum.reduceat(found.ends, firsts)
        same = (held.starts[swallowed] == starts[into]) & (held.ends[swallowed] == ends[into])
        folded = fold.folded(found.elements, found.begins)
        made = self._changes(last, starts, ends, folded)
        nothing = {name: arrays.null_rows(len(swallowed)) for name in folded.extra}
        none = Aggregated(nulls(len(swallowed), self.serde), nothing)
        gone = self._changes(last[into], held.starts[swallowed], held.ends[swallowed], none)
        if want_old:
            old = np.full(len(firsts), -1)
            old[into[same]] = swallowed[same]
            made = replace(made, old=held.values.take(old))
            gone = replace(gone, old=held.values.take(swallowed))
        single = np.add.reduceat((~there).astype(np.int64), firsts)[into] == 1
        renewed = np.flatnonzero(same & single & (starts[into] < ends[into]))
        lost = np.flatnonzero(~same)
        repeated = _in_order(gone.take(np.union1d(lost, renewed)), made) if len(renewed) else None
        return Moved(_in_order(gone.take(lost), made), None, failures, repeated=repeated)

    def _changes(self, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, made: Aggregated) -> Changes:
        changes = replace(self.groups.rows, extra={}).take(rows)
        extra: dict[str, Column] = {GROUP: self.groups.number[rows], START: starts, END: ends, **made.extra}
        return replace(changes, value=made.values, ts=ends, old=None, extra=extra)

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


def _in_order(gone: Changes, made: Changes) -> Changes:
    """By arrival, of each record the tombstones first."""
    both = concat_changes([gone, made]) if gone.rows else made
    return both.take(np.lexsort((np.arange(both.rows) >= gone.rows, both.minor, both.major)))


def _both(merged: Moved, walked: Moved) -> Moved:
    """The changes of other keys, in order of arrival."""
    both = (merged, walked)
    repeated = None
    if any(one.repeated is not None for one in both):
        repeated = _by_arrival([one.net if one.repeated is None else one.repeated for one in both])
    failures = [*merged.failures, *walked.failures]
    net = _by_arrival([one.net for one in both])
    return Moved(net, None, failures, walked.late, walked.apart, repeated)


def _by_arrival(parts: Sequence[Changes]) -> Changes:
    both = concat_changes([part for part in parts if part.rows] or parts[:1])
    return both.take(np.lexsort((both.minor, both.major)))
