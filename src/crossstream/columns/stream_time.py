"""Stream time of an operator: the same in all its state partitions, whatever their number (decision 0038).

    time of a source partition = the largest timestamp of its rows that have come to the operator
    stream time                = the smallest of these times; it never goes back

Who sends rows to an operator reports to all its state partitions which of them raised the time of their source
partition (`Highs`), wherever they go. So each state partition knows stream time at any place of the arrival order
(`Timeline`), also at places where it has no row.

    Story: `a@5` is in one state partition, `b@20` in another one. The window [0, 10) of `a` closes with `b@20`, and
    its result has the place of `b@20` in time. Test: `test_a_row_of_another_partition_closes_a_window`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, concat_headers
from crossstream.columns.order import arrival_of, came_before, running_maximum_of
from crossstream.storage.columns import Column, from_record_batch, take_or_null, to_record_batch
from crossstream.storage.sorted_run import begins_of

SourceTimes = Mapping[int, tuple[int, int]]
"""By source partition: its time, and what the clock showed (ms) when a row of it came last."""

BY_CLOCK = -1
"""The source partition of rows that no record made, but the clock: they count for all of them."""


@dataclass(frozen=True, slots=True)
class Highs:
    """Rows that raised the time of their source ``partition``, in no order. ``headers``: packed, or None."""

    ts: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    partition: np.ndarray
    headers: pa.LargeBinaryArray | None = None

    @classmethod
    def of(cls, changes: Changes, partition: np.ndarray) -> Highs:
        """Of a piece of a flow. ``partition``: the source partition of each row."""
        begins = begins_of(partition)
        if int(begins.sum()) > 1:
            order = np.lexsort((changes.minor, changes.major, partition))
            begins = begins_of(partition[order])
        else:
            arrival = arrival_of(changes)
            order = np.arange(changes.rows) if arrival is None else arrival
        so_far = running_maximum_of(changes.ts[order], np.flatnonzero(begins))
        raised = order[begins | np.append(True, so_far[1:] > so_far[:-1])]
        headers = None if changes.headers is None else take_or_null(changes.headers, raised)
        return cls(
            changes.ts[raised], changes.major[raised], changes.minor[raised], partition[raised], headers
        )

    @classmethod
    def together(cls, parts: Sequence[Highs]) -> Highs:
        """All of them; at least one."""
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        return cls(**columns, headers=concat_headers([(part.headers, len(part.ts)) for part in parts]))

    def pack(self) -> bytes:
        """As a record batch in Arrow's IPC form; numbers as differences, which are small and take little room."""
        whole = (self.ts, self.major - self.ts, self.minor, self.partition)
        columns: dict[str, Column] = {
            name: np.diff(column, prepend=0) for name, column in zip(_COLUMNS, whole, strict=True)
        }
        if self.headers is not None:
            columns["headers"] = self.headers
        batch, sink = to_record_batch(columns), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as stream:
            stream.write_batch(batch)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def of_blob(cls, blob: Any) -> Highs:
        """What `pack` made, as it comes out of a shuffle; or the object itself, within a process."""
        if isinstance(blob, Highs):
            return blob
        with pa.ipc.open_stream(pa.py_buffer(blob)) as stream:
            columns = from_record_batch(stream.read_next_batch())
        ts, ahead, minor, partition = (np.cumsum(columns[name]) for name in _COLUMNS)
        return cls(ts, ahead + ts, minor, partition, columns.get("headers"))


_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
_COLUMNS = ("ts", "major", "minor", "partition")


class Rows(Protocol):
    """Rows with positions in time."""

    @property
    def ts(self) -> np.ndarray: ...

    @property
    def major(self) -> np.ndarray: ...

    @property
    def minor(self) -> np.ndarray: ...


Counts = Literal["all", "keyed", "whole"]
"""Which rows move stream time: all, those with a key, or those with key and value."""


def counting(changes: Changes, counts: Counts) -> Changes:
    """The rows that move stream time."""
    if counts == "all":
        return changes
    there = ~changes.key.missing()
    return changes.where(there if counts == "keyed" else there & ~changes.value.missing())


