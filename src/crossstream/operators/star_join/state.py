"""What a partition of left rows of a join of many keeps: the rows, their index, and the right rows they refer to.

Each right row is there once, however many left rows of the partition refer to it. Foreign keys into several tables
share a store; the number of the table is the first byte of such a key. Source: decision 0019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, reference
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import in_hash_order
from crossstream.columns.values import Values
from crossstream.operators.star_join.right_rows import CHANGED, GONE, MOVED, RAW, TOLD, WAS, with_tables
from crossstream.serdes import Serde, arrays
from crossstream.storage.columns import Column, take, take_or_null
from crossstream.storage.snapshot import View
from crossstream.storage.sorted_run import Run, sort_rows, sorted_order


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

    def coded(self, columns: Sequence[Column]) -> list[Coded]:
        """One column of foreign keys for each table, each different one once."""
        return [Coded.of(number, column, self.bits) for number, column in enumerate(columns)]

    def index_all(self) -> None:
        """Makes the index of the rows there are."""
        live = self.rows.live()
        references = self.coded([live[reference(name)] for name in self.names])
        everyone, all_of_them = np.arange(live.rows), np.ones(live.rows, bool)
        entries = [Entries.of(one, everyone, all_of_them, False) for one in references]
        self._index(entries, live["key"], live["h"])

    def references_of(self, hashes: np.ndarray, keys: Column) -> list[Column]:
        """The foreign keys of left rows as they are kept, a column for each table."""
        match = self.rows.lookup(hashes, keys)
        return [match.gather(reference(name)) for name in self.names]

    def put_rows(self, rows: Changes, now: Sequence[Coded], serde: Serde | None) -> None:
        """Left rows that changed, in order of their hash, and their foreign keys after the batch.

        ``serde``: of their values in the store.
        """
        hashes, keys = rows.hashes(self.bits), rows.key.wire()
        moved = np.asarray(rows.extra[MOVED])
        leavers = np.flatnonzero((moved > 0) & (np.asarray(rows.extra[WAS]) == 1))
        before = self.coded(self.references_of(hashes[leavers], take(keys, leavers)))
        references = {reference(name): rows.extra[reference(name)] for name in self.names}
        gone = rows.value.missing().astype(np.uint8)
        own = {"h": hashes, "key": keys, "value": rows.value.wire(serde), "ts": rows.ts, "gone": gone}
        self.rows.put({**own, **references})
        everyone = np.arange(rows.rows)
        entries = [
            Entries.of(one, whose, (moved[whose] >> number & 1).astype(bool), leaves)
            for references, whose, leaves in ((before, leavers, True), (now, everyone, False))
            for number, one in enumerate(references)
        ]
        self._index(entries, keys, hashes)

    def _index(self, entries: Sequence[Entries], keys: Column, hashes: np.ndarray) -> None:
        """Puts entries of left rows with these keys and hashes, each where it belongs at once."""
        first = np.cumsum([0, *(len(one.foreign.keys) for one in entries[:-1])])
        codes = np.concatenate([one.codes + at for one, at in zip(entries, first, strict=True)])
        if not len(codes):
            return
        rows = np.concatenate([one.rows for one in entries])
        gone = np.repeat([one.leaves for one in entries], [len(one.rows) for one in entries])
        h, s = np.concatenate([one.foreign.hashes for one in entries])[codes], hashes[rows]
        order = sorted_order({"h": h, "s": s})
        foreign = take(pa.concat_arrays([one.foreign.keys for one in entries]), codes[order])
        key2 = take(keys, rows[order])
        self.referrers.put(
            {"h": h[order], "s": s[order], "key": foreign, "key2": key2, "gone": gone[order].astype(np.uint8)}
        )

    def put_partners(self, answers: Changes) -> None:
        """What is told of right rows; what they have become in this batch counts more than the row asked for."""
        told = np.asarray(answers.extra[TOLD])
        self.put_told(answers.where(told != CHANGED))
        self.put_told(answers.where(told == CHANGED))

    def put_told(self, answers: Changes) -> None:
        """Likewise, where each right row is told of once."""
        if answers.rows:
            keys = with_tables(answers)
            gone = (answers.value.missing() | (answers.extra[TOLD] == GONE)).astype(np.uint8)
            h, value = hash_keys(keys, self.bits), answers.value.wire(RAW)
            self.partners.put({"h": h, "key": keys, "value": value, "ts": answers.ts, "gone": gone})

    def put_now(self, hashes: np.ndarray, keys: Column) -> np.ndarray:
        """Which left rows this batch has put (``hashes`` sorted)."""
        hit = np.zeros(len(hashes), bool)
        if self.rows.fresh is not None and self.rows.fresh.rows:
            hit[self.rows.fresh.match(hashes, keys)[0]] = True
        return hit

    def partners_of(self, references: Sequence[Coded], changed: ChangedRows | None) -> list[Partners]:
        """The right rows that rows refer to."""
        return [self._partners_of(number, foreign, changed) for number, foreign in enumerate(references)]

    def _partners_of(self, number: int, foreign: Coded, changed: ChangedRows | None) -> Partners:
        """Looked up once for each different foreign key."""
        codes = foreign.codes
        if not len(foreign.keys):
            none = np.full(len(codes), -1)
            nothing = Values(self.values[number], wire=foreign.keys).take(none)
            return Partners(none >= 0, nothing, none, none)
        match = self.partners.lookup(foreign.hashes, foreign.keys)
        trigger = np.full(len(foreign.keys) + 1, -1)
        if changed is not None:
            queries, rows = changed.run.match(foreign.hashes, foreign.keys)
            trigger[queries] = rows
        place = np.where(np.append(match.found, False)[codes], codes, -1)
        values = Values(self.values[number], wire=match.gather("value")).take(place)
        ts = np.append(np.asarray(match.gather("ts")), -1)[place]
        return Partners(place >= 0, values, ts, trigger[codes])


@dataclass(frozen=True, slots=True)
class Coded:
    """Foreign keys into one table, by hash: each different one once, the number of the table in front.

    ``codes``: which of them each row has; −1 is null.
    """

    keys: pa.LargeBinaryArray
    hashes: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, table: int, column: Column, bits: int) -> Coded:
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return cls(*in_hash_order(arrays.with_first_byte(table, encoded.dictionary), codes, bits))


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of the index: left ``rows`` that begin to refer to a foreign key, or that leave it; ``codes``: which."""

    foreign: Coded
    codes: np.ndarray
    rows: np.ndarray
    leaves: bool

    @classmethod
    def of(cls, foreign: Coded, rows: np.ndarray, mask: np.ndarray, leaves: bool) -> Entries:
        """Of these rows those that have a foreign key, and for which the mask holds."""
        there = np.flatnonzero((foreign.codes >= 0) & mask)
        return cls(foreign, foreign.codes[there], rows[there], leaves)


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
