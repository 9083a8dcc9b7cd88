"""The driver's view of file topics: which there are, how far they reach, what groups have consumed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from crossstream.errors import SinkError
from crossstream.filetopics.folders import GROUPS, TopicFolders
from crossstream.filetopics.reader import first_at
from crossstream.filetopics.segments import locked
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition

_Offsets = dict[str, dict[str, int]]


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
        begins = {}
        for owner in partitions:
            log = self._folders.partition(owner)
            log.trim()
            log.refresh()
            begins[owner] = log.begin
        return begins

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset one past the last record; costs some ``stat`` and the headers of what is new."""
        ends = {}
        for owner in partitions:
            log = self._folders.partition(owner)
            log.refresh()
            ends[owner] = log.end
        return ends

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each range with that timestamp (ms) or a later one, or None."""
        found = {}
        for span in spans:
            owner = TopicPartition(span.topic, span.partition)
            first = first_at(self._folders.partition(owner), span.start, timestamp)
            found[owner] = None if first is None or first.offset >= span.end else first
        return found

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates the topic; ``config`` is kept in its description and has no effect."""
        if not self._folders.create(topic, partitions, config or {}):
            raise SinkError(
                "The file topic exists already.",
                code="CS-656",
                where={"topic": topic, "folder": str(self._root)},
                next="Choose another name, or write to the existing topic.",
            )

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Notes the next offsets to read of ``group``; partitions that are not named keep theirs."""
        path = self._group_file(group)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.parent / "lock"):
                merged = _read_group(path)
                for owner, offset in offsets.items():
                    merged.setdefault(owner.topic, {})[str(owner.partition)] = offset
                _replace(path, msgspec.json.encode({"format": 1, "offsets": merged}))
        except OSError as error:
            raise SinkError(
                f"The offsets of a group could not be stored: {error}.",
                code="CS-665",
                where={"group": group, "file": str(path)},
                next="Check the free space and the permissions of the folder.",
            ) from error

    def close(self) -> None:
        """Nothing is held open."""

    def _group_file(self, group: str) -> Path:
        return self._root / GROUPS / f"{quote(group, safe='')}.json"


class _Group(msgspec.Struct, frozen=True):
    format: int
    offsets: _Offsets


def _read_group(path: Path) -> _Offsets:
    """The offsets of a group; none of a file that is damaged, as a crash of the machine may leave it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Group).offsets
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}


def _replace(path: Path, content: bytes) -> None:
    """Puts ``content`` in place of the file in one step."""
    fresh = path.with_name(f".{uuid.uuid4().hex}")
    fresh.write_bytes(content)
    os.replace(fresh, path)
