"""Runs a plan over ranges of topics or over single records, with the production operators and stores in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.planning.plan import Plan, StoreDef
from crossstream.query.store import StoreReader, reader_of, store_named
from crossstream.query.views import view_of
from crossstream.runtime.in_process import Span, ranges_of, run_batch, tables_of
from crossstream.storage.log_entries import Commit, SourceRange
from crossstream.storage.root import StateRoot
from crossstream.task.batch import Batch, Input, Report, Settings
from crossstream.task.stores import FolderStores, GlobalTables, MemoryStores
from crossstream.topics import check_name


@dataclass(slots=True)
class Written:
    """Keeps what sinks write to the ``wanted`` topics, in order. ``counts``: partitions of the topics there are."""

    counts: Mapping[str, int] = field(default_factory=dict)
    wanted: frozenset[str] = frozenset()
    topics: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
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
    """A run of a plan from empty stores, batch after batch. ``report``: what all batches did.

    ``clock``: what it shows in all of them, in ms. ``snapshots``: as in a `Batch`.
    """

    plan: Plan
    partitions: int
    settings: Settings = field(default_factory=Settings)
    output: Written = field(default_factory=Written)
    stores: MemoryStores = field(default_factory=MemoryStores)
    report: Report = field(default_factory=Report)
    batches: int = 0
    clock: int = 0
    snapshots: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def run(self, spans: Sequence[Span], source: Input) -> None:
        """Runs one batch of these ranges."""
        snapshots = {topic: dict(ends) for topic, ends in self.snapshots.items()}
        ranges = ranges_of(self.plan.topology, spans)
        batch = Batch(self.batches, ranges, self.partitions, clock=self.clock, snapshots=snapshots)
        report, _ = run_batch(self.plan, batch, self.stores, self.output, self.settings, source)
        self.report.add(report)
        self.batches += 1

    def store(self, name: str) -> StoreReader:
        """A queryable store, or a view, after the batches so far; `StateError` CS-710 if there is none."""
        found = store_named(self.plan, name)
        if found is not None:
            return self.reader(found)
        view = view_of(self.plan, name, self._tables)
        if view is None:
            raise no_store(self.plan, name)
        return view

    def reader(self, store: StoreDef) -> StoreReader:
        """A queryable store after the batches so far."""
        versions = [self.stores.open(store, pid, None) for pid in range(self.partitions)]
        return reader_of(store, lambda: versions)

    def _tables(self) -> GlobalTables:
        return tables_of(self.plan, Batch(self.batches, (), self.partitions), self.stores)


def reader_after(commit: Commit, store: StoreDef, root: StateRoot) -> StoreReader:
    """A queryable store of a state folder after a commit."""
    stores, names = FolderStores(root), commit.versions.get(store.name, {})
    versions = [stores.open(store, pid, names.get(pid)) for pid in range(commit.partitions)]
    return reader_of(store, lambda: versions)


def no_store(plan: Plan, name: str) -> CrossStreamError:
    names = sorted(store.public for store in plan.stores.values() if store.public is not None)
    what = f"the topology has no store named {name!r}"
    return refuse("CS-710", what, f"its queryable stores are: {', '.join(names) or 'none'}", store=name)
