"""KStream–KTable join.

    law    each stream record gives joiner(its value, the row of its key), with the row as it was when the record
           arrived: after every change that came before it, in this batch or an earlier one, and none that came
           later. Without a row an inner join gives nothing, a left join joiner(its value, None)

Of a versioned table a record sees the version valid at its own timestamp, among those that had arrived before it.
So no cut into batches changes a result. Source: semantics 2.3.1, KIP-914.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from crossstream.columns.changes import Asked, Changes
from crossstream.columns.functions import Function
from crossstream.columns.order import Puts, by_key, came_before, in_hash_order, last_below, running_maximum_of
from crossstream.columns.values import Values, concat_values
from crossstream.operators.table.kernel import as_stored, find_versions, latest_versions, lookup
from crossstream.operators.table_join.kernel import Joined, call_joiner
from crossstream.serdes import Serde
from crossstream.storage.columns import Column, take
from crossstream.storage.snapshot import Match, Snapshot
from crossstream.storage.sorted_run import bisect

Kind = Literal["inner", "left"]

_NEVER = np.iinfo(np.int64).min

_MORE = 3
"""With so many times more records than rows of the table many records share a key."""


@dataclass(frozen=True, slots=True)
class TableHistory:
    """A table before a batch, and all that the batch puts into it.

    ``before``: its store. ``puts``: in arrival order, keys not null; of a versioned table those it accepts.
    ``looking_first``: says which records, by their `minor`, look the table up before they change it themselves.
    ``history``: how long versions are kept, ms, None: no versions. ``stream_time``: of the versions before the batch.
    """

    before: Snapshot
    puts: Changes
    serde: Serde | None
    looking_first: Callable[[np.ndarray], np.ndarray]
    history: int | None = None
    stream_time: int = -1

    def puts_before(self, major: np.ndarray, minor: np.ndarray) -> np.ndarray:
        """For each place in time the number of puts that a record there comes after."""
        return came_before(major, minor, self.puts, or_with=~self.looking_first(minor))


@dataclass(frozen=True, slots=True)
class Seen:
    """The row that each record sees: its place in ``values``, −1 for none."""

    values: Values
    place: np.ndarray


def admit(kind: Kind, stream: Changes, refusal: str = "null-key") -> tuple[Changes, dict[str, int]]:
    """The records that a join looks at, and those it drops: null values, and null keys in an inner join.

    ``refusal``: the reason for null keys. One that was dropped where the stream was re-keyed comes before all others.
    """
    no_value = stream.value.missing()
    no_key = stream.key.missing() if kind == "inner" else np.zeros(stream.rows, bool)
    dropped = {refusal: int((no_key if refusal != "null-key" else no_key & ~no_value).sum())}
    dropped["null-value"] = int((no_value | no_key).sum()) - dropped[refusal]
    return stream.where(~(no_value | no_key)), dropped


def join_stream_table(
    kind: Kind, joiner: Function, stream: Changes, table: TableHistory, asked: Asked, *, bits: int
) -> Joined:
    """The results of admitted records, in their order and with their timestamps. A null key finds no row."""
    seen = see(stream, table, bits)
    found = seen.place >= 0
    asked.count(~stream.key.missing(), found)
    if kind == "inner":
        stream, seen = stream.where(found), Seen(seen.values, seen.place[found])
    there = np.ones(stream.rows, bool)
    given = stream.value, seen.values.take(seen.place)
    value, failures = call_joiner(joiner, stream.key, *given, there)
    return Joined.of(replace(stream, value=value, old=None, extra={}, lost=None), failures, *given)


def see(stream: Changes, table: TableHistory, bits: int) -> Seen:
    """The row that each record sees, at the moment (major, minor) and with the timestamp it has."""
    keyed = np.flatnonzero(~stream.key.missing())
    looking = stream if len(keyed) == stream.rows else stream.take(keyed)
    few_keys = table.history is None and looking.rows >= _MORE * (table.before.rows + table.puts.rows)
    sight = (_Sight.as_they_came if few_keys else _Sight.by_key)(looking, table, bits)
    seen = _see_rows(sight, table) if table.history is None else _see_versions(sight, table, table.history)
    place = np.full(stream.rows, -1, np.int64)
    place[keyed[sight.order]] = seen.place
    return Seen(seen.values, place)


@dataclass(frozen=True, slots=True)
class _Sight:
    """Records grouped by key (``order``), ``group``: the number of each one's key; and the puts of the batch.

    ``hashes``, ``keys``: of each key, by hash. ``first``, ``last``: of each key the places among the puts.
    """

    records: Changes
    order: np.ndarray
    group: np.ndarray
    hashes: np.ndarray
    keys: Column
    puts: Puts
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def as_they_came(cls, stream: Changes, table: TableHistory, bits: int) -> _Sight:
        """The records in the order they have: where many share a key, numbering keys costs less than sorting."""
        encoded = stream.key.wire().dictionary_encode()
        keys, hashes, group = in_hash_order(encoded.dictionary, encoded.indices.to_numpy(), bits)
        puts = Puts.of(table.puts, bits)
        return cls(stream, np.arange(stream.rows), group, hashes, keys, puts, *puts.places(hashes, keys))

    @classmethod
    def by_key(cls, stream: Changes, table: TableHistory, bits: int) -> _Sight:
        hashes = stream.hashes(bits)
        order, begins = by_key(stream, hashes)
        heads = order[begins]
        keys = take(stream.key.wire(), heads)
        puts = Puts.of(table.puts, bits)
        places = puts.places(hashes[heads], keys)
        return cls(stream.take(order), order, np.cumsum(begins) - 1, hashes[heads], keys, puts, *places)

    def changed(self) -> np.ndarray:
        """The records whose keys the batch puts."""
        return np.flatnonzero((self.last > self.first)[self.group])

    def last_put(self, rows: np.ndarray, before: np.ndarray) -> np.ndarray:
        """For records the last put of their key among the first ``before`` puts of the batch; −1: none."""
        first, last = self.first[self.group[rows]], self.last[self.group[rows]]
        end = bisect(self.puts.rank, first, last, before, right=False)
        return np.where(end > first, end - 1, -1)


def _see_rows(sight: _Sight, table: TableHistory) -> Seen:
    """Of a table without versions: what was put last before the record, else the row before the batch."""
    state = lookup(table.before, sight.hashes, sight.keys, table.serde)
    place = np.where(state.present, np.arange(len(sight.hashes)), -1)[sight.group]
    changed = sight.changed()
    if not len(changed):
        return Seen(state.values, place)
    records = sight.records
    before = table.puts_before(records.major[changed], records.minor[changed])
    put = sight.last_put(changed, before)
    gone = sight.puts.changes.value.missing()
    place[changed] = np.where(put < 0, place[changed], np.where(gone[put], -1, state.values.rows + put))
    return Seen(concat_values([state.values, as_stored(sight.puts.changes.value, table.serde)]), place)


def _see_versions(sight: _Sight, table: TableHistory, history: int) -> Seen:
    """Of a versioned table: the version with the largest timestamp not above the record's own."""
    puts = sight.puts.changes
    before = table.puts_before(sight.records.major, sight.records.minor)
    keys = take(sight.keys, sight.group)
    match, ts = find_versions(table.before, sight.hashes[sight.group], keys, sight.records.ts)
    values, place = _distinct(match, table.serde)
    changed = sight.changed()
    if len(changed):
        put = _latest_put(sight, changed, before[changed])
        newer = (put >= 0) & (~match.found[changed] | (puts.ts[put] >= ts[changed]))
        place[changed] = np.where(newer, values.rows + put, place[changed])
        ts[changed] = np.where(newer, puts.ts[put], ts[changed])
        values = concat_values([values, as_stored(puts.value, table.serde)])
    place[_forgotten(sight, table, history, before, ts)] = -1
    gone = np.append(values.missing(), True)
    return Seen(values, np.where(gone[place], -1, place))


