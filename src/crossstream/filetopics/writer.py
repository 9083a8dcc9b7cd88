"""Writing records to file topics: spread over partitions, cut into frames, appended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.errors import SinkError
from crossstream.filetopics.appending import appending
from crossstream.filetopics.chunks import Chunks
from crossstream.filetopics.folders import TopicFolders, check_name
from crossstream.filetopics.frames import STORED, encode
from crossstream.partitioning import Partitions, default_partitions, split_by_partition
from crossstream.topics import TopicPartition

Store = Callable[[TopicPartition, pa.RecordBatch], None]


class Spreader:
    """Gathers records by topic partition and hands each full chunk of one to ``store``."""

    def __init__(self, folders: TopicFolders, auto_create_partitions: int | None, store: Store) -> None:
        self._folders = folders
        self._auto_create_partitions = auto_create_partitions
        self._store = store
        self._chunks: dict[TopicPartition, Chunks] = {}

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None) -> None:
        """Takes ``records``; see `RecordWriter.write`. After a failure, nothing collected is left."""
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
        """How many partitions the topic has, which is made if it is missing and may be made."""
        count = self._folders.partition_count(topic)
        if count is not None:
            return count
        check_name(topic)
        if self._auto_create_partitions is None:
            raise self._missing(
                topic, "topics are not made by writing to them", ", or set auto_create_partitions"
            )
        self._folders.create(topic, self._auto_create_partitions, {})
        return self._folders.partition_count(topic) or self._auto_create_partitions

    def flush(self) -> None:
        """Hands on every chunk, full or not. After a failure nothing is left: it is to be written again."""
        chunks, self._chunks = self._chunks, {}
        for owner in sorted(chunks):
            for chunk in chunks[owner].rest():
                self._store(owner, chunk)

    def must_exist(self, topic: str) -> None:
        """Raises `SinkError` if there is no such topic: a name that a record gave makes none."""
        if self._folders.partition_count(topic) is None:
            check_name(topic)
            raise self._missing(topic, "a topic that a record names is not made")

    def _missing(self, topic: str, why: str, also: str = "") -> SinkError:
        return SinkError(
            f"There is no such file topic, and {why}.",
            code="CS-652",
            where={"topic": topic, "folder": str(self._folders.root)},
            next=f"Create the topic first{also}.",
        )


class FileRecordWriter:
    """`RecordWriter` of file topics: what is written is stored at the latest by `flush` or `close`."""

    def __init__(
        self, root: Path, auto_create_partitions: int | None, segment_bytes: int, durable: bool
    ) -> None:
        self._folders = TopicFolders(root)
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._spreader = Spreader(self._folders, auto_create_partitions, self._append)

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """Appends ``records`` (columns of `RECORDS`; an ``offset`` column is ignored) in order.

        A null timestamp becomes the time of writing. ``partitions``: one per record, or None for Kafka's
        default. Raises `SinkError` for a topic or partition that does not exist, or a full disk.
        """
        self._spreader.write(topic, records, partitions)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; raises `SinkError` if it does not exist, as `write` does."""
        return self._spreader.partition_count(topic)

    def flush(self) -> None:
        """Returns when everything written is stored. Raises `SinkError` if not: then write it again."""
        self._spreader.flush()

    def close(self) -> None:
        """Flushes."""
        self.flush()

    def _append(self, owner: TopicPartition, records: pa.RecordBatch) -> None:
        frame, payload = encode(records)
        with appending(self._folders.partition(owner), self._segment_bytes, self._durable) as appender:
            appender.append(frame, (payload,))


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
    place = STORED.get_field_index("timestamp")
    if stored.column(place).null_count:
        now = pc.fill_null(stored.column(place), time.time_ns() // 1_000_000)
        stored = stored.set_column(place, STORED.field(place), now)
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
