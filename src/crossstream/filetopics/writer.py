"""Writing records to file topics: spread over partitions, cut into frames, appended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.errors import SinkError
from crossstream.filetopics.folders import TopicFolders, check_name
from crossstream.filetopics.segments import STORED
from crossstream.partitioning import Partitions, default_partitions, split_by_partition
from crossstream.records import concat
from crossstream.topics import TopicPartition

MAX_ROWS = 32_768
MAX_BYTES = 4 << 20

Store = Callable[[TopicPartition, pa.RecordBatch], None]
"""Stores the records of one frame."""


class Chunks:
    """Collects record batches and gives back full chunks: `MAX_ROWS` rows, or the first to reach `MAX_BYTES`.

    Where a chunk ends depends on the records alone and not on the batches they came in, so that a task that
    runs again makes the same frames.
    """

    __slots__ = ("_bytes", "_parts", "_rows")

    def __init__(self) -> None:
        self._parts: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Takes ``records``; yields the chunks that are full now."""
        sizes = np.cumsum(_row_bytes(records))
        start, before = 0, 0
        while start < len(sizes):
            filled = int(np.searchsorted(sizes, MAX_BYTES - self._bytes + before)) + 1
            end = min(filled, start + MAX_ROWS - self._rows)
            full = end <= len(sizes)
            end = min(end, len(sizes))
            self._parts.append(records.slice(start, end - start))
            self._rows += end - start
            self._bytes += int(sizes[end - 1]) - before
            start, before = end, int(sizes[end - 1])
            if full:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields what was collected and is not a full chunk yet, and starts again."""
        parts, self._parts = self._parts, []
        self._rows = self._bytes = 0
        if parts:
            yield concat(parts)


class FileRecordWriter:
    """`RecordWriter` of file topics: collects records by partition, and stores each chunk of them as a frame.

    What is written is stored at the latest by `flush` or `close`.
    """

    def __init__(self, folders: TopicFolders, auto_create_partitions: int | None, store: Store) -> None:
        self._folders = folders
        self._auto_create_partitions = auto_create_partitions
        self._store = store
        self._chunks: dict[TopicPartition, Chunks] = {}

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """Appends ``records`` (columns of `RECORDS`; an ``offset`` column is ignored) in order.

        A null timestamp becomes the time of writing. ``partitions``: one per record, or None for Kafka's
        default. Raises `SinkError` for a topic or partition that does not exist, or a full disk. After a failure,
        nothing collected is left.
        """
        count = self.partition_count(topic)
        stored = _stored(topic, records)
        if partitions is None:
            chosen = default_partitions(stored.column("key"), count)
        else:
            chosen = _checked(topic, partitions, stored.num_rows, count)
        try:
            for partition, part in split_by_partition(stored, chosen):
                owner = TopicPartition(topic, partition)
                for chunk in self._chunks.setdefault(owner, Chunks()).add(part):
                    self._store(owner, chunk)
        except BaseException:
            self._chunks = {}
            raise

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; makes a topic that is missing and may be made.

        Raises `SinkError` if it does not exist.
        """
        count = self._folders.partition_count(topic)
        if count is not None:
            return count
        if self._auto_create_partitions is None:
            also = ", or set auto_create_partitions"
            raise self._missing(topic, "topics are not made by writing to them", also)
        check_name(topic)
        self._folders.create(topic, self._auto_create_partitions, {})
        return self._folders.partition_count(topic) or self._auto_create_partitions

    def must_exist(self, topic: str) -> None:
        """Raises `SinkError` if there is no such topic: a name that a record gave makes none."""
        if self._folders.partition_count(topic) is None:
            raise self._missing(topic, "a topic that a record names is not made")

    def flush(self) -> None:
        """Returns when everything written is stored. Raises `SinkError` if not: then write it again."""
        chunks, self._chunks = self._chunks, {}
        for owner in sorted(chunks):
            for chunk in chunks[owner].rest():
                self._store(owner, chunk)

    def close(self) -> None:
        """Flushes."""
        self.flush()

    def _missing(self, topic: str, why: str, also: str = "") -> SinkError:
        check_name(topic)
        return SinkError(
            f"There is no such file topic, and {why}.",
            code="CS-652",
            where={"topic": topic, "folder": str(self._folders.root)},
            next=f"Create the topic first{also}.",
        )


def _row_bytes(records: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Bytes of key, value and headers of each row, and 8 for its timestamp."""
    total = np.full(records.num_rows, 8, dtype=np.int64)
    for name in ("key", "value", "headers"):
        lengths = pc.fill_null(pc.binary_length(records.column(name)), 0)
        total += lengths.to_numpy(zero_copy_only=False)
    return total


def _stored(topic: str, records: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are stored, with a timestamp in every row."""
    try:
        stored = records.select(STORED.names).cast(STORED)
    except (KeyError, pa.ArrowException) as error:
        raise SinkError(
            f"Records do not have the columns key, value, timestamp, headers: {error}.",
            code="CS-654",
            where={"topic": topic, "columns": ", ".join(map(str, records.schema))},
            next="Pass record batches of crossstream.records.RECORDS.",
        ) from error
    column = STORED.get_field_index("timestamp")
    if stored.column(column).null_count:
        now = pc.fill_null(stored.column(column), time.time_ns() // 1_000_000)
        stored = stored.set_column(column, STORED.field(column), now)
    return stored


def _checked(topic: str, partitions: Sequence[int], rows: int, count: int) -> Partitions:
    chosen = np.asarray(partitions, dtype=np.int32)
    if len(chosen) != rows:
        raise SinkError(
            f"{len(chosen)} partitions were given for {rows} records.",
            code="CS-654",
            where={"topic": topic},
            next="Give one partition for each record.",
        )
    outside = chosen[(chosen < 0) | (chosen >= count)]
    if len(outside):
        raise SinkError(
            f"A record is for partition {outside[0]}, but the file topic has {count}.",
            code="CS-654",
            where={"topic": topic, "partition": int(outside[0])},
            next="Check the partitioner, or create the topic with more partitions.",
        )
    return chosen
