"""KStream–KTable join.

Of a versioned table a record sees the version valid at its own timestamp, among those that had arrived before it.
So no cut into batches changes a result.

With a grace period a record waits until stream time is that much past its timestamp, then looks the table up. A record
that is late already looks at once. Those that leave together leave in order of their timestamps, then of their keys.
Source: semantics 2.3.1, KIP-914, KIP-923.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.changes import (
    Changes,
    JoinKind,
    LookupCounts,
    concat_changes,
    headers_in,
    headers_of,
)
from crossstream.columns.evaluate import evaluate
from crossstream.columns.order import (
    Puts,
    arrival_numbers,
    by_key,
    came_before,
    in_hash_order,
    last_below,
    running_maximum_of,
)
from crossstream.columns.stream_time import BY_CLOCK, Timeline
from crossstream.columns.values import Values, concat_values
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column, take, take_all, take_or_null
from crossstream.storage.snapshot import Match, Snapshot
from crossstream.storage.sorted_run import bisect
from crossstream.tables.join_spec import JoinSpec
from crossstream.tables.joined import Joined
from crossstream.tables.rows import as_stored, find_versions, headers_at, latest_versions, lookup


@dataclass(frozen=True, slots=True)
class Buffer:
    """The records that wait when a batch begins: those of the store from ``horizon`` (a timestamp) on."""

    view: Snapshot
    grace: int
    horizon: int
    key: EngineSerde | None
    value: EngineSerde | None

    def horizon_at(self, clock: int) -> int:
        """From which timestamp on records wait when the clock shows ``clock``."""
        return max(self.horizon, clock - self.grace + 1)

    def due(self, clock: int) -> Changes:
        """Those that leave by the time the clock shows ``clock``, in arrival order, without a position in time yet."""
        found = self.view.live_between(self.horizon, clock - self.grace)
        columns = take_all(found, np.argsort(found["n"]))
        nowhere = np.zeros(len(columns["n"]), np.int64)
        return Changes(
            Values(self.key, wire=columns["key"]),
            Values(self.value, wire=columns["value"]),
            columns["s"],
            nowhere,
            nowhere,
            columns["headers"],
        )


@dataclass(frozen=True, slots=True)
class Departure:
    """``leaving``: the records that look now, in order, each placed at the record it leaves with.

    ``staying``: which of the batch's records wait on; ``horizon``: after the batch.
    """

    leaving: Changes
    staying: np.ndarray
    horizon: int


def depart(stream: Changes, buffer: Buffer, timeline: Timeline) -> Departure:
    """Passes a batch of admitted records, in arrival order, through the buffer.

    A record leaves with the record that brings stream time to ``grace`` past it, in whichever state partition that is.
    """
    keyed, due = ~stream.key.missing(), buffer.due(timeline.last)
    together = concat_changes([due, stream]) if due.rows else stream
    until = together.ts + buffer.grace
    moments = timeline.with_rows(stream, until)
    moment = moments.time.searchsorted(until)
    own = moments.rows
    moment[due.rows :] = np.where(keyed, np.maximum(own, moment[due.rows :]), own)
    going = np.flatnonzero(moment < len(moments.time))
    order = going[np.lexsort((going, together.ts[going], moment[going]))]
    order = _by_key_where_tied(together, order, moment)
    major, minor = moments.major[moment[order]], moments.minor[moment[order]]
    # What the clock alone releases has no record to share a place with.
    minor = np.where(minor == BY_CLOCK, np.arange(-len(order), 0), minor)
    leaving = replace(together.take(order), major=major, minor=minor)
    staying = np.flatnonzero(moment[due.rows :] == len(moments.time))
    return Departure(leaving, staying, buffer.horizon_at(timeline.last))


def _by_key_where_tied(records: Changes, order: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Records that leave at one moment with one timestamp in order of their keys."""
    ts, at = records.ts[order], moment[order]
    tied = (ts[1:] == ts[:-1]) & (at[1:] == at[:-1])
    if not tied.any():
        return order
    positions = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
    keys = records.key.take(order[positions]).wire()
    rank = np.asarray(pc.rank(keys, tiebreaker="dense"))
    sorted_ = order.copy()
    sorted_[positions] = order[positions][
        np.lexsort((np.arange(len(positions)), rank, ts[positions], at[positions]))
    ]
    return sorted_


