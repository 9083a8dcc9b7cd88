"""KTable–KTable join by foreign key.

    law    the result holds, for each left row, joiner(left row, the right row its foreign key names), for the
           left rows whose foreign key names a right row (inner), or for all left rows (left join: None on the
           right)

Two halves in two rounds. `subscribe`, keyed by the primary key, knows the old foreign key of every left row and
turns a left change into a subscription to the new foreign key and, if the row moved, an unsubscription from
the old. `resolve`, keyed by the foreign key, holds the right table and the subscriptions with their left values,
and makes the results. Both belong to one atomic batch, so a row's result is decided in one place, the
partition of its current foreign key: no answer can be stale. Source: KIP-213, semantics 2.5 column E3, 8.12–8.17.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, concat_headers
from crossstream.columns.functions import Function
from crossstream.columns.hashing import hash_keys
from crossstream.columns.match_counts import Asked
from crossstream.columns.order import by_key, last_per_key, last_per_trigger
from crossstream.columns.values import Values, nulls
from crossstream.operators.table_join.kernel import Joined, Lookup, call_joiner
from crossstream.serdes import Serde
from crossstream.serdes.keys import LEFT, tagged
from crossstream.storage.columns import Column, same_rows, take, take_all, take_or_null, valid
from crossstream.storage.snapshot import View
from crossstream.storage.sorted_run import Run

Kind = Literal["inner", "left"]

# What a left row asks of the partition of a foreign key (`instruction` column).
LEAVE = 0
"""Forget the row, say nothing: its result is decided elsewhere."""
RETRACT = 1
"""Forget the row and retract its result: it has no foreign key any more, or is gone."""
ANSWER = 2
"""Remember the row; give its result, or a tombstone (inner) or the row without partner (left)."""
ANSWER_IF_FOUND = 3
"""Remember the row; give its result if there is a right row."""

PRIMARY, INSTRUCTION = "primary key", "instruction"

REFERS = "refers"
"""Where referrers are counted: 1 for a row that begins to refer to the foreign key, −1 for one that ceases to."""


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
        return Values(self.either, wire=tagged(LEFT, primary))


@dataclass(frozen=True, slots=True)
class Subscribed:
    """``subscriptions``: keyed by foreign key. ``answers``: left rows that need no right table, by primary key."""

    subscriptions: Changes
    answers: Changes
    dropped: dict[str, int]


def subscribe(
    kind: Kind,
    view: View,
    left: Changes,
    references: pa.LargeBinaryArray,
    serde: Serde | None,
    *,
    bits: int,
    counted: bool = False,
    every: bool = False,
) -> Subscribed:
    """What left changes ask for. ``left``: arrival order, keys not null; ``references``: serialised foreign keys.

    ``serde``: that of the foreign key. ``view``: the store of references, which this updates. ``counted``: the
    subscriptions say which rows begin or cease to refer (`REFERS`). ``every``: each change asks, not the last one of
    each row.
    """
    dropped = {"null-foreign-key": _null_references(left, references)} if kind == "inner" else {}
    hashes = left.hashes(bits)
    if every:
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
        leaving = np.where(left_behind, RETRACT, LEAVE)
        joining = np.where(moved, ANSWER, ANSWER_IF_FOUND)
        alone = np.zeros(len(h), bool)
    else:
        leaving = np.full(len(h), LEAVE)
        joining = np.full(len(h), ANSWER)
        alone = ~has & (is_row | was_row)
    leavers = np.flatnonzero(moved | left_behind)
    joiners = np.flatnonzero(has)
    subscriptions = _subscriptions(net, keys, serde, (leavers, old, leaving), (joiners, new, joining))
    if counted:
        refers = np.concatenate([np.full(len(leavers), -1), (~same)[joiners].astype(np.int64)])
        subscriptions = replace(subscriptions, extra={**subscriptions.extra, REFERS: refers})
    if every:  # a row leaves one foreign key before it joins the next
        subscriptions = subscriptions.take(np.argsort(np.concatenate([leavers, joiners]), kind="stable"))
    return Subscribed(subscriptions, net.take(np.flatnonzero(alone)), dropped)


def _references_before(
    view: View,
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
    place = np.where(begins, np.cumsum(begins) - 1, len(first) + np.arange(len(hashes)) - 1)
    return take(pa.concat_arrays([old, new]), place), np.concatenate([match.found, is_row])[place]


def _null_references(left: Changes, references: pa.LargeBinaryArray) -> int:
    """Left rows with a null foreign key, which an inner join drops and counts (semantics 2.5.3, rows 2, 5, 7)."""
    is_row = ~left.value.missing()
    return int((is_row & ~valid(references)).sum())


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


def resolve(
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
    """The results of a batch, in chunks of about ``chunk`` rows.

    ``right``: net right changes, in order of their hash; ``right_rows`` looks up the right table *after* them.
    ``view``: the subscription store, which this updates. ``asked``: counts left rows with a foreign key, and right
    rows, for which those that refer to them are partners.
    """
    referred = np.zeros(right.rows, bool)
    if answers.rows:
        yield without_partner(joiner, answers, serdes)
    before = View(view.layout, view.slots)
    if subscriptions.rows:
        hashes = subscriptions.hashes(bits)
        order, begins = by_key(subscriptions, hashes)
        subs, h = subscriptions.take(order), hashes[order]
        group = np.cumsum(begins) - 1
        view.put(stored(subs, h, serdes.value, bits))
        yield from _from_left(
            kind, joiner, subs, h, group, begins, right, right_rows, serdes, asked[0], referred, bits
        )
    yield from _from_right(kind, joiner, before, view, right, serdes, referred, bits, chunk)
    if right.rows:
        there = ~right.value.missing()
        asked[1].count(there, there & referred)


def without_partner(joiner: Function, answers: Changes, serdes: Serdes) -> Joined:
    """Left rows without a foreign key: the row alone, or a tombstone if it is gone. Their own timestamp."""
    keys = answers.key if serdes.either is None else serdes.keys(answers.key.wire())
    given = answers.value, nulls(answers.rows, serdes.right)
    value, failures = call_joiner(joiner, keys, *given, ~answers.value.missing())
    return Joined.of(replace(answers, key=keys, value=value, old=None, extra={}), failures, *given)


def stored(subs: Changes, hashes: np.ndarray, serde: Serde | None, bits: int) -> dict[str, Column]:
    """The rows of the store of subscriptions; ``serde``: of the left values in it."""
    primary = subs.extra[PRIMARY]
    return {
        "h": hashes,
        "s": hash_keys(primary, bits),
        "key": subs.key.wire(),
        "key2": primary,
        "value": subs.value.wire(serde),
        "ts": subs.ts,
        "gone": (subs.extra[INSTRUCTION] <= RETRACT).astype(np.uint8),
    }


def _from_left(
    kind: Kind,
    joiner: Function,
    subs: Changes,
    hashes: np.ndarray,
    group: np.ndarray,
    begins: np.ndarray,
    right: Changes,
    right_rows: Lookup,
    serdes: Serdes,
    asked: Asked,
    referred: np.ndarray,
    bits: int,
) -> Iterator[Joined]:
    """Results triggered by left rows: each sees the right row as it is after the batch.

    ``referred``: notes the right changes that left rows of this batch refer to.
    """
    first = np.flatnonzero(begins)
    found = right_rows(hashes[first], take(subs.key.wire(), first))
    there = found.present[group]
    changed = _changed_right(right, hashes[first], take(subs.key.wire(), first), bits)[group]
    told = subs.extra[INSTRUCTION]
    asking = told >= ANSWER
    asked.count(asking, asking & there)
    referred[changed[asking & (changed >= 0)]] = True
    emits = (told == RETRACT) | (told == ANSWER) | ((told == ANSWER_IF_FOUND) & (there | (changed >= 0)))
    rows = np.flatnonzero(emits)
    if not len(rows):
        return
    picked, g = subs.take(rows), group[rows]
    exists = (told[rows] >= ANSWER) & (there[rows] | (kind == "left"))
    partners = found.values.take(np.where(there[rows], g, -1))
    keys = serdes.keys(picked.extra[PRIMARY])
    value, failures = call_joiner(joiner, keys, picked.value, partners, exists)
    times = np.where(there[rows], np.maximum(picked.ts, found.ts[g]), picked.ts)
    result = replace(picked, key=keys, value=value, ts=times, old=None, extra={})
    later = _right_was_later(result, changed[rows], told[rows], right)
    yield Joined.of(later, failures, picked.value, partners)


def _changed_right(right: Changes, hashes: np.ndarray, keys: Column, bits: int) -> np.ndarray:
    """For each foreign key (sorted by hash) the row of its right change in this batch, or −1."""
    row = np.full(len(hashes), -1, np.int64)
    if right.rows:
        run = Run({"h": right.hashes(bits), "key": right.key.wire()})
        queries, rows = run.match(hashes, keys)
        row[queries] = rows
    return row


def _right_was_later(result: Changes, changed: np.ndarray, told: np.ndarray, right: Changes) -> Changes:
    """Where the right row changed after the left one, the right record is the trigger: its time and place."""
    if not right.rows:
        return result
    r = np.maximum(changed, 0)
    later = (
        (changed >= 0)
        & (told >= ANSWER)
        & (
            (right.major[r] > result.major)
            | ((right.major[r] == result.major) & (right.minor[r] > result.minor))
        )
    )
    if not later.any():
        return result
    return replace(
        result,
        ts=np.where(later, right.ts[r], result.ts),
        major=np.where(later, right.major[r], result.major),
        minor=np.where(later, right.minor[r], result.minor),
        headers=_choose_headers(later, right, r, result),
    )


def _choose_headers(
    later: np.ndarray, right: Changes, r: np.ndarray, result: Changes
) -> pa.LargeBinaryArray | None:
    both = concat_headers([(result.headers, result.rows), (right.headers, right.rows)])
    return (
        None if both is None else take_or_null(both, np.where(later, result.rows + r, np.arange(result.rows)))
    )


def _from_right(
    kind: Kind,
    joiner: Function,
    before: View,
    after: View,
    right: Changes,
    serdes: Serdes,
    referred: np.ndarray,
    bits: int,
    chunk: int,
) -> Iterator[Joined]:
    """Results triggered by right rows: every subscriber that this batch's left rows have not answered for."""
    if not right.rows:
        return
    gone = right.value.missing()
    for queries, columns in before.scan(right.hashes(bits), right.key.wire(), chunk):
        fresh = _in_fresh(after.fresh, columns)
        if fresh.any():
            keep = np.flatnonzero(~fresh)
            queries, columns = queries[keep], {name: take(column, keep) for name, column in columns.items()}
        if not len(queries):
            continue
        referred[queries] = True
        keys = serdes.keys(columns["key2"])
        lefts = Values(serdes.value, wire=columns["value"])
        yield answer(kind, joiner, keys, lefts, right, queries, gone[queries])


def answer(
    kind: Kind,
    joiner: Function,
    keys: Values,
    lefts: Values,
    right: Changes,
    queries: np.ndarray,
    gone: np.ndarray,
) -> Joined:
    exists = ~gone | (kind == "left")
    partners = right.value.take(np.where(gone, -1, queries))
    value, failures = call_joiner(joiner, keys, lefts, partners, exists)
    headers = None if right.headers is None else take_or_null(right.headers, queries)
    changes = Changes(keys, value, right.ts[queries], right.major[queries], right.minor[queries], headers)
    return Joined.of(changes, failures, lefts, partners)


def _in_fresh(fresh: Run | None, columns: dict[str, Column]) -> np.ndarray:
    """Which subscriptions were put or dropped by this batch."""
    hit = np.zeros(len(columns["h"]), bool)
    if fresh is None or not fresh.rows:
        return hit
    order = np.argsort(columns["h"], kind="stable")
    s = columns["s"][order]
    queries, rows = fresh.match_range(columns["h"][order], take(columns["key"], order), s, s)
    same = same_rows(fresh["key2"], rows, columns["key2"], order[queries])
    hit[order[queries[same]]] = True
    return hit
