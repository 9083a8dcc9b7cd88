"""Every result of a join of many, where a reader wants the changes within a batch.

    law    the results are those of taking the records of the batch one by one: a left change sees the right rows as
           they are when it comes, a right change answers the rows that refer to it when it comes

Tables need the net results of a batch only (`join_many.resolve_many`); those that keep versions, or that a stream looks
up, need these. A left row is the same from one of its changes to the next: that is a *span*. Within it, results come
from the changes of the right rows that it refers to. All changes that one input record makes are one *event*, and give
one result of a row. Source: decision 0019, semantics 2.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.changes import Changes, concat_changes, concat_headers, reference
from crossstream.columns.functions import Function
from crossstream.columns.match_counts import Asked
from crossstream.columns.order import arrival_of, by_arrival, by_key, came_before, same_trigger
from crossstream.columns.values import Values
from crossstream.operators.star_join.kernel import Kind, LeftSerdes, made
from crossstream.operators.star_join.right_rows import CHANGED, GONE, HERE, RAW, TOLD, with_tables
from crossstream.operators.star_join.state import Coded, Home
from crossstream.operators.stream_table_join.as_of import Puts
from crossstream.operators.table.kernel import as_stored
from crossstream.operators.table_join.kernel import Joined
from crossstream.serdes import Serde
from crossstream.storage.columns import EMPTY_BYTES, Column, concat, take, take_or_null
from crossstream.storage.snapshot import View, groups_of
from crossstream.storage.sorted_run import bisect, expand, stable_order

_BEFORE = -1
"""The event before all of the batch."""


def resolve_many_every(
    kind: Kind,
    joiner: Function,
    home: Home,
    rows: Changes | None,
    answers: Changes | None,
    serdes: LeftSerdes,
    asked: Sequence[Asked],
    *,
    chunk: int,
) -> Iterator[Joined]:
    """The results of a batch, in chunks of about ``chunk`` rows; as `join_many.resolve_many`, but for these:

    ``rows``: every change of the left rows, in any order. ``answers``: right rows as they were before the batch, where
    they have not been known here, and every change of them.
    """
    if home.anew:
        home.index_all()
    if answers is not None:
        home.put_told(answers.where(answers.extra[TOLD] == HERE))
    was, events = home.as_it_is(), _Events.of(answers, home.bits)
    join = _Join(kind, joiner, was, events, serdes)
    spans = None
    if rows is not None and rows.rows:
        hashes = rows.hashes(home.bits)
        order, begins = by_key(rows, hashes, arrival_of(rows))
        rows = rows.take(order)
        spans = join.changed(rows, begins, hashes[order[begins]])
        net = rows.take(np.flatnonzero(np.append(begins[1:], True)))
        references = home.coded([net.extra[reference(name)] for name in home.names])
        home.put_rows(net, references, serdes.value)
    if events.told.rows:
        home.put_told(events.last())
    if answers is not None:
        home.put_told(answers.where(answers.extra[TOLD] == GONE))
    if spans is not None:
        yield from join.results(spans, chunk, asked)
    for queries, columns in was.referrers.scan(events.puts.hashes, events.puts.keys, chunk):
        yield from join.results(join.unchanged(home, queries, columns), chunk)


@dataclass(frozen=True, slots=True)
class _Events:
    """The changes of right rows: ``told`` in arrival order, ``puts`` by table and foreign key.

    The input records that made them are numbered: ``arrived`` has the numbers for ``told``, ``number`` for ``puts``.
    ``kept``: whether a put leaves a row, or deletes it.
    """

    told: Changes
    puts: Puts
    arrived: np.ndarray
    number: np.ndarray
    kept: np.ndarray

    @classmethod
    def of(cls, answers: Changes | None, bits: int) -> _Events:
        told = None if answers is None else by_arrival(answers.where(answers.extra[TOLD] == CHANGED))
        if told is None or not told.rows:
            none = np.empty(0, np.int64)
            nothing = Changes(Values(RAW, wire=EMPTY_BYTES), Values(RAW, wire=EMPTY_BYTES), none, none, none)
            return cls(nothing, Puts.of(nothing, bits), none, none, none.astype(bool))
        keyed = replace(told, key=Values(RAW, wire=with_tables(told)), extra={})
        puts = Puts.of(keyed, bits)
        rows = np.arange(told.rows)
        arrived = np.cumsum(np.append(False, ~same_trigger(told.major, told.minor, rows[:-1], rows[1:])))
        return cls(told, puts, arrived, arrived[puts.rank], ~puts.changes.value.missing())

    @property
    def latest(self) -> int:
        return int(self.arrived[-1]) if len(self.arrived) else _BEFORE

    def before(self, changes: Changes, *, or_with: bool) -> np.ndarray:
        """The last event that came before each change; ``or_with``: that may be the one that made it."""
        count = came_before(changes.major, changes.minor, self.told, or_with=or_with)
        return np.asarray(np.append(self.arrived, _BEFORE)[count - 1])

    def last(self) -> Changes:
        """The last change of each right row."""
        ends = np.append(self.puts.starts[1:], self.told.rows)
        return self.told.take(self.puts.rank[ends - 1])


@dataclass(frozen=True, slots=True)
class _Timeline:
    """What the right rows of one table are at any event. ``slot``: of each span, which right row; −1: none.

    ``there``, ``wire``, ``ts``: the right rows before the batch; ``first``, ``last``: bounds of their puts. One more
    than there are right rows, for those that have none.
    """

    slot: np.ndarray
    there: np.ndarray
    wire: Column
    ts: np.ndarray
    first: np.ndarray
    last: np.ndarray
    events: _Events
    serde: Serde | None

    @classmethod
    def of(cls, foreign: Coded, before: View, events: _Events, serde: Serde | None) -> _Timeline:
        match = before.lookup(foreign.hashes, foreign.keys)
        first, last = (np.append(bound, 0) for bound in events.puts.places(foreign.hashes, foreign.keys))
        there, ts = np.append(match.found, False), np.append(np.asarray(match.gather("ts")), 0)
        return cls(foreign.codes, there, match.gather("value"), ts, first, last, events, serde)

    def take(self, spans: np.ndarray) -> _Timeline:
        return replace(self, slot=self.slot[spans])

    def places(self, spans: np.ndarray, event: np.ndarray) -> np.ndarray:
        """The put that is the row after an event; negative: the row is what it was before the batch."""
        slot = self.slot[spans]
        first = self.first[slot]
        put = bisect(self.events.number, first, self.last[slot], event, right=True) - 1
        return np.where(put >= first, put, -1)

    def between(self, since: np.ndarray, until: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the puts in each span, after one event and up to another."""
        first, last = self.first[self.slot], self.last[self.slot]
        start, stop = (bisect(self.events.number, first, last, event, right=True) for event in (since, until))
        return start, np.maximum(start, stop)

    def is_there(self, spans: np.ndarray, put: np.ndarray) -> np.ndarray:
        return self._then(spans, put, self.there, self.events.kept)

    def times(self, spans: np.ndarray, put: np.ndarray) -> np.ndarray:
        return self._then(spans, put, self.ts, self.events.puts.changes.ts)

    def _then(self, spans: np.ndarray, put: np.ndarray, before: np.ndarray, puts: np.ndarray) -> np.ndarray:
        """What the puts have, or the rows before the batch where there is none."""
        then = np.asarray(before[self.slot[spans]])
        rows = np.flatnonzero(put >= 0)
        then[rows] = puts[put[rows]]
        return then

    def values(self, spans: np.ndarray, put: np.ndarray, there: np.ndarray) -> Values:
        """The right rows; each different one is decoded once."""
        known = len(self.there) - 1
        place = np.where(put >= 0, put + known, self.slot[spans])
        used, row = np.unique(place[there], return_inverse=True)
        stored = used < known
        parts = [
            take(self.wire, used[stored]),
            take(self.events.puts.changes.value.wire(RAW), used[~stored] - known),
        ]
        rows = np.full(len(place), -1)
        rows[there] = row
        return Values(self.serde, wire=concat(parts)).take(rows)


