"""Writing records to file topics: spread over partitions, cut into frames, and appended or staged.

Exactly once: a worker stages its records in files that no reader of the topic sees. When the batch is decided, the
driver appends them as frames that carry a tag made of batch, task and number of the frame. A publication that was cut
short is repeated: a frame whose tag is there already is not appended a second time, also if its values were others.
Decision 0007, decision 0032.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.filetopics.frame_format import HEADER, STORED, Frame, encode, parse_header
from crossstream.filetopics.partition_log import Appender, PartitionLog, appending
from crossstream.filetopics.topics import TopicFolders, check_name
from crossstream.partitioning import Partitions, default_partitions, split_by_partition
from crossstream.records import concat
from crossstream.storage.files import Disk, make_folder, opener, rights_in
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

    def __init__(self, folders: TopicFolders, store: Store) -> None:
        self._folders = folders
        self._store = store
        self._chunks: dict[TopicPartition, Chunks] = {}

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """Appends ``records`` (columns of `RECORDS`; an ``offset`` column is ignored) in order.

        ``partitions``: one per record, or None for Kafka's default. Raises `SinkError` for a partition that does not
        exist, or a full disk. After a failure, nothing collected is left.
        """
        count = self.partition_count(topic)
        stored = records.select(STORED.names).cast(STORED)
        if partitions is None:
            chosen = default_partitions(stored.column("key"), count)
        else:
            chosen = _checked(topic, partitions, count)
        try:
            for partition, part in split_by_partition(stored, chosen):
                owner = TopicPartition(topic, partition)
                for chunk in self._chunks.setdefault(owner, Chunks()).add(part):
                    self._store(owner, chunk)
        except BaseException:
            self._chunks = {}
            raise

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; makes a missing one with one partition."""
        if self._folders.partition_count(topic) is None:
            self._folders.create(topic, 1, {})
        return self._folders.partition_count(topic) or 1

    def must_exist(self, topic: str) -> None:
        """Raises `SinkError` if there is no such topic: a name that a record gave makes none."""
        if self._folders.partition_count(topic) is None:
            check_name(topic)
            what = "There is no such file topic, and a topic that a record names is not made."
            step = "Create the topic first."
            raise refuse("CS-652", what, step, topic=topic, folder=str(self._folders.root))

    def flush(self) -> None:
        """Returns when everything written is stored. Raises `SinkError` if not: then write it again."""
        chunks, self._chunks = self._chunks, {}
        for owner in sorted(chunks):
            for chunk in chunks[owner].rest():
                self._store(owner, chunk)

    def close(self) -> None:
        """Flushes."""
        self.flush()


