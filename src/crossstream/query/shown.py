"""Which rows of a store a reader sees, in the columns that it reads: key, value, ts, and what its kind has besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.planning.plan import StoreDef
from crossstream.query.by_time import ByTime
from crossstream.serdes.windowed import NO_END
from crossstream.storage.columns import Columns, take, take_all, valid
from crossstream.storage.compaction import unexpired
from crossstream.storage.sorted_run import Run, begins_of
from crossstream.storage.store import Version


@dataclass(frozen=True, slots=True)
class Shown:
    """How the rows of a store show. ``history``: of a versioned store; ``versions``: all of these, not the newest."""

    by_time: ByTime | None = None
    history: int | None = None
    versions: bool = False

    @classmethod
    def of(cls, store: StoreDef, *, versions: bool = False) -> Shown:
        return cls(ByTime.of(store.layout, store.window_size), store.history, versions)

    def rows(self, version: Version, live: Run) -> dict[str, Any]:
        """Of live rows of a version those that show, in the order they have.

        Windows and sessions have ``start`` and ``end``, all versions of keys ``until``: when the next one begins.
        """
        if self.by_time is not None:
            return self.by_time.named(unexpired(live, version.horizon).columns)
        if self.history is None:
            return {name: live[name] for name in ("key", "value", "ts")}
        order = _by_key(live.columns)
        rows = take_all(live.columns, order)
        last = np.append(begins_of(_codes(rows["key"]))[1:], True) if len(order) else np.empty(0, bool)
        s = np.asarray(rows["s"])
        until = np.where(last, NO_END, np.append(s[1:], NO_END)) if len(s) else s
        keep = valid(rows["value"]) & (last | self._remembered(version, until))
        found = np.flatnonzero(keep)
        made = {"key": take(rows["key"], found), "value": take(rows["value"], found), "ts": s[found]}
        return {**made, "until": until[found]} if self.versions else made

    def _remembered(self, version: Version, until: np.ndarray) -> np.ndarray:
        """Which versions that were replaced still answer for a time that can be asked for."""
        if not self.versions or self.history is None:
            return np.zeros(len(until), bool)
        return until > version.stream_time - self.history


def _codes(keys: pa.LargeBinaryArray) -> np.ndarray:
    return np.asarray(keys.dictionary_encode().indices)


def _by_key(columns: Columns) -> np.ndarray:
    return np.lexsort((columns["s"], _codes(columns["key"])))
