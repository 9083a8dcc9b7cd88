"""Every result of a foreign-key join, where a reader wants the changes within a batch.

    law    the results are those of taking the records of the batch one by one: a left change sees the right row as it
           is when the change comes, a right change answers the rows that refer to it when it comes

Tables need the net results of a batch only (`foreign_key.resolve`); those that keep versions, or that a stream looks
up, need these. What one input record does to both sides is one event, which the left row it moved answers.
Source: semantics 2.2.7, 2.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.functions import Function
from crossstream.columns.hashing import hash_keys
from crossstream.columns.match_counts import Asked
from crossstream.columns.order import by_key, came_before
from crossstream.columns.values import Values, concat_values
from crossstream.operators.foreign_key_join.kernel import (
    ANSWER,
    ANSWER_IF_FOUND,
    INSTRUCTION,
    PRIMARY,
    REFERS,
    RETRACT,
    Kind,
    Serdes,
    answer,
    stored,
    without_partner,
)
from crossstream.operators.foreign_key_join.unreferenced import Events, events_of, keep_counts
from crossstream.operators.stream_table_join.as_of import Puts
from crossstream.operators.table.kernel import Rows, as_stored
from crossstream.operators.table_join.kernel import Joined, Lookup, call_joiner
from crossstream.serdes import Serde
from crossstream.serdes.keys import RIGHT, tagged
from crossstream.storage.columns import EMPTY_BYTES, Column, same_rows, take, take_all
from crossstream.storage.snapshot import View, groups_of
from crossstream.storage.sorted_run import Run, bisect, expand, identities, sort_rows

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class _Subscriptions:
    """Subscriptions grouped by foreign key (number ``group``), in arrival order, beside the right changes of theirs.

    ``next``: of the same row at the same foreign key, the one after it, −1 for none; ``begins``: whether it is the
    first of them. ``first``, ``last``: bounds of the right changes; those in front of ``before`` came earlier, those in
    front of ``after`` not later.
    """

    changes: Changes
    hashes: np.ndarray
    group: np.ndarray
    heads: np.ndarray
    next: np.ndarray
    begins: np.ndarray
    first: np.ndarray
    last: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @classmethod
    def of(cls, subscriptions: Changes, right: Changes, puts: Puts, bits: int) -> _Subscriptions:
        hashes = subscriptions.hashes(bits)
        order, begins = by_key(subscriptions, hashes)
        subs, h, heads = subscriptions.take(order), hashes[order], np.flatnonzero(begins)
        group = np.cumsum(begins) - 1
        next_, starts = _chained(group, subs.extra[PRIMARY])
        bounds = puts.places(h[heads], take(subs.key.wire(), heads))
        first, last = (bound[group] for bound in bounds)
        came = [came_before(subs.major, subs.minor, right, or_with=also) for also in (False, True)]
        before, after = (bisect(puts.rank, first, last, count, right=False) for count in came)
        return cls(subs, h, group, heads, next_, starts, first, last, before, after)


def _chained(group: np.ndarray, primary: Column) -> tuple[np.ndarray, np.ndarray]:
    """For rows in arrival order within groups: the next one with the same primary key, and which are the first."""
    row = identities([primary])
    order = np.lexsort((row, group))
    follows = (group[order][1:] == group[order][:-1]) & (row[order][1:] == row[order][:-1])
    next_, first = np.full(len(group), -1, np.int64), np.ones(len(group), bool)
    next_[order[:-1][follows]] = order[1:][follows]
    first[order[1:][follows]] = False
    return next_, first


def resolve_every(
    kind: Kind,
    joiner: Function,
    view: View,
    subscriptions: Changes,
    answers: Changes,
    right: Changes,
    right_rows: Lookup,
    serdes: Serdes,
    asked: tuple[Asked, Asked],
    *,
    bits: int,
    chunk: int,
) -> Iterator[Joined]:
    """The results of a batch, in chunks of about ``chunk`` rows; as `foreign_key.resolve`, but for these:

    ``subscriptions``, ``answers``, ``right``: every change, in arrival order. ``right_rows`` looks up the right table
    *before* them.
    """
    if answers.rows:
        yield without_partner(joiner, answers, serdes)
    was = View(view.layout, view.slots)
    puts = Puts.of(right, bits)
    subs = _Subscriptions.of(subscriptions, right, puts, bits)
    if subscriptions.rows:
        last = np.flatnonzero(subs.next < 0)
        view.put(take_all(stored(subs.changes, subs.hashes, serdes.value, bits), last))
        yield from _from_left(kind, joiner, subs, puts, right_rows, serdes, asked[0])
    if not right.rows:
        return
    gone = puts.changes.value.missing()
    referred = np.zeros(right.rows, bool)
    for lefts, primary, rows in _asked(subs, puts, was, serdes.value, bits, chunk):
        referred[rows] = True
        keys = serdes.keys(primary)
        yield answer(kind, joiner, keys, lefts, puts.changes, rows, gone[rows])
    asked[1].count(~gone, ~gone & referred)


def _from_left(
    kind: Kind,
    joiner: Function,
    subs: _Subscriptions,
    puts: Puts,
    right_rows: Lookup,
    serdes: Serdes,
    asked: Asked,
) -> Iterator[Joined]:
    """Results triggered by left rows: each sees the right row as it is then."""
    found = right_rows(subs.hashes[subs.heads], take(subs.changes.key.wire(), subs.heads))
    right, changes = puts.changes, subs.changes
    put = np.where(subs.after > subs.first, subs.after - 1, -1)
    with_it = subs.after > subs.before
    gone, ts = np.append(right.value.missing(), True), np.append(right.ts, _NEVER)
    there = np.where(put >= 0, ~gone[put], found.present[subs.group])
    told = changes.extra[INSTRUCTION]
    asked.count(told >= ANSWER, (told >= ANSWER) & there)
    emits = (told == RETRACT) | (told == ANSWER) | ((told == ANSWER_IF_FOUND) & (there | with_it))
    rows = np.flatnonzero(emits)
    if not len(rows):
        return
    values = concat_values([found.values, as_stored(right.value, found.values.serde)])
    place = np.where(put >= 0, found.values.rows + put, subs.group)
    picked, there, told = changes.take(rows), there[rows], told[rows]
    row_ts = np.where(put >= 0, ts[put], found.ts[subs.group])[rows]
    keys = serdes.keys(picked.extra[PRIMARY])
    partners = values.take(np.where(there, place[rows], -1))
    exists = (told >= ANSWER) & (there | (kind == "left"))
    value, failures = call_joiner(joiner, keys, picked.value, partners, exists)
    times = np.where(there, np.maximum(picked.ts, row_ts), picked.ts)
    result = replace(picked, key=keys, value=value, ts=times, old=None, extra={})
    yield Joined.of(result, failures, picked.value, partners)


def _asked(
    subs: _Subscriptions, puts: Puts, was: View, serde: Serde | None, bits: int, chunk: int
) -> Iterator[tuple[Values, Column, np.ndarray]]:
    """Left rows and the right changes that come while they refer to them: value, primary key, place of the change."""
    changes = subs.changes
    live = np.flatnonzero(changes.extra[INSTRUCTION] >= ANSWER)
    follower = subs.next[live]
    stop = np.where(follower >= 0, subs.before[follower], subs.last[live])
    for rows, places in _expanded(subs.after[live], stop, chunk):
        yield changes.value.take(live[rows]), take(changes.extra[PRIMARY], live[rows]), places
    ends = np.append(puts.starts[1:], len(puts.rank))
    begun = _begun(subs, bits)
    for queries, columns in was.scan(puts.hashes, puts.keys, chunk):
        until = ends[queries]
        moved, limit = _moved(begun, columns)
        until[moved] = limit
        for rows, places in _expanded(puts.starts[queries], until, chunk):
            yield Values(serde, wire=take(columns["value"], rows)), take(columns["key2"], rows), places


def _expanded(start: np.ndarray, stop: np.ndarray, chunk: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every (i, place) with ``start[i] <= place < stop[i]``, about ``chunk`` at a time."""
    some = np.flatnonzero(stop > start)
    for low, high in groups_of((stop - start)[some], chunk):
        part = some[low:high]
        rows, places = expand(start[part], stop[part])
        yield part[rows], places


