"""Topics in memory, and a planner's view of them: batches are applied to plain rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from crossstream.graph.nodes import Graph, Source
from crossstream.records import RECORDS
from crossstream.runtime.backlog import Cutter, Span
from crossstream.runtime.transactions.together import Transactions
from crossstream.storage.log_entries import SourceRange, Stand
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition
from tests.operators.debezium.transactions.database import TABLES, TRANSACTIONS, Record, topic_of


@dataclass
class Memory:
    """A `TopicLog` and an `Input`. A record that is None is compacted away."""

    records: dict[TopicPartition, list[Record | None]] = field(default_factory=lambda: defaultdict(list))
    reads: int = 0

    def append(self, records: Iterable[Record]) -> None:
        for one in records:
            self.records[TopicPartition(one.topic, one.partition)].append(one)

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: len(self.records[tp]) for tp in partitions}

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for span in spans:
            there = self.records[TopicPartition(span.topic, span.partition)][span.start : span.end]
            rows = [(span.start + place, one) for place, one in enumerate(there) if one is not None]
            late = [OffsetAndTimestamp(offset, one.time) for offset, one in rows if one.time >= timestamp]
            found[TopicPartition(span.topic, span.partition)] = next(iter(late), None)
        return found

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        for span in spans:
            there = self.records[TopicPartition(span.topic, span.partition)][span.start : span.end]
            rows = [(span.start + place, one) for place, one in enumerate(there) if one is not None]
            self.reads += len(rows)
            for start in range(0, len(rows), max_rows):
                yield span, _batch(rows[start : start + max_rows])


def _batch(rows: Sequence[tuple[int, Record]]) -> pa.RecordBatch:
    columns = {
        "key": [one.key for _, one in rows],
        "value": [one.value for _, one in rows],
        "timestamp": [one.time for _, one in rows],
        "offset": [offset for offset, _ in rows],
        "headers": [None] * len(rows),
    }
    return pa.RecordBatch.from_pydict(columns, schema=RECORDS)


@dataclass
class Reader:
    """Batches of the tables of a graph. `rows`: after the last one, by table and id; `stand`: where it stands."""

    memory: Memory
    graph: Graph
    partitions: int = 1
    most: int | None = None
    largest: int = 1_000_000
    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    positions: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    stand: Stand | None = None
    transactions: Transactions = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = list(self.graph.each(Source))
        for node in self.nodes:
            self.positions[node.name] = {
                topic: dict.fromkeys(range(self.partitions), 0) for topic in node.topics
            }
        self.restart()

    def restart(self) -> None:
        """The next batch is that of another process."""
        stands = {} if self.stand is None else {TRANSACTIONS: self.stand}
        log: Any = self.memory
        self.transactions = Transactions.of(self.nodes, log, log, stands, self.largest)
        self.transactions.check({TRANSACTIONS: 1})
        self.cutter = Cutter(log)

    def batch(self) -> bool:
        """Reads a batch, and applies it; False: there is nothing that can be taken."""
        spans = self.plan()
        for node, topic, partition, start, end in spans:
            for one in self.memory.records[TopicPartition(topic, partition)][start:end]:
                if one is not None:
                    self._apply(one)
            self.positions[node][topic][partition] = end
        if spans:
            self.stand = self.transactions.planned[TRANSACTIONS]
            self.transactions.note({TRANSACTIONS: self.stand})
        return bool(spans)

    def plan(self) -> list[Span]:
        partitions = {
            node.name: [
                TopicPartition(topic, number) for topic in node.topics for number in range(self.partitions)
            ]
            for node in self.nodes
        }
        self.transactions.look()
        spans = [
            (name, tp.topic, tp.partition, start, end)
            for name, own in partitions.items()
            for tp in own
            if (end := len(self.memory.records[tp])) > (start := self.positions[name][tp.topic][tp.partition])
        ]
        return self.transactions.limited(spans, partitions, self.positions, self._limit)

    def _limit(self, spans: list[Span]) -> list[Span]:
        return spans if self.most is None or not spans else self.cutter.cut(spans, self.most)

    def _apply(self, record: Record) -> None:
        event = None if record.value is None else json.loads(record.value)
        if event is None or "op" not in event:
            return
        table = next(table for table in TABLES if topic_of(table) == record.topic)
        if event["after"] is None:
            self.rows.pop((table, event["before"]["id"]), None)
        else:
            self.rows[table, event["after"]["id"]] = event["after"]["amount"]
