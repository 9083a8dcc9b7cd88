"""File topics as folders: what there is, how far it reaches, and reading exact ranges.

    <topics_dir>/<topic>/topic.json                           format, id, partitions, config
    <topics_dir>/<topic>/<partition>/lock                     held while appending
    <topics_dir>/<topic>/<partition>/00000000000000000000.seg records from that offset on
    <topics_dir>/.new/                                        topics being made
    <topics_dir>/.staged/<application>/                       records on their way, of applications with remote state

A topic is made elsewhere and renamed into place, so it is there as a whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.filetopics.frame_format import Frame
from crossstream.filetopics.partition_log import PartitionLog
from crossstream.records import RECORDS, concat
from crossstream.storage.door import MOST_PARTITIONS, FileName, Partitions, inside, read_plain
from crossstream.storage.files import force
from crossstream.topics import (
    OffsetAndTimestamp,
    OffsetRange,
    ReadsInTurn,
    TopicPartition,
    illegal_name,
    is_legal_name,
    partition_of,
)

FORMAT = 1
STAGED = ".staged"
_NEW = ".new"
_TAKEN = frozenset({STAGED, _NEW, ".groups"})
"""Folders that are no topics; earlier versions wrote into the last one."""
_DESCRIPTION = "topic.json"


class Description(msgspec.Struct, frozen=True):
    """What ``topic.json`` holds; ``id`` differs from that of an earlier topic of the same name."""

    format: int
    id: FileName
    partitions: Partitions
    config: dict[str, str] = {}


_DECODER = msgspec.json.Decoder(Description)


@dataclass(slots=True)
class _Topic:
    """A topic as it was found: its description, where that came from, and the partitions looked at."""

    description: Description
    seen: tuple[int, int, int]
    partitions: dict[int, PartitionLog] = field(default_factory=dict)


class TopicFolders:
    """The topics below one folder, remembered between calls as long as their ids stay."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._topics: dict[str, _Topic] = {}

    def names(self) -> Iterator[str]:
        """Every topic there is, in order of name."""
        if self.root.is_dir():
            for entry in sorted(os.scandir(self.root), key=lambda entry: entry.name):
                if os.path.exists(os.path.join(entry.path, _DESCRIPTION)):
                    yield entry.name

    def partition_count(self, topic: str) -> int | None:
        """How many partitions the topic has; None if there is no such topic."""
        found = self._find(topic)
        return None if found is None else found.description.partitions

    def topic_id(self, topic: str) -> str | None:
        """Its id, which an earlier topic of its name did not have; None if there is no such topic."""
        found = self._find(topic)
        return None if found is None else found.description.id

    def partition(self, owner: TopicPartition) -> PartitionLog:
        """What is known of a partition; raises `SourceError` if it does not exist."""
        found = self._find(owner.topic)
        if found is None:
            raise missing_topic(owner.topic, self.root)
        if not 0 <= owner.partition < found.description.partitions:
            what = f"The file topic has no partition {owner.partition}, only {found.description.partitions}."
            step = "The topic was probably made again: start with a new state_dir, or restore the topic's folder."
            raise refuse("CS-603", what, step, topic=owner.topic, folder=str(self.root))
        if owner.partition not in found.partitions:
            folder = self._folder(owner)
            found.partitions[owner.partition] = PartitionLog(owner, folder)
        return found.partitions[owner.partition]

    def _folder(self, owner: TopicPartition) -> Path:
        try:
            return inside(self.root, f"{owner.topic}/{owner.partition}", folder=True)
        except OSError as error:
            what = f"The folder of a file topic cannot be used: {error.strerror}."
            step = "Put the folder itself in its place; to keep topics elsewhere, make topics_dir a link."
            raise refuse(
                "CS-606", what, step, topic=owner.topic, partition=owner.partition, folder=str(self.root)
            ) from error

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> bool:
        """Makes the topic in one step; False if there is one of that name already."""
        check_name(topic)
        if not 0 < partitions <= MOST_PARTITIONS:
            what = f"A topic needs at least one partition, and at most {MOST_PARTITIONS:,}, not {partitions}."
            raise refuse("CS-656", what, "Give the number of partitions.", topic=topic)
        description = Description(FORMAT, uuid.uuid4().hex, partitions, dict(config))
        try:
            made = inside(self.root, f"{_NEW}/{description.id}")
            _make(made, description)
            try:
                os.rename(made, self.root / topic)
            except OSError:
                shutil.rmtree(made)
                if self.partition_count(topic) is None:
                    raise
                return False
            force(self.root)
            return True
        except OSError as error:
            what = f"The file topic could not be made: {error}."
            step = "Check the free space and the permissions of the folder."
            raise refuse("CS-656", what, step, topic=topic, folder=str(self.root)) from error

    def delete(self, topic: str) -> bool:
        """Deletes the topic in one step; False if there is none of that name."""
        found = self._find(topic)
        if found is None:
            return False
        try:
            trash = inside(self.root, f"{_NEW}/{found.description.id}-deleted")
            trash.parent.mkdir(exist_ok=True)
            os.rename(self.root / topic, trash)
            force(self.root)
            shutil.rmtree(trash)
        except OSError as error:
            what = f"The file topic could not be deleted: {error}."
            step = "Check the permissions of the folder."
            raise refuse("CS-656", what, step, topic=topic, folder=str(self.root)) from error
        self._topics.pop(topic, None)
        return True

    def _find(self, topic: str) -> _Topic | None:
        path = self.root / topic / _DESCRIPTION
        try:
            status = os.stat(path) if _is_legal(topic) else None
        except OSError:
            status = None
        if status is None:
            self._topics.pop(topic, None)
            return None
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._topics.get(topic)
        if known is None or known.seen != seen:
            description = _read(topic, path)
            if known is None or known.description.id != description.id:
                known = self._topics[topic] = _Topic(description, seen)
            known.description, known.seen = description, seen
        return known


