"""The tasks of a batch in one process: what it keeps from batch to batch, and the rounds one by one or all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from msgspec.structs import replace

from crossstream.planning.plan import Plan
from crossstream.planning.steps import SinkStep
from crossstream.runtime.delivery import (
    AtOnce,
    DeliveringConnection,
    Delivery,
    Place,
    TaskId,
    TaskWriter,
    no_topics,
    nothing,
)
from crossstream.runtime.round import Outgoing, RoundTask
from crossstream.runtime.turns import follows, in_turn
from crossstream.storage.log_entries import StagedFrame
from crossstream.task.batch import Batch, Input, Report, Settings, TopicInput, unpack_report
from crossstream.task.shuffle_codec import Block
from crossstream.task.stores import FolderStores, GlobalTables
from crossstream.topics import RangeReader


@dataclass(frozen=True, slots=True)
class Job:
    """Everything about an application run that stays the same from batch to batch.

    ``state_dir``: a folder or a URI. ``staging``: the folder where records for file topics wait for their batch.
    """

    application_id: str
    plan: Plan
    state_dir: str
    staging: str
    settings: Settings
    connection: DeliveringConnection | None

    def stage(self, global_stage: bool) -> Plan:
        """The plan of everything, or that of the global tables, which runs before it."""
        return self.plan.global_stage if global_stage and self.plan.global_stage is not None else self.plan


@dataclass(slots=True)
class WorkerState:
    """What a process keeps for one application run. ``pause`` is called between two pieces of work.

    What has been read of state, and of blocks on their way, need not stay in memory then. ``reader``: of the topics;
    None: the connection makes one when it is needed.
    """

    job: Job
    stores: FolderStores
    delivery: Delivery
    pause: Callable[[], None] = nothing
    reader: RangeReader | None = None
    _global_stores: FolderStores | None = None
    _global_tables: GlobalTables | None = None

    @classmethod
    def of(cls, job: Job, pause: Callable[[], None] = nothing) -> WorkerState:
        stores = FolderStores(job.state_dir)
        place = Place(job.application_id, stores.root, Path(job.staging))
        return cls(job, stores, delivery_of(job.connection, place), pause)

    def global_tables(self, batch: Batch) -> GlobalTables:
        """The global tables that the tasks of a batch share, their files opened from batch to batch once."""
        if self._global_stores is None:
            self._global_stores = self.stores.beside()
        if self._global_tables is None or self._global_tables.batch != batch:
            self._global_tables = GlobalTables(self.job.plan, batch, self._global_stores)
        return self._global_tables

    def begin(self, batch: Batch) -> None:
        """Before a task: closes store versions that other workers have superseded.

        It keeps a few, for small batches rotate among the workers.
        """
        oldest = batch.id if batch.shares else batch.id - _IN_TURN
        for stores in (self.stores, self._global_stores):
            if stores is not None:
                stores.close_superseded(oldest, batch.versions)
        self.pause()

    def connect(self) -> None:
        """Lets clients connect that the sinks need."""
        if any(isinstance(step, SinkStep) for step in self.job.plan.steps):
            self.delivery.connect()

    def input(self) -> Input:
        if self.reader is None:
            assert self.job.connection is not None
            self.reader = self.job.connection.reader()
        return TopicInput(self.reader)

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.delivery.close()


_IN_TURN = 4
"""Small batches for which a worker keeps superseded versions open."""


def delivery_of(connection: DeliveringConnection | None, place: Place) -> Delivery:
    """How results reach the topics of a connection."""
    return AtOnce(no_topics) if connection is None else connection.delivery(place)


@dataclass(slots=True)
class WorkerOutput:
    """Where the sinks of one task write. ``staged``: what waits for the driver when the task has finished."""

    state: WorkerState
    batch: Batch
    number: int
    sender: int
    staged: list[StagedFrame] = field(default_factory=list)
    _writer: TaskWriter | None = None

    @property
    def writer(self) -> TaskWriter:
        if self._writer is None:
            self._writer = self.state.delivery.writer(TaskId(self.batch.id, self.number, self.sender))
        return self._writer

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self.writer.write(topic, records, partitions)

    def partition_count(self, topic: str) -> int:
        return self.writer.partition_count(topic)

    def record_limit(self, topic: str) -> int | None:
        return self.writer.record_limit(topic)

    def must_exist(self, topic: str) -> None:
        self.writer.must_exist(topic)

    def finish(self) -> None:
        """Of a task that does all rounds alone, the end waits for Kafka and a remote store, not each part."""
        is_part = not self.batch.shares
        if self._writer is not None:
            self._writer.finish(is_part=is_part)
            self.staged.extend(self._writer.staged)
        if not is_part:
            self.state.stores.root.settled()


class Carrier(Protocol):
    """Carries blocks from the tasks of a round to those of the next one."""

    def sent(self, blocks: Iterable[Outgoing], batch: int) -> Iterable[Outgoing]:
        """Blocks as a task sends them."""

    def arrived(self, blocks: Iterable[Any]) -> Iterable[Block]:
        """The same blocks as a task of the next round takes them."""


class InMemory:
    """Blocks stay where they are."""

    def sent(self, blocks: Iterable[Outgoing], batch: int) -> Iterable[Outgoing]:
        return blocks

    def arrived(self, blocks: Iterable[Any]) -> Iterable[Block]:
        return blocks


def share_count(plan: Plan, batch: Batch) -> int:
    """How many tasks read a batch: no more than it has ranges for the plan."""
    return min(batch.shares, max(1, len(batch.read_by(plan.sources))))


def task_of(
    state: WorkerState, plan: Plan, batch: Batch, number: int, sender: int, source: Input | None = None
) -> RoundTask:
    """Part of a round: ``sender`` numbers it among the tasks of the round."""
    state.begin(batch)
    output = WorkerOutput(state, batch, number, sender)
    stores, settings, tables = state.stores, state.job.settings, state.global_tables(batch)
    task = RoundTask(plan, batch, number, sender, stores, output, settings, source, tables, state.pause)
    output.staged = task.report.staged
    return task


def read_round(state: WorkerState, plan: Plan, batch: Batch, share: int, shares: int) -> Iterator[Outgoing]:
    """Round 0 in one task: its share of the source partitions."""
    spans = batch.read_by(plan.sources)[share::shares]
    if spans:
        yield from task_of(state, plan, batch, 0, share, state.input()).read(spans)
    elif share == 0:
        yield from task_of(state, plan, batch, 0, share).run(())


def later_round(
    state: WorkerState, plan: Plan, batch: Batch, number: int, pid: int, blocks: Iterable[Block]
) -> Iterator[Outgoing]:
    """A later round in one task: one state partition."""
    yield from task_of(state, plan, batch, number, pid).run(blocks)


def all_rounds(state: WorkerState, batch: Batch, carrier: Carrier) -> Iterator[Outgoing]:
    """All rounds of a batch, those of the global tables first; what the driver gets of it."""
    yield from _all_plans(state, batch, carrier)
    state.delivery.settle()
    state.stores.root.settled()


def _all_plans(state: WorkerState, batch: Batch, carrier: Carrier) -> Iterator[Outgoing]:
    plan = state.job.plan
    if plan.global_stage is not None and batch.read_by(plan.global_stage.sources):
        changed, has_more = Report(), follows(plan, batch)
        recording = replace(batch, recorded=has_more)
        for block in carrier.arrived(_all_of(state, plan.global_stage, recording, carrier)):
            changed.add(unpack_report(block[4]))
            yield 0, [block]
        if not has_more:
            return
        batch = replace(batch, histories=changed.histories)
    for block in _all_of(state, plan, batch, carrier):
        yield 0, [block]


def _all_of(state: WorkerState, plan: Plan, batch: Batch, carrier: Carrier) -> Iterator[Block]:

    def later(number: int, pid: int, blocks: list[Block]) -> Iterable[Outgoing]:
        sent = later_round(state, plan, batch, number, pid, carrier.arrived(blocks))
        return carrier.sent(sent, batch.id)

    def has(store: str, pid: int) -> bool:
        return pid in batch.versions.get(store, {})

    first = carrier.sent(read_round(state, plan, batch, 0, 1), batch.id)
    return in_turn(plan, batch, first, later, has)
