"""What a partition of left rows of a star join keeps: the rows, their index, and the right rows they refer to.

Each right row is there once, however many left rows of the partition refer to it. Foreign keys into several tables
share a store; the number of the table is the first byte of such a key. Source: decision 0019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, reference
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import in_hash_order
from crossstream.operators.star_join.subscriptions import MOVED, RAW, WAS
from crossstream.serdes import Serde, arrays
from crossstream.storage.columns import Column, take
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import sorted_order


@dataclass(frozen=True, slots=True)
class PartitionState:
    """``names``: of the right tables, with the serdes of their ``values``.

    ``rows``: left rows and their foreign keys; ``index``: their primary keys by foreign key. ``rebuilt``: index and
    right rows are made in this batch, so it is not known what they were before it.
    """

    names: Sequence[str]
    values: Sequence[Serde | None]
    rows: Snapshot
    index: Snapshot
    right_rows: Snapshot
    bits: int
    rebuilt: bool = False

    def snapshot(self) -> PartitionState:
        """What is kept now; later puts do not change it."""
        rows, index, right_rows = (
            Snapshot(view.layout, view.levels, view.memtable)
            for view in (self.rows, self.index, self.right_rows)
        )
        return replace(self, rows=rows, index=index, right_rows=right_rows)

    def coded(self, columns: Sequence[Column]) -> list[Coded]:
        """One column of foreign keys for each table, each different one once."""
        return [Coded.of(number, column, self.bits) for number, column in enumerate(columns)]

    def references_of(self, hashes: np.ndarray, keys: Column) -> list[Column]:
        """The foreign keys of stored left rows, a column for each table."""
        match = self.rows.lookup(hashes, keys)
        return [match.gather(reference(name)) for name in self.names]

    def is_put(self, hashes: np.ndarray, keys: Column) -> np.ndarray:
        """Which left rows this batch has put (``hashes`` sorted)."""
        hit = np.zeros(len(hashes), bool)
        if self.rows.memtable is not None and self.rows.memtable.rows:
            hit[self.rows.memtable.match(hashes, keys)[0]] = True
        return hit

    def put_rows(self, rows: Changes, now: Sequence[Coded], serde: Serde | None) -> None:
        """Puts left rows that changed, in order of their hash, with their foreign keys after the batch.

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
        entries = [
            _Entries.of(one, whose, (moved[whose] >> number & 1).astype(bool), leaves)
            for references, whose, leaves in ((before, leavers, True), (now, np.arange(rows.rows), False))
            for number, one in enumerate(references)
        ]
        self._put_index(entries, keys, hashes)

    def rebuild_index(self) -> None:
        """Makes the index from the rows."""
        live = self.rows.live()
        everyone, all_of_them = np.arange(live.rows), np.ones(live.rows, bool)
        references = self.coded([live[reference(name)] for name in self.names])
        entries = [_Entries.of(one, everyone, all_of_them, False) for one in references]
        self._put_index(entries, live["key"], live["h"])

    def _put_index(self, entries: Sequence[_Entries], keys: Column, hashes: np.ndarray) -> None:
        """Puts entries of left rows with these keys and hashes, in their final order: cheaper than sorting keys."""
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
        self.index.put(
            {"h": h[order], "s": s[order], "key": foreign, "key2": key2, "gone": gone[order].astype(np.uint8)}
        )

    def put_right_rows(self, rows: Changes, gone: np.ndarray) -> None:
        """Puts right rows, each once, under their foreign key with the number of the table in front."""
        if rows.rows:
            keys, value = rows.key.wire(), rows.value.wire(RAW)
            h = hash_keys(keys, self.bits)
            self.right_rows.put(
                {"h": h, "key": keys, "value": value, "ts": rows.ts, "gone": gone.astype(np.uint8)}
            )


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
class _Entries:
    """Entries of the index: left ``rows`` that begin to refer to a foreign key, or that leave it; ``codes``: which."""

    foreign: Coded
    codes: np.ndarray
    rows: np.ndarray
    leaves: bool

    @classmethod
    def of(cls, foreign: Coded, rows: np.ndarray, mask: np.ndarray, leaves: bool) -> _Entries:
        """Of these rows those that have a foreign key, and for which the mask holds."""
        there = np.flatnonzero((foreign.codes >= 0) & mask)
        return cls(foreign, foreign.codes[there], rows[there], leaves)