def missing_topic(topic: str, root: Path) -> CrossStreamError:
    step = "Create the topic, or check the topic's name and topics_dir."
    return refuse("CS-602", "There is no such file topic.", step, topic=topic, folder=str(root))


def check_name(topic: str) -> None:
    """Kafka's rule for the names of topics, and what the folder itself is for; raises `SinkError` (CS-656)."""
    if not _is_legal(topic):
        raise illegal_name(topic)


def _is_legal(topic: str) -> bool:
    return is_legal_name(topic) and topic not in _TAKEN


def _make(folder: Path, description: Description) -> None:
    for partition in range(description.partitions):
        (folder / str(partition)).mkdir(parents=True)
    with open(folder / _DESCRIPTION, "xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(description)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    force(folder)


def _read(topic: str, path: Path) -> Description:
    try:
        description = _DECODER.decode(read_plain(path))
    except (msgspec.MsgspecError, ValueError, RecursionError, OSError) as error:
        what = f"The description of a file topic cannot be read: {error}."
        raise refuse("CS-606", what, "Restore the file from a copy.", topic=topic, file=str(path)) from error
    if description.format != FORMAT:
        what = f"The file topic has format {description.format}; this version of crossstream reads {FORMAT}."
        step = "Use the version of crossstream that wrote it, or a newer one."
        raise refuse("CS-606", what, step, topic=topic, file=str(path))
    return description


class FileTopicLog:
    """`TopicLog` of file topics."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders = TopicFolders(root)

    def topics(self) -> Mapping[str, int]:
        """Every topic and its number of partitions, in order of name."""
        counts = {name: self._folders.partition_count(name) for name in self._folders.names()}
        return {name: count for name, count in counts.items() if count is not None}

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """The ids in the descriptions of the topics; those that are missing are left out."""
        ids = {topic: self._folders.topic_id(topic) for topic in topics}
        return {topic: found for topic, found in ids.items() if found is not None}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset still held: above 0 only where leading segments were deleted by hand."""
        logs = {owner: self._folders.partition(owner) for owner in partitions}
        for log in logs.values():
            log.trim()
            log.refresh()
        return {owner: log.begin for owner, log in logs.items()}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset one past the last record; costs some ``stat`` and the headers of what is new."""
        logs = {owner: self._folders.partition(owner) for owner in partitions}
        for log in logs.values():
            log.refresh()
        return {owner: log.end for owner, log in logs.items()}

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each range with that timestamp (ms) or a later one, or None."""
        found = {}
        for span in spans:
            owner = partition_of(span)
            first = first_at(self._folders.partition(owner), span.start, timestamp)
            found[owner] = None if first is None or first.offset >= span.end else first
        return found

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates the topic; ``config`` is kept in its description and has no effect."""
        if not self._folders.create(topic, partitions, config or {}):
            what = "The file topic exists already."
            step = "Choose another name, or write to the existing topic."
            raise refuse("CS-656", what, step, topic=topic, folder=str(self._root))

    def delete_topic(self, topic: str) -> None:
        """Deletes the topic with its records."""
        if not self._folders.delete(topic):
            raise missing_topic(topic, self._root)

    def close(self) -> None:
        """Nothing is held open."""


_BATCH_BYTES = 16 << 20
"""Bytes of records after which a batch ends, though it could hold more rows."""


class FileRangeReader(ReadsInTurn):
    """`RangeReader` of file topics: remembers where frames lie, so a later range costs only its own bytes."""

    def __init__(self, root: Path) -> None:
        self._folders = TopicFolders(root)

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The records of ``span`` in order, in batches of at most ``max_rows`` rows of `RECORDS`.

        File topics have no gaps: every offset of ``span`` is there. Raises `SourceError` if one is not,
        because it was deleted or never written, and if the file is damaged.
        """
        if span.start >= span.end:
            return iter(())
        log = self._folders.partition(partition_of(span))
        if log.end < span.end or log.begin > span.start:
            log.refresh()
        where = {"topic": span.topic, "partition": span.partition}
        wanted = f"Offsets {span.start} to {span.end} are asked for, but the file topic"
        if span.start < log.begin:
            step = (
                "Its first segments were deleted. Restore them; "
                "on_lost_records='skip' continues, and counts the gap."
            )
            raise refuse("CS-601", f"{wanted} begins at {log.begin}.", step, **where, offset=span.start)
        if span.end > log.end:
            step = (
                "The topic was made again or lost records. Restore its folder, or start with a new state_dir."
            )
            raise refuse("CS-603", f"{wanted} ends at {log.end}.", step, **where, offset=log.end)
        return _in_batches(log.read(span.start, span.end), span, max_rows)

    def close(self) -> None:
        """Nothing is held open between reads."""


def first_at(log: PartitionLog, start: int, timestamp: int) -> OffsetAndTimestamp | None:
    """The first record from ``start`` on with that timestamp or a later one, as far as ``log`` knows."""
    for frame, records in log.read(max(start, log.begin), log.end, timestamp):
        times = records.column("timestamp").to_numpy(zero_copy_only=False)
        first = max(start - frame.base, 0)
        late = np.flatnonzero(times[first:] >= timestamp)
        if len(late):
            row = first + int(late[0])
            return OffsetAndTimestamp(frame.base + row, int(times[row]))
    return None


def _in_batches(
    frames: Iterable[tuple[Frame, pa.RecordBatch]], span: OffsetRange, max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Small frames are joined and large ones cut, to batches of ``max_rows`` or about `_BATCH_BYTES`."""
    parts: list[pa.RecordBatch] = []
    offset, rows, size = span.start, 0, 0
    for frame, records in frames:
        first, last = max(span.start - frame.base, 0), min(span.end - frame.base, frame.rows)
        while first < last:
            part = records.slice(first, min(last - first, max_rows - rows))
            parts.append(part)
            first, rows = first + part.num_rows, rows + part.num_rows
            size += frame.length * part.num_rows // frame.rows
            if rows == max_rows or size >= _BATCH_BYTES:
                yield _numbered(parts, offset)
                parts, offset, rows, size = [], offset + rows, 0, 0
    if parts:
        yield _numbered(parts, offset)


def _numbered(parts: list[pa.RecordBatch], first: int) -> pa.RecordBatch:
    """One batch of `RECORDS` from stored records, the first of which has the offset ``first``."""
    stored = concat(parts)
    offsets = pa.array(np.arange(first, first + stored.num_rows, dtype=np.int64))
    columns = {name: stored.column(name) for name in stored.schema.names} | {"offset": offsets}
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)
