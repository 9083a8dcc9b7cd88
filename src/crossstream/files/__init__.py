"""File topics: topics without a broker, in a folder of append-only files; the embedded default."""

from __future__ import annotations

from crossstream.files.connection import FileTopics
from crossstream.files.log import FileTopicLog
from crossstream.files.reader import FileRangeReader
from crossstream.files.staging import FilePublisher, Staged, StagingWriter
from crossstream.files.writer import FileRecordWriter

__all__ = [
    "FilePublisher",
    "FileRangeReader",
    "FileRecordWriter",
    "FileTopicLog",
    "FileTopics",
    "Staged",
    "StagingWriter",
]
