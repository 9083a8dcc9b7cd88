"""Which right rows a partition of left rows needs, and how it gets them: the first two rounds of a star join.

    law    for every foreign key that some left row of a partition has, and for no other, the partition gets the right
           row before the batch, if it has not had it yet, and the changes of it in each batch

`refer`, keyed by the primary key, counts the left rows of its partition by foreign key. It subscribes to the right row
of a foreign key when the first left row with it comes, once, however many follow. `answer`, keyed by the foreign key,
knows the subscribers. It sends them the row, and every change of it, until they unsubscribe. Source: decision 0019.

Foreign keys of several tables share one store; the number of the table is the first byte of such a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, LookupCounts, reference
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import arrival_of, by_key, last_per_key, last_per_trigger
from crossstream.columns.values import Values
from crossstream.serdes import arrays
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.primitives import Bytes
from crossstream.storage.columns import Column, equal, same_rows, take, take_all, valid
from crossstream.storage.snapshot import Snapshot, groups_of
from crossstream.storage.sorted_run import expand, places_of, stable_order
from crossstream.tables.join_spec import JoinSpec, TableSide

RAW: EngineSerde = Bytes()
"""Of keys and values that are bytes of several serdes."""

TABLE, PARTITION, KIND = "table", "partition", "kind"
"""Extra columns: number of the right table, state partition of the left rows, and what is asked or answered."""

UNSUBSCRIBE, SUBSCRIBE, VISIT = 0, 1, 2
"""Asks (`KIND`): no left row has the foreign key any more; one has; or one had it, within the batch only."""

DROPPED, CURRENT, CHANGED = 0, 1, 2
"""Answers (`KIND`): the row comes no longer; this is it before the batch; or this is one of its changes."""

MOVED, WAS = "moved", "was"
"""Extra columns of left rows: a bit for each foreign key that changed; whether there was a row."""

_LOOKED_AT = 1024
"""Rows of a run that are looked at for a foreign key into one of the tables."""


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Of the left rows of a ``partition``: their foreign keys by primary key, and their numbers by foreign key.

    ``rebuilt``: it is not known what the partition has subscribed to, and it subscribes to all of it.
    """

    partition: int
    references: Snapshot
    counts: Snapshot
    rebuilt: bool = False


def refer(
    spec: JoinSpec, names: Sequence[str], subscriptions: Subscriptions, rows: LeftRows
) -> tuple[Changes, Changes]:
    """The left rows that changed, in order of the hash, and what they make a partition ask for, by foreign key.

    Updates the stores. ``rows``: of the left table, with extra columns of foreign keys (`reference`).
    """
    taken, h, keys = rows.changes, rows.hashes, rows.keys
    match = subscriptions.references.lookup(h, keys)
    is_row, was_row = ~taken.value.missing(), rows.of_each(match.found)
    moved = np.zeros(taken.rows, np.int64)
    counted: list[_Numbered] = []
    for number, name in enumerate(names):
        new, old = taken.extra[reference(name)], rows.of_each(match.gather(reference(name)))
        has, had = valid(new) & is_row, valid(old) & was_row
        differs = _differ(has, had, new, old)
        moved |= differs.astype(np.int64) << number
        counted.append(_numbered(number, old, -1, differs & had & rows.ends))
        counted.append(_numbered(number, new, 1, differs & has & rows.ends))
        if spec.emit == "changelog":
            counted.append(_numbered(number, new, 0, has & ~rows.ends))
            if subscriptions.rebuilt:
                counted.append(_numbered(number, old, 0, had & rows.ends))
    changed = np.flatnonzero(rows.ends & ((moved > 0) | (is_row != was_row)))
    put = {"h": rows.of_each(h), "key": taken.key.wire(), **taken.extra, "gone": (~is_row).astype(np.uint8)}
    subscriptions.references.put(put if len(changed) == taken.rows else take_all(put, changed))
    left = replace(taken, extra={**taken.extra, MOVED: moved, WAS: was_row.astype(np.uint8)})
    asks = _asked(names, subscriptions, counted, spec.bits)
    return left.where(is_row | was_row | ~rows.begins), asks


