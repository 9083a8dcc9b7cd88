"""Exactly once into file topics: workers stage, the driver publishes.

A worker writes its records to staged files, which no reader of the topic sees; the driver, when the batch is
decided, appends them to the topics as frames that carry a tag. A publication that was cut short is simply
repeated: a frame whose tag is there already is not appended a second time. Half of the tag tells the code that made
the records, half the records: what changed code gives instead is appended after what the code before has published,
and what the same code gives is not, even if it is something else each time. Decision 0007.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from crossstream.durability import Disk, force
from crossstream.errors import SinkError
from crossstream.files.appending import Appender, appending
from crossstream.files.folders import TopicFolders
from crossstream.files.frames import HEADER, NO_TAG, Frame, encode, parse_header
from crossstream.files.segments import PartitionLog
from crossstream.files.writer import Spreader
from crossstream.records import REASON, decode_headers, encode_headers
from crossstream.state.rights import make_folder, opener, rights_in
from crossstream.topics import TopicPartition

_PIECE = 1 << 20
_HALF = 8
_UNKNOWN = bytes(_HALF)
"""The first half of a tag of records that no code is known of."""


@dataclass(frozen=True, slots=True, order=True)
class Staged:
    """``rows`` records that wait in the file ``path`` to be published as one frame with a 16-byte ``tag``."""

    path: str
    topic: str
    partition: int
    rows: int
    tag: bytes


class StagingWriter:
    """`RecordWriter` whose records are staged below a folder instead of appended to their topics.

    The same writes with the same ``tag`` give the same frames with the same tags, so a task that runs again
    stages what it staged before, in new files; other records have other tags. ``tag`` (of any length) must name the
    batch and the task. ``code`` (of any length): the same as long as the code that makes the records is; nothing
    where that is not known.
    """

    def __init__(
        self,
        root: Path,
        auto_create_partitions: int | None,
        durable: bool,
        folder: Path,
        tag: bytes,
        code: bytes = b"",
    ) -> None:
        self._folder = folder
        self._tag = tag
        self._code = code
        self._durable = durable
        self._staged: list[Staged] = []
        self._frames: Counter[TopicPartition] = Counter()
        self._spreader = Spreader(TopicFolders(root), auto_create_partitions, self._stage)

    @property
    def staged(self) -> tuple[Staged, ...]:
        """What was staged so far: complete after `flush`."""
        return tuple(self._staged)

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        """As `FileRecordWriter.write`."""
        self._spreader.write(topic, records, partitions)

    def must_exist(self, topic: str) -> None:
        """Raises `SinkError` if there is no such topic."""
        self._spreader.must_exist(topic)

    def partition_count(self, topic: str) -> int:
        """As `FileRecordWriter.partition_count`."""
        return self._spreader.partition_count(topic)

    def flush(self) -> None:
        """Returns when everything written is staged. Raises `SinkError` if not."""
        self._spreader.flush()

    def close(self) -> None:
        """Flushes."""
        self.flush()

    def _stage(self, owner: TopicPartition, records: pa.RecordBatch) -> None:
        frame, payload = encode(records)
        place = f"{owner.topic}/{owner.partition}/{self._frames[owner]}/".encode() + self._tag
        by_records = xxhash.xxh3_64_digest(_digest(records) + place)
        frame = replace(frame, tag=self._by_code(owner, records, place) + by_records)
        self._frames[owner] += 1
        self._staged.append(_write(self._folder, owner, frame, payload, self._durable))

    def _by_code(self, owner: TopicPartition, records: pa.RecordBatch, place: bytes) -> bytes:
        """The first half of a tag: of the code, and of what says that the records are those that it made before.

        Where keys choose among partitions, other keys may mean that a record has gone from one frame to another.
        """
        if not self._code:
            return _UNKNOWN
        has_one = self._spreader.partition_count(owner.topic) == 1
        kept = b"" if has_one else _digest(records.select(["key"]))
        return xxhash.xxh3_64_digest(b"%d/%b" % (records.num_rows, kept) + self._code + place)


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

        One half of the tag is enough.

        ``since``: the offset in each partition from which a tag counts as already there (its end before the
        first attempt to publish; 0 where not given). A staged file may be gone if its tag is there. Returns
        the end offset of every partition concerned. Raises `SinkError` if a staged file is missing or
        damaged, or the disk refuses; publishing again then goes on where this stopped.
        """
        _check_tags(staged)
        ends, segments = {}, set()
        by_partition = attrgetter("topic", "partition")
        for place, frames in groupby(sorted(staged, key=by_partition), key=by_partition):
            owner = TopicPartition(*place)
            log = self._folders.partition(owner)
            first = (since or {}).get(owner, 0)
            with appending(log, self._segment_bytes, durable=False) as appender:
                _append_missing(appender, log, list(frames), first)
            ends[owner] = log.end
            # Also what an earlier attempt appended: perhaps it did not come to forcing that out.
            segments |= {segment.path for segment, _ in log.frames(max(first, log.begin), log.end)}
        self._force(segments)
        return ends

    def _force(self, segments: Iterable[Path]) -> None:
        if self._disk is None:
            return
        self._disk.begin(segments)
        try:
            self._disk.wait()
        except OSError as error:
            raise SinkError(
                f"The disk refuses what was appended to file topics: {error}.",
                code="CS-674",
                next="Check the disk, then start the application again: it repeats the batch.",
            ) from error

    def close(self) -> None:
        """Ends the threads that wait for the disk."""
        if self._disk is not None:
            self._disk.close()


