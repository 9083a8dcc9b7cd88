"""The results of a stream–stream join: events in their order, and what the joiner makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import evaluate
from crossstream.columns.functions import Function
from crossstream.columns.values import Values
from crossstream.operators.stream_join.partners import FRESH, RIGHT, SIDES, Hits, Pieces
from crossstream.operators.stream_join.records import Records
from crossstream.operators.table_join.kernel import Joined
from crossstream.serdes import Serde
from crossstream.storage.columns import take

CLOSED, PAIR, ALONE = 0, 1, 2
"""What an event is, in the order in which one record gives them: a row whose window it closes, a pair, its own row."""


@dataclass(frozen=True, slots=True)
class Events:
    """Results to be made. ``trigger``: the place of the record that gives them.

    ``piece``, ``row``, ``side``: of the record whose key and headers the result has: of a pair the one that came
    second, else the one that is alone. ``partner_piece``, ``partner_row``: of the other one, −1 for none. ``ts``: of
    the partner, or of the record that is alone; ``n``: its arrival number.
    """

    what: np.ndarray
    trigger: np.ndarray
    piece: np.ndarray
    row: np.ndarray
    side: np.ndarray
    partner_piece: np.ndarray
    partner_row: np.ndarray
    ts: np.ndarray
    n: np.ndarray

    @classmethod
    def alone(cls, what: int, rows: Hits) -> Events:
        none = np.full(len(rows.trigger), -1, np.int64)
        kinds = np.full(len(rows.trigger), what, np.int8)
        return cls(kinds, rows.trigger, rows.piece, rows.row, rows.side, none, none, rows.ts, rows.n)

    @classmethod
    def together(cls, parts: Sequence[Events]) -> Events:
        """All of them, in the order of semantics 1.6; between different keys that of arrival."""
        parts = [part for part in parts if len(part.trigger)] or list(parts[:1])
        one = parts[0]
        if len(parts) > 1:
            one = cls(*(np.concatenate(same) for same in zip(*map(_columns, parts), strict=True)))
        if len(one.trigger) <= 1:
            return one
        left_last = np.where(one.what == CLOSED, RIGHT - one.side, 0)
        return one.take(np.lexsort((one.n, left_last, one.ts, one.what, one.trigger)))

    def take(self, rows: np.ndarray | slice) -> Events:
        return Events(*(column[rows] for column in _columns(self)))

    def slices(self, size: int) -> Iterator[Events]:
        """At most ``size`` events at a time. Those after the last one that looks back behind the batch stay apart."""
        count = len(self.trigger)
        if count <= 1:
            yield self
            return
        stored = np.flatnonzero((self.piece >= FRESH) | (self.partner_piece >= FRESH))
        back = int(stored[-1]) + 1 if len(stored) else 0
        for first, last in ((0, back), (back, count)):
            for start in range(first, last, size):
                yield self.take(slice(start, min(start + size, last)))


def _columns(events: Events) -> list[np.ndarray]:
    return [getattr(events, name) for name in Events.__slots__]


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes results of events. ``serdes``: of the values of the left and of the right side."""

    joiner: Function
    key: Serde | None
    serdes: tuple[Serde | None, Serde | None]

    def results(
        self, records: Records, sides: tuple[Changes, Changes], pieces: Pieces, events: Events
    ) -> Joined:
        """One result for each event."""
        key = self._key(records, pieces, events)
        left, right = (self._values(records, sides[side].value, pieces, events, side) for side in SIDES)
        outcome = evaluate(self.joiner, key, left=left, right=right)
        own = records.ts[events.trigger]
        changes = Changes(
            key,
            outcome.values,
            np.where(events.what == PAIR, np.maximum(events.ts, own), events.ts),
            records.major[events.trigger],
            records.minor[events.trigger],
            _headers(pieces, events),
        )
        return Joined.of(changes, outcome.failures, left, right, events.side)

    def _key(self, records: Records, pieces: Pieces, events: Events) -> Values:
        place = _places(pieces, events.piece, events.row)
        if place is not None:
            return Values(self.key, wire=take(records.key, place))
        column, index = pieces.gather("key", events.piece, events.row)
        return Values(self.key, wire=column).take(index)

    def _values(self, records: Records, values: Values, pieces: Pieces, events: Events, side: int) -> Values:
        """Of a side; ``values``: those of its records in the batch, which may be decoded already."""
        own = events.side == side
        piece = np.where(own, events.piece, events.partner_piece)
        row = np.where(own, events.row, events.partner_row)
        place = _places(pieces, piece, row)
        if place is not None and values.rows:
            return values.take(np.where(place < 0, -1, records.row[place]))
        column, index = pieces.gather("value", piece, row)
        return Values(self.serdes[side], wire=column).take(index)


def _places(pieces: Pieces, piece: np.ndarray, row: np.ndarray) -> np.ndarray | None:
    """The places of rows in the batch, −1 for no row; None if some rows are stored ones."""
    if (piece >= FRESH).any():
        return None
    place = np.full(len(piece), -1, np.int64)
    for number in range(FRESH):
        mine = np.flatnonzero(piece == number)
        place[mine] = pieces.runs[number]["place"][row[mine]]
    return place


def _headers(pieces: Pieces, events: Events) -> pa.LargeBinaryArray | None:
    if all(run["headers"].null_count == run.rows for run in pieces.runs):
        return None
    column, index = pieces.gather("headers", events.piece, events.row)
    return column.take(pa.array(index))
