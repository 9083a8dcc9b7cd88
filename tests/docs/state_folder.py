"""A state folder as the engine writes it, batch by batch, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossstream.api.topology import Topology
from crossstream.catalog.planners import plan_topology
from crossstream.graph.nodes import Source
from crossstream.query.files import describe_readers
from crossstream.records import RECORDS
from crossstream.runtime.rescaling import partitioners, placements, rescale
from crossstream.runtime.round import Outgoing, RoundTask
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, BatchEntry, Commit, SourceRange
from crossstream.storage.vacuum import Vacuum
from crossstream.task.batch import Batch, Report, Settings, unpack_report
from crossstream.task.shuffle_codec import REPORT, Block
from crossstream.task.stores import FolderStores

Record = tuple[bytes, bytes | None, int]
"""Key, value, timestamp (ms)."""


@dataclass
class Given:
    """The records of a batch, by topic, as the engine reads them; topics have one partition."""

    records: Mapping[str, Sequence[Record]]

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        for span in spans:
            keys, values, times = zip(*self.records[span.topic], strict=True)
            offsets = range(span.start, span.end)
            columns = [keys, values, times, offsets, [None] * len(keys)]
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, RECORDS, strict=True)]
            yield span, pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


class NoSinks:
    """The output of a topology that writes no topics."""

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        raise AssertionError(topic)

    def partition_count(self, topic: str) -> int:
        raise AssertionError(topic)

    def record_limit(self, topic: str) -> int | None:
        raise AssertionError(topic)

    def finish(self) -> None: ...


@dataclass
class Writer:
    """Does what an application does with its state folder."""

    root: Path
    topology: Topology
    partitions: int = 1
    retain: int = 10
    versions: dict[str, dict[int, str]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    batch: int = 0

    def __post_init__(self) -> None:
        self.plan = plan_topology(self.topology)
        self.log = BatchLog(self.root)
        self.stores = FolderStores(self.root)
        self.retirement = Vacuum(self.root, self.log, self.retain)
        self.log.lock("application")
        self.log.write_application(
            Application(
                "application",
                self.partitions,
                self.plan.fingerprint(),
                describe_readers(self.plan),
                tuple(partitioners(self.plan)),
                self.plan.derived,
                by_key2=self.plan.by_key2,
                tables=self.plan.tables,
                anywhere=self.plan.anywhere,
                begin_empty=self.plan.begin_empty,
            )
        )

    def close(self) -> None:
        self.log.unlock()

    def run(self, records: Mapping[str, Sequence[Record]]) -> None:
        """A batch of these records, from its entry in the log to its commit."""
        entry = BatchEntry(self.batch, tuple(self._ranges(records)))
        self.log.write_batch(entry)
        report = self._process(
            Batch(self.batch, entry.ranges, self.partitions, self.versions), Given(records)
        )
        self.versions = {store: dict(names) for store, names in self.versions.items()}
        for store, names in report.manifests.items():
            self.versions.setdefault(store, {}).update(names)
        self.log.write_commit(Commit(self.batch, self.partitions, self._positions(), self.versions))
        self.retirement.add(self.batch, report.retired)
        self.batch += 1

    def rescale(self, partitions: int) -> None:
        """Cuts the state into another number of partitions."""
        done = rescale(self.log, partitions, placements(self.plan, partitions))
        self.partitions, self.versions = partitions, done.commit.versions
        if done.commit.id >= 0:
            self.retirement.add(done.commit.id, done.retired)
        self.batch = done.commit.id + 1

    def _sources(self) -> list[Source]:
        return [node for node in self.topology if isinstance(node, Source)]

    def _ranges(self, records: Mapping[str, Sequence[Record]]) -> list[SourceRange]:
        ranges: list[SourceRange] = []
        for node in self._sources():
            topic = node.topics[0]
            start = self.ends.get(topic, 0)
            self.ends[topic] = start + len(records.get(topic, ()))
            if self.ends[topic] > start:
                ranges.append(SourceRange(node.name, topic, 0, start, self.ends[topic], len(ranges)))
        return ranges

    def _positions(self) -> dict[str, dict[str, dict[int, int]]]:
        return {node.name: {node.topics[0]: {0: self.ends[node.topics[0]]}} for node in self._sources()}

    def _process(self, batch: Batch, given: Given) -> Report:
        inboxes = self._delivered(list(self._task(batch, 0, 0, given).read(batch.ranges)))
        for number in range(1, self.plan.rounds):
            tasks = [self._task(batch, number, pid) for pid in range(self.partitions)]
            sent = [s for pid, task in enumerate(tasks) for s in task.run(inboxes[pid])]
            inboxes = self._delivered(sent)
        report = Report()
        for block in (block for inbox in inboxes for block in inbox):
            if block[1] == REPORT:
                report.add(unpack_report(block[4]))
        return report

    def _task(self, batch: Batch, number: int, sender: int, given: Any = None) -> RoundTask:
        return RoundTask(self.plan, batch, number, sender, self.stores, NoSinks(), Settings(), given)

    def _delivered(self, sent: list[Outgoing]) -> list[list[Block]]:
        inboxes: list[list[Block]] = [[] for _ in range(self.partitions)]
        for pid, blocks in sent:
            inboxes[pid].extend(blocks)
        return inboxes