@dataclass(frozen=True, slots=True)
class LeftRows:
    """Left changes grouped by row, those of a row in arrival order; ``begins``, ``ends``: the first, the last of them.

    ``hashes``, ``keys``: of each row. ``row``: the number of the row of each change; None: each row has one change.
    ``superseded``: which of the changes given are not among them, for their rows have changed again.
    """

    changes: Changes
    superseded: np.ndarray
    hashes: np.ndarray
    keys: Column
    begins: np.ndarray
    ends: np.ndarray
    row: np.ndarray | None = None

    @classmethod
    def of(cls, spec: JoinSpec, left: Changes) -> LeftRows:
        """Of changes in any order, keys not null: the last one of each row; for a changelog of each input record."""
        hashes = left.hashes(spec.bits)
        if spec.emit == "net" or not left.rows:
            order = last_per_key(left, hashes, arrival_of(left))
            changes, each = left.take(order), np.ones(len(order), bool)
            return cls(changes, _others(left, order), hashes[order], changes.key.wire(), each, each)
        order, begins = last_per_trigger(left, *by_key(left, hashes, arrival_of(left)))
        changes, first = left.take(order), np.flatnonzero(begins)
        keys, ends = take(changes.key.wire(), first), np.append(begins[1:], True)
        row = np.cumsum(begins) - 1
        return cls(changes, _others(left, order), hashes[order[first]], keys, begins, ends, row)

    def of_each(self, column: Column) -> Column:
        """What is known of each row, for each of its changes."""
        return column if self.row is None else take(column, self.row)


def _others(changes: Changes, rows: np.ndarray) -> np.ndarray:
    """All rows but these."""
    others = np.ones(changes.rows, bool)
    others[rows] = False
    return np.flatnonzero(others)


def incomplete(left: Changes, names: Sequence[str]) -> int:
    """How many left rows lack a foreign key."""
    lacks = np.zeros(left.rows, bool)
    for name in names:
        lacks |= ~valid(left.extra[reference(name)])
    return int((lacks & ~left.value.missing()).sum())


def _differ(has: np.ndarray, had: np.ndarray, new: Column, old: Column) -> np.ndarray:
    """Whether foreign keys changed."""
    both = has & had
    if both.all():
        return ~equal(new, old)
    differs, rows = np.asarray(has | had), np.flatnonzero(both)
    differs[rows] = ~same_rows(new, rows, old, rows)
    return differs


_Numbered = tuple[pa.LargeBinaryArray, np.ndarray]
"""Foreign keys with the number of their table in front, and a number for each."""


def _numbered(table: int, foreign: pa.LargeBinaryArray, each: int, mask: np.ndarray) -> _Numbered:
    """Different foreign keys, and ``each`` as often as there is one, where the mask, that none is null, holds."""
    encoded = (foreign if mask.all() else take(foreign, np.flatnonzero(mask))).dictionary_encode()
    counts = np.bincount(np.asarray(encoded.indices), minlength=len(encoded.dictionary))
    return arrays.with_first_byte(table, encoded.dictionary), counts * each


def _asked(
    names: Sequence[str], subscriptions: Subscriptions, counted: Sequence[_Numbered], bits: int
) -> Changes:
    """Asks for foreign keys that get their first left row, lose their last one, or had one within this batch only."""
    store = subscriptions.counts
    if subscriptions.rebuilt:
        live = subscriptions.references.live()
        columns = [live[reference(name)] for name in names]
        within = [(keys, np.zeros(len(keys), np.int64)) for keys, each in counted if not each.any()]
        counted = [*(_numbered(number, one, 1, valid(one)) for number, one in enumerate(columns)), *within]
    keys, hashes, raised = _summed(counted, bits)
    before = np.zeros(len(keys), np.int64)
    if not subscriptions.rebuilt:
        before = np.asarray(store.lookup(hashes, keys).gather("count"))
    after = before + raised
    if len(keys):
        store.put({"h": hashes, "key": keys, "count": after, "gone": (after == 0).astype(np.uint8)})
    return _asks(keys, before, after, subscriptions.partition)


