"""KStream–KStream join in a window of time.

What a record gives is the same whatever the batch it comes in: stream time advances record by record, and each record
sees what arrived before it and is visible (`partners.py`). For one record come first the rows whose windows it closes,
then its pairs, then its own row.

    final    a record whose unmatched result is out has no partners any more; so each record of an outer side has a
             pair or one unmatched result, never both (not in eager mode)

A record whose window is closed may still get a late partner, but only if it has a pair already.

    Story: an outer join, window 5 ms each way, no grace. Left `A` comes at 0, then a right record of another key at 6:
    it closes the window of `A`, which comes out alone. Right `B` at 3 comes late, and gives nothing. If right `C` at 1
    had come before the record at 6, `A` would have a pair with `C`, and `B` a late one with `A`.
    Test: `test_late_records_of_joins_that_wait_do_not_depend_on_batches`.

The pair it has may be late itself. Each link goes back in time: from the pairs that are sure the others are found, in
as many steps as the longest chain is long (`_settle`). Source: semantics 2.1, 8.1–8.6; KIP-633, KAFKA-10847, KIP-962.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from crossstream.columns.changes import JoinKind, LookupCounts
from crossstream.operators.stream_join.records import (
    ALONE,
    CLOSED,
    PAIR,
    Events,
    Records,
    Stores,
    closing,
    put_records,
    put_waiting,
    results,
    rows_of,
    waits_on,
)
from crossstream.storage.sorted_run import begins_of
from crossstream.tables.join_spec import JoinSpec
from crossstream.tables.joined import Joined
from crossstream.tables.partners import (
    FRESH,
    LEFT,
    NEVER,
    RIGHT,
    SIDES,
    Found,
    Hits,
    Pieces,
    Times,
    Window,
    chunks,
    numbers_in,
    pairs,
    search,
)

OUTER: dict[JoinKind, tuple[bool, bool]] = {
    "inner": (False, False),
    "left": (True, False),
    "outer": (True, True),
}
"""By side: whether its records come out without a partner, too."""


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """What is to be joined. ``itself``: both sides are one stream."""

    spec: JoinSpec
    window: Window
    eager: bool = False
    itself: bool = False

    @property
    def outer(self) -> tuple[bool, bool]:
        return OUTER[self.spec.kind]

    @property
    def waits(self) -> bool:
        """Whether records wait for their windows to close."""
        return self.spec.kind != "inner" and not self.eager


@dataclass(frozen=True, slots=True)
class _Batch:
    """What is known before the first pair.

    By position: ``row``, the number of the record among all rows of ``pieces`` (−1: not kept); ``outer``, whether it
    may come out alone; ``keyless``, whether it does so at once, for it has no key; ``closes``, the position of the
    record that closes its window.
    """

    join: StreamJoin
    records: Records
    pieces: Pieces
    times: Times
    row: np.ndarray
    outer: np.ndarray
    keyless: np.ndarray
    closes: np.ndarray
    finds_itself: np.ndarray
    closing: Hits
    passed: tuple[int, int]
    horizons: tuple[int, int]


@dataclass(slots=True)
class _Fates:
    """What has become of the records so far.

    ``alone``: by number of a row, records of outer sides that are in the batch, or close in it, and have no pair yet.
    ``paired``: by position, records that gave a pair. ``found``: stored records that waited, and have a partner now.
    """

    alone: np.ndarray
    paired: np.ndarray
    found: list[np.ndarray] = field(default_factory=list)


def join_streams(
    join: StreamJoin, records: Records, stores: Stores, times: Times, counts: LookupCounts
) -> Iterator[Joined]:
    """The results of a batch, of at least one record, in order of their triggers.

    ``stores`` are updated; their stream times are those after the batch.
    """
    batch, chunk = _prepared(join, records, stores, times), join.spec.chunk
    fates = _begun(batch)
    found = [one for side in SIDES for one in _search(batch, side)]
    for start, stop in chunks(found, records.count, chunk):
        valid = _settle(batch, fates, pairs(batch.pieces, found, records.key, start, stop))
        parts = [_pair_events(batch, valid), *_lonely_events(batch, fates, start, stop)]
        for events in Events.together(parts).slices(chunk):
            if len(events.trigger):
                yield results(join.spec, records, batch.pieces, events)
    counts.count(records.kept, fates.paired)
    _keep(batch, fates, stores)


def dropped(join: StreamJoin, records: Records, reasons: tuple[str, str]) -> dict[str, int]:
    """How many records give nothing for lack of a key or a value; of a self-join each counts once.

    ``reasons``: what a null key counts as, by side.
    """
    lost = ~records.kept & ~_keyless(join, records)
    if not lost.any():
        return {}
    if join.itself:
        lost &= records.side == LEFT
    counts = {"null-value": int((lost & records.has_key).sum())}
    for side in SIDES:
        null_keys = int((lost & ~records.has_key & (records.side == side)).sum())
        counts[reasons[side]] = counts.get(reasons[side], 0) + null_keys
    return counts


def _prepared(join: StreamJoin, records: Records, stores: Stores, times: Times) -> _Batch:
    # Records older than this do not wait, for no record would ever look for them: time has passed them by with the
    # windows of a run before this one, which were shorter, or of other sides.
    gone = NEVER if stores.waiting is None else stores.waiting.horizon
    horizons = stores.sides[LEFT].horizon, stores.sides[RIGHT].horizon
    passed = max(gone, horizons[LEFT]), max(gone, horizons[RIGHT])
    values = [records.sides[side].value.wire(join.spec.serdes.of_values[side]) for side in SIDES]
    keyless = _keyless(join, records)
    kept_runs, keyless_runs = (
        [records.run(side, mask, values[side]) for side in SIDES] for mask in (records.kept, keyless)
    )
    pieces = Pieces.of(kept_runs, keyless_runs, [store.view.segments() for store in stores.sides])
    row = np.full(records.count, -1, np.int64)
    for first, run in zip(pieces.first[:FRESH], pieces.runs, strict=False):
        row[run["position"]] = first + np.arange(run.rows)
    closes = np.where(
        records.side == LEFT, *(_closes(join.window, passed, side, records.ts) for side in SIDES)
    )
    return _Batch(
        join,
        records,
        pieces,
        times,
        row,
        np.array(join.outer)[records.side],
        keyless,
        times.first_after(closes),
        _finds_itself(join, records, times, horizons[LEFT]),
        closing(join.window, join.outer, stores.waiting, pieces, times),
        passed,
        horizons,
    )


def _keyless(join: StreamJoin, records: Records) -> np.ndarray:
    """Records of an outer side without a key: they have no partner, and each comes out alone at once."""
    return np.asarray(np.array(join.outer)[records.side] & ~records.has_key & records.has_value)


def _closes(window: Window, passed: tuple[int, int], side: int, ts: np.ndarray) -> np.ndarray:
    return np.where(ts < passed[side], NEVER - 1, window.closes(side, ts))


def _finds_itself(join: StreamJoin, records: Records, times: Times, oldest: int) -> np.ndarray:
    """Records of a self-join in current mode that will be their own partners, and so are never alone."""
    if not join.itself or not join.waits or min(join.window.ahead) < 0:
        return np.zeros(records.count, bool)
    return records.kept & (records.ts >= np.maximum(join.window.horizon(LEFT, times.newest[LEFT]), oldest))


def _begun(batch: _Batch) -> _Fates:
    alone = np.zeros(batch.pieces.rows, bool)
    if batch.join.waits:
        alone[batch.row[batch.outer & batch.records.kept & ~batch.finds_itself]] = True
        alone[batch.pieces.number(batch.closing.piece, batch.closing.row)] = True
    return _Fates(alone, np.zeros(batch.records.count, bool))


def _search(batch: _Batch, side: int) -> Iterator[Found]:
    """What the records of a side find on the other one."""
    positions = np.flatnonzero(batch.records.kept & (batch.records.side == side))
    if not len(positions):
        return iter(())
    low, high = batch.times.reach(batch.join.window, side, positions, batch.records.ts[positions])
    low = np.maximum(low, batch.horizons[RIGHT - side])
    return search(batch.pieces, RIGHT - side, positions, batch.records.hashes[positions], low, high)


def _settle(batch: _Batch, fates: _Fates, found: Hits) -> Hits:
    """The pairs that are valid: those whose older record is not out already."""
    if not batch.join.waits or not len(found.trigger):
        fates.paired[found.trigger] = True
        return found
    found, late = _without_gone(batch, found, _late(batch, found))
    older, younger = batch.pieces.number(found.piece, found.row), batch.row[found.trigger]
    sure = ~late
    _note_found(batch, fates, found.where(sure))
    fates.alone[older[sure]] = False
    fates.alone[younger[sure]] = False
    while (now := ~sure & ~fates.alone[older]).any():
        sure |= now
        fates.alone[younger[now]] = False
    valid = found.where(sure)
    fates.paired[valid.trigger] = True
    return valid


def _late(batch: _Batch, found: Hits) -> np.ndarray:
    """The pairs whose older record may come out alone, and its window is closed."""
    late = np.zeros(len(found.trigger), bool)
    for side in SIDES:
        if batch.join.outer[side]:
            closes = _closes(batch.join.window, batch.passed, side, found.ts)
            late |= (found.side == side) & (closes < batch.times.join[found.trigger])
    return late


def _without_gone(batch: _Batch, found: Hits, late: np.ndarray) -> tuple[Hits, np.ndarray]:
    """Without records that have left their store, which may be in an older piece and, as gone, in a newer one."""
    gone = np.zeros(len(late), bool)
    for number in numbers_in(found.piece):
        if number >= FRESH:
            rows = np.flatnonzero(found.piece == number)
            gone[rows] = batch.pieces.runs[number]["gone"][found.row[rows]] != 0
    if not gone.any():
        return found, late
    order = np.lexsort((found.n, found.trigger))
    group = np.cumsum(begins_of(found.trigger[order], found.n[order])) - 1
    any_gone = np.zeros(int(group[-1]) + 1, bool)
    any_gone[group[gone[order]]] = True
    keep = np.empty(len(late), bool)
    keep[order] = ~any_gone[group]
    return found.where(keep), late[keep]


def _note_found(batch: _Batch, fates: _Fates, found: Hits) -> None:
    """Remembers the stored records among those found that waited, also on a side that was outer once."""
    for number in numbers_in(found.piece[found.piece >= FRESH]):
        rows = found.row[found.piece == number]
        waited = rows[batch.pieces.runs[number]["alone"][rows] != 0]
        fates.found.append(batch.pieces.first[number] + np.unique(waited))


def _pair_events(batch: _Batch, valid: Hits) -> Events:
    trigger = valid.trigger
    piece, row = batch.pieces.located(batch.row[trigger])
    what = np.full(len(trigger), PAIR, np.int8)
    side = batch.records.side[trigger]
    return Events(what, trigger, piece, row, side, valid.piece, valid.row, valid.ts, valid.n)


def _lonely_events(batch: _Batch, fates: _Fates, start: int, stop: int) -> Iterator[Events]:
    """The records that come out alone because of those from ``start`` to ``stop``."""
    records, positions = batch.records, np.arange(start, stop)
    here = batch.outer[start:stop] & records.kept[start:stop] & ~fates.paired[start:stop]
    if batch.join.waits:
        here &= (batch.closes[start:stop] <= positions) & ~batch.finds_itself[start:stop]
    here |= batch.keyless[start:stop]
    if here.any():
        yield _own_events(batch, ALONE, positions[here], positions[here])
    if batch.join.waits:
        due = batch.closes
        waiting = (
            (due >= start) & (due < stop) & (due > np.arange(records.count)) & batch.outer & records.kept
        )
        rows = np.flatnonzero(waiting)
        rows = rows[fates.alone[batch.row[rows]]]
        if len(rows):
            yield _own_events(batch, CLOSED, rows, due[rows])
        stored = batch.closing
        if len(stored.trigger):
            stored = stored.where((stored.trigger >= start) & (stored.trigger < stop))
            stored = stored.where(fates.alone[batch.pieces.number(stored.piece, stored.row)])
            yield Events.alone(CLOSED, stored)


def _own_events(batch: _Batch, what: int, positions: np.ndarray, trigger: np.ndarray) -> Events:
    """Records of the batch, alone."""
    piece, row = batch.pieces.located(batch.row[positions])
    records = batch.records
    rows = Hits(
        trigger, piece, row, records.ts[positions], records.numbers(positions), records.side[positions]
    )
    return Events.alone(what, rows)


def expire(join: StreamJoin, stores: Stores) -> None:
    """Sets the oldest timestamps that the stores have rows of, by their stream times."""
    for side, store in zip(SIDES, stores.sides, strict=True):
        store.horizon = max(store.horizon, int(join.window.horizon(side, store.stream_time)))
    waiting = stores.waiting
    if waiting is None:
        return
    # Those that wait on a side that was outer once stay: the next run may have an outer join again.
    sides = [side for side in SIDES if join.outer[side] or waits_on(waiting, side)]
    limits = [join.window.closing(side, waiting.stream_time) for side in sides]
    waiting.horizon = max(waiting.horizon, min(limits))


def _keep(batch: _Batch, fates: _Fates, stores: Stores) -> None:
    join, pieces, closes = batch.join, batch.pieces, batch.closes
    out = batch.closing.where(fates.alone[pieces.number(batch.closing.piece, batch.closing.row)])
    expire(join, stores)
    waits = []
    for side in SIDES:
        store, run = stores.sides[side], pieces.runs[side]
        alone = fates.alone[pieces.first[side] : pieces.first[side] + run.rows]
        open_ = closes[run["position"]] >= batch.records.count
        stays = (run["s"] >= store.horizon) & (open_ | ~alone)
        mine = out.where((out.side == side) & (out.ts >= store.horizon))
        put_records(store, run, stays, alone & open_, rows_of(pieces, mine.piece, mine.row))
        waits.append((side, run.columns, alone & open_))
    if stores.waiting is None:
        return
    ended = np.concatenate([*fates.found, pieces.number(out.piece, out.row)])
    if len(ended) > 1:
        ended = np.unique(ended)
    put_waiting(stores.waiting, waits, rows_of(pieces, *pieces.located(ended)))
