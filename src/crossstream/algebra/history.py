"""A table as of any moment of a batch: the last change of a key that came before a record.

    law    for every key and every place in the order of arrival, `History.before` gives the last of the changes
           that came before that place, as taking all records one by one does

Rows of one key lie together in order of arrival, so a look-up is a binary search: a key that changed a million
times in a batch costs no more than one that changed twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossstream.algebra.change import Changes
from crossstream.algebra.order import came_before
from crossstream.algebra.values import Values
from crossstream.serdes import Serde
from crossstream.state.columns import Column, same_rows, take, take_or_null
from crossstream.state.run import Run, bisect, sort_rows

_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class History:
    """The changes of a table in one batch.

    ``run``: sorted by key hash, then arrival (``s``), with key, value (null: a delete), ts, major, minor, headers.
    ``major``, ``minor``: the places of the changes in time, in order of arrival.
    """

    run: Run
    major: np.ndarray
    minor: np.ndarray

    @classmethod
    def of(cls, changes: Changes, hashes: np.ndarray, serde: Serde | None) -> History:
        """``changes`` in arrival order, with the hashes of their keys, which are not null. ``serde``: of the values."""
        headers = pa.nulls(changes.rows, pa.large_binary()) if changes.headers is None else changes.headers
        columns = {
            "h": hashes,
            "s": np.arange(changes.rows),
            "key": changes.key.wire(),
            "value": changes.value.wire(serde),
            "ts": changes.ts,
            "major": changes.major,
            "minor": changes.minor,
            "headers": headers,
        }
        return cls(sort_rows(columns), changes.major, changes.minor)

    @classmethod
    def from_run(cls, run: Run) -> History:
        """The history whose ``run`` this is."""
        arrival = np.argsort(run["s"])
        return cls(run, run["major"][arrival], run["minor"][arrival])

    def before(self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray) -> np.ndarray:
        """For each key the row of its last change that arrived before (``major``, ``minor``), or −1."""
        h, s = self.run["h"], self.run["s"]
        first, last = h.searchsorted(hashes, "left"), h.searchsorted(hashes, "right")
        near = np.flatnonzero(last > first)
        found = np.full(len(hashes), -1, np.int64)
        if len(near):
            arrived = came_before(major[near], minor[near], self, or_with=False)
            row = bisect(s, first[near], last[near], arrived, right=False) - 1
            self._settle(found, keys, near, first[near], row)
        return found

    def _settle(
        self, found: np.ndarray, keys: Column, near: np.ndarray, first: np.ndarray, row: np.ndarray
    ) -> None:
        """Goes back from each ``row`` to one of the very key: others may share its hash."""
        while True:
            there = row >= first
            near, first, row = near[there], first[there], row[there]
            if not len(near):
                return
            same = same_rows(self.run["key"], row, keys, near)
            found[near[same]] = row[same]
            near, first, row = near[~same], first[~same], row[~same] - 1

    def net(self, key: Serde | None, value: Serde | None) -> Changes:
        """The last change of each key, in order of the hash."""
        run, end = self.run, np.full(self.run.rows, _LATEST)
        return self._changes(np.unique(self.before(run["h"], run["key"], end, end)), key, value)

    def every(self, key: Serde | None, value: Serde | None) -> Changes:
        """Every change, in order of arrival."""
        return self._changes(np.argsort(self.run["s"]), key, value)

    def _changes(self, rows: np.ndarray, key: Serde | None, value: Serde | None) -> Changes:
        run = self.run
        headers = take_or_null(run["headers"], rows)
        return Changes(
            Values(key, wire=take(run["key"], rows)),
            Values(value, wire=take(run["value"], rows)),
            run["ts"][rows],
            run["major"][rows],
            run["minor"][rows],
            headers if headers.null_count < len(headers) else None,
        )