def _summed(parts: Sequence[_Numbered], bits: int) -> tuple[pa.LargeBinaryArray, np.ndarray, np.ndarray]:
    """Each key once, in order of its hash, the hashes, and the sums of its numbers."""
    keys = pa.concat_arrays([keys for keys, _ in parts])
    numbers = np.concatenate([numbers for _, numbers in parts])
    hashes = hash_keys(keys, bits)
    if not len(keys):
        return keys, hashes, numbers
    none, values = np.zeros(len(keys), np.int64), Values(RAW, wire=keys)
    order, begins = by_key(Changes(values, values, none, none, none), hashes)
    first = np.flatnonzero(begins)
    return take(keys, order[first]), hashes[order[first]], np.add.reduceat(numbers[order], first)


def _asks(keys: pa.LargeBinaryArray, before: np.ndarray, after: np.ndarray, partition: int) -> Changes:
    """Asks for the foreign keys that left rows get or lose; ``before``, ``after``: how many rows have each."""
    turned = np.flatnonzero((before == 0) | (after == 0))
    kind = np.where(after > 0, SUBSCRIBE, np.where(before > 0, UNSUBSCRIBE, VISIT))[turned].astype(np.uint8)
    split = arrays.without_first_byte(take(keys, turned))
    assert split is not None
    rows, table = len(turned), split[0].copy()
    never = np.zeros(rows, np.int64)
    extra = {TABLE: table, PARTITION: np.full(rows, partition), KIND: kind}
    none = Values(RAW, wire=pa.nulls(rows, pa.large_binary()))
    return Changes(Values(RAW, wire=split[1]), none, never, never, never, extra=extra)


def answer(
    spec: JoinSpec,
    subscribers: Snapshot,
    asks: Changes | None,
    rights: Sequence[TableSide],
    counts: Sequence[LookupCounts],
) -> Iterator[Changes]:
    """The answers to the partitions that asked: keyed by foreign key, values as the right tables keep them.

    ``subscribers``: the store of who needs what, which this updates. For a changelog those who need a row at any moment
    of the batch get its changes, for net results those who need it after the batch. ``counts``: for each table, of
    changed rows, and which of them left rows refer to.
    """
    leaving = None
    if asks is not None:
        kind = np.asarray(asks.extra[KIND])
        asks, leaving = asks.where(kind != UNSUBSCRIBE), asks.where(kind != SUBSCRIBE)
        _note(spec, subscribers, asks, gone=False)
        if spec.emit == "net":
            _note(spec, subscribers, leaving, gone=True)
        for number, right in enumerate(rights):
            mine = asks.where(asks.extra[TABLE] == number)
            if mine.rows:
                yield _first_answers(spec, mine, right)
    for number, right in enumerate(rights):
        if right.changes.rows and subscribers.rows:
            yield from _change_answers(spec, subscribers, number, right, counts[number])
        elif right.changes.rows:
            counts[number].count(~right.changes.value.missing(), np.zeros(right.changes.rows, bool))
    if leaving is not None and leaving.rows:
        if spec.emit == "changelog":
            _note(spec, subscribers, leaving, gone=True)
        yield replace(leaving, extra={**leaving.extra, KIND: np.full(leaving.rows, DROPPED, np.uint8)})


def _note(spec: JoinSpec, subscribers: Snapshot, asks: Changes, *, gone: bool) -> None:
    if not asks.rows:
        return
    keys, partitions = with_tables(asks).key.wire(), _as_keys(np.asarray(asks.extra[PARTITION]))
    subscribers.put(
        {
            "h": hash_keys(keys, spec.bits),
            "s": hash_keys(partitions, spec.bits),
            "key": keys,
            "key2": partitions,
            "gone": np.full(asks.rows, gone, np.uint8),
        }
    )


def _first_answers(spec: JoinSpec, asks: Changes, right: TableSide) -> Changes:
    """The row before the batch, if there is one, to those who subscribe."""
    hashes = asks.hashes(spec.bits)
    order = stable_order(hashes)
    found = right.rows(hashes[order], asks.key.wire().take(pa.array(order)))
    rows = np.flatnonzero(found.present)
    taken = asks.take(order[rows])
    extra = {**taken.extra, KIND: np.full(len(rows), CURRENT, np.uint8)}
    value = Values(RAW, wire=found.values.take(rows).wire(right.value))
    return Changes(taken.key, value, found.ts[rows], taken.major, taken.minor, extra=extra)


