"""Runs a plan over ranges of topics or over single records, with the production operators and stores in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec.structs import replace

from crossstream.errors import StateError
from crossstream.planning.plan import Plan, StoreDef
from crossstream.query.by_time import ByTime
from crossstream.query.store import StoreReader
from crossstream.query.views import view_of
from crossstream.runtime.batch import Batch, Input, Report, Settings, rank_of
from crossstream.runtime.stores import GlobalTables, MemoryStores
from crossstream.runtime.task import RoundTask, in_turn
from crossstream.storage.log_entries import SourceRange
from crossstream.storage.store import Version
from crossstream.topics import check_name

Span = tuple[str, str, int, int, int]
"""Source node, topic, partition, first offset, and the offset after the last one."""


@dataclass(slots=True)
class Written:
    """Keeps what sinks write to the ``wanted`` topics, in order. ``counts``: partitions of the topics there are."""

    counts: Mapping[str, int] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    topics: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self.names.add(topic)
        if topic in self.wanted:
            self.topics.setdefault(topic, []).append(records)

    def must_exist(self, topic: str) -> None:
        check_name(topic)

    def partition_count(self, topic: str) -> int:
        return self.counts.get(topic, 1)

    def record_limit(self, topic: str) -> int | None:
        return None

    def finish(self) -> None:
        """Everything written is there already."""


@dataclass(slots=True)
class FromMemory:
    """Reads records that are at hand, by topic and partition."""

    records: Mapping[tuple[str, int], pa.RecordBatch]

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        for span in spans:
            rows = self.records[span.topic, span.partition]
            for start in range(0, rows.num_rows, max_rows):
                yield span, rows.slice(start, max_rows)


@dataclass(slots=True)
class Replay:
    """A run of a plan from empty stores, batch after batch. ``report``: what all batches did."""

    plan: Plan
    partitions: int
    settings: Settings = field(default_factory=Settings)
    output: Written = field(default_factory=Written)
    stores: MemoryStores = field(default_factory=MemoryStores)
    report: Report = field(default_factory=Report)
    batches: int = 0

    def run(self, spans: Sequence[Span], source: Input) -> None:
        """Runs one batch of these ranges. Source: semantics 1.2."""
        nodes = list(self.plan.topology.nodes)
        ordered = sorted(spans, key=lambda span: (nodes.index(span[0]), span[1], span[2]))
        ranges = tuple(
            SourceRange(*span, rank_of(self.plan.topology[span[0]].shape, position))
            for position, span in enumerate(ordered)
        )
        batch = Batch(self.batches, ranges, self.partitions)
        tables = GlobalTables(
            self.plan, batch, MemoryStores(dict(self.stores.versions), self.stores.recorded)
        )
        before = self.plan.global_stage
        if before is not None and batch.read_by(before.sources):
            report = self._rounds(before, replace(batch, recorded=True), tables, source)
            tables.batch = batch = replace(batch, histories=report.histories)
        self._rounds(self.plan, batch, tables, source)
        self.batches += 1

    def _rounds(self, plan: Plan, batch: Batch, tables: GlobalTables, source: Input) -> Report:
        report = Report()

        def task(number: int, pid: int) -> RoundTask:
            return RoundTask(
                plan,
                batch,
                number,
                pid,
                self.stores,
                self.output,
                self.settings,
                source,
                tables,
                near=True,
                report=report,
            )

        first = task(0, 0).read(batch.read_by(plan.sources))
        for _ in in_turn(
            plan,
            batch,
            first,
            lambda number, pid, blocks: task(number, pid).run(blocks),
            lambda store, pid: (store, pid) in self.stores.versions,
        ):
            pass  # records for DataFrames
        self.report.add(report)
        return report

    def store(self, name: str) -> StoreReader:
        """A queryable store, or a view, after the batches so far; `StateError` CS-710 if there is none."""
        found = store_named(self.plan, name)
        if found is not None:
            return reader_of(found, name, self.versions(found))
        view = view_of(self.plan, name, self._tables)
        if view is None:
            raise no_store(self.plan, name)
        return view

    def versions(self, store: StoreDef) -> list[Version]:
        return [self.stores.open(store, pid, None) for pid in range(self.partitions)]

    def _tables(self) -> GlobalTables:
        stores = MemoryStores(dict(self.stores.versions))
        return GlobalTables(self.plan, Batch(self.batches, (), self.partitions), stores)


def store_named(plan: Plan, name: str) -> StoreDef | None:
    return next((store for store in plan.stores.values() if store.public == name), None)


def reader_of(store: StoreDef, name: str, versions: Sequence[Version]) -> StoreReader:
    """A reader of these versions, one for each state partition."""
    by_time = ByTime.of(store.layout, store.window_size)
    return StoreReader(
        name,
        store.key,
        store.value,
        lambda: versions,
        store.history,
        hashed=not store.anywhere,
        by_time=by_time,
    )


def no_store(plan: Plan, name: str) -> StateError:
    names = sorted(store.public for store in plan.stores.values() if store.public is not None)
    return StateError(
        f"the topology has no store named {name!r}",
        code="CS-710",
        where={"store": name},
        next=f"its queryable stores are: {', '.join(names) or 'none'}",
    )
