"""KTable–KTable join by foreign key.

Two halves in two rounds. `subscribe` (`subscriptions.py`), keyed by the primary key, knows the old foreign key of every
left row. It turns a left change into a subscription and, if the row moved, an unsubscription from the old one.
`resolve`, keyed by the foreign key, holds the right table and the subscriptions with their left values, and makes the
results. Both belong to one atomic batch, so a row's result is decided in one task, the partition of its current foreign
key: no answer can be stale.

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

from crossstream.columns.changes import Changes, LookupCounts, concat_headers, headers_in, headers_of
from crossstream.columns.evaluate import evaluate_where
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import Puts, by_key, came_before
from crossstream.columns.values import Values, nulls
from crossstream.operators.foreign_key_join.subscriptions import (
    DELETE_KEY_AND_PROPAGATE,
    INSTRUCTION,
    PRIMARY,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
    Subscribed,
)
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column, same_rows, take, take_all, take_or_null
from crossstream.storage.snapshot import Snapshot, groups_of
from crossstream.storage.sorted_run import Run, bisect, expand, identities, is_sorted, sort_rows
from crossstream.tables.join_spec import JoinSpec, TableSide
from crossstream.tables.joined import Joined
from crossstream.tables.rows import as_changed

_NONE = np.empty(0, np.int64)


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
    def of(cls, spec: JoinSpec, subscriptions: Changes, right: Changes, puts: Puts) -> _Subscriptions:
        if not subscriptions.rows:
            return cls(subscriptions, _NONE, _NONE, _NONE, subscriptions.key.wire(), *[_NONE] * 4)
        hashes = subscriptions.hashes(spec.bits)
        order, starts = by_key(subscriptions, hashes)
        subs, h, heads = subscriptions.take(order), hashes[order], np.flatnonzero(starts)
        group, keys = np.cumsum(starts) - 1, take(subs.key.wire(), heads)
        bounds = puts.places(h[heads], keys) if right.rows else [np.zeros(len(heads), np.int64)] * 2
        first, last = (bound[group] for bound in bounds)
        if spec.emit == "net":  # of a row one at a foreign key, after all right changes
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

    def kept(self, spec: JoinSpec, with_headers: bool) -> Run:
        """The rows of the store after the batch; ``limit``: those in front of it found what was there before."""
        primary = self.changes.extra[PRIMARY]
        columns: dict[str, Column] = {
            "h": self.hashes,
            "s": hash_keys(primary, spec.bits),
            "key": self.changes.key.wire(),
            "key2": primary,
            "value": self.changes.value.wire(spec.serdes.left),
            "ts": self.changes.ts,
            "gone": (self.changes.extra[INSTRUCTION] <= DELETE_KEY_AND_PROPAGATE).astype(np.uint8),
        }
        if with_headers:
            columns["headers"] = headers_in(self.changes)
        if self.ends is None or self.begins is None:
            return sort_rows({**columns, "limit": self.before})
        return sort_rows({**take_all(columns, self.ends), "limit": self.before[self.begins]})


def resolve(
    spec: JoinSpec,
    store: Snapshot,
    left: Subscribed,
    right: TableSide,
    counts: tuple[LookupCounts, LookupCounts],
) -> Iterator[Joined]:
    """The results of a batch, in chunks.

    ``left``, ``right``: net changes, or every change in arrival order. ``store``: the subscriptions, which this
    updates. ``counts``: of left rows with a foreign key, and of right rows, for which those that refer to them are
    partners.
    """
    if left.answers.rows:
        yield _without_partner(spec, left.answers, right.value)
    was, puts = Snapshot(store.layout, store.levels), Puts.of(right.changes, spec.bits)
    subs = _Subscriptions.of(spec, left.subscriptions, right.changes, puts)
    changed = replace(right, changes=puts.changes)
    referred = np.zeros(puts.changes.rows, bool)
    kept = None
    if subs.changes.rows:
        kept = subs.kept(spec, "headers" in store.layout.names)
        store.put(dict(kept.columns))
        yield from _from_left(spec, subs, changed, counts[0], referred)
    if puts.changes.rows:
        there = ~puts.changes.value.missing()
        partners = np.zeros(len(there), np.int64)
        for lefts in _referring(spec, was, subs, kept, puts):
            partners += np.bincount(lefts.change, minlength=len(there))
            yield _answer(spec, lefts, puts.changes, there)
        counts[1].count(there, there & (referred | (partners > 0)))
        counts[1].most = max(counts[1].most, int(partners.max()))


def _of_present(headers: Column | None, values: Values) -> Column | None:
    """The headers of rows that are there: a delete has none."""
    if headers is None:
        return None
    return take_or_null(headers, np.where(values.missing(), -1, np.arange(values.rows)))


def _without_partner(spec: JoinSpec, answers: Changes, right_value: EngineSerde | None) -> Joined:
    """Left rows without a foreign key: the row alone, or a tombstone if it is gone. Their own timestamp."""
    keys = answers.key if spec.serdes.either is None else spec.serdes.keys(answers.key.wire())
    left, right = answers.value, nulls(answers.rows, right_value)
    results = evaluate_where(~left.missing(), spec.joiner, keys, left=left, right=right)
    changes = replace(answers, key=keys, value=results.values, old=None, extra={})
    if spec.headers is not None:
        own = _of_present(answers.headers, left)
        changes = replace(changes, headers=headers_of(spec.headers, own, None))
    return Joined.of(changes, results.failures, left, right)


def _from_left(
    spec: JoinSpec, subs: _Subscriptions, right: TableSide, counts: LookupCounts, referred: np.ndarray
) -> Iterator[Joined]:
    """Results triggered by left rows: each sees the right row as the changes in front of ``after`` leave it.

    ``referred``: notes those of the right changes that came with it, so that it answers for them.
    """
    instruction = subs.changes.extra[INSTRUCTION]
    asking, with_it = instruction >= PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, subs.after > subs.before
    put = np.where(subs.after > subs.first, subs.after - 1, -1)
    seen = as_changed(right.rows(subs.hashes[subs.heads], subs.keys), right.changes, subs.group, put)
    counts.count(asking, asking & seen.present)
    referred[put[asking & with_it]] = True
    found = seen.present | with_it
    emits = (instruction == DELETE_KEY_AND_PROPAGATE) | (instruction == PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
    emits |= (instruction == PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE) & found
    rows = np.flatnonzero(emits)
    if not len(rows):
        return
    picked = subs.changes.take(rows) if len(rows) < subs.changes.rows else subs.changes
    there, asking = seen.present[rows], asking[rows]
    keys, partners = spec.serdes.keys(picked.extra[PRIMARY]), seen.values.take(rows)
    exists = asking & there if spec.kind == "inner" else asking
    made = evaluate_where(exists, spec.joiner, keys, left=picked.value, right=partners)
    times = np.where(there, np.maximum(picked.ts, seen.ts[rows]), picked.ts)
    result = replace(picked, key=keys, value=made.values, ts=times, old=None, extra={})
    later = _right_was_later(result, np.where(asking, put[rows], -1), right.changes)
    if spec.headers is not None:
        of_rows = None if seen.headers is None else take_or_null(seen.headers, rows)
        own = _of_present(picked.headers, picked.value)
        later = replace(later, headers=headers_of(spec.headers, own, of_rows))
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


@dataclass(frozen=True, slots=True)
class _Referring:
    """Left rows, and of each the right ``change`` that comes while it refers to that row. ``primary``: their keys."""

    values: Values
    primary: Column
    headers: Column | None
    change: np.ndarray


def _referring(
    spec: JoinSpec, was: Snapshot, subs: _Subscriptions, kept: Run | None, puts: Puts
) -> Iterator[_Referring]:
    """The left rows that right changes answer: those that refer to them since this batch, and since earlier ones."""
    changes = subs.changes
    live = np.flatnonzero(
        (changes.extra[INSTRUCTION] >= PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE) & (subs.after < subs.until)
    )
    for rows, positions in _expanded(subs.after[live], subs.until[live], spec.chunk):
        own = None if changes.headers is None else take_or_null(changes.headers, live[rows])
        primary = take(changes.extra[PRIMARY], live[rows])
        yield _Referring(changes.value.take(live[rows]), primary, own, positions)
    ends = np.append(puts.starts[1:], len(puts.rank))
    for queries, columns in was.scan(puts.hashes, puts.keys, spec.chunk):
        value, primary, own = columns["value"], columns["key2"], columns.get("headers")
        moved, limit = _moved(kept, columns)
        if not len(moved) and len(puts.starts) == len(puts.rank):
            # Each right row changes once, and answers all of them.
            yield _Referring(Values(spec.serdes.left, wire=value), primary, own, queries)
            continue
        until = ends[queries]
        until[moved] = limit
        for rows, positions in _expanded(puts.starts[queries], until, spec.chunk):
            picked = value, primary, own
            if len(rows) < len(queries) or not is_sorted(rows):
                picked = take(value, rows), take(primary, rows), None if own is None else take(own, rows)
            yield _Referring(Values(spec.serdes.left, wire=picked[0]), picked[1], picked[2], positions)


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


def _answer(spec: JoinSpec, lefts: _Referring, right: Changes, there: np.ndarray) -> Joined:
    """Results triggered by right rows; ``there``: the changes that leave one."""
    rows, keys, partners = lefts.change, spec.serdes.keys(lefts.primary), right.value.take(lefts.change)
    exists = there[rows] if spec.kind == "inner" else np.ones(len(rows), bool)
    made = evaluate_where(exists, spec.joiner, keys, left=lefts.values, right=partners)
    if spec.headers is None:
        headers = None if right.headers is None else take_or_null(right.headers, rows)
    else:
        present = _of_present(right.headers, right.value)
        of_rows = None if present is None else take_or_null(present, rows)
        headers = headers_of(spec.headers, lefts.headers, of_rows)
    changes = Changes(keys, made.values, right.ts[rows], right.major[rows], right.minor[rows], headers)
    return Joined.of(changes, made.failures, lefts.values, partners)