def _begun(subs: _Subscriptions, bits: int) -> Run:
    """The first subscription of each row at each foreign key, with the right changes before it (``limit``)."""
    rows = np.flatnonzero(subs.begins)
    primary = take(subs.changes.extra[PRIMARY], rows)
    columns = {"h": subs.hashes[rows], "s": hash_keys(primary, bits)}
    columns |= {"key": take(subs.changes.key.wire(), rows), "key2": primary, "limit": subs.before[rows]}
    return sort_rows(columns)


def _moved(begun: Run, columns: dict[str, Column]) -> tuple[np.ndarray, np.ndarray]:
    """The stored subscriptions that the batch changes, and the end of the right changes that come before it does."""
    order = np.argsort(columns["h"], kind="stable")
    s = columns["s"][order]
    queries, rows = begun.match_range(columns["h"][order], take(columns["key"], order), s, s)
    same = same_rows(begun["key2"], rows, columns["key2"], order[queries])
    return order[queries[same]], begun["limit"][rows[same]]


# -- right rows that nobody refers to


def unreferenced_every(
    joiner: Function,
    referrers: View,
    subscriptions: Changes,
    right: Changes,
    right_rows: Lookup,
    either: Serde,
    left_value: Serde | None,
    *,
    bits: int,
) -> Joined | None:
    """As `unreferenced`, but for every event. ``right_rows`` looks up the right table before the batch."""
    moves = subscriptions.where(subscriptions.extra[REFERS] != 0)
    if not moves.rows and not right.rows:
        return None
    events = events_of(moves, right, bits)
    told = _Told.of(events, referrers, right, right_rows)
    rows = np.flatnonzero(told.emits)
    if not len(rows):
        return None
    keys = take(told.keys, told.group[rows])
    result = replace(
        events.changes.take(told.last[rows]), key=Values(either, wire=tagged(RIGHT, keys)), ts=told.ts[rows]
    )
    lefts = Values(left_value, wire=EMPTY_BYTES).take(np.full(len(rows), -1))
    rights = told.now.values.take(rows)
    value, failures = call_joiner(joiner, result.key, lefts, rights, told.alone[rows])
    return Joined.of(result.with_value(value), failures, lefts, rights)


