"""Which right rows a partition of left rows has use for, and how it gets them: two of the rounds of `join_many`.

    law    for every foreign key that some left row of a partition has, and for no other, the partition is told the
           right row as it is after each batch

`refer`, keyed by the primary key, counts the left rows of its partition by foreign key. It asks for the right row of a
foreign key when the first left row with it comes, once, however many follow. `answer`, keyed by the foreign key, knows
who asked, and tells them the row, and every change of it, until they ask no more. Source: decision 0019.

Foreign keys of several tables share one store; the number of the table is the first byte of such a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from crossstream import serdes
from crossstream.algebra.change import Changes
from crossstream.algebra.hashing import hash_keys
from crossstream.algebra.order import arrival_of, by_key, last_per_key
from crossstream.algebra.table_table import Lookup
from crossstream.algebra.values import Values
from crossstream.serdes import Serde, arrays
from crossstream.state.columns import Column, equal, take, valid
from crossstream.state.run import stable_order
from crossstream.state.view import View

RAW: Serde = serdes.bytes()
"""Of keys and values that are bytes of several serdes."""

TABLE, PLACE, TOLD = "table", "place", "told"
"""Extra columns: number of the right table, state partition, and what is asked or told."""

FORGET, WANT = 0, 1
"""Asks (`TOLD`): no left row has the foreign key any more; or one has."""

GONE, HERE, CHANGED = 0, 1, 2
"""Answers (`TOLD`): the row is told no longer; this is it; or this is what it has become in this batch."""

MOVED, WAS = "moved", "was"
"""Extra columns of left rows: a bit for each foreign key that is another than before; whether there was a row."""


def reference(name: str) -> str:
    """The column of a left row's foreign key into the table of this name; null if it has none."""
    return f"reference {name}"


@dataclass(frozen=True, slots=True)
class Referred:
    """``rows``: the left rows that changed, in order of the hash. ``asks``: keyed by foreign key."""

    rows: Changes
    asks: Changes
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interest:
    """A partition, and its stores: foreign keys by primary key, and numbers of left rows by foreign key.

    ``anew``: nothing of what the partition wants is known, and it asks for all of it.
    """

    place: int
    references: View
    counts: View
    anew: bool = False


def refer(
    names: Sequence[str], interest: Interest, left: Changes, columns: Sequence[str], *, bits: int
) -> Referred:
    """What left changes make a partition ask for. ``left``: in any order, keys not null.

    ``columns``: extra columns of ``left`` with the foreign key into each table. Updates the stores.
    """
    hashes = left.hashes(bits)
    last = last_per_key(left, hashes, arrival_of(left))
    net, h = left.take(last), hashes[last]
    match = interest.references.lookup(h, net.key.wire())
    is_row, was_row = ~net.value.missing(), match.found
    moved = np.zeros(len(h), np.int64)
    extra: dict[str, Column] = {}
    turns: list[_Numbered] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        new, old = net.extra[column], match.gather(reference(name))
        has, had = valid(new) & is_row, valid(old) & was_row
        differs = _differ(has, had, new, old)
        moved |= differs.astype(np.int64) << number
        turns.append(_numbered(number, old, -1, differs & had))
        turns.append(_numbered(number, new, 1, differs & has))
        extra[reference(name)] = new
    interest.references.put({"h": h, "key": net.key.wire(), **extra, "gone": (~is_row).astype(np.uint8)})
    extra |= {MOVED: moved, WAS: was_row.astype(np.uint8)}
    rows = Changes(net.key, net.value, net.ts, net.major, net.minor, net.headers, extra=extra)
    asks = _all(names, interest, bits) if interest.anew else _turned(interest, turns, bits)
    return Referred(rows.where(is_row | was_row), asks, {"null-foreign-key": _incomplete(left, columns)})


def _differ(has: np.ndarray, had: np.ndarray, new: Column, old: Column) -> np.ndarray:
    """Whether foreign keys are others than before."""
    differs = np.asarray(has | had)
    both = np.flatnonzero(has & had)
    differs[both] = ~equal(take(new, both), take(old, both)) if len(both) else False
    return differs


def _incomplete(left: Changes, columns: Sequence[str]) -> int:
    """How many left rows lack a foreign key."""
    lacks = np.zeros(left.rows, bool)
    for column in columns:
        lacks |= ~valid(left.extra[column])
    return int((lacks & ~left.value.missing()).sum())


_Numbered = tuple[pa.LargeBinaryArray, np.ndarray]
"""Foreign keys with the number of their table in front, and a number for each."""


def _numbered(table: int, foreign: pa.LargeBinaryArray, each: int, mask: np.ndarray) -> _Numbered:
    """Different foreign keys, and ``each`` as often as there is one, where the mask, that none is null, holds."""
    encoded = (foreign if mask.any() else foreign[:0]).dictionary_encode()
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    counts = np.bincount(codes[mask[: len(codes)]], minlength=len(encoded.dictionary))
    there = np.flatnonzero(counts)
    return arrays.with_first_byte(table, take(encoded.dictionary, there)), counts[there] * each


def _turned(interest: Interest, turns: Sequence[_Numbered], bits: int) -> Changes:
    """Asks for foreign keys that are wanted for the first time, or no longer."""
    keys, hashes, raised = _summed(turns, bits)
    count = np.asarray(interest.counts.lookup(hashes, keys).gather("count"))
    after = count + raised
    _count(interest.counts, hashes, keys, after)
    turned = np.flatnonzero((count == 0) != (after == 0))
    told = np.where(after[turned] > 0, WANT, FORGET).astype(np.uint8)
    return _asks(take(keys, turned), told, interest.place)


