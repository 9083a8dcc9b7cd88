"""Topics with a history: what a topic no longer holds is read from a table of a lake, at the same offsets.

A topic is longer than its brokers know (decision 0047). A range of it may begin in the table and end in the topic.
Where the table ends is in the state, so that every start and every task reads the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from crossstream.graph.node import Node
from crossstream.lakehouse.history_order import InOrder
from crossstream.lakehouse.history_rows import HistoryRows
from crossstream.lakehouse.history_times import HistoryTimes
from crossstream.lakehouse.opened_histories import Opened
from crossstream.lakehouse.times import times_of
from crossstream.runtime.delivery import DeliveringConnection, Delivery, Place
from crossstream.storage.log_entries import Seam
from crossstream.storage.root import StateRoot
from crossstream.topics import (
    FirstRecords,
    OffsetAndTimestamp,
    OffsetRange,
    RangeReader,
    ReadsTogether,
    RecordWriter,
    TopicLog,
    TopicPartition,
    partition_of,
    passed,
)


def with_histories(
    connection: DeliveringConnection | None, nodes: Iterable[Node], state: StateRoot
) -> DeliveringConnection | None:
    """The connection to topics, with the histories that sources have. ``state``: of the application."""
    found = {
        node.topics[0]: HistoryRows.of(node.past, node.key, node.value)
        for node in nodes
        if node.past is not None and node.past.positions and node.key is not None and node.value is not None
    }
    return HistoryTopics(connection, state.address, found) if found and connection is not None else connection


@dataclass(frozen=True, slots=True)
class HistoryTopics:
    """A `DeliveringConnection`. ``histories``: by topic; ``address``: of the state that says where they end."""

    topics: DeliveringConnection
    address: str
    histories: Mapping[str, HistoryRows]

    def log(self) -> HistoryLog:
        return HistoryLog(self.topics.log(), Opened(self.address, self.histories))

    def reader(self) -> RangeReader:
        return HistoryReader(self.topics.reader(), Opened(self.address, self.histories))

    def writer(self) -> RecordWriter:
        return self.topics.writer()

    def delivery(self, place: Place) -> Delivery:
        return self.topics.delivery(place)

    def staging_folder(self, name: str) -> Path | None:
        return self.topics.staging_folder(name)


@dataclass(slots=True)
class HistoryLog:
    """`TopicLog` of topics that are longer than their brokers know."""

    of_topics: TopicLog
    opened: Opened
    _times: HistoryTimes = field(init=False)

    def __post_init__(self) -> None:
        self._times = HistoryTimes(self.opened.versions, self.opened.seam, self.opened.histories)

    def seam(self, topic: str) -> Seam:
        return self.opened.seam(topic)

    def first_held(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset that the topic itself holds."""
        return self.of_topics.begin_offsets(partitions)

    def topics(self) -> Mapping[str, int]:
        return self.of_topics.topics()

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return self.of_topics.topic_ids(topics)

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where the table begins, if the topic continues it without a gap."""
        held = self.of_topics.begin_offsets(partitions)
        return {tp: self._begin(tp, first) for tp, first in held.items()}

    def _begin(self, tp: TopicPartition, held: int) -> int:
        if tp.topic not in self.opened.histories:
            return held
        seam = self.opened.seam(tp.topic)
        follows = held <= seam.ends.get(tp.partition, -1)
        return min(held, seam.begins[tp.partition]) if follows else held

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self.of_topics.end_offsets(partitions)

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """First in the tables, and in the topics from where these end."""
        before: dict[TopicPartition, OffsetRange] = {}
        after: list[OffsetRange] = []
        for span in spans:
            end = self.opened.ends(span)
            if span.start < end:
                before[partition_of(span)] = _part(span, span.start, min(end, span.end))
            else:
                after.append(span)
        found: FirstRecords = self._times.first(before, timestamp, most) if before else {}
        most = max(0, most - sum(passed(before[tp], moment) for tp, moment in found.items()))
        for span in spans:
            known = before.get(partition_of(span))
            if known is not None and found[partition_of(span)] is None and known.end < span.end:
                after.append(_part(span, known.end, span.end))
        return found | dict(self.of_topics.offsets_for_times(after, timestamp, most)) if after else found

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        self.of_topics.create_topic(topic, partitions, config)

    def delete_topic(self, topic: str) -> None:
        self.of_topics.delete_topic(topic)

    def close(self) -> None:
        self.opened.close()
        self.of_topics.close()


@dataclass(slots=True)
class HistoryReader(ReadsTogether):
    """`RangeReader` of topics with histories."""

    of_topics: RangeReader
    opened: Opened

    def read_many(
        self, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """The parts of the ranges that tables have, table by table, and then all that the topics have."""
        whole: dict[OffsetRange, OffsetRange] = {}
        tables: dict[str, dict[int, OffsetRange]] = {}
        for span in spans:
            end = min(self.opened.ends(span), span.end)
            if span.start < end:
                tables.setdefault(span.topic, {})[span.partition] = span
            if end < span.end:
                whole[_part(span, max(span.start, end), span.end)] = span
        for topic, parts in tables.items():
            yield from self._history(topic, parts, max_rows)
        for part, records in self.of_topics.read_many(list(whole), max_rows) if whole else ():
            yield whole[part], records

    def _history(
        self, topic: str, spans: Mapping[int, OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        rows, seam = self.opened.histories[topic], self.opened.seam(topic)
        ranges = {number: (span.start, min(span.end, seam.ends[number])) for number, span in spans.items()}
        columns = rows.history.columns
        versions = self.opened.versions(topic)
        for number, offsets, batch in InOrder(
            versions, rows.history, seam.version, ranges, columns, max_rows
        ).read():
            times = times_of(rows.history.table, batch, seam.version)
            yield spans[number], rows.records(seam.version, pa.array(offsets), times, batch)

    def close(self) -> None:
        self.opened.close()
        self.of_topics.close()


def _part(span: OffsetRange, start: int, end: int) -> OffsetRange:
    return OffsetRange(span.topic, span.partition, start, end)
