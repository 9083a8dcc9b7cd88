"""Keeping a table: what a batch of records changes in it.

Source: semantics 2.2.2, 2.2.6; KIP-914 for versioned tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, headers_in
from crossstream.columns.order import by_key, last_per_key, last_per_trigger, running_maximum_of, same_trigger
from crossstream.columns.values import Values, concat_values
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column, take, take_or_null
from crossstream.storage.snapshot import Match, Snapshot
from crossstream.storage.sorted_run import begins_of, places_of

BEHIND = "behind"
"""Extra column of versioned tables: 1 for an update behind a newer version of its key, or `OVERTAKEN`."""

OVERTAKEN = 2
"""In the column `BEHIND`: an update that its own input record overtakes. It is a version, but not a change."""


@dataclass(frozen=True, slots=True)
class Upserts:
    """The net changes of a table in a batch, in order of the key hash, and their hashes.

    ``changelog``: each change that an input record made, grouped by key.
    """

    changes: Changes
    hashes: np.ndarray
    changelog: Changes | None = None


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that a table takes from a batch, in arrival order, each with its start time.

    ``refused``: the number of records that are too old.
    """

    changes: Changes
    refused: int


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table looked up by key: present or not, value, its timestamp (ms), headers if they are kept."""

    present: np.ndarray
    values: Values
    ts: np.ndarray
    headers: Column | None = None


def upsert(
    view: Snapshot,
    changes: Changes,
    *,
    bits: int,
    serde: EngineSerde | None,
    want_old: bool,
    changelog: bool = False,
) -> Upserts:
    """Puts the last record of each key into an unversioned table. ``changes`` in arrival order, keys not null."""
    hashes = changes.hashes(bits)
    if changelog:
        return _upsert_changelog(view, changes, hashes, serde, want_old)
    rows = last_per_key(changes, hashes)
    net, h = changes.take(rows), hashes[rows]
    old = None
    if want_old:
        old = lookup(view, h, net.key.wire(), serde).values
    view.put(_rows(net, h, serde))
    return Upserts(replace(net, value=as_stored(net.value, serde), old=old), h)


def _upsert_changelog(
    view: Snapshot, changes: Changes, hashes: np.ndarray, serde: EngineSerde | None, want_old: bool
) -> Upserts:
    rows, begins = last_per_trigger(changes, *by_key(changes, hashes))
    made, h = changes.take(rows), hashes[rows]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(rows)) - 1
    values = as_stored(made.value, serde)
    before = was = None
    if want_old:
        before = lookup(view, h[first], take(made.key.wire(), first), serde).values
        index = np.where(begins, np.cumsum(begins) - 1, before.rows + np.arange(len(rows)) - 1)
        was = concat_values([before, values]).take(index)
    view.put(_rows(made.take(last), h[last], serde))
    changes_ = replace(made, value=values, old=was)
    return Upserts(replace(changes_.take(last), old=before), h[last], changelog=changes_)


def lookup(view: Snapshot, hashes: np.ndarray, keys: Column, serde: EngineSerde | None) -> TableRows:
    """The rows of the keys (``hashes`` sorted) in an unversioned table."""
    match = view.lookup(hashes, keys)
    ts = np.asarray(match.gather("ts"))
    return TableRows(match.found, Values(serde, wire=match.gather("value")), ts, headers_at(view, match))


def headers_at(view: Snapshot, match: Match) -> Column | None:
    """The headers of the rows found; None where the store keeps none."""
    return match.gather("headers") if "headers" in view.layout.names else None


def as_changed(before: TableRows, changes: Changes, row: np.ndarray, change: np.ndarray) -> TableRows:
    """The numbered rows, each after one of the ``changes``; ``change`` −1: as ``before`` them."""
    changed = change >= 0
    if not changed.any():
        index = np.where(before.present, np.arange(len(before.present)), -1)
        headers = None if before.headers is None else take_or_null(before.headers, index[row])
        return TableRows(before.present[row], before.values.take(index[row]), before.ts[row], headers)
    made = before.values.made()  # by a view: its rows are stored nowhere
    after = changes.value if made else as_stored(changes.value, before.values.serde)
    values = concat_values([before.values, after])
    present = np.where(changed, ~changes.value.missing()[change], before.present[row])
    index = np.where(changed, before.values.rows + change, row)
    ts = np.where(changed, changes.ts[change], before.ts[row])
    index = np.where(present, index, -1)
    headers = None
    if before.headers is not None:
        headers = take_or_null(pa.concat_arrays([before.headers, headers_in(changes)]), index)
    return TableRows(present, values.take(index), ts, headers)


def _rows(net: Changes, hashes: np.ndarray, serde: EngineSerde | None) -> dict[str, Column]:
    return {
        "h": hashes,
        "key": net.key.wire(),
        "value": net.value.wire(serde),
        "ts": net.ts,
        "headers": headers_in(net),
        "gone": net.value.missing().astype(np.uint8),
    }


def as_stored(value: Values, serde: EngineSerde | None) -> Values:
    """The values as the store holds them, so that emitted values equal those looked up later, in one column."""
    is_stored = value.serde is not None and value.serde == serde and not value.made()
    return value if is_stored else Values(serde, wire=value.wire(serde))


def upsert_versions(
    view: Snapshot, changes: Changes, *, bits: int, serde: EngineSerde | None, changelog: bool = False
) -> Upserts:
    """Puts the records that a versioned table takes (`Versions`).

    Records behind a newer version of their key are kept as versions and marked `BEHIND`. Of the others, the last one of
    each key is a net change.
    """
    kept = replace(changes, value=as_stored(changes.value, serde))
    if not kept.rows:
        return Upserts(kept, np.empty(0, np.uint64))
    hashes = kept.hashes(bits)
    order, begins = by_key(kept, hashes)
    sorted_ = kept.take(order)
    h = hashes[order]
    latest = latest_versions(view, h, sorted_.key.wire(), serde)
    newest = _newest_before(sorted_.ts, begins, latest)
    behind = sorted_.ts < np.where(newest < 0, _floor(latest), sorted_.ts[newest])
    view.put(_version_rows(sorted_, h, begins, serde))
    marks = behind.astype(np.uint8)
    if changelog:
        marks[_overtaken(sorted_, behind, begins)] = OVERTAKEN
    keep = behind | _last_latest(behind, begins)
    marked = replace(sorted_, extra={**sorted_.extra, BEHIND: marks})
    return Upserts(marked.where(keep), h[keep], marked if changelog else None)


def versions_by_time(changes: Changes, history: int, times: np.ndarray) -> Versions:
    """Records in arrival order, each a version from its own time. Refuses those before stream time − ``history``.

    ``times``: stream time with each record.
    """
    accepted = changes.ts >= times - history
    return Versions(changes.where(accepted), int((~accepted).sum()))


def versions_by_arrival(
    view: Snapshot,
    changes: Changes,
    *,
    bits: int,
    serde: EngineSerde | None,
    history: int,
    times: np.ndarray,
    repeats: bool,
) -> Versions:
    """Results of an operator in arrival order: the last one of a key is its newest version, whatever its time.

    Story: a row of 26 refers to a right row of 2, and then the right row gets a new value at 3. The result has the time
    of the right record, 3, but it replaces one of 26: it holds from 26 on, so its time is 26.

    Late versions of a table that keeps them (`BEHIND`) go by their times, as in `versions_by_time`. Without
    ``repeats`` tombstones of missing rows are left out. ``times``: stream time with each change.
    """
    hashes = changes.hashes(bits)
    order, begins = by_key(changes, hashes)
    latest = latest_versions(view, hashes[order], take(changes.key.wire(), order), serde)
    late = changes.extra[BEHIND] == 1 if BEHIND in changes.extra else np.zeros(changes.rows, bool)
    put = np.ones(changes.rows, bool)
    if not repeats:
        gone = changes.value.missing()[order]
        was_there = latest.present & ~latest.values.missing()
        put[order] = ~gone | np.where(begins, was_there, ~np.roll(gone, 1))
    refused = late & (changes.ts < times - history)
    put &= ~refused
    floor = _floor(latest)
    newest = np.maximum(floor, np.where(put[order], changes.ts[order], floor))
    since = changes.ts.copy()
    since[order] = np.where(late[order], since[order], running_maximum_of(newest, np.flatnonzero(begins)))
    return Versions(replace(changes, ts=since).where(put), int(refused.sum()))


def latest_versions(view: Snapshot, hashes: np.ndarray, keys: Column, serde: EngineSerde | None) -> TableRows:
    """The newest version of each key (``hashes`` sorted); a deleted one counts: value null, its timestamp."""
    return version_at(view, hashes, keys, np.full(len(hashes), np.iinfo(np.int64).max), serde)


def version_at(
    view: Snapshot, hashes: np.ndarray, keys: Column, times: np.ndarray, serde: EngineSerde | None
) -> TableRows:
    """The version of each key that was valid at its time: the largest timestamp not above it.

    ``present``: there is such a version; its value is null if it is a delete.
    """
    match, ts = find_versions(view, hashes, keys, times)
    values, ts = Values(serde, wire=match.gather("value")), np.where(match.found, ts, -1)
    return TableRows(match.found, values, ts, headers_at(view, match))


def find_versions(
    view: Snapshot, hashes: np.ndarray, keys: Column, times: np.ndarray
) -> tuple[Match, np.ndarray]:
    """The positions of the versions of `version_at`, and their timestamps; the smallest integer for a missing one."""
    best_ts = np.full(len(hashes), np.iinfo(np.int64).min)
    piece = np.full(len(hashes), -1, np.int64)
    row = np.full(len(hashes), -1, np.int64)
    pieces = view.segments()
    low = np.full(len(hashes), np.iinfo(np.int64).min)
    for number, run in enumerate(pieces):
        queries, rows = run.match_range(hashes, keys, low, times)
        if not len(queries):
            continue
        last = np.append(queries[1:] != queries[:-1], True)
        q, r = queries[last], rows[last]
        ts = run["s"][r]
        newer = (ts > best_ts[q]) | (piece[q] < 0)
        q, r = q[newer], r[newer]
        best_ts[q], piece[q], row[q] = ts[newer], number, r
    return Match(pieces, piece, row), best_ts


def _newest_before(ts: np.ndarray, begins: np.ndarray, latest: TableRows) -> np.ndarray:
    """For rows grouped by key: the newest row of the key before it is put; -1 if that is the ``latest`` in the store.

    Of equal timestamps the later row is the newer one.
    """
    rows, group = len(ts), np.cumsum(begins) - 1
    order = np.argsort(ts, kind="stable")
    own = np.where(ts >= _floor(latest), places_of(order, rows), -1)
    previous = np.where(begins, -1, np.roll(own, 1))
    # The number of the group is part of the rank, so one running maximum serves all groups.
    best = np.maximum.accumulate(previous + group * (rows + 1)) - group * (rows + 1)
    return np.where(best < 0, -1, order[best])


def _floor(latest: TableRows) -> np.ndarray:
    return np.where(latest.present, latest.ts, np.iinfo(np.int64).min)


def _last_latest(behind: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Of the rows not behind, the last one of each group."""
    group = np.cumsum(begins)
    rows = np.flatnonzero(~behind)
    last = np.append(group[rows][1:] != group[rows][:-1], True) if len(rows) else np.empty(0, bool)
    result = np.zeros(len(behind), bool)
    result[rows[last]] = True
    return result


def _overtaken(sorted_: Changes, behind: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Of the rows not behind, those that are followed by another one of the same key and input record."""
    latest = np.flatnonzero(~behind)
    one, next_ = latest[:-1], latest[1:]
    group = np.cumsum(begins)
    same = (group[one] == group[next_]) & same_trigger(sorted_.major, sorted_.minor, one, next_)
    return np.asarray(one[same])


def _version_rows(
    sorted_: Changes, hashes: np.ndarray, begins: np.ndarray, serde: EngineSerde | None
) -> dict[str, Column]:
    """One row for each key and timestamp: of equal ones the last."""
    group = np.cumsum(begins)
    order = np.lexsort((np.arange(len(group)), sorted_.ts, group))
    rows = order[np.append(begins_of(group[order], sorted_.ts[order])[1:], True)]
    return {
        "h": hashes[rows],
        "s": sorted_.ts[rows],
        "key": take(sorted_.key.wire(), rows),
        "value": take(sorted_.value.wire(serde), rows),
        "headers": take(headers_in(sorted_), rows),
        "gone": np.zeros(len(rows), np.uint8),
    }