def stage(
    folder: str | os.PathLike[str],
    tag: bytes,
    owner: TopicPartition,
    records: pa.RecordBatch,
    *,
    durable: bool = True,
) -> Staged:
    """Writes ``records`` (columns of `frames.STORED`, no null timestamp, at least one row) to a new file.

    ``tag``: 16 bytes, unique in the topic partition among all that is ever published. ``durable``: the file
    survives a crash of the machine. Raises `SinkError` if the disk refuses.
    """
    if len(tag) != len(NO_TAG) or tag == NO_TAG:
        raise SinkError(
            f"The tag of staged records is {tag!r}; it must be 16 bytes and not all zeros.",
            code="CS-668",
            where={"topic": owner.topic, "partition": owner.partition},
            next="Make the tag from the batch and the task, for instance with xxh3_128.",
        )
    return _write(Path(folder), owner, *encode(records, tag), durable)


def _write(folder: Path, owner: TopicPartition, frame: Frame, payload: pa.Buffer, durable: bool) -> Staged:
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
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if durable:
            force(path.parent)
    except OSError as error:
        raise SinkError(
            f"Records could not be staged: {error}.",
            code="CS-669",
            where={"topic": owner.topic, "partition": owner.partition, "file": str(path)},
            next="Check the free space and the permissions of the folder.",
        ) from error
    return Staged(str(path), owner.topic, owner.partition, frame.rows, frame.tag)


def _digest(records: pa.RecordBatch) -> bytes:
    """The same for the same records, however their columns are laid out, and whatever reasons dead letters have."""
    digest = xxhash.xxh3_128()
    for name, column in zip(records.schema.names, records.columns, strict=True):
        column = _without_reasons(column) if name == "headers" else column
        if pa.types.is_large_binary(column.type):
            digest.update(pc.binary_length(column).fill_null(-1).to_numpy())
            digest.update(_bytes_of(column.drop_null()))
        else:
            digest.update(column.to_numpy())
    return digest.digest()


def _without_reasons(headers: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """What an exception says may be another thing each time: where an object lies in memory."""
    if not pc.any(pc.match_substring(headers, REASON)).as_py():
        return headers
    pairs = [[pair for pair in decode_headers(cell) if pair[0] != REASON] for cell in headers.to_pylist()]
    return pa.array([encode_headers(kept) for kept in pairs], headers.type)


def _bytes_of(column: pa.LargeBinaryArray) -> pa.Buffer | bytes:
    """All values of a column without nulls, one after the other."""
    if not len(column):
        return b""
    _, offsets, content = column.buffers()
    first, last = np.frombuffer(offsets, np.int64)[[column.offset, column.offset + len(column)]].tolist()
    return b"" if first == last else content[first:last]


def _check_tags(staged: Sequence[Staged]) -> None:
    seen = set()
    for one in staged:
        place = (one.topic, one.partition, one.tag)
        if place in seen:
            raise SinkError(
                "Two staged files for one partition have the same tag; the second would be lost.",
                code="CS-670",
                where={"topic": one.topic, "partition": one.partition, "file": one.path},
                next="Publish one attempt of each task, and stage under a tag of its own in each task.",
            )
        seen.add(place)


def _append_missing(appender: Appender, log: PartitionLog, staged: list[Staged], since: int) -> None:
    """In the order of ``staged``, also among those that are there: after one that is missing all others are, too."""
    there = iter([frame.tag for frame in log.since(since)])
    for one in staged:
        if not any(_is_same(one.tag, tag) for tag in there):  # looks behind the one found before
            _append_staged(appender, one)


def _is_same(tag: bytes, other: bytes) -> bool:
    """The same records in the same place, or what the same code made there."""
    return tag[_HALF:] == other[_HALF:] or _UNKNOWN != tag[:_HALF] == other[:_HALF]


def _append_staged(appender: Appender, one: Staged) -> None:
    try:
        file = os.open(one.path, os.O_RDONLY)
    except OSError as error:
        raise _unusable(one, str(error)) from error
    try:
        head = os.pread(file, HEADER.size, 0)
        frame = parse_header(head, 0, 0) if len(head) == HEADER.size else None
        if frame is None or (frame.tag, frame.rows) != (one.tag, one.rows):
            raise _unusable(one, "its header is not sound")
        appender.append(frame, _payload(file, frame, one))
    finally:
        os.close(file)


def _payload(file: int, frame: Frame, one: Staged) -> Iterator[bytes]:
    """The payload in pieces; raises in the end if their checksum is not right."""
    digest = xxhash.xxh3_64()
    position, end = frame.payload, frame.payload + frame.length
    while position < end and (piece := os.pread(file, min(_PIECE, end - position), position)):
        digest.update(piece)
        position += len(piece)
        yield piece
    if position < end or digest.intdigest() != frame.checksum:
        raise _unusable(one, "its records fail their checksum")


def _unusable(one: Staged, why: str) -> SinkError:
    return SinkError(
        f"A staged file cannot be published: {why}.",
        code="CS-671",
        where={"topic": one.topic, "partition": one.partition, "file": one.path},
        next="Start the application again: it repeats the batch. If it stops here at the start, the batch was being "
        "published: restore the state folder from a copy.",
    )
