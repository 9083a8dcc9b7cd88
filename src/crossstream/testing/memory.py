"""The topics of the test driver as its engine sees them: records that wait, and those that sinks wrote, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crossstream.filetopics.topics import check_name
from crossstream.partitioning import default_partitions, murmur2_partitions, split_by_partition
from crossstream.records import RECORDS, concat
from crossstream.storage.log_entries import SourceRange


@dataclass(slots=True)
class MemoryTopic:
    """Records that wait to be processed, by partition; ``base``: the offset of the first one."""

    partitions: int
    waiting: list[list[pa.RecordBatch]] = field(default_factory=list)
    base: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.waiting = [[] for _ in range(self.partitions)]
        self.base = [0] * self.partitions

    def append(self, records: pa.RecordBatch, partitions: Sequence[int] | None) -> None:
        """Appends records to the given partitions, one for each; None: by key, as Kafka's producer does."""
        if self.partitions == 1:
            self.waiting[0].append(records)
        elif records.num_rows == 1:
            key = records.column(0)[0].as_py()
            chosen = murmur2_partitions([key], self.partitions) if partitions is None else partitions
            self.waiting[chosen[0]].append(records)
        else:
            keys = records.column(0)
            each = default_partitions(keys, self.partitions) if partitions is None else np.array(partitions)
            for partition, rows in split_by_partition(records, each):
                self.waiting[partition].append(rows)

    def counts(self) -> list[int]:
        """How many records wait in each partition."""
        return [sum(records.num_rows for records in waiting) for waiting in self.waiting]

    def keep(self, counts: Sequence[int]) -> None:
        """Drops all but the first ``counts`` records of each partition."""
        for partition, count in enumerate(counts):
            whole = _joined(self.waiting[partition])
            self.waiting[partition] = [] if whole is None else [whole.slice(0, count)]

    def drop(self, counts: Sequence[int]) -> None:
        """Drops the first ``counts`` records of each partition, which were processed."""
        for partition, count in enumerate(counts):
            if count:
                whole = _joined(self.waiting[partition])
                assert whole is not None
                self.base[partition] += count
                self.waiting[partition] = [whole.slice(count)] if count < whole.num_rows else []


@dataclass(slots=True)
class MemoryInput:
    """Reads waiting records for the engine."""

    topics: dict[str, MemoryTopic]

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        for span in spans:
            topic = self.topics[span.topic]
            waiting = _joined(topic.waiting[span.partition])
            assert waiting is not None
            first = span.start - topic.base[span.partition]
            for start in range(0, span.end - span.start, max_rows):
                rows = waiting.slice(first + start, min(max_rows, span.end - span.start - start))
                yield span, _with_offsets(rows, span.start + start)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    return concat(parts) if parts else None


def _with_offsets(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    key, value, timestamp, headers = rows.columns
    offsets = pa.array(np.arange(first, first + rows.num_rows))
    return pa.RecordBatch.from_arrays([key, value, timestamp, offsets, headers], schema=RECORDS)


@dataclass(slots=True)
class Position:
    """How far a test has read a topic: whole ``batches``, and ``records`` of the next one."""

    batches: int = 0
    records: int = 0


@dataclass(slots=True)
class MemoryOutput:
    """Collects what sinks write; ``fed_back`` returns the topic if the topology itself reads it.

    ``read``: how far a test has read each topic; the next reader continues there, as in Kafka's driver.
    """

    partitions: int
    fed_back: Callable[[str], MemoryTopic | None]
    written: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    read: dict[str, Position] = field(default_factory=dict)

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self.written.setdefault(topic, []).append(records)
        read = self.fed_back(topic)
        if read is not None:
            read.append(records, partitions)

    def must_exist(self, topic: str) -> None:
        """Accepts every valid name."""
        check_name(topic)

    def partition_count(self, topic: str) -> int:
        return self.partitions

    def record_limit(self, topic: str) -> int | None:
        """None: records may be of any size."""
        return None

    def finish(self) -> None:
        """Everything written is there already."""

    def mark(self) -> dict[str, int]:
        """What has been written so far, for `rewind`."""
        return {topic: len(parts) for topic, parts in self.written.items()}

    def rewind(self, mark: dict[str, int]) -> None:
        """Takes back what was written since."""
        self.written = {topic: self.written[topic][:count] for topic, count in mark.items()}
