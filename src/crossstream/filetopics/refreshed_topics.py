"""The logs of tables that are read again, as topics that the engine reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossstream.filetopics.frame_format import Frame
from crossstream.filetopics.refreshed import PREFIX, RefreshLog
from crossstream.graph.node import Node
from crossstream.records import RECORDS
from crossstream.storage.root import StateRoot, root_of
from crossstream.topics import (
    OffsetAndTimestamp,
    OffsetRange,
    RangeReader,
    ReadsInTurn,
    TopicPartition,
    partition_of,
)


@dataclass(frozen=True, slots=True)
class RefreshedTables:
    """`Tables` that are read again. ``address``: of the state that has their logs, whether anything was read or not."""

    address: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, nodes: Iterable[Node], state: StateRoot) -> RefreshedTables:
        """Those that sources read."""
        return cls(
            state.address, tuple(topic for node in nodes for topic in node.topics if topic.startswith(PREFIX))
        )

    def log(self) -> TablesLog:
        return TablesLog(self._logs())

    def reader(self) -> RangeReader:
        return _Reader(self._logs())

    def _logs(self) -> dict[str, RefreshLog]:
        root = root_of(self.address)
        return {topic: RefreshLog(root, topic) for topic in self.names}


@dataclass(frozen=True, slots=True)
class TablesLog:
    """The readings of tables: each is an offset."""

    logs: Mapping[str, RefreshLog]

    def topics(self) -> Mapping[str, int]:
        return dict.fromkeys(self.logs, 1)

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """A log has none: it is a part of the state, and is replaced with it."""
        return {}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first reading that a log holds: as the whole table, if others were folded into it."""
        return {tp: self.logs[tp.topic].extent().begin for tp in partitions}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.logs[tp.topic].extent().end for tp in partitions}

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        return {
            partition_of(span): _first(self.logs[span.topic].read(span.start, span.end), timestamp)
            for span in spans
        }

    def close(self) -> None:
        """Nothing is held open between calls."""


@dataclass(frozen=True, slots=True)
class _Reader(ReadsInTurn):
    """`RangeReader` of the logs. All rows of a reading have its number as their offset."""

    logs: Mapping[str, RefreshLog]

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        if span.start >= span.end:
            return iter(())
        found = self.logs[span.topic].read(span.start, span.end)
        return (
            _at(number, records.slice(start, max_rows))
            for number, _, records in found
            for start in range(0, records.num_rows, max_rows)
        )

    def close(self) -> None:
        """Nothing is held open between reads."""


def _at(offset: int, stored: pa.RecordBatch) -> pa.RecordBatch:
    columns = dict(zip(stored.schema.names, stored.columns, strict=True))
    columns["offset"] = pa.array(np.full(stored.num_rows, offset, np.int64))
    return pa.RecordBatch.from_arrays([columns[name] for name in RECORDS.names], schema=RECORDS)


def _first(
    readings: Iterable[tuple[int, Frame, pa.RecordBatch]], timestamp: int
) -> OffsetAndTimestamp | None:
    """The first reading of that time or later."""
    late = (
        OffsetAndTimestamp(number, frame.max_timestamp)
        for number, frame, _ in readings
        if frame.max_timestamp >= timestamp
    )
    return next(late, None)