@dataclass(frozen=True, slots=True)
class _Told:
    """What each event, all changes of a foreign key by one input record, makes of the row that nobody refers to.

    ``group``: number of the foreign key; ``last``: place of the last change; ``now``: the right row after it;
    ``alone``: whether nobody refers to that.
    """

    keys: Column
    group: np.ndarray
    last: np.ndarray
    now: Rows
    alone: np.ndarray
    emits: np.ndarray
    ts: np.ndarray

    @classmethod
    def of(cls, events: Events, referrers: View, right: Changes, right_rows: Lookup) -> _Told:
        h = events.hashes[events.first]
        keys = take(events.changes.key.wire(), events.first)
        count = np.asarray(referrers.lookup(h, keys).gather("count"))
        first, last, group = _by_trigger(events)
        moved = np.add.reduceat(events.refers, first)
        total = np.cumsum(moved)
        heads = np.flatnonzero(np.diff(group, prepend=-1))
        now_count = count[group] + total - (total - moved)[heads][group]
        was_count = now_count - moved
        end = np.append(heads[1:], len(group)) - 1
        keep_counts(referrers, h, keys, now_count[end], now_count[end] != count)

        state = right_rows(h, keys)
        was, now = (_right_at(events, state, right, group, at) for at in (first - 1, last))
        alone_before, alone = was.present & (was_count == 0), now.present & (now_count == 0)
        changed = np.logical_or.reduceat(events.is_right, first)
        turned = (was_count == 0) != (now_count == 0)
        emits = (alone & (changed | turned)) | (alone_before & ~alone)
        left_ts = np.maximum.reduceat(np.where(events.is_right, _NEVER, events.changes.ts), first)
        with_left = np.maximum(left_ts, np.where(now.present, now.ts, _NEVER))
        ts = np.where(left_ts > _NEVER, with_left, events.changes.ts[last])
        return cls(keys, group, last, now, alone, emits, ts)


def _by_trigger(events: Events) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the changes by one input record of one foreign key begin and end, and the number of that key."""
    begins = np.zeros(events.changes.rows, bool)
    begins[events.first] = True
    key = np.cumsum(begins) - 1
    changes = events.changes
    begins[1:] |= (changes.major[1:] != changes.major[:-1]) | (changes.minor[1:] != changes.minor[:-1])
    first = np.flatnonzero(begins)
    return first, np.append(first[1:], changes.rows) - 1, key[first]


def _right_at(events: Events, state: Rows, right: Changes, group: np.ndarray, at: np.ndarray) -> Rows:
    """The right row of each foreign key ``group`` after the events up to ``at``."""
    places = np.arange(len(events.is_right))
    newest = np.append(np.maximum.accumulate(np.where(events.is_right, places, -1)), -1)[at]
    put = np.where(newest >= events.first[group], events.row[newest], -1)
    gone, ts = np.append(right.value.missing(), True), np.append(right.ts, _NEVER)
    values = concat_values([state.values, as_stored(right.value, state.values.serde)])
    present = np.where(put >= 0, ~gone[put], state.present[group])
    place = np.where(put >= 0, state.values.rows + put, group)
    row_ts = np.where(put >= 0, ts[put], state.ts[group])
    return Rows(present, values.take(np.where(present, place, -1)), row_ts)
