"""KTable–KTable join by foreign key.

    law    the result holds, for each left row, joiner(left row, the right row its foreign key names), for the
           left rows whose foreign key names a right row (inner), or for all left rows (left join: None on the
           right)

Two halves in two rounds. `subscribe` (`subscriptions.py`), keyed by the primary key, turns a left change into a
subscription. `resolve`, keyed by the foreign key, holds the right table and the subscriptions with their left values,
and makes the results. Both belong to one atomic batch, so a row's result is decided in one place, the partition of its
current foreign key: no answer can be stale.

    Story: an order refers to customer `a`. In one batch the order moves to customer `b` at 1, and `a` changes at 2. At
    1 the partition of `a` deletes the subscription, so the change at 2 does not answer the order.
    Test: `test_no_cut_into_batches_changes_the_table`.

Source: KIP-213, semantics 2.5, 8.12–8.17.

What they make of a batch (`Emit`, decision 0033):

    changelog   what taking the records one by one makes. A left change sees the right row at that time, a right change
                answers the rows that refer to it then; what one record does to both sides, the left row answers
    net         the last result of each row: as if right changes came first, but the later record is the trigger
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Asked, Changes, concat_headers
from crossstream.columns.functions import Function
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import Puts, by_key, came_before
from crossstream.columns.values import Values, nulls
from crossstream.operators.foreign_key_join.subscriptions import (
    DELETE_KEY_AND_PROPAGATE,
    INSTRUCTION,
    PRIMARY,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
    Emit,
    Kind,
)
from crossstream.operators.table.kernel import as_changed
from crossstream.operators.table_join.kernel import Joined, Lookup, call_joiner
from crossstream.serdes import Serde, arrays
from crossstream.serdes.keys import LEFT
from crossstream.storage.columns import Column, same_rows, take, take_all, take_or_null
from crossstream.storage.snapshot import Snapshot, groups_of
from crossstream.storage.sorted_run import Run, bisect, expand, identities, is_sorted, sort_rows

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Serdes:
    """Of the left rows: primary key and value; ``right``: of the right values.

    ``either``: results are keyed by `LeftOrRight` (decision 0018).
    """

    key: Serde | None
    value: Serde | None
    right: Serde | None
    either: Serde | None = None

    def keys(self, primary: pa.LargeBinaryArray) -> Values:
        """The keys of results, from serialised primary keys."""
        if self.either is None:
            return Values(self.key, wire=primary)
        return Values(self.either, wire=arrays.with_first_byte(LEFT, primary))


@dataclass(frozen=True, slots=True)
class _Subscriptions:
    """Subscriptions grouped by foreign key (number ``group``), in arrival order, beside the right changes of theirs.

    ``heads``, ``keys``: of each foreign key. The right changes of a subscription start at ``first``: it comes after
    those in front of ``before``, sees those in front of ``after``, and is there for the others in front of ``until``.
    ``begins``, ``ends``: of each row at each foreign key the first and the last; None: each is both.
    """

    changes: Changes
    hashes: np.ndarray
    group: np.ndarray
    heads: np.ndarray
    keys: Column
    first: np.ndarray
    before: np.ndarray
    after: np.ndarray
    until: np.ndarray
    begins: np.ndarray | None = None
    ends: np.ndarray | None = None

    @classmethod
    def of(cls, emit: Emit, subscriptions: Changes, right: Changes, puts: Puts, bits: int) -> _Subscriptions:
        if not subscriptions.rows:
            return cls(subscriptions, _NONE, _NONE, _NONE, subscriptions.key.wire(), *[_NONE] * 4)
        hashes = subscriptions.hashes(bits)
        order, starts = by_key(subscriptions, hashes)
        subs, h, heads = subscriptions.take(order), hashes[order], np.flatnonzero(starts)
        group, keys = np.cumsum(starts) - 1, take(subs.key.wire(), heads)
        bounds = puts.places(h[heads], keys) if right.rows else [np.zeros(len(heads), np.int64)] * 2
        first, last = (bound[group] for bound in bounds)
        if emit == "net":  # of a row one at a foreign key, after all right changes
            return cls(subs, h, group, heads, keys, first, first, last, last)
        came = [came_before(subs.major, subs.minor, right, or_with=also) for also in (False, True)]
        before, after = (bisect(puts.rank, first, last, count, right=False) for count in came)
        row = identities([subs.extra[PRIMARY]])
        chain = np.lexsort((row, group))
        follows = (np.diff(group[chain]) == 0) & (np.diff(row[chain]) == 0)
        if not follows.any():
            return cls(subs, h, group, heads, keys, first, before, after, last)
        last[chain[:-1][follows]] = before[chain[1:][follows]]
        begins, ends = chain[np.append(True, ~follows)], chain[np.append(~follows, True)]
        return cls(subs, h, group, heads, keys, first, before, after, last, begins, ends)

    def kept(self, serde: Serde | None, bits: int) -> Run:
        """The rows of the store after the batch; ``limit``: those in front of it found what was there before."""
        primary = self.changes.extra[PRIMARY]
        columns: dict[str, Column] = {
            "h": self.hashes,
            "s": hash_keys(primary, bits),
            "key": self.changes.key.wire(),
            "key2": primary,
            "value": self.changes.value.wire(serde),
            "ts": self.changes.ts,
            "gone": (self.changes.extra[INSTRUCTION] <= DELETE_KEY_AND_PROPAGATE).astype(np.uint8),
        }
        if self.ends is None or self.begins is None:
            return sort_rows({**columns, "limit": self.before})
        return sort_rows({**take_all(columns, self.ends), "limit": self.before[self.begins]})


def resolve(
    kind: Kind,
    joiner: Function,
    view: Snapshot,
    subscriptions: Changes,
    answers: Changes,
    right: Changes,
    right_rows: Lookup,
    serdes: Serdes,
    asked: tuple[Asked, Asked],
    *,
    emit: Emit,
    bits: int,
    chunk: int,
) -> Iterator[Joined]:
    """The results of a batch, in chunks of about ``chunk`` rows.

    ``subscriptions``, ``answers``, ``right``: net changes, or every change in arrival order. ``right_rows`` looks up
    the right table *before* them. ``view``: the subscription store, which this updates. ``asked``: counts left rows
    with a foreign key, and right rows, for which those that refer to them are partners.
    """
    if answers.rows:
        yield _without_partner(joiner, answers, serdes)
    was, puts = Snapshot(view.layout, view.levels), Puts.of(right, bits)
    subs = _Subscriptions.of(emit, subscriptions, right, puts, bits)
    referred = np.zeros(right.rows, bool)
    kept = None
    if subscriptions.rows:
        kept = subs.kept(serdes.value, bits)
        view.put(dict(kept.columns))
        yield from _from_left(kind, joiner, subs, puts.changes, right_rows, serdes, asked[0], referred)
    if right.rows:
        there = ~puts.changes.value.missing()
        exists = there | (kind == "left")
        for lefts, primary, rows in _answered(subs, kept, puts, was, serdes.value, chunk):
            referred[rows] = True
            yield _answer(joiner, serdes.keys(primary), lefts, puts.changes, rows, exists[rows])
        asked[1].count(there, there & referred)


def _without_partner(joiner: Function, answers: Changes, serdes: Serdes) -> Joined:
    """Left rows without a foreign key: the row alone, or a tombstone if it is gone. Their own timestamp."""
    keys = answers.key if serdes.either is None else serdes.keys(answers.key.wire())
    given = answers.value, nulls(answers.rows, serdes.right)
    value, failures = call_joiner(joiner, keys, *given, ~answers.value.missing())
    return Joined.of(replace(answers, key=keys, value=value, old=None, extra={}), failures, *given)


def _from_left(
    kind: Kind,
    joiner: Function,
    subs: _Subscriptions,
    right: Changes,
    right_rows: Lookup,
    serdes: Serdes,
    asked: Asked,
    referred: np.ndarray,
) -> Iterator[Joined]:
    """Results triggered by left rows: each sees the right row as the changes in front of ``after`` leave it.

    ``referred``: notes those of the right changes that came with it, so that it answers for them.
    """
    instruction = subs.changes.extra[INSTRUCTION]
    asking, with_it = instruction >= PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, subs.after > subs.before
    put = np.where(subs.after > subs.first, subs.after - 1, -1)
    seen = as_changed(right_rows(subs.hashes[subs.heads], subs.keys), right, subs.group, put)
    asked.count(asking, asking & seen.present)
    referred[put[asking & with_it]] = True
    found = seen.present | with_it
    emits = (instruction == DELETE_KEY_AND_PROPAGATE) | (instruction == PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
    emits |= (instruction == PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE) & found
    rows = np.flatnonzero(emits)
    if not len(rows):
        return
    picked = subs.changes.take(rows) if len(rows) < subs.changes.rows else subs.changes
    there, asking = seen.present[rows], asking[rows]
    keys, partners = serdes.keys(picked.extra[PRIMARY]), seen.values.take(rows)
    exists = asking & there if kind == "inner" else asking
    value, failures = call_joiner(joiner, keys, picked.value, partners, exists)
    times = np.where(there, np.maximum(picked.ts, seen.ts[rows]), picked.ts)
    result = replace(picked, key=keys, value=value, ts=times, old=None, extra={})
    later = _right_was_later(result, np.where(asking, put[rows], -1), right)
    yield Joined.of(later, failures, picked.value, partners)


def _right_was_later(result: Changes, put: np.ndarray, right: Changes) -> Changes:
    """Where the right row changed after the left one, the right record is the trigger: its time and place."""
    if not right.rows or (put < 0).all():
        return result
    major, minor = right.major[put], right.minor[put]
    later = (put >= 0) & ((major > result.major) | ((major == result.major) & (minor > result.minor)))
    if not later.any():
        return result
    headers = concat_headers([(result.headers, result.rows), (right.headers, right.rows)])
    either = np.where(later, result.rows + put, np.arange(result.rows))
    return replace(
        result,
        ts=np.where(later, right.ts[put], result.ts),
        major=np.where(later, major, result.major),
        minor=np.where(later, minor, result.minor),
        headers=None if headers is None else take_or_null(headers, either),
    )


def _answered(
    subs: _Subscriptions, kept: Run | None, puts: Puts, was: Snapshot, serde: Serde | None, chunk: int
) -> Iterator[tuple[Values, Column, np.ndarray]]:
    """Left rows and the right changes that come while they refer to them: value, primary key, place of the change."""
    changes = subs.changes
    live = np.flatnonzero(
        (changes.extra[INSTRUCTION] >= PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE) & (subs.after < subs.until)
    )
    for rows, places in _expanded(subs.after[live], subs.until[live], chunk):
        yield changes.value.take(live[rows]), take(changes.extra[PRIMARY], live[rows]), places
    ends = np.append(puts.starts[1:], len(puts.rank))
    for queries, columns in was.scan(puts.hashes, puts.keys, chunk):
        moved, limit = _moved(kept, columns)
        if not len(moved) and len(puts.starts) == len(
            puts.rank
        ):  # each right row once, and it answers all of them
            yield Values(serde, wire=columns["value"]), columns["key2"], queries
            continue
        until = ends[queries]
        until[moved] = limit
        for rows, places in _expanded(puts.starts[queries], until, chunk):
            value, primary = columns["value"], columns["key2"]
            if len(rows) < len(queries) or not is_sorted(rows):
                value, primary = take(value, rows), take(primary, rows)
            yield Values(serde, wire=value), primary, places


def _expanded(start: np.ndarray, stop: np.ndarray, chunk: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every (i, place) with ``start[i] <= place < stop[i]``, about ``chunk`` at a time."""
    if not len(start):
        return
    some = np.flatnonzero(stop > start)
    for low, high in groups_of((stop - start)[some], chunk):
        part = some[low:high]
        rows, places = expand(start[part], stop[part])
        yield part[rows], places


def _moved(kept: Run | None, columns: dict[str, Column]) -> tuple[np.ndarray, np.ndarray]:
    """The stored subscriptions that the batch changes, and the end of the right changes that come before it does."""
    if kept is None:
        return _NONE, _NONE
    order = np.argsort(columns["h"], kind="stable")
    s = columns["s"][order]
    queries, rows = kept.match_range(columns["h"][order], take(columns["key"], order), s, s)
    same = same_rows(kept["key2"], rows, columns["key2"], order[queries])
    return order[queries[same]], kept["limit"][rows[same]]


def _answer(
    joiner: Function, keys: Values, lefts: Values, right: Changes, rows: np.ndarray, exists: np.ndarray
) -> Joined:
    """Results triggered by right rows: of these left rows, each with the right change in its row of ``rows``."""
    partners = right.value.take(rows)
    value, failures = call_joiner(joiner, keys, lefts, partners, exists)
    headers = None if right.headers is None else take_or_null(right.headers, rows)
    changes = Changes(keys, value, right.ts[rows], right.major[rows], right.minor[rows], headers)
    return Joined.of(changes, failures, lefts, partners)
