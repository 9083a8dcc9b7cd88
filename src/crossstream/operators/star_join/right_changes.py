"""The right rows that left rows of a star join see, and when their results change.

A left row is the same from one of its changes to the next: that is a *span*. Within it, results come from the changes
of the right rows that it refers to. So for a changelog each moment is evaluated once, without replaying the batch
record by record.

Story: an order refers to shop `a`. In one batch arrive, at 1, a change of shop `a`; at 2, the order moves to shop `b`;
at 3 and 4, changes of shop `a` and `b`. The order has two spans. The first has the result of 1. The second begins with
the result of 2, and has that of 4; the order does not see 3.
Test: `test_every_change_is_there_in_any_batches_where_a_stream_wants_it`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, concat_headers
from crossstream.columns.order import Puts, arrival_of, came_before, in_hash_order, same_trigger
from crossstream.columns.values import Values
from crossstream.operators.star_join.subscriptions import RAW
from crossstream.serdes import arrays
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import EMPTY_BYTES, Column, concat, take, take_or_null
from crossstream.storage.snapshot import Snapshot, groups_of
from crossstream.storage.sorted_run import bisect, expand

BEFORE = -1
"""The event before all of the batch."""

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Coded:
    """Foreign keys into one table, by hash: each different one once, the number of the table in front.

    ``codes``: which of them each row has; −1 is null.
    """

    keys: pa.LargeBinaryArray
    hashes: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, table: int, column: Column, bits: int) -> Coded:
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return cls(*in_hash_order(arrays.with_first_byte(table, encoded.dictionary), codes, bits))


@dataclass(frozen=True, slots=True)
class RightChanges:
    """The changes of right rows in a batch, ``puts``: by table and foreign key, in arrival order within.

    All changes that one input record makes are one *event*. ``event``: the number of each change's; ``kept``: whether
    a change leaves a row, or deletes it. ``major``, ``minor``, ``arrived``: of all changes in arrival order the
    position in time, and the event.
    """

    puts: Puts
    event: np.ndarray
    kept: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    arrived: np.ndarray

    @classmethod
    def of(cls, changes: Changes | None, bits: int) -> RightChanges:
        """Of changes in any order, keyed by table and foreign key; None: nothing changed."""
        if changes is None:
            nothing = Values(RAW, wire=EMPTY_BYTES)
            puts = Puts.of(Changes(nothing, nothing, _NONE, _NONE, _NONE), bits)
            return cls(puts, _NONE, _NONE.astype(bool), _NONE, _NONE, _NONE)
        arrival = arrival_of(changes)
        puts = Puts.of(changes, bits, arrival)
        major, minor, event = changes.major, changes.minor, np.empty(changes.rows, np.int64)
        if arrival is None:
            arrival = np.arange(changes.rows)
        else:
            major, minor = major[arrival], minor[arrival]
        rows = np.arange(changes.rows)
        arrived = np.cumsum(np.append(False, ~same_trigger(major, minor, rows[:-1], rows[1:])))
        event[arrival] = arrived
        return cls(puts, event[puts.rank], ~puts.changes.value.missing(), major, minor, arrived)

    @property
    def latest_event(self) -> int:
        return int(self.arrived[-1]) if len(self.arrived) else BEFORE

    def event_before(self, changes: Changes, *, or_with: bool) -> np.ndarray:
        """The last event that came before each change; ``or_with``: that may be the one that made it."""
        count = came_before(changes.major, changes.minor, self, or_with=or_with)
        return np.asarray(np.append(self.arrived, BEFORE)[count - 1])

    def last(self) -> Changes:
        """The last change of each right row."""
        puts, starts = self.puts.changes, self.puts.starts
        return puts if len(starts) == puts.rows else puts.take(np.append(starts[1:], puts.rows) - 1)

    def latest(self, changes: Sequence[np.ndarray]) -> np.ndarray:
        """Of one change of each table (−1: none) the one that arrived last; of one event that of the first table."""
        event = np.append(self.event, BEFORE)
        latest, *rest = changes
        for change in rest:
            latest = np.where(event[change] > event[latest], change, latest)
        return latest

    def stamped(
        self, left: Changes, trigger: np.ndarray, exists: np.ndarray, seen: Sequence[Seen]
    ) -> Changes:
        """Results without values yet: at the newest timestamp of all rows, or at that of the right change.

        ``trigger``: the right change that makes each; −1: the left row's own change does.
        """
        own, puts = trigger < 0, self.puts.changes
        newest = left.ts
        if own.any():
            for one in seen:
                newest = np.where(one.present & exists, np.maximum(newest, one.times()), newest)
        if own.all():
            return Changes(left.key, left.value, newest, left.major, left.minor, left.headers)
        headers = concat_headers([(left.headers, left.rows), (puts.headers, puts.rows)])
        either = np.where(own, np.arange(left.rows), left.rows + trigger)
        return Changes(
            left.key,
            left.value,
            np.where(own, newest, puts.ts[trigger]),
            np.where(own, left.major, puts.major[trigger]),
            np.where(own, left.minor, puts.minor[trigger]),
            None if headers is None else take_or_null(headers, either),
        )


@dataclass(frozen=True, slots=True)
class RightRows:
    """The right rows of one table that left rows refer to. ``slot``: of each left row which of them; −1: none.

    ``there``, ``wire``, ``ts``: the rows as they were looked up; ``first``, ``last``: bounds of their changes in the
    batch. One more than there are right rows, for left rows that refer to none.
    """

    slot: np.ndarray
    there: np.ndarray
    wire: Column
    ts: np.ndarray
    first: np.ndarray
    last: np.ndarray
    changed: RightChanges
    serde: EngineSerde | None

    @classmethod
    def of(
        cls, foreign: Coded, view: Snapshot, changed: RightChanges, serde: EngineSerde | None
    ) -> RightRows:
        match = view.lookup(foreign.hashes, foreign.keys)
        first = last = np.zeros(len(foreign.keys) + 1, np.int64)
        if len(changed.event):
            first, last = (np.append(at, 0) for at in changed.puts.places(foreign.hashes, foreign.keys))
        there, ts = np.append(match.found, False), np.append(np.asarray(match.gather("ts")), 0)
        return cls(foreign.codes, there, match.gather("value"), ts, first, last, changed, serde)

    def take(self, rows: np.ndarray) -> RightRows:
        return replace(self, slot=self.slot[rows])

    def first_change(self) -> np.ndarray:
        """For each left row the first change of its right row; −1: none."""
        return np.asarray(np.where(self.first < self.last, self.first, -1)[self.slot])

    def last_change(self) -> np.ndarray:
        """For each left row the last change of its right row; −1: none."""
        return np.asarray(np.where(self.first < self.last, self.last - 1, -1)[self.slot])

    def between(self, since: np.ndarray, until: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each left row the bounds of the changes after one event and up to another."""
        first, last = self.first[self.slot], self.last[self.slot]
        start, stop = (bisect(self.changed.event, first, last, event, right=True) for event in (since, until))
        return start, np.maximum(start, stop)

    def as_looked_up(self) -> Seen:
        """What each left row sees of the rows as they were looked up."""
        return Seen(self, self.slot, np.full(len(self.slot), -1), self.there[self.slot])

    def at(self, rows: np.ndarray, event: np.ndarray) -> Seen:
        """What left rows see after an event each."""
        slot = self.slot[rows]
        first = self.first[slot]
        change = bisect(self.changed.event, first, self.last[slot], event, right=True) - 1
        change = np.where(change >= first, change, -1)
        return Seen(self, slot, change, _either(self.there[slot], self.changed.kept, change))