def _all(names: Sequence[str], interest: Interest, bits: int) -> Changes:
    """Asks for every foreign key that a left row has, counted anew."""
    live = interest.references.live()
    columns = [live[reference(name)] for name in names]
    numbered = [_numbered(number, column, 1, valid(column)) for number, column in enumerate(columns)]
    keys, hashes, counts = _summed(numbered, bits)
    _count(interest.counts, hashes, keys, counts)
    return _asks(keys, np.full(len(keys), WANT, np.uint8), interest.place)


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


def _count(view: View, hashes: np.ndarray, keys: pa.LargeBinaryArray, counts: np.ndarray) -> None:
    if len(keys):
        view.put({"h": hashes, "key": keys, "count": counts, "gone": (counts == 0).astype(np.uint8)})


def _asks(keys: pa.LargeBinaryArray, told: np.ndarray, place: int) -> Changes:
    split = arrays.without_first_byte(keys)
    assert split is not None
    rows, table = len(keys), split[0].copy()
    never = np.zeros(rows, np.int64)
    extra = {TABLE: table, PLACE: np.full(rows, place), TOLD: told}
    none = Values(RAW, wire=pa.nulls(rows, pa.large_binary()))
    return Changes(Values(RAW, wire=split[1]), none, never, never, never, extra=extra)


@dataclass(frozen=True, slots=True)
class Right:
    """One right table in a batch: its changes, None if there are none, and its rows after them."""

    changes: Changes | None
    rows: Lookup


def answer(
    interested: View, asks: Changes | None, rights: Sequence[Right], *, bits: int, chunk: int
) -> Iterator[Changes]:
    """What the partitions that asked are told: keyed by foreign key, values as the right tables keep them.

    ``interested``: the store of who wants what, which this updates. In chunks of about ``chunk`` rows.
    """
    if asks is not None:
        _note(interested, asks, bits)
        for number, right in enumerate(rights):
            mine = asks.where(asks.extra[TABLE] == number)
            if mine.rows:
                yield _first_answers(mine, right, bits)
    for number, right in enumerate(rights):
        if right.changes is not None:
            yield from _change_answers(interested, number, right.changes, bits, chunk)


def _note(interested: View, asks: Changes, bits: int) -> None:
    keys, places = with_tables(asks), _as_keys(np.asarray(asks.extra[PLACE]))
    interested.put(
        {
            "h": hash_keys(keys, bits),
            "s": hash_keys(places, bits),
            "key": keys,
            "key2": places,
            "gone": (asks.extra[TOLD] == FORGET).astype(np.uint8),
        }
    )


def _first_answers(asks: Changes, right: Right, bits: int) -> Changes:
    """The row as it is, if there is one, to those who ask for the first time; a farewell to those who ask no more."""
    hashes = asks.hashes(bits)
    order = stable_order(hashes)
    asks = asks.take(order)
    found = right.rows(hashes[order], asks.key.wire())
    wants = asks.extra[TOLD] == WANT
    rows = np.flatnonzero(~wants | found.present)
    taken = asks.take(rows)
    values = found.values.take(np.where(wants[rows], rows, -1))
    told = np.where(wants[rows], HERE, GONE).astype(np.uint8)
    extra = {**taken.extra, TOLD: told}
    value = Values(RAW, wire=values.wire())
    return Changes(taken.key, value, found.ts[rows], taken.major, taken.minor, extra=extra)


def _change_answers(
    interested: View, number: int, changes: Changes, bits: int, chunk: int
) -> Iterator[Changes]:
    """Each changed row to everybody who wants it."""
    if not interested.rows:
        return
    net = changes.take(last_per_key(changes, changes.hashes(bits)))
    keys = arrays.with_first_byte(number, net.key.wire())
    hashes = hash_keys(keys, bits)
    order = stable_order(hashes)
    bare = Changes(
        Values(RAW, wire=net.key.wire()),
        Values(RAW, wire=net.value.wire()),
        net.ts,
        net.major,
        net.minor,
        net.headers,
    )
    for queries, columns in interested.scan(hashes[order], take(keys, order), chunk):
        rows = len(queries)
        extra = {
            TABLE: np.full(rows, number, np.uint8),
            PLACE: _as_places(columns["key2"]),
            TOLD: np.full(rows, CHANGED, np.uint8),
        }
        yield replace(bare.take(order[queries]), extra=extra)


def with_tables(foreign: Changes) -> pa.LargeBinaryArray:
    """Foreign keys with the number of their table in front."""
    keys, table = foreign.key.wire(), np.asarray(foreign.extra[TABLE])
    numbers = np.flatnonzero(np.bincount(table))
    if len(numbers) == 1:
        return arrays.with_first_byte(int(numbers[0]), keys)
    rows = [np.flatnonzero(table == number) for number in numbers]
    parts = [arrays.with_first_byte(int(n), take(keys, mine)) for n, mine in zip(numbers, rows, strict=True)]
    place = np.empty(len(keys), np.int64)
    place[np.concatenate(rows)] = np.arange(len(keys))
    return take(pa.concat_arrays(parts), place)


def _as_keys(places: np.ndarray) -> pa.LargeBinaryArray:
    """State partitions as keys: 4 bytes, the highest first."""
    return arrays.from_fixed_rows(places.astype(">u4").view(np.uint8), 4, None)


def _as_places(keys: pa.LargeBinaryArray) -> np.ndarray:
    rows = arrays.fixed_rows(keys, 4)
    assert rows is not None
    return rows.view(">u4").astype(np.int64)
