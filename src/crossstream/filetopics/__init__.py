"""File topics: topics without a broker, in a folder of append-only files; the embedded default.

`segments.py` has the format, docs/spec/file-topics.md describes it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crossstream.errors import ConfigError
from crossstream.filetopics.folders import STAGED, TopicFolders
from crossstream.filetopics.log import FileTopicLog
from crossstream.filetopics.reader import FileRangeReader
from crossstream.filetopics.segments import appending, encode
from crossstream.filetopics.staging import FilePublisher, Staged, StagingWriter
from crossstream.filetopics.writer import FileRecordWriter
from crossstream.topics import TopicPartition

__all__ = [
    "FilePublisher",
    "FileRangeReader",
    "FileRecordWriter",
    "FileTopicLog",
    "FileTopics",
    "Staged",
    "StagingWriter",
]


@dataclass(frozen=True, slots=True)
class FileTopics:
    """`TopicConnection` to the topics in the folder ``topics_dir``, which every worker must see.

    ``auto_create_partitions``: partitions of a topic that is made by writing to it; None: writing to a
    missing topic is an error. ``durable``: what was flushed survives a crash of the machine, not only of the
    process. ``segment_bytes``: a segment of that size is closed and a new one started.

        topics = FileTopics("./topics")
        writer = topics.writer()
        writer.write("products", records)
        writer.flush()
    """

    topics_dir: str
    auto_create_partitions: int | None = 1
    durable: bool = True
    segment_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics_dir", os.path.abspath(self.topics_dir))
        if os.path.exists(self.topics_dir) and not os.path.isdir(self.topics_dir):
            raise ConfigError(
                "topics_dir is a file, not a folder",
                code="CS-201",
                where={"path": self.topics_dir},
                next="Set it to a folder; crossstream makes one that does not exist.",
            )
        if self.auto_create_partitions is not None and self.auto_create_partitions < 1:
            raise ConfigError(
                f"auto_create_partitions is {self.auto_create_partitions}.",
                code="CS-201",
                next="Set it to 1 or more, or to None so that topics are not made by writing to them.",
            )
        if self.segment_bytes < 1:
            raise ConfigError(
                f"segment_bytes is {self.segment_bytes}.",
                code="CS-201",
                next="Set it to a number of bytes, for instance 64 << 20.",
            )

    def log(self) -> FileTopicLog:
        """The driver's view."""
        return FileTopicLog(self._root)

    def reader(self) -> FileRangeReader:
        """Reads exact ranges."""
        return FileRangeReader(self._root)

    def writer(self) -> FileRecordWriter:
        """Writes at least once."""
        folders = TopicFolders(self._root)

        def append(owner: TopicPartition, records: pa.RecordBatch) -> None:
            with appending(folders.partition(owner), self.segment_bytes, self.durable) as appender:
                appender.append(*encode(records))

        return FileRecordWriter(folders, self.auto_create_partitions, append)

    def staging_writer(self, folder: str | os.PathLike[str], task: bytes) -> StagingWriter:
        """Writes exactly once, with `publisher`: stages in ``folder``; ``task`` names the batch and the task."""
        return StagingWriter(TopicFolders(self._root), self.auto_create_partitions, Path(folder), task)

    def staging_folder(self, name: str) -> Path:
        """A folder beside the topics, which all workers see, for staged records of one application."""
        return self._root / STAGED / name

    def publisher(self) -> FilePublisher:
        """Appends what was staged to its topics."""
        return FilePublisher(self._root, self.segment_bytes, self.durable)

    @property
    def _root(self) -> Path:
        return Path(self.topics_dir)
