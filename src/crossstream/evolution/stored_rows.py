"""Rows of stores as topics: what a table was made of is read out of the state, not out of its topics again.

Each state partition of a store is a partition of the topic ``store:NAME``, and each row a record. Offsets number the
rows of all sorted runs, the oldest run first, each in its own order; rows that newer runs have replaced, or that are
deleted, are gaps. So a range of offsets is a part of a run, of which nothing else has to be read. Rows with versions
are numbered by time, for they are records of a history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.evolution.row_columns import RecordColumns, columns_of
from crossstream.planning.layouts import layout_of
from crossstream.storage.columns import concat_all, cut_all, take_all
from crossstream.storage.compaction import NO_HORIZON
from crossstream.storage.manifest import read_manifest, read_version
from crossstream.storage.resident import BESIDE_OTHERS, give_back
from crossstream.storage.root import StateRoot, root_of, state_partition
from crossstream.storage.sorted_run import Run, newest, sorted_order
from crossstream.storage.store import Version, version_of
from crossstream.topics import (
    OffsetAndTimestamp,
    OffsetRange,
    RangeReader,
    ReadsInTurn,
    TopicPartition,
    partition_of,
)

PREFIX = "store:"
"""Of the topics that are stores. No topic of Kafka has such a name."""
PIECE = 65_536
"""So many rows of a run are compared with newer runs at a time."""


def topic_of(store: str) -> str:
    """The topic that a store is."""
    return f"{PREFIX}{store}"


@dataclass(frozen=True, slots=True)
class StoredRows:
    """`Tables` out of stores. ``address``: of the state. ``stores``: by name the manifest of each state partition.

    ``together``: the stores whose state partitions are one partition of their topic: rows with versions have stream
    time, which goes by the partitions of a topic.
    """

    address: str
    stores: Mapping[str, Mapping[int, str]]
    partitions: int
    together: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(topic_of, self.stores))

    def log(self) -> StoredLog:
        return StoredLog(self, {})

    def reader(self) -> RangeReader:
        return _Reader(self, {})

    def count(self, topic: str) -> int:
        """The partitions of a topic."""
        return 1 if _store_of(topic) in self.together else self.partitions

    def open(self, tp: TopicPartition) -> Rows:
        """The rows of a partition. Raises `StateError` CS-701 for what cannot be read."""
        root, store = root_of(self.address), _store_of(tp.topic)
        opened = [open_rows(root, store, number, name) for number, name in self._manifests(tp)]
        levels = tuple(level for rows in opened for level in rows.levels)
        columns = next((rows.columns for rows in opened), None)
        return Rows(columns, levels, max((rows.horizon for rows in opened), default=NO_HORIZON))

    def end(self, tp: TopicPartition) -> int:
        """Where a partition ends: how many rows its runs have."""
        root, store, rows = root_of(self.address), _store_of(tp.topic), 0
        for number, name in self._manifests(tp):
            with state_partition(root, store, number) as storage:
                rows += read_manifest(storage, name).rows
        return rows

    def _manifests(self, tp: TopicPartition) -> list[tuple[int, str]]:
        store = _store_of(tp.topic)
        is_one = store in self.together
        return [
            (number, name) for number, name in self.stores[store].items() if is_one or number == tp.partition
        ]


def _store_of(topic: str) -> str:
    return topic.removeprefix(PREFIX)


def open_rows(root: StateRoot, store: str, partition: int, manifest: str | None) -> Rows:
    """The rows of a state partition of a store, whose manifest says of which kind it is; None: it has none."""
    if manifest is None:
        return Rows(None, ())
    with state_partition(root, store, partition) as storage:
        found = read_version(storage, manifest)
        layout = layout_of(found.kind)
        columns = None if layout is None else columns_of(layout)
        if layout is None or columns is None:
            what = f"the rows of a store of the kind {found.kind!r} are not the rows of a table"
            raise refuse("CS-756", what, store=store, folder=str(root))
        version = version_of(storage, layout, found)
    return Rows(columns, tuple(_levels(version)), version.hides_before)


def _levels(version: Version) -> Iterator[tuple[Run, ...]]:
    """The runs, oldest first, each in its segments."""
    for part in reversed(version.parts):
        yield tuple(segment.run for segment in part.segments)


@dataclass(slots=True)
class Rows:
    """The rows of a state partition. ``columns``: which of a run are those of records. ``levels``: oldest first.

    ``horizon``: older windows have expired. One thread uses it.
    """

    columns: RecordColumns | None
    levels: tuple[tuple[Run, ...], ...]
    horizon: int = NO_HORIZON
    _by_time: tuple[np.ndarray, np.ndarray] | None = None
    """Of rows with versions the numbers of those that are live, by time, and these times."""

    @property
    def count(self) -> int:
        """The rows of all runs: an upper bound of those that are live."""
        return sum(run.rows for level in self.levels for run in level)

    def read(self, start: int, end: int, most: int) -> Iterator[pa.RecordBatch]:
        """The live rows numbered from ``start`` up to ``end``, as `RECORDS`, at most so many at a time."""
        if self.columns is None or start >= end:
            return
        found = self._timed(start, end, most) if self.columns.is_timed else self._numbered(start, end, most)
        for offsets, columns in found:
            if len(offsets):
                yield self.columns.records(columns, offsets)

    def times(self) -> np.ndarray:
        """The times of the live rows with versions, sorted."""
        return self._ordered()[1]

    # -- inside

    def _numbered(self, start: int, end: int, most: int) -> Iterator[tuple[np.ndarray, dict[str, pa.Array]]]:
        first = 0
        for place, level in enumerate(self.levels):
            for run in level:
                for at in range(max(start - first, 0), min(end - first, run.rows), min(most, PIECE)):
                    stop = min(at + min(most, PIECE), end - first, run.rows)
                    rows = self._live(run, at, stop, place)
                    piece = cut_all(run.columns, at, stop)
                    whole = len(rows) == stop - at
                    yield first + at + rows, piece if whole else take_all(piece, rows)
                first += run.rows

    def _live(self, run: Run, start: int, stop: int, place: int) -> np.ndarray:
        """Which of the rows from ``start`` to ``stop`` are there, and in no newer run; ``place``: of their level."""
        piece = run.slice(start, stop)
        live = piece["gone"] == 0
        if self.horizon > NO_HORIZON:
            live &= piece["s"] >= self.horizon
        beside = [
            found for level in self.levels[place + 1 :] for one in level for found in _beside(one, piece)
        ]
        if beside:
            assert self.columns is not None
            names = self.columns.identity
            both = concat_all([{name: one[name] for name in names} for one in (*beside, piece)])
            order = sorted_order(both)
            first = order[newest(both, order)]
            before = sum(one.rows for one in beside)
            kept = np.zeros(piece.rows, bool)
            kept[first[first >= before] - before] = True
            live = live & kept
        return np.flatnonzero(live)

    def _timed(self, start: int, end: int, most: int) -> Iterator[tuple[np.ndarray, dict[str, pa.Array]]]:
        numbers, _ = self._ordered()
        for at in range(start, min(end, len(numbers)), most):
            wanted = numbers[at : min(at + most, end)]
            yield np.arange(at, at + len(wanted)), self._taken(wanted)

    def _ordered(self) -> tuple[np.ndarray, np.ndarray]:
        if self._by_time is None:
            numbers, times = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
            for offsets, columns in self._numbered(0, self.count, PIECE):
                numbers.append(offsets)
                times.append(np.array(columns["s"]))
            found, when = np.concatenate(numbers), np.concatenate(times)
            order = np.argsort(when, kind="stable")
            self._by_time = found[order], when[order]
        return self._by_time

    def _taken(self, numbers: np.ndarray) -> dict[str, pa.Array]:
        """Rows of these numbers, in this order."""
        runs = [run for level in self.levels for run in level]
        ends = np.cumsum([run.rows for run in runs])
        owner = np.searchsorted(ends, numbers, "right")
        parts, places = [], []
        for number in np.unique(owner):
            at = np.flatnonzero(owner == number)
            first = int(ends[number]) - runs[number].rows
            parts.append(take_all(runs[number].columns, numbers[at] - first))
            places.append(at)
        order = np.argsort(np.concatenate(places), kind="stable")
        return take_all(concat_all(parts), order)


def _beside(run: Run, piece: Run) -> Iterator[Run]:
    """The rows of a run that may be the same as some of a piece of another one."""
    start = _rows_before(run, piece, 0, "left")
    stop = _rows_before(run, piece, piece.rows - 1, "right")
    if start < stop:
        yield run.slice(start, stop)


def _rows_before(run: Run, other: Run, row: int, side: str) -> int:
    """How many rows of a run come before a row of another one; ``side`` "right": or are at its place."""
    h, wanted = run["h"], other["h"][row]
    if "s" not in run.columns:
        return int(h.searchsorted(wanted, side))
    first, last = h.searchsorted(wanted, "left"), h.searchsorted(wanted, "right")
    return int(first + run["s"][first:last].searchsorted(other["s"][row], side))


@dataclass(slots=True)
class StoredLog:
    """For the driver: where the partitions of stores end, and of those with versions when they were written.

    Rows without versions are before any time: nothing depends on their order.
    """

    stored: StoredRows
    opened: dict[TopicPartition, Rows] = field(default_factory=dict)

    def topics(self) -> Mapping[str, int]:
        return {topic: self.stored.count(topic) for topic in self.stored.names}

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.stored.end(tp) for tp in partitions}

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        return {partition_of(span): self._first(span, timestamp) for span in spans}

    def is_timed(self, topic: str) -> bool:
        """Whether the rows of a store are a history, which is read in the order of time."""
        return _store_of(topic) in self.stored.together

    def _first(self, span: OffsetRange, timestamp: int) -> OffsetAndTimestamp | None:
        rows = self._rows(partition_of(span))
        if rows.columns is None or not rows.columns.is_timed:
            return None
        times = rows.times()
        at = max(span.start, int(times.searchsorted(timestamp)))
        return OffsetAndTimestamp(at, int(times[at])) if at < min(span.end, len(times)) else None

    def _rows(self, tp: TopicPartition) -> Rows:
        if tp not in self.opened:
            self.opened[tp] = self.stored.open(tp)
        return self.opened[tp]

    def close(self) -> None:
        self.opened.clear()


@dataclass(slots=True)
class _Reader(ReadsInTurn):
    """`RangeReader` of stores. Partitions stay open, their files mapped."""

    stored: StoredRows
    opened: dict[TopicPartition, Rows] = field(default_factory=dict)

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        if span.start >= span.end:
            return
        tp = partition_of(span)
        if tp not in self.opened:
            self.opened[tp] = self.stored.open(tp)
        folder = str(root_of(self.stored.address).here)
        for records in self.opened[tp].read(span.start, span.end, max_rows):
            yield records
            give_back((folder,), BESIDE_OTHERS)

    def close(self) -> None:
        self.opened.clear()
