"""KTable–KTable join by foreign key.

Two halves in two rounds. `subscribe`, keyed by the primary key, knows the old foreign key of every left row. It turns a
left change into a subscription and, if the row moved, an unsubscription from the old one. `resolve`, keyed by the
foreign key, holds the right table and the subscriptions with their left values, and makes the results. Both belong to
one atomic batch, so a row's result is decided in one task, the partition of its current foreign key: no answer can be
stale.

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
from typing import Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import (
    Changes,
    Headers,
    JoinKind,
    LookupCounts,
    concat_headers,
    headers_in,
    headers_of,
)
from crossstream.columns.evaluate import evaluate_where
from crossstream.columns.functions import Function
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import Puts, by_key, came_before, last_per_key, last_per_trigger
from crossstream.columns.values import Values, nulls
from crossstream.serdes import Serde, arrays
from crossstream.serdes.keys import LEFT
from crossstream.storage.columns import Column, same_rows, take, take_all, take_or_null, valid
from crossstream.storage.snapshot import Snapshot, groups_of
from crossstream.storage.sorted_run import Run, bisect, expand, identities, is_sorted, sort_rows
from crossstream.tables.joined import Joined, Lookup
from crossstream.tables.rows import as_changed

PRIMARY, INSTRUCTION = "primary key", "instruction"
"""Extra columns of a subscription: the left row's key, and what it asks of the partition of a foreign key (KIP-213)."""

DELETE_KEY_NO_PROPAGATE = 0
"""Forget the row, emit nothing: its result is decided elsewhere."""
DELETE_KEY_AND_PROPAGATE = 1
"""Forget the row and emit a tombstone: it has no foreign key any more, or is gone."""
PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
"""Remember the row; emit its result, or a tombstone (inner) or the row without partner (left)."""
PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3
"""Remember the row; emit its result if there is a right row."""

REFERS = "refers"
"""Extra column that counts referrers: 1 for a row that begins to refer to the foreign key, −1 for one that stops."""

