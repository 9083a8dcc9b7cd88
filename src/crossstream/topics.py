"""What the engine needs of Kafka or of file topics.

The Spark driver uses a `TopicLog` to find topics and offsets. Workers use a `RangeReader` and a `RecordWriter` to
read exact ranges and to write records. A `TopicConnection` makes all of them; Spark pickles it to the workers.
`Timelines` search partitions for the first records of a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError

_LEGAL = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one topic partition with ``start <= offset < end``; fewer may exist (gaps)."""

    topic: str
    partition: int
    start: int
    end: int


class OffsetAndTimestamp(NamedTuple):
    """The offset of a record and its timestamp in ms."""

    offset: int
    timestamp: int


class CommitRows(NamedTuple):
    """A commit of a lake table, which is an offset of its topic: its number, its time in ms, and about its rows."""

    number: int
    time: int
    rows: int


def is_internal(topic: str) -> bool:
    """Whether Kafka, or a program beside it, uses the topic internally: only its exact name selects it."""
    return topic.startswith("__")


def is_elsewhere(topic: str) -> bool:
    """Whether a source of its own is behind the name, which no topic of Kafka or of a folder can have."""
    return ":" in topic


class TopicLog(Protocol):
    """For the Spark driver: which topics and partitions exist, and their offsets."""

    def topics(self) -> Mapping[str, int]:
        """Every topic and its number of partitions, internal ones (``__…``) among them."""

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """An id of each topic, which differs from that of an earlier topic of its name; without unknown ones."""

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset still held, for each partition."""

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset one past the last readable record (last stable offset for transactions)."""

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each range with that timestamp (ms) or a later one; None without one.

        The search may stop when more than ``most`` offsets of all ranges together are earlier. Then the result for
        a range is where it stopped, and the latest time up to there.
        """

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates the topic; `SinkError` if it exists already."""

    def delete_topic(self, topic: str) -> None:
        """Deletes the topic with its records; `SourceError` if it does not exist."""

    def close(self) -> None: ...


class CommitLog(Protocol):
    """For the driver: the commits of lake tables, which have as many rows as they like."""

    def commits(self, topic: str, start: int, end: int) -> Sequence[CommitRows]:
        """The commits of a range, in order; of the range ``[0, V + 1)`` one, the snapshot of version V."""


class RangeReader(Protocol):
    """For workers: reads exact offset ranges; stays open between batches."""

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The records of the range, in offset order, in batches of at most ``max_rows`` rows of `RECORDS`.

        Yields nothing for an empty range. Raises `SourceError` if retention deleted a part of the range, the topic
        does not exist, or the broker does not answer within ``broker_patience``.
        """

    def read_many(
        self, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """The records of several ranges, each in offset order: one after the other, or as they come."""

    def close(self) -> None: ...


class ReadsInTurn:
    """A `RangeReader` that reads single ranges: of several one after the other."""

    __slots__ = ()

    def read_many(
        self: RangeReader, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """The records of one range after the other. Raises as `read` does."""
        return ((span, records) for span in spans for records in self.read(span, max_rows))


class ReadsTogether:
    """A `RangeReader` that reads several ranges together: also a single one."""

    __slots__ = ()

    def read(self: RangeReader, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The records of the range. Raises as `read_many` does."""
        return (records for _, records in self.read_many([span], max_rows))


class RecordWriter(Protocol):
    """For workers: writes records to topics; stays open between batches."""

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """Appends ``records`` (columns of `RECORDS` without ``offset``) in order.

        ``partitions``: one per record, or None for Kafka's default (murmur2 of the key; null keys anywhere).
        """

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; `SinkError` if it cannot be written."""

    def flush(self) -> None:
        """Returns when all records are stored; `SinkError` if one was not."""

    def close(self) -> None: ...


class TopicConnection(Protocol):
    """The settings of Kafka or file topics, as a value that can be pickled."""

    def log(self) -> TopicLog: ...

    def reader(self) -> RangeReader: ...

    def writer(self) -> RecordWriter: ...


def name_fault(name: object) -> str | None:
    """Why Kafka refuses ``name`` for a topic, an operator or a store; None: it does not.

    Source: semantics 5.1 (``Named.validate``, ``Topic.validate``).

    >>> name_fault("orders"), name_fault("my orders")
    (None, 'it may hold only ASCII letters, digits, ".", "_" and "-"')
    """
    if not isinstance(name, str):
        return f"it must be a str, not {type(name).__name__}"
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return 'it may not be "." or ".."'
    if len(name) > 249:
        return f"it has {len(name)} characters; 249 are allowed"
    return None if _LEGAL.fullmatch(name) else 'it may hold only ASCII letters, digits, ".", "_" and "-"'


def is_legal_name(topic: str) -> bool:
    """Kafka's rule for the names of topics."""
    return name_fault(topic) is None


