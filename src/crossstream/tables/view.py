"""A view over two global tables: it has no rows of its own, and is resolved at each look-up.

    law    view[k] = joiner(left[k], right[key_selector(k, left[k])]) at the moment of the look-up, where both rows are
           there (inner), or the left one (left)

A stream finds what both tables held when its record came. A table that follows the view gets each change of a left
row, and for each change of a right row those of the left rows that refer to it then: a scan of the left table finds
them, in batches in which the right table changes. Source: KIP-99, semantics 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.evaluate import Failure, evaluate_where, serialized
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import Puts, by_arrival, by_key, came_before, last_per_key, last_per_trigger
from crossstream.columns.values import Values, concat_values
from crossstream.graph.nodes import GlobalJoin
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import EMPTY_BYTES, Column, take, take_or_null, valid
from crossstream.storage.sorted_run import bisect, expand, places_of, stable_order
from crossstream.tables.global_tables import Changed, GlobalTable, Looked
from crossstream.tables.rows import TableRows

_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class View:
    """A view in a batch. ``value``: the serde of the type that the joiner declares, or the engine's own."""

    node: GlobalJoin
    left: GlobalTable
    right: GlobalTable
    value: EngineSerde
    bits: int

    @property
    def key(self) -> EngineSerde | None:
        return self.left.key

    def values(
        self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray
    ) -> tuple[Values, list[Failure]]:
        looked = self.rows(hashes, keys, major, minor)
        return looked.rows.values, looked.failures

    def before(self, hashes: np.ndarray, keys: Column) -> Looked:
        never = np.full(len(hashes), _FIRST)
        return self.rows(hashes, keys, never, never)

    def some_key(self) -> Values | None:
        return self.left.some_key()

    def rows(self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray) -> Looked:
        """The left row, the right row that it selects at the same moment, and what the joiner makes of them."""
        looked, key = self.left.rows(hashes, keys, major, minor), Values(self.key, wire=keys)
        left, failures = looked.rows, list(looked.failures)
        selected, wrong = self._selected(key, left.values)
        failures += wrong
        asking = np.flatnonzero(valid(selected))
        right, found = self._right(take(selected, asking), major[asking], minor[asking])
        failures += [failure.at(asking[failure.row]) for failure in found]
        place = np.full(len(hashes), -1, np.int64)
        place[asking] = np.where(right.present, np.arange(len(asking)), -1)
        there = left.present & ((place >= 0) | (self.node.kind == "left"))
        there[[failure.row for failure in failures]] = False
        made = evaluate_where(there, self.node.joiner, key, left=left.values, right=right.values.take(place))
        failures += self._named(made.failures)
        ts = left.ts.copy()
        ts[place >= 0] = np.maximum(ts[place >= 0], right.ts[place[place >= 0]])
        return Looked(TableRows(there & ~made.values.missing(), made.values, ts, left.headers), failures)

    def _selected(self, key: Values, left: Values) -> tuple[pa.LargeBinaryArray, list[Failure]]:
        """The keys of the right table that left rows select, null for a row that is not there."""
        selected = evaluate_where(~left.missing(), self.node.key_selector, key, value=left)
        column, wrong = serialized(selected.values, self.right.key, "the selected key")
        return column, self._named([*selected.failures, *wrong])

    def _right(self, keys: Column, major: np.ndarray, minor: np.ndarray) -> tuple[TableRows, list[Failure]]:
        """The right rows of keys in any order."""
        if not len(keys):
            none = np.empty(0, np.int64)
            return TableRows(np.empty(0, bool), Values(self.right.value, wire=EMPTY_BYTES), none), []
        hashes = hash_keys(keys, self.bits)
        order = stable_order(hashes)
        looked = self.right.rows(hashes[order], take(keys, order), major[order], minor[order])
        rows, back = looked.rows, places_of(order, len(order))
        failures = [failure.at(order[failure.row]) for failure in looked.failures]
        return TableRows(rows.present[back], rows.values.take(back), rows.ts[back]), failures

    def _named(self, failures: Sequence[Failure]) -> list[Failure]:
        """The failures of this view's own functions, which say so: the operator that looks it up is another one."""
        return [
            replace(one, role=f"{one.role} of the view {self.node.name}, in a look-up") for one in failures
        ]

    def changes(self, every: bool = False) -> Changed:
        """A row that a function fails on is not there: its change is a delete, and a failure."""
        made = self._triggers()
        if made is None:
            return Changed(None, [])
        hashes = made.hashes(self.bits)
        rows = last_per_trigger(made, *by_key(made, hashes))[0] if every else last_per_key(made, hashes)
        net, h = made.take(rows), hashes[rows]
        looked = self.rows(h, net.key.wire(), net.major, net.minor + 1)  # what this record changed counts
        row = looked.rows
        changes = replace(net, value=row.values, ts=np.where(row.present, row.ts, net.ts))
        if not every:
            return Changed(changes, looked.failures)
        arrived = np.lexsort((changes.minor, changes.major))
        back = places_of(arrived, len(arrived))
        return Changed(changes.take(arrived), [failure.at(back[failure.row]) for failure in looked.failures])

    def _triggers(self) -> Changes | None:
        """The changes of left rows, and of the right rows they refer to, under left keys in order of arrival.

        The values are placeholders: do not read them.
        """
        left, right = self.left.changes(every=True).changes, self.right.changes(every=True).changes
        parts = [] if left is None else [_bare(left.key, left, np.arange(left.rows))]
        if right is not None and right.rows:
            parts.append(self._referring(left, right))
        return by_arrival(concat_changes(parts)) if parts else None

    def _referring(self, left: Changes | None, right: Changes) -> Changes:
        """For each left row, and each change of the right row that it refers to while it does, a change of its key."""
        puts = Puts.of(right, self.bits)
        keys, references, major, minor = self._references(left, puts)
        hashes, wanted = hash_keys(keys.wire(), self.bits), np.flatnonzero(valid(references))
        order, begins = by_key(Changes(keys, keys, major, major, minor), hashes)
        follows = ~np.append(begins[1:], True)
        end = np.full((2, len(order)), _LAST)
        end[:, order[:-1][follows[:-1]]] = np.stack([major, minor])[:, order[1:][follows[:-1]]]

        refer = take(references, wanted)
        asked = hash_keys(refer, self.bits)
        sorted_ = stable_order(asked)
        wanted = wanted[sorted_]
        first, last = puts.places(asked[sorted_], take(refer, sorted_))
        begin = came_before(major[wanted], minor[wanted], right, or_with=True)
        stop = came_before(end[0][wanted], end[1][wanted], right, or_with=False)
        begin, stop = (bisect(puts.rank, first, last, count, right=False) for count in (begin, stop))
        rows, positions = expand(begin, np.maximum(begin, stop))
        return _bare(keys.take(wanted[rows]), puts.changes, positions)

    def _references(
        self, left: Changes | None, puts: Puts
    ) -> tuple[Values, pa.LargeBinaryArray, np.ndarray, np.ndarray]:
        """Left rows before the batch that may refer to what changed, and those of the batch: key, reference, moment."""
        keys, references = [], []
        for _, wire, values in self.left.scan():
            key = Values(self.key, wire=wire)
            selected, _ = self._selected(key, values)
            rows = np.flatnonzero(valid(selected))
            rows = rows[np.isin(hash_keys(take(selected, rows), self.bits), puts.hashes)]
            if len(rows):
                keys.append(key.take(rows))
                references.append(take(selected, rows))
        major = minor = np.full(sum(map(len, references)), _FIRST)
        if left is not None:
            keys.append(left.key)
            references.append(self._selected(left.key, left.value)[0])
            major, minor = np.concatenate([major, left.major]), np.concatenate([minor, left.minor])
        if not keys:
            return Values(self.key, wire=EMPTY_BYTES), EMPTY_BYTES, major, minor
        return concat_values(keys), pa.concat_arrays(references), major, minor

    def scan(self) -> Iterator[tuple[np.ndarray, Column, Values]]:
        for hashes, keys, _ in self.left.scan():
            rows = self.before(hashes, keys).rows
            there = np.flatnonzero(rows.present)
            yield hashes[there], take(keys, there), rows.values.take(there)


def _bare(keys: Values, changes: Changes, rows: np.ndarray) -> Changes:
    """Keys at the moments of these rows of ``changes``, with their headers."""
    headers = None if changes.headers is None else take_or_null(changes.headers, rows)
    return Changes(keys, keys, changes.ts[rows], changes.major[rows], changes.minor[rows], headers)
