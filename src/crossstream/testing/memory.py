"""Topics in memory: what the test driver reads its batches from and writes its results to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crossstream.engine.batch import SourceRange
from crossstream.records import RECORDS
from crossstream.topics import murmur2_partitions

Row = tuple[bytes | None, bytes | None, int, bytes | None]
"""Key, value, timestamp (ms), packed headers."""


@dataclass(slots=True)
class MemoryTopic:
    """Records that wait to be processed, by partition; ``base``: offset of the first one waiting."""

    partitions: int
    waiting: list[list[Row]] = field(default_factory=list)
    base: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.waiting = [[] for _ in range(self.partitions)]
        self.base = [0] * self.partitions

    def append(self, row: Row, partition: int | None) -> None:
        place = partition if partition is not None else murmur2_partitions([row[0]], self.partitions)[0]
        self.waiting[place].append(row)

    def taken(self) -> None:
        """Forgets what has been processed."""
        for partition, rows in enumerate(self.waiting):
            self.base[partition] += len(rows)
            self.waiting[partition] = []


@dataclass(slots=True)
class MemoryInput:
    """The waiting records of all topics, as the engine reads them."""

    topics: dict[str, MemoryTopic]

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        for span in spans:
            topic = self.topics[span.topic]
            first = span.start - topic.base[span.partition]
            rows = topic.waiting[span.partition][first : first + span.end - span.start]
            for start in range(0, len(rows), max_rows):
                yield span, _batch(rows[start : start + max_rows], span.start + start)


def _batch(rows: Sequence[Row], first: int) -> pa.RecordBatch:
    keys, values, times, headers = zip(*rows, strict=True)
    binary = pa.large_binary()
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, binary),
            pa.array(values, binary),
            pa.array(times, pa.int64()),
            pa.array(np.arange(first, first + len(rows))),
            pa.array(headers, binary),
        ],
        schema=RECORDS,
    )


@dataclass(slots=True)
class MemoryOutput:
    """Collects what sinks write; ``fed_back``: topics that the topology itself reads."""

    partitions: int
    written: dict[str, list[Row]] = field(default_factory=dict)
    fed_back: dict[str, MemoryTopic] = field(default_factory=dict)

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        rows = list(zip(*(column.to_pylist() for column in records.columns), strict=True))
        self.written.setdefault(topic, []).extend(rows)
        if topic in self.fed_back:
            for place, row in enumerate(rows):
                self.fed_back[topic].append(row, None if partitions is None else partitions[place])

    def partition_count(self, topic: str) -> int:
        return self.partitions

    def finish(self) -> None:
        """Everything written is there already."""


