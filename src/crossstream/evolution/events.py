"""Results of streams that are sent again: the application that rebuilds writes them to topics in its own folder.

From there they go to their sinks, from a time on, in the batch of the change. They are events: readers get them a
second time, and what takes the change back leaves them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from crossstream.evolution.temporary import event_topics
from crossstream.filetopics import FileTopics
from crossstream.storage.root import StateRoot
from crossstream.topics import OffsetRange, all_partitions

READ_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Events:
    """Records of a topic in ``folder``, with timestamps from ``since`` (ms) on. ``ends``: of its partitions."""

    side: ClassVar[str] = "events"
    sink: str
    folder: str
    name: str
    since: int
    ends: Sequence[int]

    @classmethod
    def of(cls, sink: str, root: StateRoot, name: str, since: int) -> Events:
        """All that was written there, which may be nothing."""
        topics = event_topics(root)
        log = topics.log()
        there = {topic: count for topic, count in log.topics().items() if topic == name}
        ends = log.end_offsets(all_partitions(there, there))
        return cls(sink, topics.topics_dir, name, since, tuple(ends[tp] for tp in sorted(ends)))

    @property
    def topic(self) -> str:
        return f"{self.side}:{self.sink}"

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The records of a partition, in their order."""
        span = OffsetRange(self.name, partition, 0, self.ends[partition])
        reader = FileTopics(self.folder, durable=False).reader()
        for records in reader.read(span, READ_ROWS):
            late = records.filter(pc.greater_equal(records["timestamp"], self.since))
            if late.num_rows:
                yield late