@dataclass(frozen=True, slots=True)
class _Spans:
    """Left rows from one change to the next, those of a row one after the other: after ``since``, up to ``until``.

    ``row``: number of the left row; ``is_change``: it begins with a change of the batch, not before it.
    """

    changes: Changes
    row: np.ndarray
    is_change: np.ndarray
    since: np.ndarray
    until: np.ndarray
    timelines: Sequence[_Timeline]
    events: _Events

    @property
    def there(self) -> np.ndarray:
        """Whether there is a left row."""
        return ~self.changes.value.missing()

    @property
    def first(self) -> np.ndarray:
        """Where another left row begins."""
        return np.flatnonzero(np.diff(self.row, prepend=-1))

    def take(self, rows: np.ndarray) -> _Spans:
        return replace(
            self,
            changes=self.changes.take(rows),
            row=self.row[rows],
            is_change=self.is_change[rows],
            since=self.since[rows],
            until=self.until[rows],
            timelines=[timeline.take(rows) for timeline in self.timelines],
        )

    def moments(self, chunk: int) -> Iterator[_Moments]:
        """When results may change, all moments of a left row together, in parts of about ``chunk``."""
        live = np.flatnonzero(self.there)
        bounds = [timeline.between(self.since, self.until) for timeline in self.timelines]
        counts = self.is_change.astype(np.int64)
        for start, stop in bounds:
            counts[live] += (stop - start)[live]
        own, first = np.flatnonzero(self.is_change), self.first
        ends = np.append(first[1:], len(self.row))
        for low, high in groups_of(np.add.reduceat(counts, first), chunk) if len(first) else ():
            bound = int(first[low]), int(ends[high - 1])
            yield self._moments(_between(own, *bound), _between(live, *bound), bounds)

    def _moments(
        self, own: np.ndarray, live: np.ndarray, bounds: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> _Moments:
        """Of spans that begin with a change (``own``), and of those with a left row (``live``)."""
        spans, numbers, puts = [own], [self.since[own]], [np.full(len(own), -1)]
        for start, stop in bounds:
            rows, found = expand(start[live], stop[live])
            spans.append(live[rows])
            numbers.append(self.events.number[found])
            puts.append(found)
        span, event, put = np.concatenate(spans), np.concatenate(numbers), np.concatenate(puts)
        order = np.lexsort((event, span))
        other = np.append(True, (np.diff(span[order]) != 0) | (np.diff(event[order]) != 0))[: len(order)]
        kept = order[other]
        span, event = span[kept], event[kept]
        places = [timeline.places(span, event) for timeline in self.timelines]
        present = [one.is_there(span, place) for one, place in zip(self.timelines, places, strict=True)]
        return _Moments(self, span, put[kept], places, present)


def _between(places: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Of ascending numbers those from ``start`` to ``stop``."""
    low, high = np.searchsorted(places, (start, stop))
    return places[low:high]


@dataclass(frozen=True, slots=True)
class _Moments:
    """When the results of left rows may change, in order: in which ``span``, and by which change.

    ``put``: that of a right row; −1: the left row's own. ``places``: for each table the put that is the right row then;
    ``present``: whether there is one.
    """

    spans: _Spans
    span: np.ndarray
    put: np.ndarray
    places: Sequence[np.ndarray]
    present: Sequence[np.ndarray]

    def take(self, rows: np.ndarray) -> _Moments:
        places, present = ([column[rows] for column in columns] for columns in (self.places, self.present))
        return _Moments(self.spans, self.span[rows], self.put[rows], places, present)

    def _of_tables(self) -> Iterator[tuple[_Timeline, np.ndarray, np.ndarray]]:
        return zip(self.spans.timelines, self.places, self.present, strict=True)

    def had(self, exists: np.ndarray, began: np.ndarray) -> np.ndarray:
        """Whether there was a result until then; ``exists``: from then on; ``began``: before the batch, by span."""
        begins = np.diff(self.spans.row[self.span], prepend=-1) != 0
        return np.where(begins, began[self.span], np.roll(exists, 1))

    def results(self, exists: np.ndarray) -> Changes:
        """Results, without values yet, at the newest timestamp of all rows, or at that of the right row's change."""
        changes, puts = self.spans.changes, self.spans.events.puts.changes
        newest = changes.ts[self.span]
        for timeline, place, present in self._of_tables():
            ts = timeline.times(self.span, place)
            newest = np.where(present & exists, np.maximum(newest, ts), newest)
        own = self.put < 0
        either = np.where(own, self.span, changes.rows + self.put)
        headers = concat_headers([(changes.headers, changes.rows), (puts.headers, puts.rows)])
        key = changes.key.take(self.span)
        return Changes(
            key,
            key,
            np.where(own, newest, np.append(puts.ts, 0)[self.put]),
            np.concatenate([changes.major, puts.major])[either],
            np.concatenate([changes.minor, puts.minor])[either],
            None if headers is None else take_or_null(headers, either),
        )

    def rights(self) -> list[Values]:
        """For each table the right rows."""
        return [timeline.values(self.span, place, present) for timeline, place, present in self._of_tables()]


@dataclass(frozen=True, slots=True)
class _Join:
    """One batch in one partition: what there was before it, and the changes of right rows."""

    kind: Kind
    joiner: Function
    was: Home
    events: _Events
    serdes: LeftSerdes

    def changed(self, rows: Changes, begins: np.ndarray, hashes: np.ndarray) -> _Spans:
        """The spans of left rows that change. ``rows``: their changes by row, ``begins``: where there is another.

        ``hashes``: of each left row.
        """
        row = np.cumsum(begins) - 1
        found, stored = self._stored(hashes, take(rows.key.wire(), np.flatnonzero(begins)))
        extra = {reference(name): rows.extra[reference(name)] for name in self.was.names}
        now = replace(rows, value=as_stored(rows.value, self.serdes.value), extra=extra)
        both = concat_changes([stored, now])
        row = np.concatenate([np.flatnonzero(found), row])
        order = np.argsort(row, kind="stable")
        return self._spans(both.take(order), row[order], order >= stored.rows)

    def unchanged(self, home: Home, queries: np.ndarray, columns: dict[str, Column]) -> _Spans:
        """The spans of left rows that do not change, each once: with the first of its right rows that does.

        ``queries``: the right row that each of the entries of the index is found by.
        """
        order = stable_order(columns["s"])
        hashes, keys = columns["s"][order], take(columns["key2"], order)
        mine = np.flatnonzero(~home.put_now(hashes, keys))
        order, hashes, keys = order[mine], hashes[mine], take(keys, mine)
        found, stored = self._stored(hashes, keys)
        spans = self._spans(stored, np.arange(stored.rows), np.zeros(stored.rows, bool))
        by = np.full(stored.rows, -1)
        for timeline in reversed(spans.timelines):
            first, last = timeline.first[timeline.slot], timeline.last[timeline.slot]
            by = np.where(last > first, first, by)
        return spans.take(np.flatnonzero(by == self.events.puts.starts[queries[order[found]]]))

    def _stored(self, hashes: np.ndarray, keys: Column) -> tuple[np.ndarray, Changes]:
        """Left rows as they were before the batch, and which of the keys have one."""
        match = self.was.rows.lookup(hashes, keys)
        rows = np.flatnonzero(match.found)
        none = np.zeros(len(rows), np.int64)
        extra = {reference(name): take(match.gather(reference(name)), rows) for name in self.was.names}
        value = Values(self.serdes.value, wire=take(match.gather("value"), rows))
        key = Values(self.serdes.key, wire=take(keys, rows))
        return match.found, Changes(key, value, none, none, none, extra=extra)

    def _spans(self, changes: Changes, row: np.ndarray, is_change: np.ndarray) -> _Spans:
        begun, with_it = (self.events.before(changes, or_with=also) for also in (False, True))
        follows = np.append(row[1:] == row[:-1], False)
        until = np.where(follows, np.roll(begun, -1), self.events.latest)
        since = np.where(is_change, with_it, _BEFORE)
        coded = self.was.coded([changes.extra[reference(name)] for name in self.was.names])
        timelines = [
            _Timeline.of(foreign, self.was.partners, self.events, serde)
            for foreign, serde in zip(coded, self.was.values, strict=True)
        ]
        return _Spans(replace(changes, extra={}), row, is_change, since, until, timelines, self.events)

    def results(self, spans: _Spans, chunk: int, asked: Sequence[Asked] = ()) -> Iterator[Joined]:
        before = [timeline.there[timeline.slot] for timeline in spans.timelines]
        there, first = spans.there, spans.first
        had = (there & ~spans.is_change & self._complete(before))[first]
        began = np.repeat(had, np.diff(first, append=len(spans.row)))
        for moments in spans.moments(chunk):
            own = (moments.put < 0) & there[moments.span]
            for counts, timeline, present in zip(asked, spans.timelines, moments.present, strict=False):
                counts.count(own & (timeline.slot[moments.span] >= 0), own & present)
            exists = there[moments.span] & self._complete(moments.present)
            told = np.flatnonzero(exists | moments.had(exists, began))
            if len(told):
                yield self._made(moments.take(told), exists[told])

    def _made(self, moments: _Moments, exists: np.ndarray) -> Joined:
        rows = np.flatnonzero(exists)
        left, rights = moments.spans.changes.value.take(moments.span), moments.take(rows).rights()
        return made(self.joiner, self.was.names, moments.results(exists), left, rights, rows, exists)

    def _complete(self, present: Sequence[np.ndarray]) -> np.ndarray:
        """Where there is a result, as far as right rows matter."""
        return np.logical_and.reduce(present) if self.kind == "inner" else np.ones(len(present[0]), bool)
