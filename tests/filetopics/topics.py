"""What the tests of file topics share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from crossstream.filetopics import FileTopics
from crossstream.records import RECORDS
from crossstream.topics import OffsetRange, TopicPartition

Row = tuple["bytes | None", "bytes | None", int, "bytes | None"]
COLUMNS = ("key", "value", "timestamp", "headers")
STORED = pa.schema([RECORDS.field(name) for name in COLUMNS])


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Records from rows of (key, value, timestamp, headers)."""
    columns = [
        pa.array([row[place] for row in rows], STORED.field(place).type) for place in range(len(COLUMNS))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STORED)


def numbered(count: int, first: int = 0) -> list[Row]:
    """Rows that tell one another apart."""
    return [(b"k%d" % n, b"v%d" % n, n, None) for n in range(first, first + count)]


def write(topics: FileTopics, rows: Sequence[Row], topic: str = "t", partition: int = 0) -> None:
    """Stores the rows as one frame."""
    writer = topics.writer()
    writer.write(topic, batch(rows), [partition] * len(rows))
    writer.close()


def read(
    topics: FileTopics,
    topic: str = "t",
    partition: int = 0,
    start: int = 0,
    end: int | None = None,
    max_rows: int = 1000,
) -> list[Row]:
    """The rows of a range, after checking their offsets and the sizes of the batches."""
    owner = TopicPartition(topic, partition)
    end = topics.log().end_offsets([owner])[owner] if end is None else end
    batches = list(topics.reader().read(OffsetRange(topic, partition, start, end), max_rows))
    assert all(0 < one.num_rows <= max_rows and one.schema == RECORDS for one in batches)
    offsets = [offset for one in batches for offset in one.column("offset").to_pylist()]
    assert offsets == list(range(start, end))
    return [tuple(row[name] for name in COLUMNS) for one in batches for row in one.to_pylist()]


def segments(topics: FileTopics, topic: str = "t", partition: int = 0) -> list[Path]:
    """The segment files of a partition, in order."""
    return sorted((Path(topics.topics_dir) / topic / str(partition)).glob("*.seg"))
