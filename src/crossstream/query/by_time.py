"""Rows of stores by time: the records that a stream join keeps, windows with their aggregates, sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from crossstream.planning.layouts import SESSIONS, WINDOW, WINDOWED, read_as
from crossstream.serdes.windowed import NO_END
from crossstream.storage.columns import Column, Columns, concat_all, take_all
from crossstream.storage.compaction import unexpired
from crossstream.storage.sorted_run import Layout, Run, merge
from crossstream.storage.store import Version

Content = Literal["records", "windows", "sessions"]

_CONTENTS: dict[str, Content] = {WINDOW.kind: "records", WINDOWED.kind: "windows", SESSIONS.kind: "sessions"}


@dataclass(frozen=True, slots=True)
class ByTime:
    """What a store keeps for each key, by time. ``size``: of its windows, in ms.

    Columns that it reads: key, value, ts; of windows and sessions also start and end.
    """

    content: Content
    size: int | None = None

    @classmethod
    def of(cls, layout: Layout, size: int | None) -> ByTime | None:
        """None for a store that has one row, or versions of one, for each key."""
        content = _CONTENTS.get(read_as(layout.kind))
        return None if content is None else cls(content, size)

    @staticmethod
    def is_of(kind: str) -> bool:
        """Whether a store of this layout has rows by time."""
        return read_as(kind) in _CONTENTS

    def of_key(
        self, version: Version, hashes: np.ndarray, key: Column, low: int, high: int
    ) -> dict[str, Any]:
        """The rows of one key by time, those of records of one time in order of arrival.

        Records from ``low`` to ``high``, windows that begin from ``low`` to ``high``, sessions with a time in between.
        """
        latest = high if self.content != "sessions" else NO_END
        bounds = np.array([max(low, version.horizon)]), np.array([latest])
        parts: list[Columns] = []
        for run in version.snapshot().segments():
            _, rows = run.match_range(hashes, key, *bounds)
            parts.append(take_all(run.columns, rows))
        found = merge([Run(part) for part in parts], drop_gone=True).columns
        if self.content == "sessions":
            found = take_all(found, np.flatnonzero(np.asarray(found["start"]) <= high))
        order = (
            np.lexsort((found["n"], found["s"])) if "n" in found else np.argsort(found["s"], kind="stable")
        )
        return self.named(take_all(found, order))

    def all(self, versions: Sequence[Version]) -> dict[str, Any]:
        """All rows, by the bytes of the key, then time, then arrival."""
        live = [unexpired(version.snapshot().live(), version.horizon).columns for version in versions]
        columns = concat_all(live)
        names = [name for name in ("s", "n") if name in columns]
        frame = pl.DataFrame(
            [pl.Series("key", columns["key"]), *(pl.Series(name, columns[name]) for name in names)]
        )
        order = frame.select(pl.arg_sort_by("key", *names)).to_series().to_numpy().astype(np.int64)
        return self.named(take_all(columns, order))

    def named(self, rows: Columns) -> dict[str, Any]:
        """The columns that it reads, of rows of the store; of records also the number ``n`` of each."""
        made: dict[str, Any] = {"key": rows["key"], "value": rows["value"]}
        s = np.asarray(rows["s"])
        if self.content == "records":
            return {**made, "ts": s, "n": rows["n"]}
        if self.content == "sessions":
            return {**made, "ts": rows["ts"], "start": rows["start"], "end": s}
        return {**made, "ts": rows["ts"], "start": s, "end": self.ends(s)}

    def ends(self, starts: np.ndarray) -> np.ndarray:
        """The ends of windows that begin at ``starts``."""
        size = NO_END if self.size is None else self.size
        return np.where(starts > NO_END - size, NO_END, starts + size)

    def places(self, found: Sequence[tuple[Any, Any]]) -> list[tuple[int, ...]]:
        """What follows the key in the keys of all rows, for what ``fetch`` gives: a timestamp, or start and end."""
        if self.content == "sessions":
            return [bounds for bounds, _ in found]
        if self.content == "records":
            return [(timestamp,) for timestamp, _ in found]
        starts = np.array([start for start, _ in found], np.int64)
        return list(zip(starts.tolist(), self.ends(starts).tolist(), strict=True))