def _row_bytes(records: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Bytes of key, value and headers of each row, and 8 for its timestamp."""
    total = np.full(records.num_rows, 8, dtype=np.int64)
    for name in ("key", "value", "headers"):
        lengths = pc.fill_null(pc.binary_length(records.column(name)), 0)
        total += lengths.to_numpy(zero_copy_only=False)
    return total


def _checked(topic: str, partitions: Sequence[int], count: int) -> Partitions:
    chosen = np.asarray(partitions, dtype=np.int32)
    outside = chosen[(chosen < 0) | (chosen >= count)]
    if len(outside):
        what = f"A record is for partition {outside[0]}, but the file topic has {count}."
        step = "Check the partitioner, or create the topic with more partitions."
        raise refuse("CS-655", what, step, topic=topic, partition=int(outside[0]))
    return chosen


class Staged(NamedTuple):
    """``rows`` records that wait in the file ``path`` to be published as one frame with a 16-byte ``tag``."""

    path: str
    topic: str
    partition: int
    rows: int
    tag: bytes


class StagingWriter(FileRecordWriter):
    """`RecordWriter` whose records are staged below a folder instead of appended to their topics.

    ``task`` (of any length) names the batch and the task. A task that runs again stages frames with the same tags, in
    new files, also if a function gives other values this time. Frames that have another number of records, or other
    keys where keys choose among partitions, have other tags: a record may have moved from one frame to another, and
    would be lost if the frame that is there stood for both.
    """

    def __init__(self, folders: TopicFolders, folder: Path, task: bytes) -> None:
        super().__init__(folders, self._stage)
        self._folder = folder
        self._task = task
        self._staged: list[Staged] = []
        self._frames: Counter[TopicPartition] = Counter()

    @property
    def staged(self) -> tuple[Staged, ...]:
        """What was staged so far: complete after `flush`."""
        return tuple(self._staged)

    def _stage(self, owner: TopicPartition, records: pa.RecordBatch) -> None:
        frame, payload = encode(records, self._tag(owner, records))
        self._frames[owner] += 1
        self._staged.append(_write(self._folder, owner, frame, payload))

    def _tag(self, owner: TopicPartition, records: pa.RecordBatch) -> bytes:
        number = f"{owner.topic}/{owner.partition}/{self._frames[owner]}/{records.num_rows}/"
        has_one = self.partition_count(owner.topic) == 1
        keys = b"" if has_one else _digest(records.column("key"))
        return xxhash.xxh3_128_digest(number.encode() + keys + self._task)


class FilePublisher:
    """Appends staged records to their topics, each at most once; kept open between batches."""

    def __init__(self, root: Path, segment_bytes: int, durable: bool) -> None:
        self._folders = TopicFolders(root)
        self._segment_bytes = segment_bytes
        self._disk = Disk() if durable else None

    def publish(
        self, staged: Sequence[Staged], since: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        """Appends each staged frame, in the order given, unless its tag is there already, behind those before it.

        ``since``: the offset in each partition from which a tag counts as already there (its end before the
        first attempt to publish; 0 where not given). A staged file may be gone if its tag is there. Returns
        the end offset of every partition concerned. Raises `SinkError` if a staged file is missing or
        damaged, or the disk refuses; publishing again continues where this stopped.
        """
        ends, segments = {}, set()
        by_partition = attrgetter("topic", "partition")
        for (topic, partition), frames in groupby(sorted(staged, key=by_partition), key=by_partition):
            owner = TopicPartition(topic, partition)
            log = self._folders.partition(owner)
            first = (since or {}).get(owner, 0)
            with appending(log, self._segment_bytes, durable=False) as appender:
                _append_missing(appender, log, list(frames), first)
            ends[owner] = log.end
            # Also what an earlier attempt appended: perhaps it did not come to forcing that out.
            segments |= {segment.path for segment, _ in log.holding(max(first, log.begin), log.end)}
        self._force(segments)
        return ends

    def _force(self, segments: Iterable[Path]) -> None:
        if self._disk is None:
            return
        self._disk.force(segments)
        try:
            self._disk.finish()
        except OSError as error:
            what = f"The disk refuses what was appended to file topics: {error}."
            step = "Check the disk, then start the application again: it repeats the batch."
            raise refuse("CS-665", what, step) from error

    def close(self) -> None:
        """Ends the threads that wait for the disk."""
        if self._disk is not None:
            self._disk.close()


def _write(folder: Path, owner: TopicPartition, frame: Frame, payload: pa.Buffer) -> Staged:
    """Not forced to the disk: a batch that has no commit stages its records again."""
    path = folder / f"{frame.tag.hex()}-{uuid.uuid4().hex}.staged"
    try:
        rights = rights_in(folder.parent)
        if rights is None:  # beside the topics, with their rights
            folder.mkdir(parents=True, exist_ok=True)
        else:
            make_folder(folder, rights)
        with open(path, "xb", opener=None if rights is None else opener(rights)) as file:
            file.write(frame.header())
            file.write(payload)
    except OSError as error:
        what = f"Records could not be staged: {error}."
        step = "Check the free space and the permissions of the folder."
        raise refuse(
            "CS-665", what, step, topic=owner.topic, partition=owner.partition, file=str(path)
        ) from error
    return Staged(str(path), owner.topic, owner.partition, frame.rows, frame.tag)


def _digest(column: pa.LargeBinaryArray) -> bytes:
    """The same for the same values, however the column is laid out."""
    digest = xxhash.xxh3_64(pc.binary_length(column).fill_null(-1).to_numpy())
    values = column.drop_null()
    if len(values):
        _, offsets, content = values.buffers()
        first, last = np.frombuffer(offsets, np.int64)[[values.offset, values.offset + len(values)]].tolist()
        digest.update(content[first:last])
    return digest.digest()


def _append_missing(appender: Appender, log: PartitionLog, staged: list[Staged], since: int) -> None:
    """In the order of ``staged``, also among those that are there: after a missing one all others are missing, too."""
    there = iter(log.tags(since))
    for one in staged:
        if one.tag not in there:  # looks behind the one found before
            appender.append(*_read(one))


def _read(one: Staged) -> tuple[Frame, memoryview]:
    try:
        with open(one.path, "rb", buffering=0) as file:
            content = file.read()
    except OSError as error:
        raise _unusable(one, str(error)) from error
    frame = parse_header(content)
    if frame is None or (frame.tag, frame.rows) != (one.tag, one.rows):
        raise _unusable(one, "its header is damaged")
    payload = memoryview(content)[HEADER.size :]
    if not frame.describes(payload):
        raise _unusable(one, "its records fail their checksum")
    return frame, payload


def _unusable(one: Staged, why: str) -> CrossStreamError:
    what = f"A staged file cannot be published: {why}."
    step = (
        "Start the application again: it repeats the batch. If it stops here at the start, the batch was being "
        "published: restore the state folder from a copy."
    )
    return refuse("CS-665", what, step, topic=one.topic, partition=one.partition, file=one.path)