def _nothing() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Stream time of a batch. ``before``: at its begin; ``time``: the times it rises to, at (``major``, ``minor``).

    ``headers``: of the rows there. ``sources``: the times of the source partitions after the batch.
    """

    before: int
    time: np.ndarray = field(default_factory=_nothing)
    major: np.ndarray = field(default_factory=_nothing)
    minor: np.ndarray = field(default_factory=_nothing)
    headers: pa.LargeBinaryArray | None = None
    sources: SourceTimes = field(default_factory=dict)
    moved: bool = False

    @classmethod
    def of(
        cls, highs: Highs, before: int, sources: SourceTimes, holding: Collection[int], clock: int
    ) -> Timeline:
        """``sources``: the times before the batch. ``holding``: the source partitions that count though no row came.

        ``clock``: what it shows.
        """
        order = np.lexsort((highs.ts, highs.minor, highs.major))
        ts, of = highs.ts[order], highs.partition[order]
        came = set(np.unique(of).tolist()) - {BY_CLOCK}
        # Rows by the clock alone count for whichever partitions there are; where there is none, for themselves.
        counted = sorted({*holding, *came}) or [BY_CLOCK]
        stream, after = np.full(len(ts), np.iinfo(np.int64).max), dict(sources)
        for one in counted:
            time = _time_of(one, ts, of, sources)
            stream = np.minimum(stream, time)
            if one != BY_CLOCK:
                after[one] = int(time[-1]), clock if one in came else sources.get(one, (-1, 0))[1]
        stream = np.maximum(np.maximum.accumulate(stream), before)
        rises = np.flatnonzero(np.diff(stream, prepend=before))
        place = order[rises]
        headers = None if highs.headers is None else take_or_null(highs.headers, place)
        return cls(before, stream[rises], highs.major[place], highs.minor[place], headers, after, True)

    @classmethod
    def of_rows(cls, rows: Changes, before: int) -> Timeline:
        """Where only the rows here move stream time."""
        here = np.zeros(rows.rows, np.int64)
        return cls.of(Highs.of(rows, here), before, {}, (), 0) if rows.rows else cls(before)

    def by_clock(self, moment: int | None, since: int = -1) -> Timeline:
        """Where no row moved it: as the clock does, to ``moment`` (ms), in a place not before ``since``; None: not."""
        if moment is None:
            return self
        to, place = np.array([moment]), np.array([max(moment, since)])
        return Timeline(self.before, to, place, np.array([BY_CLOCK]), sources=self.sources)

    @property
    def last(self) -> int:
        """Stream time after the batch."""
        return int(self.time[-1]) if len(self.time) else self.before

    @property
    def newest(self) -> int:
        """What stream time would be if none of the source partitions held it up."""
        return max((self.last, *(time for time, _ in self.sources.values())))

    def around(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Stream time before and with each row; of the rows of one record none has come before the others."""
        before, after = self.beside(rows)
        return before, np.minimum(after, np.maximum(before, rows.ts))

    def beside(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Stream time before and after the record of each row."""
        return self.at(rows, or_with=False), self.at(rows, or_with=True)

    def at(self, rows: Rows, *, or_with: bool | np.ndarray) -> np.ndarray:
        """Stream time before the record of each row; ``or_with``: after it, everywhere or at these rows."""
        times = np.append(self.before, self.time)
        return np.asarray(times[came_before(rows.major, rows.minor, self, or_with=or_with)])

    def first(self, due: np.ndarray) -> np.ndarray:
        """The number of the rise with which stream time reaches each of ``due``; that of all rises: it does not."""
        return np.searchsorted(self.time, due, "left")

    def with_rows(self, rows: Changes, due: np.ndarray) -> Moments:
        """The rows, in order of arrival, and the rises with which stream time reaches ``due``, in one sequence.

        A rise comes after all rows of its record: which of them is the first is free, and they may be in several
        state partitions.
        """
        rises = np.unique(self.first(due))
        rises = rises[rises < len(self.time)]
        major, minor = self.major[rises], self.minor[rises]
        place = came_before(major, minor, rows, or_with=True) + np.arange(len(rises))
        of_row = np.delete(np.arange(rows.rows + len(rises)), place)
        columns = (
            (rows.major, major),
            (rows.minor, minor),
            (self.around(rows)[0], self.time[rises]),
        )
        made = [np.empty(rows.rows + len(rises), np.int64) for _ in columns]
        for column, (own, risen) in zip(made, columns, strict=True):
            column[of_row], column[place] = own, risen
        return Moments(of_row, made[0], made[1], np.maximum.accumulate(made[2]))

    def without_rows(self, rises: np.ndarray, parts: Sequence[Changes]) -> np.ndarray:
        """Of the rises those with which no row came that is as new."""
        for rows in parts:
            if rows.rows and len(rises):
                low, high = (
                    came_before(self.major[rises], self.minor[rises], rows, or_with=one)
                    for one in (False, True)
                )
                last = np.maximum(high - 1, 0)
                rises = rises[~((high > low) & (rows.ts[last] >= self.time[rises]))]
        return rises

    def headers_at(self, rises: np.ndarray) -> pa.LargeBinaryArray | None:
        return None if self.headers is None else take_or_null(self.headers, rises)


@dataclass(frozen=True, slots=True)
class Moments:
    """Rows, and places in time between them where something is due. ``rows``: the places of the rows.

    ``time``: stream time at each place.
    """

    rows: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    time: np.ndarray


def _time_of(one: int, ts: np.ndarray, of: np.ndarray, sources: SourceTimes) -> np.ndarray:
    mine = np.where((of == one) | (of == BY_CLOCK), ts, -1)
    return np.maximum(np.maximum.accumulate(mine), sources.get(one, (-1, 0))[0])


def holding(
    known: Iterable[int], sources: SourceTimes, clock: int, since: int, after: int | None
) -> set[int]:
    """The source partitions that hold stream time up: all that are not idle.

    ``known``: those that are waited for before a row of them comes. ``clock``: what it shows (ms); ``since``: from when
    on the application has read all there was; ``after``: how long a partition has no row until it is idle; None: none
    ever is.
    """
    heard = {one: sources.get(one, (-1, 0))[1] for one in {*known, *sources}}
    return {one for one, at in heard.items() if after is None or clock - max(at, since) <= after}


def merged_sources(parts: Iterable[SourceTimes]) -> dict[int, tuple[int, int]]:
    """The times of source partitions of several state partitions, which have them all."""
    found: dict[int, tuple[int, int]] = {}
    for part in parts:
        for one, (time, heard) in part.items():
            known = found.get(one, (-1, 0))
            found[one] = max(known[0], time), max(known[1], heard)
    return found