def waiting_rows(
    records: Changes, positions: np.ndarray, batch: int, serde: EngineSerde | None, bits: int
) -> dict[str, Column]:
    """The rows of the store for records that wait on; ``positions``: theirs among the records of the batch."""
    return {
        "h": records.hashes(bits),
        "s": records.ts,
        "key": records.key.wire(),
        "n": arrival_numbers(positions, batch),
        "value": records.value.wire(serde),
        "headers": headers_in(records),
        "gone": np.zeros(records.rows, np.uint8),
    }


_NEVER = np.iinfo(np.int64).min

_MORE = 3
"""With so many times more records than rows of the table many records share a key."""


@dataclass(frozen=True, slots=True)
class TableHistory:
    """A table before a batch, and all that the batch puts into it.

    ``before``: its store. ``puts``: in arrival order, keys not null; of a versioned table those it accepts.
    ``looking_first``: says which records, by their `minor`, look the table up before they change it themselves.
    ``history``: how long versions are kept, ms, None: no versions. ``timeline``: stream time of the versions.
    """

    before: Snapshot
    puts: Changes
    serde: EngineSerde | None
    looking_first: Callable[[np.ndarray], np.ndarray]
    history: int | None = None
    timeline: Timeline = field(default_factory=lambda: Timeline(-1))

    def puts_before(self, major: np.ndarray, minor: np.ndarray) -> np.ndarray:
        """For each position in time the number of puts that a record there comes after."""
        return came_before(major, minor, self.puts, or_with=~self.looking_first(minor))


@dataclass(frozen=True, slots=True)
class Seen:
    """The row that each record sees: its row in ``values``, −1 for none. ``headers``: of these, if they are kept."""

    values: Values
    index: np.ndarray
    headers: Column | None = None


def admit(kind: JoinKind, stream: Changes, refusal: str = "null-key") -> tuple[Changes, dict[str, int]]:
    """The records that a join looks at, and those it drops: null values, and null keys in an inner join.

    ``refusal``: the reason for null keys. One that was dropped where the stream was re-keyed comes before all others.
    """
    no_value = stream.value.missing()
    no_key = stream.key.missing() if kind == "inner" else np.zeros(stream.rows, bool)
    dropped = {refusal: int((no_key if refusal != "null-key" else no_key & ~no_value).sum())}
    dropped["null-value"] = int((no_value | no_key).sum()) - dropped[refusal]
    return stream.where(~(no_value | no_key)), dropped


def join_stream_table(spec: JoinSpec, stream: Changes, table: TableHistory, counts: LookupCounts) -> Joined:
    """The results of admitted records, in their order and with their timestamps. A null key finds no row."""
    seen = see(stream, table, spec.bits)
    found = seen.index >= 0
    counts.count(~stream.key.missing(), found)
    if spec.kind == "inner":
        stream, seen = stream.where(found), Seen(seen.values, seen.index[found], seen.headers)
    rows = seen.values.take(seen.index)
    results = evaluate(spec.joiner, stream.key, left=stream.value, right=rows)
    changes = replace(stream, value=results.values, old=None, extra={})
    if spec.headers is not None:
        of_rows = None if seen.headers is None else take_or_null(seen.headers, seen.index)
        changes = replace(changes, headers=headers_of(spec.headers, stream.headers, of_rows))
    return Joined.of(changes, results.failures, stream.value, rows)


