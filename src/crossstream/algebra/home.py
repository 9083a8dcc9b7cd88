"""What a partition of left rows of a join of many keeps: the rows, their index, and the right rows they refer to.

Each right row is there once, however many left rows of the partition refer to it. Foreign keys into several tables
share a store; the number of the table is the first byte of such a key. Source: decision 0019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossstream.algebra.change import Changes
from crossstream.algebra.hashing import hash_keys
from crossstream.algebra.interest import CHANGED, GONE, MOVED, TOLD, before, reference, with_tables
from crossstream.algebra.values import Values
from crossstream.serdes import Serde, arrays
from crossstream.state.columns import Column, concat_all, take, take_or_null, valid
from crossstream.state.run import Run, sort_rows, stable_order
from crossstream.state.view import View


@dataclass(frozen=True, slots=True)
class Home:
    """``names``: of the right tables, with the serdes of their ``values``.

    ``rows``: left rows and their foreign keys; ``referrers``: their index by foreign key; ``partners``: right rows.
    ``anew``: index and right rows are made in this batch, so what there was before it is not known.
    """

    names: Sequence[str]
    values: Sequence[Serde | None]
    rows: View
    referrers: View
    partners: View
    bits: int
    anew: bool = False

    def as_it_is(self) -> Home:
        """What is kept at this moment, whatever is put later."""
        rows, referrers, partners = (
            View(view.layout, view.slots, view.fresh) for view in (self.rows, self.referrers, self.partners)
        )
        return Home(self.names, self.values, rows, referrers, partners, self.bits, self.anew)

    def index_all(self) -> None:
        """Makes the index of the rows there are."""
        live = self.rows.live()
        entries = []
        for number, name in enumerate(self.names):
            there = np.flatnonzero(valid(live[reference(name)]))
            entries.append(self._entries(number, live[reference(name)], live["key"], live["h"], there, False))
        self._index(entries)

    def put_rows(self, rows: Changes) -> None:
        """Left rows that changed, in order of their hash, with their foreign keys before and after."""
        hashes, keys = rows.hashes(self.bits), rows.key.wire()
        references = {reference(name): rows.extra[reference(name)] for name in self.names}
        gone = rows.value.missing().astype(np.uint8)
        own = {"h": hashes, "key": keys, "value": rows.value.wire(), "ts": rows.ts, "gone": gone}
        self.rows.put({**own, **references})
        moved = np.asarray(rows.extra[MOVED])
        entries = []
        for number, name in enumerate(self.names):
            mine = (moved >> number & 1).astype(bool)
            for column, leaves in ((rows.extra[before(name)], True), (rows.extra[reference(name)], False)):
                there = np.flatnonzero(mine & valid(column))
                entries.append(self._entries(number, column, keys, hashes, there, leaves))
        self._index(entries)

    def _entries(
        self, number: int, foreign: Column, keys: Column, hashes: np.ndarray, rows: np.ndarray, leaves: bool
    ) -> dict[str, Column]:
        """Entries of the index for these rows; ``leaves``: they refer to the foreign key no longer."""
        encoded = take(foreign, rows).dictionary_encode()
        named, code = arrays.with_first_byte(number, encoded.dictionary), np.asarray(encoded.indices)
        h = hash_keys(named, self.bits)[code]
        gone = np.full(len(rows), leaves, np.uint8)
        return {"h": h, "s": hashes[rows], "key": take(named, code), "key2": take(keys, rows), "gone": gone}

    def _index(self, entries: Sequence[dict[str, Column]]) -> None:
        columns = concat_all(entries)
        if len(columns["h"]):
            self.referrers.put(columns)

    def put_partners(self, answers: Changes) -> None:
        """What is told of right rows; what they have become in this batch counts more than the row asked for."""
        told = np.asarray(answers.extra[TOLD])
        for part in (answers.where(told != CHANGED), answers.where(told == CHANGED)):
            if part.rows:
                keys = with_tables(part)
                gone = (part.value.missing() | (part.extra[TOLD] == GONE)).astype(np.uint8)
                h, value = hash_keys(keys, self.bits), part.value.wire()
                self.partners.put({"h": h, "key": keys, "value": value, "ts": part.ts, "gone": gone})

    def put_now(self, hashes: np.ndarray, keys: Column) -> np.ndarray:
        """Which left rows this batch has put (``hashes`` sorted)."""
        hit = np.zeros(len(hashes), bool)
        if self.rows.fresh is not None and self.rows.fresh.rows:
            hit[self.rows.fresh.match(hashes, keys)[0]] = True
        return hit

    def partners_of(self, references: Sequence[Column], changed: ChangedRows | None) -> list[Partners]:
        """The right rows that rows refer to, one column of foreign keys for each table."""
        return [self._partners_of(number, column, changed) for number, column in enumerate(references)]

    def _partners_of(self, number: int, column: Column, changed: ChangedRows | None) -> Partners:
        """Looked up once for each different foreign key."""
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        if not len(encoded.dictionary):
            none = np.full(len(codes), -1)
            nothing = Values(self.values[number], wire=encoded.dictionary).take(none)
            return Partners(none >= 0, nothing, none, none)
        keys = arrays.with_first_byte(number, encoded.dictionary)
        hashes = hash_keys(keys, self.bits)
        order = stable_order(hashes)
        hashes, keys = hashes[order], take(keys, order)
        match = self.partners.lookup(hashes, keys)
        at = np.full(len(order) + 1, -1)
        at[order] = np.where(match.found, np.arange(len(order)), -1)
        trigger = np.full(len(order) + 1, -1)
        if changed is not None:
            queries, rows = changed.run.match(hashes, keys)
            trigger[order[queries]] = rows
        place = at[codes]
        values = Values(self.values[number], wire=match.gather("value")).take(place)
        ts = np.append(np.asarray(match.gather("ts")), -1)[place]
        return Partners(place >= 0, values, ts, trigger[codes])


@dataclass(frozen=True, slots=True)
class Partners:
    """Right rows of one table: whether there is one, its value and timestamp.

    ``trigger``: the row of `ChangedRows` that made it what it is, or made it go; −1: none of this batch.
    """

    present: np.ndarray
    values: Values
    ts: np.ndarray
    trigger: np.ndarray


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The right rows that changed in this batch: ``run`` has table and foreign key, ts, major, minor."""

    run: Run
    headers: pa.LargeBinaryArray | None

    @classmethod
    def of(cls, answers: Changes | None, bits: int) -> ChangedRows | None:
        """None if no right row changed that is of interest here."""
        told = None if answers is None else answers.where(answers.extra[TOLD] == CHANGED)
        if told is None or not told.rows:
            return None
        keys = with_tables(told)
        order = {"ts": told.ts, "major": told.major, "minor": told.minor, "place": np.arange(told.rows)}
        run = sort_rows({"h": hash_keys(keys, bits), "key": keys, **order})
        headers = None if told.headers is None else take_or_null(told.headers, np.asarray(run["place"]))
        return cls(run, headers)

    def first(self, partners: Sequence[Partners]) -> np.ndarray:
        """For each row the change of the first table that has one; −1: none."""
        first = np.full(len(partners[0].trigger), -1)
        for partner in reversed(partners):
            first = np.where(partner.trigger >= 0, partner.trigger, first)
        return first

    def latest(self, partners: Sequence[Partners]) -> np.ndarray:
        """For each row the change that arrived last; −1: none."""
        latest = np.full(len(partners[0].trigger), -1)
        for partner in partners:
            one = partner.trigger
            later = self.later(one, self.run["major"][latest], self.run["minor"][latest])
            latest = np.where((one >= 0) & ((latest < 0) | later), one, latest)
        return latest

    def later(self, changes: np.ndarray, major: np.ndarray, minor: np.ndarray) -> np.ndarray:
        """Which changes arrived after the given places in the order."""
        mine, rest = self.run["major"][changes], self.run["minor"][changes]
        return np.asarray((mine > major) | ((mine == major) & (rest > minor)))

    def triggered(self, keys: Values, changes: np.ndarray) -> Changes:
        """Results, without values yet, that these changes make: at their place in the order, at their time."""
        ts, major, minor = (np.asarray(self.run[name])[changes] for name in ("ts", "major", "minor"))
        headers = None if self.headers is None else take_or_null(self.headers, changes)
        return Changes(keys, keys, ts, major, minor, headers)
