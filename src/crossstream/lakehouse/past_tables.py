"""The rows of a table as it was at a time, as a topic that is read whole before the records of another one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from crossstream.graph.history import WHOLE, past_of
from crossstream.graph.lake import SHARES
from crossstream.graph.node import Node
from crossstream.lakehouse.columns import cast_to
from crossstream.lakehouse.history_rows import HistoryRows
from crossstream.lakehouse.opened_histories import Opened
from crossstream.lakehouse.reading import check_keys
from crossstream.lakehouse.times import times_of
from crossstream.storage.log_entries import Seam
from crossstream.storage.root import StateRoot
from crossstream.topics import (
    CommitRows,
    OffsetAndTimestamp,
    OffsetRange,
    RangeReader,
    ReadsTogether,
    TopicPartition,
    partition_of,
)


@dataclass(frozen=True, slots=True)
class PastTables:
    """`Tables` of histories without offsets. ``histories``: by their names as topics; ``address``: of the state."""

    address: str
    histories: Mapping[str, HistoryRows]

    @classmethod
    def of(cls, nodes: Iterable[Node], state: StateRoot) -> PastTables:
        """Those that sources read."""
        return cls(
            state.address,
            {
                past_of(node.topics[0]): HistoryRows.of(node.past, node.key, node.value)
                for node in nodes
                if node.past is not None and not node.past.positions and node.key is not None
                if node.value is not None
            },
        )

    @property
    def names(self) -> Collection[str]:
        return self.histories.keys()

    def log(self) -> PastLog:
        return PastLog(Opened(self.address, self.histories))

    def reader(self) -> RangeReader:
        return PastReader(Opened(self.address, self.histories))


@dataclass(slots=True)
class PastLog:
    """For the driver: each table is a topic whose rows are all at the offset 0."""

    opened: Opened

    def topics(self) -> Mapping[str, int]:
        return dict.fromkeys(self.opened.histories, SHARES)

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """None: once it was read, the table is not asked again."""
        return {}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, WHOLE)

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """All rows: nothing is read before them."""
        return {partition_of(span): OffsetAndTimestamp(span.start, timestamp) for span in spans}

    def commits(self, topic: str, start: int, end: int) -> Sequence[CommitRows]:
        """See `CommitLog`."""
        found = self.opened.versions(topic).snapshot_commit(self.opened.seam(topic).version)
        return [CommitRows(0, found.time, found.rows)]

    def seam(self, topic: str) -> Seam:
        return self.opened.seam(topic)

    def close(self) -> None:
        self.opened.close()


@dataclass(slots=True)
class PastReader(ReadsTogether):
    """`RangeReader` of the rows."""

    opened: Opened

    def read_many(
        self, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        shares: dict[str, list[OffsetRange]] = {}
        for span in spans:
            if span.start < span.end:
                shares.setdefault(span.topic, []).append(span)
        for topic, mine in shares.items():
            rows, versions = self.opened.histories[topic], self.opened.versions(topic)
            version, history = self.opened.seam(topic).version, rows.history
            check_keys(history.table, versions, rows.rows, [span.partition for span in mine], version)
            time = versions.snapshot_commit(version).time
            for span in mine:
                for batch in versions.snapshot(version, history.columns, span.partition, SHARES):
                    cast = cast_to(history.table, batch, history.columns, version)
                    for start in range(0, cast.num_rows, max_rows):
                        part = cast.slice(start, max_rows)
                        yield span, self._records(rows, version, part, time)

    def _records(self, rows: HistoryRows, version: int, batch: pa.RecordBatch, time: int) -> pa.RecordBatch:
        """Records older than those of the topic."""
        table, last = rows.history.table, rows.history.until - 1
        if table.timestamp is None:
            times = pa.repeat(pa.scalar(min(time, last), pa.int64()), batch.num_rows)
        else:
            times = pc.min_element_wise(times_of(table, batch, version), pa.scalar(last, pa.int64()))
        return rows.records(version, pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows), times, batch)

    def close(self) -> None:
        self.opened.close()