def _change_answers(
    spec: JoinSpec, subscribers: Snapshot, number: int, right: TableSide, counts: LookupCounts
) -> Iterator[Changes]:
    """Each change of a table, in order of arrival for a row, to all its subscribers."""
    changes = right.changes
    hashes = changes.hashes(spec.bits)
    order, begins = by_key(changes, hashes, arrival_of(changes))
    first, last = np.flatnonzero(begins), np.flatnonzero(np.append(begins[1:], True))
    taken = changes.take(order)
    sent = Changes(
        Values(RAW, wire=taken.key.wire()),
        Values(RAW, wire=taken.value.wire(right.value)),
        taken.ts,
        taken.major,
        taken.minor,
        taken.headers,
    )
    keys = arrays.with_first_byte(number, take(sent.key.wire(), last))
    tagged = hash_keys(keys, spec.bits)
    by_hash = stable_order(tagged)
    first, last = first[by_hash], last[by_hash]
    wanted = np.zeros(len(first), bool)
    for queries, columns in subscribers.scan(tagged[by_hash], take(keys, by_hash), spec.chunk):
        wanted[by_hash[queries]] = True
        sizes = (last - first + 1)[queries]
        for start, stop in groups_of(sizes, spec.chunk):
            part = queries[start:stop]
            asked, rows = expand(first[part], last[part] + 1)
            partitions = take(columns["key2"].slice(start, stop - start), asked)
            extra = {
                TABLE: np.full(len(rows), number, np.uint8),
                PARTITION: _as_partitions(partitions),
                KIND: np.full(len(rows), CHANGED, np.uint8),
            }
            yield replace(sent.take(rows), extra=extra)
    there = ~taken.value.missing()
    counts.count(there, there & wanted[np.cumsum(begins) - 1])


def some_reference(subscribers: Snapshot, table: int, serde: EngineSerde | None) -> Values | None:
    """A foreign key into a table that left rows have; None if there is none. ``serde``: of the table's keys."""
    for run in subscribers.segments():
        split = arrays.without_first_byte(run["key"][:_LOOKED_AT])
        assert split is not None
        there = np.flatnonzero((split[0] == table) & (run["gone"][:_LOOKED_AT] == 0))
        if len(there):
            return Values(serde, wire=split[1].slice(int(there[0]), 1))
    return None


def answers_of(answers: Changes | None, kind: int) -> Changes | None:
    """The answers of a kind, keyed by table and foreign key; None if there are none."""
    mask = None if answers is None else np.asarray(answers.extra[KIND]) == kind
    return None if answers is None or mask is None or not mask.any() else with_tables(answers.where(mask))


def with_tables(foreign: Changes) -> Changes:
    """Rows keyed by foreign keys, with the number of their table in front of these."""
    keys, table = foreign.key.wire(), np.asarray(foreign.extra[TABLE])
    numbers = np.flatnonzero(np.bincount(table))
    if len(numbers) == 1:
        keys = arrays.with_first_byte(int(numbers[0]), keys)
    elif len(numbers):
        rows = [np.flatnonzero(table == number) for number in numbers]
        parts = [
            arrays.with_first_byte(int(n), take(keys, mine)) for n, mine in zip(numbers, rows, strict=True)
        ]
        keys = take(pa.concat_arrays(parts), places_of(np.concatenate(rows), len(keys)))
    return replace(foreign, key=Values(RAW, wire=keys), extra={})


def _as_keys(partitions: np.ndarray) -> pa.LargeBinaryArray:
    """State partitions as keys: 4 bytes, the highest first."""
    return arrays.from_fixed_rows(partitions.astype(">u4").view(np.uint8), 4, None)


def _as_partitions(keys: pa.LargeBinaryArray) -> np.ndarray:
    rows = arrays.fixed_rows(keys, 4)
    assert rows is not None
    return rows.view(">u4").astype(np.int64)
