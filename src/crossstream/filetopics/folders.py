"""Folders of topics: their names, their ``topic.json``, and their partitions.

    <topics_dir>/<topic>/topic.json                           format, id, partitions, config
    <topics_dir>/<topic>/<partition>/lock                     held while appending
    <topics_dir>/<topic>/<partition>/00000000000000000000.seg records from that offset on
    <topics_dir>/.groups/<group>.json                         offsets that a consumer group has consumed
    <topics_dir>/.new/                                        topics being made
    <topics_dir>/.staged/<application>/                       records on their way, of applications with remote state

A topic is made elsewhere and renamed into place, so it is there as a whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from crossstream.errors import SinkError, SourceError
from crossstream.filetopics.segments import PartitionLog
from crossstream.storage.files import force
from crossstream.topics import TopicPartition, illegal_name, is_legal_name

FORMAT = 1
GROUPS = ".groups"
STAGED = ".staged"
_NEW = ".new"
_DESCRIPTION = "topic.json"


class Description(msgspec.Struct, frozen=True):
    """What ``topic.json`` holds; ``id`` differs from that of an earlier topic of the same name."""

    format: int
    id: str
    partitions: int
    config: dict[str, str] = {}


class _Topic:
    """A topic as it was found: its description, where that came from, and the partitions looked at."""

    __slots__ = ("description", "partitions", "seen")

    def __init__(self, description: Description, seen: tuple[int, int, int]) -> None:
        self.description = description
        self.seen = seen
        self.partitions: dict[int, PartitionLog] = {}


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
            raise SourceError(
                "There is no such file topic.",
                code="CS-602",
                where={"topic": owner.topic, "folder": str(self.root)},
                next="Create the topic, or check the topic's name and topics_dir.",
            )
        if not 0 <= owner.partition < found.description.partitions:
            raise SourceError(
                f"The file topic has no partition {owner.partition}, only {found.description.partitions}.",
                code="CS-603",
                where={"topic": owner.topic, "folder": str(self.root)},
                next="The topic was probably made again: start with a new state_dir, or restore the topic's folder.",
            )
        if owner.partition not in found.partitions:
            folder = self.root / owner.topic / str(owner.partition)
            found.partitions[owner.partition] = PartitionLog(owner, folder)
        return found.partitions[owner.partition]

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> bool:
        """Makes the topic in one step; False if there is one of that name already."""
        check_name(topic)
        if partitions < 1:
            raise SinkError(
                f"A topic needs at least one partition, not {partitions}.",
                code="CS-656",
                where={"topic": topic},
                next="Give the number of partitions.",
            )
        description = Description(FORMAT, uuid.uuid4().hex, partitions, dict(config))
        made = self.root / _NEW / description.id
        try:
            _make(made, description)
            return self._put_in_place(made, topic)
        except OSError as error:
            raise SinkError(
                f"The file topic could not be made: {error}.",
                code="CS-656",
                where={"topic": topic, "folder": str(self.root)},
                next="Check the free space and the permissions of the folder.",
            ) from error

    def _put_in_place(self, made: Path, topic: str) -> bool:
        try:
            os.rename(made, self.root / topic)
        except OSError:
            shutil.rmtree(made)
            if self.partition_count(topic) is None:
                raise
            return False
        force(self.root)
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


def check_name(topic: str) -> None:
    """Kafka's rule for the names of topics, and what the folder itself is for; raises `SinkError` (CS-656)."""
    if not _is_legal(topic):
        raise illegal_name(topic)


def _is_legal(topic: str) -> bool:
    return is_legal_name(topic) and topic not in {GROUPS, STAGED, _NEW}


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
        description = msgspec.json.decode(path.read_bytes(), type=Description)
    except (msgspec.MsgspecError, OSError) as error:
        raise SourceError(
            f"The description of a file topic cannot be read: {error}.",
            code="CS-606",
            where={"topic": topic, "file": str(path)},
            next="Restore the file from a copy.",
        ) from error
    if description.format != FORMAT:
        raise SourceError(
            f"The file topic has format {description.format}; this version of crossstream reads {FORMAT}.",
            code="CS-606",
            where={"topic": topic, "file": str(path)},
            next="Use the version of crossstream that wrote it, or a newer one.",
        )
    return description