Emit = Literal["net", "changelog"]
"""The last result of each row in a batch, or every result for readers of the changes within a batch."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """``subscriptions``: keyed by foreign key. ``answers``: left rows that need no right table, by primary key."""

    subscriptions: Changes
    answers: Changes
    dropped: dict[str, int]


def subscribe(
    kind: JoinKind,
    view: Snapshot,
    left: Changes,
    references: pa.LargeBinaryArray,
    serde: Serde | None,
    *,
    emit: Emit,
    bits: int,
    counted: bool = False,
) -> Subscribed:
    """What left changes ask for. ``left``: arrival order, keys not null; ``references``: serialised foreign keys.

    ``serde``: that of the foreign key. ``view``: the store of references, which this updates. ``counted``: the
    subscriptions say which rows begin or cease to refer (`REFERS`).
    """
    lacking = int((~valid(references) & ~left.value.missing()).sum())  # semantics 2.5.3, rows 2, 5, 7
    dropped = {"null-foreign-key": lacking} if kind == "inner" else {}
    hashes = left.hashes(bits)
    if emit == "changelog":
        rows, begins = last_per_trigger(left, *by_key(left, hashes))
    else:
        rows = last_per_key(left, hashes)
        begins = np.ones(len(rows), bool)
    net, h, new = left.take(rows), hashes[rows], take(references, rows)
    keys, is_row = net.key.wire(), ~net.value.missing()
    old, was_row = _references_before(view, h, keys, new, is_row, begins)
    has, had = valid(new) & is_row, valid(old) & was_row
    same = has & had
    both = np.flatnonzero(same)
    same[both] = same_rows(new, both, old, both)
    last = np.flatnonzero(np.append(begins[1:], True))
    columns = {"h": h, "key": keys, "reference": new, "ts": net.ts, "gone": (~is_row).astype(np.uint8)}
    view.put(columns if len(last) == len(h) else take_all(columns, last))

    moved = has & had & ~same
    left_behind = had & ~has
    if kind == "inner":
        leaving = np.where(left_behind, DELETE_KEY_AND_PROPAGATE, DELETE_KEY_NO_PROPAGATE)
        joining = np.where(moved, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)
        alone = np.zeros(len(h), bool)
    else:
        leaving = np.full(len(h), DELETE_KEY_NO_PROPAGATE)
        joining = np.full(len(h), PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
        alone = ~has & (is_row | was_row)
    leavers = np.flatnonzero(moved | left_behind)
    joiners = np.flatnonzero(has)
    subscriptions = _subscriptions(net, keys, serde, (leavers, old, leaving), (joiners, new, joining))
    if counted:
        refers = np.concatenate([np.full(len(leavers), -1), (~same)[joiners].astype(np.int64)])
        subscriptions = replace(subscriptions, extra={**subscriptions.extra, REFERS: refers})
    if emit == "changelog":  # a row leaves one foreign key before it joins the next
        subscriptions = subscriptions.take(np.argsort(np.concatenate([leavers, joiners]), kind="stable"))
    return Subscribed(subscriptions, net.take(np.flatnonzero(alone)), dropped)


def _references_before(
    view: Snapshot,
    hashes: np.ndarray,
    keys: Column,
    new: pa.LargeBinaryArray,
    is_row: np.ndarray,
    begins: np.ndarray,
) -> tuple[pa.LargeBinaryArray, np.ndarray]:
    """For rows grouped by key the foreign key before each, and whether there was a row."""
    first = np.flatnonzero(begins)
    whole = len(first) == len(hashes)
    match = view.lookup(hashes[first], keys if whole else take(keys, first))
    old = match.gather("reference")
    if whole:
        return old, match.found
    index = np.where(begins, np.cumsum(begins) - 1, len(first) + np.arange(len(hashes)) - 1)
    return take(pa.concat_arrays([old, new]), index), np.concatenate([match.found, is_row])[index]


def _subscriptions(
    net: Changes,
    keys: Column,
    serde: Serde | None,
    *groups: tuple[np.ndarray, pa.LargeBinaryArray, np.ndarray],
) -> Changes:
    rows = np.concatenate([rows for rows, _, _ in groups])
    references = pa.concat_arrays([take(references, rows) for rows, references, _ in groups])
    instruction = np.concatenate([codes[rows] for rows, _, codes in groups]).astype(np.uint8)
    taken = net.take(rows)
    return replace(
        taken,
        key=Values(serde, wire=references),
        old=None,
        extra={PRIMARY: take(keys, rows), INSTRUCTION: instruction},
    )


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

    def kept(self, serde: Serde | None, bits: int, with_headers: bool) -> Run:
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
        if with_headers:
            columns["headers"] = headers_in(self.changes)
        if self.ends is None or self.begins is None:
            return sort_rows({**columns, "limit": self.before})
        return sort_rows({**take_all(columns, self.ends), "limit": self.before[self.begins]})


def resolve(
    kind: JoinKind,
    joiner: Function,
    view: Snapshot,
    subscriptions: Changes,
    answers: Changes,
    right: Changes,
    right_rows: Lookup,
    serdes: Serdes,
    asked: tuple[LookupCounts, LookupCounts],
    *,
    emit: Emit,
    bits: int,
    chunk: int,
    headers: Headers | None = None,
) -> Iterator[Joined]:
    """The results of a batch, in chunks of about ``chunk`` rows.

    ``subscriptions``, ``answers``, ``right``: net changes, or every change in arrival order. ``right_rows`` looks up
    the right table *before* them. ``view``: the subscription store, which this updates. ``asked``: counts left rows
    with a foreign key, and right rows, for which those that refer to them are partners. ``headers``: of the results;
    None: of what triggers them.
    """
    if answers.rows:
        yield _without_partner(joiner, answers, serdes, headers)
    was, puts = Snapshot(view.layout, view.levels), Puts.of(right, bits)
    subs = _Subscriptions.of(emit, subscriptions, right, puts, bits)
    referred = np.zeros(right.rows, bool)
    kept = None
    if subscriptions.rows:
        kept = subs.kept(serdes.value, bits, "headers" in view.layout.names)
        view.put(dict(kept.columns))
        yield from _from_left(
            kind, joiner, subs, puts.changes, right_rows, serdes, asked[0], referred, headers
        )
    if right.rows:
        there = ~puts.changes.value.missing()
        exists = there | (kind == "left")
        partners = np.zeros(right.rows, np.int64)
        for lefts, primary, own, rows in _answered(subs, kept, puts, was, serdes.value, chunk):
            partners += np.bincount(rows, minlength=right.rows)
            joined = _answer(joiner, serdes.keys(primary), lefts, puts.changes, rows, exists[rows])
            if headers is not None:
                of_rows = _of_present(puts.changes.headers, puts.changes.value)
                of_rows = None if of_rows is None else take_or_null(of_rows, rows)
                changes = replace(joined.changes, headers=headers_of(headers, own, of_rows))
                joined = replace(joined, changes=changes)
            yield joined
        asked[1].count(there, there & (referred | (partners > 0)))
        asked[1].most = max(asked[1].most, int(partners.max()))


def _of_present(headers: Column | None, values: Values) -> Column | None:
    """The headers of rows that are there: a delete has none."""
    if headers is None:
        return None
    return take_or_null(headers, np.where(values.missing(), -1, np.arange(values.rows)))


def _without_partner(joiner: Function, answers: Changes, serdes: Serdes, headers: Headers | None) -> Joined:
    """Left rows without a foreign key: the row alone, or a tombstone if it is gone. Their own timestamp."""
    keys = answers.key if serdes.either is None else serdes.keys(answers.key.wire())
    left, right = answers.value, nulls(answers.rows, serdes.right)
    results = evaluate_where(~left.missing(), joiner, keys, left=left, right=right)
    changes = replace(answers, key=keys, value=results.values, old=None, extra={})
    if headers is not None:
        changes = replace(changes, headers=headers_of(headers, _of_present(answers.headers, left), None))
    return Joined.of(changes, results.failures, left, right)


def _from_left(
    kind: JoinKind,
    joiner: Function,
    subs: _Subscriptions,
    right: Changes,
    right_rows: Lookup,
    serdes: Serdes,
    asked: LookupCounts,
    referred: np.ndarray,
    headers: Headers | None,
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
    made = evaluate_where(exists, joiner, keys, left=picked.value, right=partners)
    times = np.where(there, np.maximum(picked.ts, seen.ts[rows]), picked.ts)
    result = replace(picked, key=keys, value=made.values, ts=times, old=None, extra={})
    later = _right_was_later(result, np.where(asking, put[rows], -1), right)
    if headers is not None:
        of_rows = None if seen.headers is None else take_or_null(seen.headers, rows)
        own = _of_present(picked.headers, picked.value)
        later = replace(later, headers=headers_of(headers, own, of_rows))
    yield Joined.of(later, made.failures, picked.value, partners)


def _right_was_later(result: Changes, put: np.ndarray, right: Changes) -> Changes:
    """Where the right row changed after the left one, the right record is the trigger: its time and position."""
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
) -> Iterator[tuple[Values, Column, Column | None, np.ndarray]]:
    """Left rows and the right changes that come while they refer to them: value, primary key, headers, change."""
    changes = subs.changes
    live = np.flatnonzero(
        (changes.extra[INSTRUCTION] >= PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE) & (subs.after < subs.until)
    )
    for rows, positions in _expanded(subs.after[live], subs.until[live], chunk):
        own = None if changes.headers is None else take_or_null(changes.headers, live[rows])
        yield changes.value.take(live[rows]), take(changes.extra[PRIMARY], live[rows]), own, positions
    ends = np.append(puts.starts[1:], len(puts.rank))
    for queries, columns in was.scan(puts.hashes, puts.keys, chunk):
        moved, limit = _moved(kept, columns)
        if not len(moved) and len(puts.starts) == len(
            puts.rank
        ):  # each right row once, and it answers all of them
            yield Values(serde, wire=columns["value"]), columns["key2"], columns.get("headers"), queries
            continue
        until = ends[queries]
        until[moved] = limit
        for rows, positions in _expanded(puts.starts[queries], until, chunk):
            value, primary, own = columns["value"], columns["key2"], columns.get("headers")
            if len(rows) < len(queries) or not is_sorted(rows):
                value, primary = take(value, rows), take(primary, rows)
                own = None if own is None else take(own, rows)
            yield Values(serde, wire=value), primary, own, positions


def _expanded(start: np.ndarray, stop: np.ndarray, chunk: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every (i, index) with ``start[i] <= index < stop[i]``, about ``chunk`` at a time."""
    if not len(start):
        return
    some = np.flatnonzero(stop > start)
    for low, high in groups_of((stop - start)[some], chunk):
        part = some[low:high]
        rows, positions = expand(start[part], stop[part])
        yield part[rows], positions


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
    made = evaluate_where(exists, joiner, keys, left=lefts, right=partners)
    headers = None if right.headers is None else take_or_null(right.headers, rows)
    changes = Changes(keys, made.values, right.ts[rows], right.major[rows], right.minor[rows], headers)
    return Joined.of(changes, made.failures, lefts, partners)