def see(stream: Changes, table: TableHistory, bits: int) -> Seen:
    """The row that each record sees, at the moment (major, minor) and with the timestamp it has."""
    keyed = np.flatnonzero(~stream.key.missing())
    looking = stream if len(keyed) == stream.rows else stream.take(keyed)
    few_keys = table.history is None and looking.rows >= _MORE * (table.before.rows + table.puts.rows)
    sight = (_Sight.as_they_came if few_keys else _Sight.by_key)(looking, table, bits)
    seen = _see_rows(sight, table) if table.history is None else _see_versions(sight, table, table.history)
    index = np.full(stream.rows, -1, np.int64)
    index[keyed[sight.order]] = seen.index
    return Seen(seen.values, index, seen.headers)


@dataclass(frozen=True, slots=True)
class _Sight:
    """Records grouped by key (``order``), ``group``: the number of each one's key; and the puts of the batch.

    ``hashes``, ``keys``: of each key, by hash. ``first``, ``last``: of each key the positions among the puts.
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
        positions = puts.places(hashes[heads], keys)
        return cls(stream.take(order), order, np.cumsum(begins) - 1, hashes[heads], keys, puts, *positions)

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
    index = np.where(state.present, np.arange(len(sight.hashes)), -1)[sight.group]
    changed = sight.changed()
    if not len(changed):
        return Seen(state.values, index, state.headers)
    records = sight.records
    before = table.puts_before(records.major[changed], records.minor[changed])
    put = sight.last_put(changed, before)
    gone = sight.puts.changes.value.missing()
    index[changed] = np.where(put < 0, index[changed], np.where(gone[put], -1, state.values.rows + put))
    values = concat_values([state.values, as_stored(sight.puts.changes.value, table.serde)])
    return Seen(values, index, _with_puts(state.headers, sight))


def _with_puts(headers: Column | None, sight: _Sight) -> Column | None:
    return None if headers is None else pa.concat_arrays([headers, headers_in(sight.puts.changes)])


def _see_versions(sight: _Sight, table: TableHistory, history: int) -> Seen:
    """Of a versioned table: the version with the largest timestamp not above the record's own."""
    puts = sight.puts.changes
    before = table.puts_before(sight.records.major, sight.records.minor)
    keys = take(sight.keys, sight.group)
    match, ts = find_versions(table.before, sight.hashes[sight.group], keys, sight.records.ts)
    values, index, headers = _distinct(match, table)
    changed = sight.changed()
    if len(changed):
        put = _latest_put(sight, changed, before[changed])
        newer = (put >= 0) & (~match.found[changed] | (puts.ts[put] >= ts[changed]))
        index[changed] = np.where(newer, values.rows + put, index[changed])
        ts[changed] = np.where(newer, puts.ts[put], ts[changed])
        values = concat_values([values, as_stored(puts.value, table.serde)])
        headers = _with_puts(headers, sight)
    index[_forgotten(sight, table, history, before, ts)] = -1
    gone = np.append(values.missing(), True)
    return Seen(values, np.where(gone[index], -1, index), headers)


def _distinct(match: Match, table: TableHistory) -> tuple[Values, np.ndarray, Column | None]:
    """The versions found, neighbours that found the same one sharing it, and the row of each among them."""
    new = match.found
    new[1:] &= (match.segment[1:] != match.segment[:-1]) | (match.row[1:] != match.row[:-1])
    heads = np.flatnonzero(new)
    once = Match(match.segments, match.segment[heads], match.row[heads])
    values = Values(table.serde, wire=once.gather("value"))
    return values, np.where(match.found, np.cumsum(new) - 1, -1), headers_at(table.before, once)


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
    times = table.timeline.at(sight.records, or_with=~table.looking_first(sight.records.minor))
    old = np.flatnonzero(sight.records.ts < times - history)
    if not len(old):
        return old
    group = sight.group[old]
    newest = latest_versions(table.before, sight.hashes[group], take(sight.keys, group), table.serde)
    top = np.where(newest.present, newest.ts, _NEVER)
    put = sight.last_put(old, before[old])
    so_far = np.append(running_maximum_of(sight.puts.changes.ts, sight.puts.starts), _NEVER)
    return np.asarray(old[ts[old] < np.maximum(top, so_far[put])])
