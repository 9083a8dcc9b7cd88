"""The store of the changes that wait in a suppression.

A row is found by the key that decides its partition; its time in the buffer never changes while it waits. Rows whose
time has come have left, so that they expire: the horizon of the store is the first time that still waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.hashing import hash_keys
from crossstream.columns.values import Values
from crossstream.operators.runner import OpenStore
from crossstream.serdes import Serde
from crossstream.serdes.windowed import WindowedSerde
from crossstream.storage.columns import Column, Columns, concat_all, take, take_all
from crossstream.storage.sorted_run import identities, newest, sort_rows

_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Held:
    """Rows that wait: with their time in the buffer and, where that is asked for, the bytes they take."""

    rows: Changes
    time: np.ndarray
    size: np.ndarray


@dataclass(frozen=True, slots=True)
class Buffer:
    """The rows that wait when a batch begins. ``key``: the serde of their own keys."""

    store: OpenStore
    key: Serde
    by_group: bool
    bits: int

    def places(self, keys: Column) -> tuple[np.ndarray, Column]:
        """The keys that decide where rows are, for their own ones, and the hashes of these."""
        if self.by_group:
            assert isinstance(self.key, WindowedSerde)
            keys = self.key.split(keys)[0]
        return hash_keys(keys, self.bits), keys

    def of_keys(self, keys: Column) -> dict[str, Column] | None:
        """The rows that may be those of these keys."""
        hashes, owners = self.places(keys)
        order = np.argsort(hashes, kind="stable")
        hashes, owners = hashes[order], take(owners, order)
        heads = np.flatnonzero(np.append(True, np.diff(identities([hashes, owners])) != 0)[: len(hashes)])
        found = self.store.view.scan(hashes[heads], take(owners, heads), _ALL)
        parts = [take_all(part, np.flatnonzero(part["s"] >= self.store.horizon)) for _, part in found]
        return concat_all(parts) if parts else None

    def until(self, time: int) -> dict[str, Column] | None:
        """The rows whose time in the buffer is at most ``time``."""
        parts = []
        for run in self.store.view.segments():
            if run.rows and run.reaches(self.store.horizon, time):
                parts.append(
                    take_all(
                        run.columns, np.flatnonzero((run["s"] >= self.store.horizon) & (run["s"] <= time))
                    )
                )
        if not any(len(part["h"]) for part in parts):
            return None
        rows = sort_rows(concat_all(parts))
        return take_all(rows.columns, np.flatnonzero(newest(rows.columns) & (rows["gone"] == 0)))

    def held(self, keys: Column, time: int) -> Held:
        """The rows of these keys, and all until ``time``; each once, in no order."""
        parts = [part for part in (self.of_keys(keys), self.until(time)) if part is not None]
        if not parts:
            return self.of(sort_rows(self._none()).columns)
        rows = sort_rows(concat_all(parts))
        return self.of(take_all(rows.columns, np.flatnonzero(newest(rows.columns))))

    def all(self) -> Held:
        """All rows that wait."""
        return self.of(self.until(_ALL) or self._none())

    def _none(self) -> dict[str, Column]:
        run = self.store.view.segments()[0]
        return take_all(run.columns, np.empty(0, np.int64))

    def of(self, columns: Columns) -> Held:
        """Rows of the store as changes, without a place in time."""
        nowhere = np.zeros(len(columns["h"]), np.int64)
        value = self.store.definition.value
        rows = Changes(
            Values(self.key, wire=columns["key2"]),
            Values(value, wire=columns["value"]),
            columns["ts"],
            nowhere,
            nowhere,
            columns["headers"],
            Values(value, wire=columns["old"]),
        )
        return Held(rows, columns["s"], columns["size"])

    def put(self, rows: Changes, time: np.ndarray, size: np.ndarray, *, gone: bool = False) -> None:
        """Keeps rows, in place of those with their keys and times in the buffer; ``gone``: they have left early."""
        if not rows.rows:
            return
        own = rows.key.wire()
        hashes, owners = self.places(own)
        nulls = pa.nulls(rows.rows, pa.large_binary())
        self.store.view.put(
            {
                "h": hashes,
                "s": time,
                "key": owners,
                "key2": own,
                "value": rows.value.wire(self.store.definition.value),
                "old": nulls if rows.old is None else rows.old.wire(self.store.definition.value),
                "ts": rows.ts,
                "size": size,
                "headers": nulls if rows.headers is None else rows.headers,
                "gone": np.full(rows.rows, gone, np.uint8),
            }
        )
