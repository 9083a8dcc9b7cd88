"""What the engine needs of Kafka or of file topics.

The Spark driver uses a `TopicLog` to find topics and offsets. Workers use a `RangeReader` and a `RecordWriter` to
read exact ranges and to write records. A `TopicConnection` makes all of them; Spark pickles it to the workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
    """The offset of a record and its timestamp in ms."""

    offset: int
    timestamp: int


def is_internal(topic: str) -> bool:
    """Whether Kafka, or a program beside it, uses the topic internally: only its exact name selects it."""
    return topic.startswith("__")


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

    def close(self) -> None: ...


class RangeReader(Protocol):
    """For workers: reads exact offset ranges; stays open between batches."""

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The records of the range, in offset order, in batches of at most ``max_rows`` rows of `RECORDS`.

        Yields nothing for an empty range. Raises `SourceError` if retention deleted a part of the range, the topic
        does not exist, or the broker does not answer within ``broker_patience``.
        """

    def close(self) -> None: ...


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
