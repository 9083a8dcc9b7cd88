"""What the engine asks of a place where topics live: Kafka, or file topics.

The driver side (`TopicLog`) finds topics and offsets; the worker side (`RangeReader`, `RecordWriter`)
reads exact ranges and writes records. All of them are made from a `TopicConnection`, a small frozen
value that is pickled to the workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from crossstream.errors import SinkError

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


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
    """A record by its place in time: its offset, and its timestamp in ms."""

    offset: int
    timestamp: int


def is_internal(topic: str) -> bool:
    """Whether Kafka, or a program beside it, keeps the topic for itself: it is read where it is named."""
    return topic.startswith("__")


class TopicLog(Protocol):
    """Driver side: which topics and partitions exist, and how far they reach."""

    def topics(self) -> Mapping[str, int]:
        """Every topic and its number of partitions, internal ones (``__…``) among them."""

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """What tells each topic from an earlier one of its name; those of which it is not known are left out."""

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset still held, for each partition."""

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset one past the last readable record (last stable offset for transactions)."""

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each range with that timestamp (ms) or a later one; None if there is none in it.

        Where more than ``most`` offsets of all ranges together lie before these records, it need not look on until
        it has found them: then it tells how far it has looked, and the latest time up to there, which is earlier.
        """

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates the topic; a topic that exists already is an error (`SinkError`)."""

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Marks ``offsets`` (next offset to read) as consumed by ``group``, so that lag tools see it."""

    def close(self) -> None: ...


class RangeReader(Protocol):
    """Worker side: reads exact offset ranges; kept open between batches."""

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The records of the range, in offset order, in batches of at most ``max_rows`` rows of `RECORDS`.

        Yields nothing for an empty range. Raises `SourceError` if a part of the range was deleted by
        retention, the topic is gone, or the broker stays away past the configured patience.
        """

    def close(self) -> None: ...


class RecordWriter(Protocol):
    """Worker side: writes records to topics; kept open between batches."""

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """Appends ``records`` (columns of `RECORDS` without ``offset``) in order.

        ``partitions``: one per record, or None for Kafka's default (murmur2 of the key; null keys anywhere).
        """

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; raises `SinkError` if it cannot be written to."""

    def flush(self) -> None:
        """Returns when everything written is stored; raises `SinkError` if anything was not."""

    def close(self) -> None: ...


class TopicConnection(Protocol):
    """A picklable description of a place where topics live."""

    def log(self) -> TopicLog: ...

    def reader(self) -> RangeReader: ...

    def writer(self) -> RecordWriter: ...


def is_legal_name(topic: str) -> bool:
    """Kafka's rule for the names of topics."""
    return _LEGAL_NAME.fullmatch(topic) is not None and topic not in {".", ".."}


def check_name(topic: str) -> None:
    """Raises `SinkError` (CS-656) for what cannot be the name of a topic."""
    if not is_legal_name(topic):
        raise illegal_name(topic)


def illegal_name(topic: str) -> SinkError:
    """CS-656."""
    return SinkError(
        f"{topic!r} cannot be the name of a topic.",
        code="CS-656",
        where={"topic": topic},
        next="Use 1 to 249 ASCII letters, digits, '.', '_' and '-', also in what a function gives.",
    )


def murmur2_partitions(keys: Iterable[bytes | None], count: int) -> list[int]:
    """Kafka's default partition of each serialised key (null keys: partition 0)."""
    return [0 if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in keys]


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (seed 0x9747b28c) of ``data``, as an unsigned 32-bit integer."""
    mask, m, length = 0xFFFFFFFF, 0x5BD1E995, len(data)
    h = (0x9747B28C ^ length) & mask
    for i in range(0, length & ~3, 4):
        k = (int.from_bytes(data[i : i + 4], "little") * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
    tail = data[length & ~3 :]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)
