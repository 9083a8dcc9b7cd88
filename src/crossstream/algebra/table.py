"""Keeping a table: what a batch of records changes in it.

    law    after any number of batches, cut anywhere, the table holds for each key the value that arrived last
           (of a versioned table: the one with the largest timestamp), and no row for a key whose last value is null

Source: semantics 2.2.2, 2.2.6; KIP-914 for versioned tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from crossstream.algebra.change import Changes
from crossstream.algebra.order import by_key, last_per_key
from crossstream.algebra.values import Values
from crossstream.serdes import Serde
from crossstream.state.columns import Column, take
from crossstream.state.view import Match, View

BEHIND = "behind"
"""Extra column of versioned tables: 1 for an update behind a newer version of its key."""


@dataclass(frozen=True, slots=True)
class Upserts:
    """What a batch did to a table: its net changes in order of the key hash, and their hashes."""

    changes: Changes
    hashes: np.ndarray
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table looked up by key: present or not, value, timestamp of the value (ms)."""

    present: np.ndarray
    values: Values
    ts: np.ndarray

    def existing(self, rows: np.ndarray) -> Rows:
        return Rows(self.present[rows], self.values.take(rows), self.ts[rows])


def upsert(view: View, changes: Changes, *, bits: int, serde: Serde | None, want_old: bool) -> Upserts:
    """Puts the last record of each key into an unversioned table. ``changes`` in arrival order, keys not null."""
    hashes = changes.hashes(bits)
    rows = last_per_key(changes, hashes)
    net, h = changes.take(rows), hashes[rows]
    old = None
    if want_old:
        old = lookup(view, h, net.key.wire(), serde).values
    view.put(_rows(net, h, serde))
    return Upserts(replace(net, value=_wired(net.value, serde), old=old), h)


def lookup(view: View, hashes: np.ndarray, keys: Column, serde: Serde | None) -> Rows:
    """The rows of the keys (``hashes`` sorted) in an unversioned table."""
    match = view.lookup(hashes, keys)
    return Rows(match.found, Values(serde, wire=match.gather("value")), np.asarray(match.gather("ts")))


def _rows(net: Changes, hashes: np.ndarray, serde: Serde | None) -> dict[str, Column]:
    return {
        "h": hashes,
        "key": net.key.wire(),
        "value": net.value.wire(serde),
        "ts": net.ts,
        "gone": net.value.missing().astype(np.uint8),
    }


def _wired(value: Values, serde: Serde | None) -> Values:
    """The values as the store holds them, so that what is handed on equals what is looked up later."""
    return (
        value if value.serde is not None and value.serde == serde else Values(serde, wire=value.wire(serde))
    )


def upsert_versions(
    view: View, changes: Changes, *, bits: int, serde: Serde | None, history: int, stream_time: int
) -> tuple[Upserts, int]:
    """Puts records into a versioned table; also gives the new stream time.

    A record older than stream time − ``history`` is rejected and counted. Of the rest, those behind a newer
    version of their key are kept as versions and marked `BEHIND`; of those that become the latest version
    one for each key, the last, is handed on.
    """
    times = np.maximum(np.maximum.accumulate(changes.ts), stream_time)
    accepted = changes.ts >= times - history
    dropped = {"expired-version": int((~accepted).sum())}
    kept = changes.where(accepted)
    if not kept.rows:
        return Upserts(kept, np.empty(0, np.uint64), dropped), int(times[-1])
    hashes = kept.hashes(bits)
    order, begins = by_key(kept, hashes)
    sorted_ = kept.take(order)
    h = hashes[order]
    latest = latest_versions(view, h, sorted_.key.wire(), serde)
    before = _running_maximum_before(sorted_.ts, begins, latest)
    behind = sorted_.ts < before
    view.put(_version_rows(sorted_, h, begins, serde))
    marked = replace(sorted_, extra={**sorted_.extra, BEHIND: behind.astype(np.uint8)})
    last = _last_latest(behind, begins)
    keep = behind | last
    return Upserts(marked.where(keep), h[keep], dropped), int(times[-1])


def latest_versions(view: View, hashes: np.ndarray, keys: Column, serde: Serde | None) -> Rows:
    """The newest version of each key (``hashes`` sorted); a deleted one counts: value null, its timestamp."""
    return version_at(view, hashes, keys, np.full(len(hashes), np.iinfo(np.int64).max), serde)


def version_at(view: View, hashes: np.ndarray, keys: Column, times: np.ndarray, serde: Serde | None) -> Rows:
    """The version of each key that was valid at its time: the largest timestamp not above it.

    ``present``: there is such a version; its value is null if it is a delete.
    """
    best_ts = np.full(len(hashes), np.iinfo(np.int64).min)
    piece = np.full(len(hashes), -1, np.int64)
    row = np.full(len(hashes), -1, np.int64)
    pieces = view.pieces()
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
    match = Match(pieces, piece, row)
    found = piece >= 0
    return Rows(found, Values(serde, wire=match.gather("value")), np.where(found, best_ts, -1))


def _running_maximum_before(ts: np.ndarray, begins: np.ndarray, latest: Rows) -> np.ndarray:
    """For rows grouped by key: the newest timestamp of the key before the row is put."""
    floor = np.where(latest.present, latest.ts, np.iinfo(np.int64).min)
    # Groups are told apart by their rank, so one running maximum serves all of them.
    group = np.cumsum(begins) - 1
    ranks = np.argsort(np.argsort(np.concatenate([ts, floor]), kind="stable"), kind="stable")
    values = np.concatenate([ts, floor])
    span = len(values) + 1
    own, start = ranks[: len(ts)], ranks[len(ts) :]
    previous = np.where(begins, start, np.maximum(np.roll(own, 1), start))
    best = np.maximum.accumulate(previous + group * span) - group * span
    return np.asarray(np.sort(values, kind="stable")[best])


def _last_latest(behind: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Of the rows not behind, the last one of each group."""
    group = np.cumsum(begins)
    places = np.flatnonzero(~behind)
    last = np.append(group[places][1:] != group[places][:-1], True) if len(places) else np.empty(0, bool)
    result = np.zeros(len(behind), bool)
    result[places[last]] = True
    return result


def _version_rows(
    sorted_: Changes, hashes: np.ndarray, begins: np.ndarray, serde: Serde | None
) -> dict[str, Column]:
    """One row for each key and timestamp: of equal ones the last."""
    group = np.cumsum(begins)
    order = np.lexsort((np.arange(len(group)), sorted_.ts, group))
    g, ts = group[order], sorted_.ts[order]
    last = np.append((g[1:] != g[:-1]) | (ts[1:] != ts[:-1]), True)
    rows = order[last]
    return {
        "h": hashes[rows],
        "s": sorted_.ts[rows],
        "key": take(sorted_.key.wire(), rows),
        "value": take(sorted_.value.wire(serde), rows),
        "gone": np.zeros(len(rows), np.uint8),
    }
