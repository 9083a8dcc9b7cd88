"""File topics: topics without a broker, in a folder of append-only files; the embedded default.

`frame_format.py` has the layout, docs/spec/file-topics.md describes it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.filetopics.frame_format import encode
from crossstream.filetopics.partition_log import appending
from crossstream.filetopics.topics import STAGED, FileRangeReader, FileTopicLog, TopicFolders
from crossstream.filetopics.writer import FilePublisher, FileRecordWriter, Staged, StagingWriter
from crossstream.topics import TopicPartition

if TYPE_CHECKING:
    from crossstream.runtime.delivery import Delivery, Place

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

    Writing to a missing topic makes it, with one partition. ``durable``: what was flushed survives a crash of the
    machine, not only of the process. ``segment_bytes``: a segment of that size is closed and a new one started.

        topics = FileTopics("./topics")
        writer = topics.writer()
        writer.write("products", records)
        writer.flush()
    """

    topics_dir: str
    durable: bool = True
    segment_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics_dir", os.path.abspath(self.topics_dir))
        if os.path.exists(self.topics_dir) and not os.path.isdir(self.topics_dir):
            step = "Set it to a folder; crossstream makes one that does not exist."
            raise refuse("CS-201", "topics_dir is a file, not a folder", step, path=self.topics_dir)

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

        return FileRecordWriter(folders, append)

    def staging_writer(self, folder: str | os.PathLike[str], task: bytes) -> StagingWriter:
        """Writes exactly once, with `publisher`: stages in ``folder``; ``task`` names the batch and the task."""
        return StagingWriter(TopicFolders(self._root), Path(folder), task)

    def staging_folder(self, name: str) -> Path:
        """A folder beside the topics, which all workers see, for staged records of one application."""
        return self._root / STAGED / name

    def publisher(self) -> FilePublisher:
        """Appends what was staged to its topics."""
        return FilePublisher(self._root, self.segment_bytes, self.durable)

    def delivery(self, place: Place) -> Delivery:
        """Results are staged in files, and appended when their batch has run."""
        from crossstream.filetopics.delivery import StagedFiles

        return StagedFiles(place, self.staging_writer, self.publisher)

    @property
    def _root(self) -> Path:
        return Path(self.topics_dir)