@dataclass(frozen=True, slots=True)
class Seen:
    """The right row of one table at some moments, and whether it is ``present``.

    ``change``: the right change that made it what it is; −1: none since it was looked up.
    """

    rows: RightRows
    slot: np.ndarray
    change: np.ndarray
    present: np.ndarray

    def take(self, moments: np.ndarray) -> Seen:
        return Seen(self.rows, self.slot[moments], self.change[moments], self.present[moments])

    def times(self) -> np.ndarray:
        return _either(self.rows.ts[self.slot], self.rows.changed.puts.changes.ts, self.change)

    def values(self, moments: np.ndarray) -> Values:
        """The right rows, each different one decoded once; null where there is none."""
        slot, change = self.slot[moments], self.change[moments]
        if (change < 0).all():
            return Values(self.rows.serde, wire=self.rows.wire).take(slot)
        present = self.present[moments]
        known = len(self.rows.there) - 1
        used, row = np.unique(np.where(change >= 0, change + known, slot)[present], return_inverse=True)
        stored, puts = used < known, self.rows.changed.puts.changes
        parts = [take(self.rows.wire, used[stored]), take(puts.value.wire(RAW), used[~stored] - known)]
        rows = np.full(len(slot), -1)
        rows[present] = row
        return Values(self.rows.serde, wire=concat(parts)).take(rows)