def check_name(topic: str) -> None:
    """Raises `SinkError` (CS-656) for what cannot be the name of a topic."""
    if not is_legal_name(topic):
        raise illegal_name(topic)


def illegal_name(topic: str) -> CrossStreamError:
    """The refusal (CS-656) of what cannot be the name of a topic."""
    step = "Use 1 to 249 ASCII letters, digits, '.', '_' and '-', also in what a function gives."
    return refuse("CS-656", f"{topic!r} cannot be the name of a topic.", step, topic=topic)


Ranges = Mapping[TopicPartition, OffsetRange]
FirstRecords = dict[TopicPartition, OffsetAndTimestamp | None]
"""The first record of a time or later in each partition; None without one."""
Columns = tuple[list[np.ndarray], list[np.ndarray]]
"""Offsets and timestamps, in parts."""

CHUNK, GROWTH = 500, 4
"""How many offsets of a partition the first look reads, and the factor of each further look."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The offsets and timestamps of all records of a partition from ``begin`` to ``end``."""

    begin: int
    end: int
    offsets: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    times: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def first(self, offset: int, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record from ``offset`` on with that timestamp (ms) or a later one."""
        start = int(np.searchsorted(self.offsets, offset))
        late = self.times[start:] >= timestamp
        if not late.any():
            return None
        row = start + int(late.argmax())
        return OffsetAndTimestamp(int(self.offsets[row]), int(self.times[row]))

    def last(self, timestamp: int) -> OffsetAndTimestamp:
        """The end and the latest time; without records, the time before ``timestamp``."""
        return OffsetAndTimestamp(self.end, int(self.times.max()) if len(self.times) else timestamp - 1)

    def since(self, offset: int) -> Timeline:
        """Without the records before ``offset``."""
        row = int(np.searchsorted(self.offsets, offset))
        return Timeline(max(self.begin, offset), self.end, self.offsets[row:], self.times[row:])

    def until(self, end: int, more: Columns) -> Timeline:
        """With ``more``, all records that follow up to ``end``."""
        offsets, times = more
        return Timeline(
            self.begin, end, np.concatenate([self.offsets, *offsets]), np.concatenate([self.times, *times])
        )


@dataclass(frozen=True, slots=True)
class Timelines:
    """Searches several partitions together; ``read`` returns the offsets and timestamps of ranges."""

    read: Callable[[Ranges], Mapping[TopicPartition, Columns]]
    _known: dict[TopicPartition, Timeline] = field(default_factory=dict)

    def turn_to(self, tp: TopicPartition, position: int, first: int) -> None:
        """Prepares a search from ``first``, with what is known of the partition since ``position``."""
        known = self._known.get(tp)
        if known is None or not known.begin <= first <= known.end:
            known = Timeline(first, first)
        self._known[tp] = known.since(position)

    def seek(self, sought: Ranges, timestamp: int, most: int) -> FirstRecords:
        """Searches the ranges together until all is found, or more than ``most`` offsets are earlier."""
        chunk = CHUNK
        while True:
            found = {tp: self._known[tp].first(span.start, timestamp) for tp, span in sought.items()}
            ends = {tp: self._known[tp].end for tp in sought}
            left = {tp: span for tp, span in sought.items() if found[tp] is None and ends[tp] < span.end}
            found |= {tp: self._known[tp].last(timestamp) for tp in left}
            before = sum(passed(span, found[tp]) for tp, span in sought.items())
            if not left or before > most:
                return found
            self._look_further(left, min(chunk, (most - before) // len(left) + 1))
            chunk *= GROWTH

    def _look_further(self, spans: Ranges, chunk: int) -> None:
        """Reads ``chunk`` more offsets of each range, or to its end."""
        wanted = {}
        for tp, span in spans.items():
            known = self._known[tp].end
            wanted[tp] = OffsetRange(tp.topic, tp.partition, known, min(known + chunk, span.end))
        for tp, more in self.read(wanted).items():
            self._known[tp] = self._known[tp].until(wanted[tp].end, more)


def passed(span: OffsetRange, moment: OffsetAndTimestamp | None) -> int:
    """How many offsets of the range are before a record; all without a record."""
    return (span.end if moment is None else moment.offset) - span.start


def partition_of(span: OffsetRange) -> TopicPartition:
    return TopicPartition(span.topic, span.partition)


def all_partitions(topics: Iterable[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    """Every partition of these topics; ``counts``: how many each topic has."""
    return [TopicPartition(topic, partition) for topic in topics for partition in range(counts[topic])]
