"""A table that is whole in every task: its rows after any record of a batch. Source: KIP-99, semantics 2.4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from crossstream.columns.changes import (
    Changes,
    concat_changes,
    headers_in,
    some_given,
    some_key,
)
from crossstream.columns.evaluate import Failure
from crossstream.columns.hashing import partition_of
from crossstream.columns.order import by_arrival, came_before
from crossstream.columns.values import Values
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column, cut, same_rows, take, take_or_null
from crossstream.storage.snapshot import Match, Snapshot
from crossstream.storage.sorted_run import Run, begins_of, bisect, sort_rows
from crossstream.tables.rows import TableRows


@dataclass(frozen=True, slots=True)
class Looked:
    """Rows that were looked up. ``failures``: those on which a function of a view failed; they are not there."""

    rows: TableRows
    failures: list[Failure]


@dataclass(frozen=True, slots=True)
class Changed:
    """Changes that a batch makes to a table; None: none. ``failures``: as in `Looked`, of rows of the changes."""

    changes: Changes | None
    failures: list[Failure]


class GlobalTable(Protocol):
    """A table that is whole in every task: one that is kept, or a view. Hashes are sorted."""

    @property
    def key(self) -> EngineSerde | None: ...

    @property
    def value(self) -> EngineSerde | None: ...

    def values(
        self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray
    ) -> tuple[Values, list[Failure]]:
        """The value of each key just before a moment; null where there is no row, or a function failed."""
        ...

    def rows(self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray) -> Looked:
        """The row of each key just before a moment."""
        ...

    def before(self, hashes: np.ndarray, keys: Column) -> Looked:
        """The row of each key before the batch."""
        ...

    def changes(self, every: bool = False) -> Changed:
        """The last change that the batch makes of each key, or ``every`` one."""
        ...

    def scan(self) -> Iterator[tuple[np.ndarray, Column, Values]]:
        """All rows before the batch, piece by piece: hashes, keys, values."""
        ...

    def some_key(self) -> Values | None:
        """The key of a row; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class WholeTable:
    """``views``: the state partitions as they were before the batch; ``histories``: the batch's changes of each."""

    views: Sequence[Snapshot]
    histories: Sequence[History | None]
    key: EngineSerde | None
    value: EngineSerde | None

    def values(
        self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray
    ) -> tuple[Values, list[Failure]]:
        """A row that several records look up is there, and will be decoded, once."""
        match = self._match(hashes, keys, major, minor)
        first = begins_of(match.segment, match.row)
        if first.all():
            return Values(self.value, wire=match.gather("value")), []
        once = Match(match.segments, match.segment[first], match.row[first])
        return Values(self.value, wire=once.gather("value")).take(np.cumsum(first) - 1), []

    def some_key(self) -> Values | None:
        before = (some_key(view, self.key) for view in self.views)
        fresh = (some_given(h.every(self.key, self.value).key) for h in self.histories if h is not None)
        return next((key for key in chain(before, fresh) if key is not None), None)

    def changes(self, every: bool = False) -> Changed:
        """In order of the hash, or every one in order of arrival."""
        histories = [history for history in self.histories if history is not None]
        if not histories:
            return Changed(None, [])
        if every:
            parts = [history.every(self.key, self.value) for history in histories]
            return Changed(by_arrival(concat_changes(parts)), [])
        return Changed(concat_changes([history.net(self.key, self.value) for history in histories]), [])

    def before(self, hashes: np.ndarray, keys: Column) -> Looked:
        never = np.full(len(hashes), np.iinfo(np.int64).min)
        return self.rows(hashes, keys, never, never)

    def rows(self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray) -> Looked:
        match = self._match(hashes, keys, major, minor)
        values = Values(self.value, wire=match.gather("value"))
        keeps = bool(self.views) and "headers" in self.views[0].layout.names
        headers = match.gather("headers") if keeps else None
        return Looked(TableRows(~values.missing(), values, np.asarray(match.gather("ts")), headers), [])

    def scan(self) -> Iterator[tuple[np.ndarray, Column, Values]]:
        for view in self.views:
            live = view.live()
            for start in range(0, live.rows, _PIECE):
                part = live.slice(start, min(start + _PIECE, live.rows))
                yield part["h"], part["key"], Values(self.value, wire=part["value"])

    def _match(self, hashes: np.ndarray, keys: Column, major: np.ndarray, minor: np.ndarray) -> Match:
        pieces: list[Run] = []
        piece = np.full(len(hashes), -1, np.int64)
        row = np.full(len(hashes), -1, np.int64)
        count = len(self.views)
        bounds = np.searchsorted(partition_of(hashes, count), np.arange(count + 1))
        for partition, (view, history) in enumerate(zip(self.views, self.histories, strict=True)):
            span = slice(int(bounds[partition]), int(bounds[partition + 1]))
            if span.start == span.stop:
                continue
            mine = cut(keys, span.start, span.stop)
            found = view.lookup(hashes[span], mine)
            piece[span] = np.where(found.found, found.segment + len(pieces), -1)
            row[span] = found.row
            pieces += found.segments
            if history is not None:
                later = history.before(hashes[span], mine, major[span], minor[span])
                piece[span] = np.where(later >= 0, len(pieces), piece[span])
                row[span] = np.where(later >= 0, later, row[span])
                pieces.append(history.run)
        return Match(pieces, piece, row)


_LATEST = np.iinfo(np.int64).max

_PIECE = 65_536
"""Rows that a scan gives at once."""


@dataclass(frozen=True, slots=True)
class History:
    """The changes of a table in one batch.

    ``run``: sorted by key hash, then arrival (``s``), with key, value (null: a delete), ts, major, minor, headers.
    ``major``, ``minor``: the positions of the changes in time, in order of arrival.
    """

    run: Run
    major: np.ndarray
    minor: np.ndarray

    @classmethod
    def of(cls, changes: Changes, hashes: np.ndarray, serde: EngineSerde | None) -> History:
        """``changes`` in arrival order, with the hashes of their keys, which are not null. ``serde``: of the values."""
        columns = {
            "h": hashes,
            "s": np.arange(changes.rows),
            "key": changes.key.wire(),
            "value": changes.value.wire(serde),
            "ts": changes.ts,
            "major": changes.major,
            "minor": changes.minor,
            "headers": headers_in(changes),
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

    def net(self, key: EngineSerde | None, value: EngineSerde | None) -> Changes:
        """The last change of each key, in order of the hash."""
        run, end = self.run, np.full(self.run.rows, _LATEST)
        return self._changes(np.unique(self.before(run["h"], run["key"], end, end)), key, value)

    def every(self, key: EngineSerde | None, value: EngineSerde | None) -> Changes:
        """Every change, in order of arrival."""
        return self._changes(np.argsort(self.run["s"]), key, value)

    def _changes(self, rows: np.ndarray, key: EngineSerde | None, value: EngineSerde | None) -> Changes:
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