def _either(looked_up: np.ndarray, changes: np.ndarray, change: np.ndarray) -> np.ndarray:
    """What the changes have, or the rows as they were looked up where there is none (−1)."""
    changed = np.flatnonzero(change >= 0)
    looked_up[changed] = changes[change[changed]]
    return looked_up


@dataclass(frozen=True, slots=True)
class Moments:
    """When results may change, those of a left row in order: in which ``span``, and by which right change.

    ``change``: −1: the left row's own. ``seen``: for each table the right row then.
    """

    span: np.ndarray
    change: np.ndarray
    seen: Sequence[Seen]


@dataclass(frozen=True, slots=True)
class Spans:
    """Left rows from one change to the next, those of a row one after the other: after ``since``, up to ``until``.

    ``row``: number of the left row; ``is_change``: it begins with a change of the batch, not before it.
    """

    changes: Changes
    row: np.ndarray
    is_change: np.ndarray
    there: np.ndarray
    since: np.ndarray
    until: np.ndarray
    rights: Sequence[RightRows]
    changed: RightChanges

    @classmethod
    def of(
        cls,
        changes: Changes,
        row: np.ndarray,
        is_change: np.ndarray,
        rights: Sequence[RightRows],
        changed: RightChanges,
    ) -> Spans:
        begun, with_it = (changed.event_before(changes, or_with=also) for also in (False, True))
        follows = np.append(row[1:] == row[:-1], False)
        until = np.where(follows, np.roll(begun, -1), changed.latest_event)
        since = np.where(is_change, with_it, BEFORE)
        return cls(changes, row, is_change, ~changes.value.missing(), since, until, rights, changed)

    def moments(self, chunk: int) -> Iterator[Moments]:
        """All moments of a left row together, in parts of about ``chunk``."""
        live, own = np.flatnonzero(self.there), np.flatnonzero(self.is_change)
        bounds = [right.between(self.since, self.until) for right in self.rights]
        counts = self.is_change.astype(np.int64)
        for start, stop in bounds:
            counts[live] += (stop - start)[live]
        first = self._firsts()
        ends = np.append(first[1:], len(self.row))
        for low, high in groups_of(np.add.reduceat(counts, first), chunk) if len(first) else ():
            part = first[low], ends[high - 1]
            yield self._moments(_between(own, *part), _between(live, *part), bounds)

    def _moments(
        self, own: np.ndarray, live: np.ndarray, bounds: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> Moments:
        """Of spans that begin with a change (``own``), and of those with a left row (``live``)."""
        spans, events, changes = [own], [self.since[own]], [np.full(len(own), -1)]
        for start, stop in bounds:
            rows, found = expand(start[live], stop[live])
            spans.append(live[rows])
            events.append(self.changed.event[found])
            changes.append(found)
        span, event, change = np.concatenate(spans), np.concatenate(events), np.concatenate(changes)
        order = np.lexsort((event, span))
        differs = (np.diff(span[order]) != 0) | (np.diff(event[order]) != 0)
        kept = order[np.append(True, differs)[: len(order)]]  # what one record changes is one moment
        span, event = span[kept], event[kept]
        return Moments(span, change[kept], [right.at(span, event) for right in self.rights])

    def had_result(self, span: np.ndarray, exists: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Whether there was a result until each moment. ``exists``: from then on; ``before``: before the batch.

        ``before`` is asked for the first span of each left row.
        """
        first = self._firsts()
        before = np.repeat(before[first], np.diff(first, append=len(self.row)))
        begins = np.diff(self.row[span], prepend=-1) != 0
        return np.where(begins, before[span], np.roll(exists, 1))

    def _firsts(self) -> np.ndarray:
        """Where another left row begins."""
        return np.flatnonzero(np.diff(self.row, prepend=-1))


def _between(rows: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Of ascending numbers those from ``start`` to ``stop``."""
    low, high = np.searchsorted(rows, (start, stop))
    return rows[low:high]
