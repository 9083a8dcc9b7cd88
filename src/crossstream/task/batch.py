"""A batch as a value: its id, its input ranges, and the state version it starts from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from crossstream.columns.order import OFFSET_BITS
from crossstream.columns.stream_time import BY_CLOCK
from crossstream.config import DeadLetter, OnError, StreamsConfig
from crossstream.graph.nodes import Shape
from crossstream.storage.log_entries import Silence, SourceRange, StagedFrame, StagedRows
from crossstream.storage.manifest import SegmentRef
from crossstream.task.counts import LARGEST, TaskCounts, keep_largest, merge
from crossstream.task.missing_fields import LookUp
from crossstream.topics import OffsetRange, RangeReader

FRAME_RANK = 1 << 20
"""Added to the ranks of DataFrame sources, which come after topic partitions: one for each source in each partition."""
STREAM_RANK = 1 << 21
"""Added to the ranks of streams: at equal times tables come before them, whatever was built first."""

Keys = tuple[tuple[str, str] | None, tuple[str, str] | None]
"""A key of the left and of the right side of a join, None where none is known: the key, and its kind."""


class Batch(msgspec.Struct, frozen=True):
    """What a batch is made of. ``versions``: for each store the manifest of each state partition before it.

    ``recorded``: whether changes of global tables are kept for the rounds that follow; ``histories``: where they are.
    ``silence``: None where stream time stands still without input. ``shares``: as in its `BatchEntry`.
    ``clock`` (ms): when it was planned, the timestamp of rows that have none. ``frames``: the DataFrame sources.
    ``wants_keys``: whether joins in which no row finds a partner report a key of each side. ``expected``: see
    its `BatchEntry`. ``frame_versions``: those of the commit before it. ``snapshots``: by topic and partition, up to
    which offset rows of a snapshot hold from the beginning of time on. ``hot``: see its `Commit`, of the one before it.
    """

    id: int
    ranges: tuple[SourceRange, ...]
    partitions: int
    versions: dict[str, dict[int, str]] = {}
    bits: int = 64
    recorded: bool = False
    histories: dict[str, dict[int, SegmentRef]] = {}
    silence: Silence | None = None
    shares: int = 1
    clock: int = 0
    frames: tuple[str, ...] = ()
    wants_keys: bool = False
    expected: dict[str, tuple[int, ...]] = {}
    frame_versions: dict[str, int] = {}
    snapshots: dict[str, dict[int, int]] = {}
    hot: dict[str, dict[int, bool]] = {}

    def hot_in(self, store: str | None) -> np.ndarray:
        """The hashes of the hot keys of a store, sorted."""
        return np.array(sorted(self.hot.get(store or "", ())), np.uint64)

    def spreads(self, store: str) -> np.ndarray:
        """The hashes of those whose rows this batch spreads, sorted."""
        return np.array(
            sorted(h for h, is_spread in self.hot.get(store, {}).items() if not is_spread), np.uint64
        )

    def of_rank(self, rank: int) -> SourceRange | None:
        return next((span for span in self.ranges if span.rank == rank), None)

    def came_from(self, nodes: Collection[str], minor: np.ndarray) -> np.ndarray:
        """Which rows, by their positions in time, records of these source nodes made."""
        rank = minor >> OFFSET_BITS
        ranks = [span.rank for span in self.ranges if span.node in nodes]
        sources = [index for index, name in enumerate(self.frames) if name in nodes]
        made = np.isin(rank, ranks) if ranks else np.zeros(len(minor), bool)
        if sources:
            made |= (rank & FRAME_RANK > 0) & np.isin(rank % FRAME_RANK % len(self.frames), sources)
        return made

    def source_partitions(self, minor: np.ndarray) -> np.ndarray:
        """The source partition of rows, by their positions in time: 0 of a DataFrame, `BY_CLOCK` of no record."""
        rank = minor >> OFFSET_BITS
        spans = sorted(self.ranges, key=lambda span: span.rank)
        ranks = np.array([-1, *(span.rank for span in spans)], np.int64)
        partitions = np.array([BY_CLOCK, *(span.partition for span in spans)], np.int64)
        place = np.searchsorted(ranks, rank, "right") - 1
        return np.where(ranks[place] == rank, partitions[place], 0)

    def expected_of(self, sources: Collection[str]) -> set[int]:
        """The partitions of these sources that stream time waits for though no row of them has come."""
        return {partition for source in sources for partition in self.expected.get(source, ())}

    def read_by(self, nodes: Collection[str]) -> list[SourceRange]:
        """The ranges of these source nodes."""
        return [span for span in self.ranges if span.node in nodes]


def rank_of(shape: Shape, position: int) -> int:
    """The rank of a source partition that is at this position among those of the batch."""
    return position + STREAM_RANK if shape == "stream" else position


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(TaskCounts):
    """What a task did: its numbers, new manifests, and files.

    ``written``, ``retired``: files that are new, and files no longer needed, by ``store/partition``. ``histories``: the
    changes of global tables. ``frame_versions``: the newest version of which rows were taken, by DataFrame source of
    changes. ``keys``: of joins in which no row found a partner, a key of each side. ``looked_up``: fields that texts
    name, by operator and role. ``frame_files``: with records of a `FrameSink`, in order of the tasks.
    ``first_changes``: by topic and partition, the offset of the first event that is no row of a snapshot. ``crowded``:
    by store, keys that have many rows in one state partition: their hashes, with the number of rows.
    """

    manifests: dict[str, dict[int, str]] = field(default_factory=dict)
    written: dict[str, list[str]] = field(default_factory=dict)
    retired: dict[str, list[str]] = field(default_factory=dict)
    keys: dict[str, Keys] = field(default_factory=dict)
    looked_up: dict[str, LookUp] = field(default_factory=dict)
    staged: list[StagedFrame] = field(default_factory=list)
    frame_files: list[StagedRows] = field(default_factory=list)
    histories: dict[str, dict[int, SegmentRef]] = field(default_factory=dict)
    frame_versions: dict[str, int] = field(default_factory=dict, metadata=LARGEST)
    first_changes: dict[str, dict[int, int]] = field(default_factory=dict)
    crowded: dict[str, dict[int, int]] = field(default_factory=dict)

    def count_in(self, operator: str, rows: int) -> None:
        self.rows_in[operator] = self.rows_in.get(operator, 0) + rows

    def count_out(self, operator: str, rows: int) -> None:
        self.rows_out[operator] = self.rows_out.get(operator, 0) + rows

    def note_fan_out(self, operator: str, rows: int) -> None:
        if rows > self.fan_out.get(operator, 0):
            self.fan_out[operator] = rows

    def count_asked(self, operator: str, matched: int, unmatched: int) -> None:
        self.matched[operator] = self.matched.get(operator, 0) + matched
        self.unmatched[operator] = self.unmatched.get(operator, 0) + unmatched

    def note_newest(self, operator: str, timestamp: int) -> None:
        self.newest[operator] = max(timestamp, self.newest.get(operator, timestamp))

    def note_keys(self, keys: Mapping[str, Keys]) -> None:
        """Takes in keys of the sides of joins."""
        for operator, (left, right) in keys.items():
            known = self.keys.get(operator, (None, None))
            self.keys[operator] = (left or known[0], right or known[1])

    def note_field(self, key: str, look_up: LookUp) -> None:
        self.looked_up.setdefault(key, LookUp(look_up.name)).add(look_up)

    def note_version(self, source: str, version: int) -> None:
        keep_largest(self.frame_versions, {source: version})

    def note_change(self, topic: str, partition: int, offset: int) -> None:
        self.first_changes.setdefault(topic, {})[partition] = offset

    def count_dropped(self, operator: str, reasons: Mapping[str, int]) -> None:
        for reason, rows in reasons.items():
            if rows:
                key = f"{operator}: {reason}"
                self.dropped[key] = self.dropped.get(key, 0) + rows

    def add(self, other: Report) -> None:
        """Takes in what another task did."""
        merge(self, other)
        for store, names in other.manifests.items():
            self.manifests.setdefault(store, {}).update(names)
        for store, changes in other.histories.items():
            self.histories.setdefault(store, {}).update(changes)
        for files, more in ((self.written, other.written), (self.retired, other.retired)):
            for partition, added in more.items():
                files.setdefault(partition, []).extend(added)
        self.note_keys(other.keys)
        for key, look_up in other.looked_up.items():
            self.note_field(key, look_up)
        for topic, offsets in other.first_changes.items():
            self.first_changes.setdefault(topic, {}).update(offsets)
        for store, crowds in other.crowded.items():
            self.crowded.setdefault(store, {}).update(crowds)
        self.staged.extend(other.staged)
        self.frame_files.extend(other.frame_files)


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Report)


def pack_report(report: Report) -> bytes:
    return _encoder.encode(report)


def unpack_report(data: bytes) -> Report:
    return _decoder.decode(data)


class Output(Protocol):
    """Where sinks write."""

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """Appends records (key, value, timestamp, headers) in order."""

    def must_exist(self, topic: str) -> None:
        """Raises `SinkError` where writing would create the topic, or the name that a record gave is not valid."""

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has."""

    def record_limit(self, topic: str) -> int | None:
        """The most bytes that a record of the topic may have, before compression; None: any number."""

    def finish(self) -> None:
        """Returns when everything written is stored."""


