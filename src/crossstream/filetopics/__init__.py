"""File topics: topics without a broker, in a folder of append-only files; the embedded default."""

from __future__ import annotations

from crossstream.filetopics.connection import FileTopics
from crossstream.filetopics.log import FileTopicLog
from crossstream.filetopics.reader import FileRangeReader
from crossstream.filetopics.staging import FilePublisher, Staged, StagingWriter
from crossstream.filetopics.writer import FileRecordWriter

__all__ = [
    "FilePublisher",
    "FileRangeReader",
    "FileRecordWriter",
    "FileTopicLog",
    "FileTopics",
    "Staged",
    "StagingWriter",
]