def _distinct(match: Match, serde: Serde | None) -> tuple[Values, np.ndarray]:
    """The versions found, neighbours that found the same one sharing it, and the place of each among them."""
    new = match.found
    new[1:] &= (match.segment[1:] != match.segment[:-1]) | (match.row[1:] != match.row[:-1])
    heads = np.flatnonzero(new)
    values = Match(match.segments, match.segment[heads], match.row[heads]).gather("value")
    return Values(serde, wire=values), np.where(match.found, np.cumsum(new) - 1, -1)


def _latest_put(sight: _Sight, rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """For records the put of their key that had come, with the largest timestamp not above theirs; −1: none.

    Of several with one timestamp it is the one that came last.
    """
    puts = sight.puts
    key = np.repeat(np.arange(len(puts.starts)), np.diff(puts.starts, append=len(puts.rank)))
    by_time = np.lexsort((puts.rank, puts.changes.ts, key))
    first, last = sight.first[sight.group[rows]], sight.last[sight.group[rows]]
    end = bisect(puts.changes.ts[by_time], first, last, sight.records.ts[rows], right=True)
    found = last_below(puts.rank[by_time], first, end, before)
    return np.where(found >= 0, by_time[found], -1)


def _forgotten(
    sight: _Sight, table: TableHistory, history: int, before: np.ndarray, ts: np.ndarray
) -> np.ndarray:
    """The records that would see a version, of timestamp ``ts``, which the table no longer keeps.

    Story: history 10, versions of a key at 10 and 20. A record at 15 sees the one of 10, until a put at 31, of any
    key, has come: what was replaced before 21 is forgotten, and the record sees none. The newest version stays.
    """
    times = np.maximum.accumulate(np.append(table.stream_time, table.puts.ts))
    old = np.flatnonzero(sight.records.ts < times[before] - history)
    if not len(old):
        return old
    group = sight.group[old]
    newest = latest_versions(table.before, sight.hashes[group], take(sight.keys, group), table.serde)
    top = np.where(newest.present, newest.ts, _NEVER)
    put = sight.last_put(old, before[old])
    so_far = np.append(running_maximum_of(sight.puts.changes.ts, sight.puts.starts), _NEVER)
    return np.asarray(old[ts[old] < np.maximum(top, so_far[put])])