class Input(Protocol):
    """Where sources read."""

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        """The records of several ranges, batches of `records.RECORDS` as they come, each range in offset order."""


@dataclass(frozen=True, slots=True)
class TopicInput:
    """Reads ranges of topics."""

    reader: RangeReader

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        wanted = {OffsetRange(span.topic, span.partition, span.start, span.end): span for span in spans}
        for offsets, records in self.reader.read_many(list(wanted), max_rows):
            yield wanted[offsets], records


@dataclass(frozen=True, slots=True)
class Policy:
    """``action``: what to do with failed rows; ``topic``: where dead letters go.

    ``spill``: the folder for whole records of dead letters that are cut; None: they are not kept.
    """

    action: Literal["fail", "skip", "dead-letter"] = "fail"
    topic: str | None = None
    spill: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What the configuration says about every task.

    ``hot_rows``: so many rows of one key are few enough for one state partition, whatever share of all they are.
    """

    decoding: Policy = field(default_factory=Policy)
    processing: Policy = field(default_factory=Policy)
    read_rows: int = 65_536
    chunk_rows: int = 65_536
    hot_rows: int = 50_000

    @property
    def skips(self) -> bool:
        """Whether rows that a user's function fails on do not stop the application."""
        return self.processing.action != "fail"


def policy_of(setting: OnError) -> Policy:
    """The policy that ``"fail"``, ``"skip"`` or a `DeadLetter` stands for."""
    if isinstance(setting, DeadLetter):
        return Policy("dead-letter", setting.topic, None if setting.spill is None else str(setting.spill))
    return Policy(setting)


def settings_of(config: StreamsConfig) -> Settings:
    return Settings(policy_of(config.deserialization_errors), policy_of(config.processing_errors))
