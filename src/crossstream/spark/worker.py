"""What runs inside Spark's Python workers.

A worker lives from batch to batch. `_held` is where it keeps things: the plan of each application
run, open stores, open consumers and producers.
"""

from __future__ import annotations

import ctypes
import gc
import io
import mmap
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from crossstream.planning.plan import Plan
from crossstream.planning.steps import SinkStep
from crossstream.runtime.round import Outgoing, RoundTask, follows, in_turn
from crossstream.spark.frames import FrameInput, frame_spans
from crossstream.spark.shuffle_spill import BLOCKS, loaded, spilled
from crossstream.storage.commit_log import STAGED
from crossstream.task.batch import Batch, Input, Report, Settings, TopicInput, unpack_report
from crossstream.task.shuffle_codec import Block
from crossstream.task.stores import FolderStores, GlobalTables
from crossstream.topics import TopicConnection

BATCH_PROPERTY = "crossstream.batch"

_batches = msgspec.json.Decoder(Batch)


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
    connection: TopicConnection | None

    def stage(self, before: bool) -> Plan:
        """The plan of everything, or (``before``) that of the global tables, which runs before it."""
        return self.plan.global_stage if before and self.plan.global_stage is not None else self.plan


@dataclass(slots=True)
class Held:
    """What a worker keeps for one application run."""

    job: Job
    stores: FolderStores
    reader: Any = None
    writer: Any = None
    _global_stores: FolderStores | None = None
    _global_tables: GlobalTables | None = None

    def global_tables(self, batch: Batch) -> GlobalTables:
        """The global tables that the tasks of a batch share, their files opened from batch to batch once."""
        if self._global_stores is None:
            self._global_stores = FolderStores(self.stores.root)
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

    def pause(self) -> None:
        """Between two pieces of work: state and blocks that have been read need not stay in memory."""
        give_back((str(self.stores.root.here), BLOCKS))

    def connect(self) -> None:
        """Opens the client that writes to Kafka: it connects while the first records are read.

        Otherwise the first flush of each worker waits for half a second.
        """
        connection = self.job.connection
        is_staged = hasattr(connection, "staging_writer") or hasattr(connection, "stage_in")
        if connection is None or is_staged:
            return
        if any(isinstance(step, SinkStep) for step in self.job.plan.steps):
            self.producer().open()

    def input(self) -> Input:
        if self.reader is None:
            assert self.job.connection is not None
            self.reader = self.job.connection.reader()
        return TopicInput(self.reader)

    def producer(self) -> Any:
        if self.writer is None:
            assert self.job.connection is not None
            self.writer = self.job.connection.writer()
        return self.writer

    def close(self) -> None:
        for client in (self.reader, self.writer):
            if client is not None:
                client.close()


_held: dict[str, Held] = {}
_FRAME_SENDERS = 1_000_000
"""Senders of blocks that read DataFrames are numbered from here."""
_IN_TURN = 4
"""Small batches for which a worker keeps superseded versions open."""
_LIMIT = 4
"""Application runs a worker remembers; older ones are closed."""


def held_for(run_id: str, load: Callable[[], bytes]) -> Held:
    """What this worker keeps for a run; made when the first task of it comes."""
    if run_id not in _held:
        while len(_held) >= _LIMIT:
            _held.pop(next(iter(_held))).close()
        job: Job = pickle.load(io.BytesIO(load()))
        _held[run_id] = opened(job)
        _held[run_id].connect()
        gc.freeze()  # Spark collects garbage after every task: it need not look at what stays
    return _held[run_id]


def opened(job: Job) -> Held:
    return Held(job, FolderStores(job.state_dir))


@dataclass(slots=True)
class WorkerOutput:
    """Where the sinks of one task write."""

    held: Held
    batch: Batch
    number: int
    sender: int
    staging: Any = None
    staged: list[tuple[str, str, int, int, bytes]] = field(default_factory=list)
    used: bool = False

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self.used, staging = True, self._staging()
        writer = self.held.producer() if staging is None else staging
        writer.write(topic, records, partitions)

    def partition_count(self, topic: str) -> int:
        return int(self._knowing().partition_count(topic))

    def record_limit(self, topic: str) -> int | None:
        knowing = self._knowing()
        return int(knowing.record_limit(topic)) if hasattr(knowing, "record_limit") else None

    def must_exist(self, topic: str) -> None:
        staging = self._staging()
        if staging is not None:  # Kafka's producer fails by itself
            staging.must_exist(topic)

    def _knowing(self) -> Any:
        """What knows the topics: Kafka's producer does, also where records are staged."""
        staging = self._staging()
        return staging if hasattr(staging, "partition_count") else self.held.producer()

    def _staging(self) -> Any:
        """What keeps records in files until the driver publishes the batch; None: they go to Kafka at once."""
        job, connection = self.held.job, self.held.job.connection
        if self.staging is None and connection is not None and hasattr(connection, "staging_writer"):
            task = f"{job.application_id}/{self.batch.id}/{self.number}/{self.sender}".encode()
            self.staging = connection.staging_writer(Path(job.staging), task)
        if self.staging is None and connection is not None and hasattr(connection, "stage_in"):
            storage = self.held.stores.root.storage(STAGED)
            self.staging = connection.stage_in(storage, f"{self.batch.id:012d}-{self.number}-{self.sender}")
        return self.staging

    def finish(self) -> None:
        """Of a task that does all rounds alone, the end waits for Kafka and a remote store, not each part."""
        is_part = not self.batch.shares
        if self.staging is not None:
            self.staging.flush()
            self.staged.extend(self.staging.staged)
        elif self.used and not is_part:
            self.held.writer.flush()
        if not is_part:
            self.held.stores.root.settled()


def _task(
    held: Held, plan: Plan, batch: Batch, number: int, sender: int, source: Input | None = None
) -> RoundTask:
    """Part of a round: ``sender`` numbers it among the tasks of the round."""
    held.begin(batch)
    output = WorkerOutput(held, batch, number, sender)
    stores, settings, global_tables = held.stores, held.job.settings, held.global_tables(batch)
    task = RoundTask(plan, batch, number, sender, stores, output, settings, source, global_tables, held.pause)
    task.report.staged = output.staged
    return task


def read_round(held: Held, plan: Plan, batch: Batch, share: int, shares: int) -> Iterator[Outgoing]:
    """Round 0 in one task: its share of the source partitions."""
    spans = batch.read_by(plan.sources)[share::shares]
    if spans:
        yield from _task(held, plan, batch, 0, share, held.input()).read(spans)
    elif share == 0:
        yield from _task(held, plan, batch, 0, share).run(())


def frame_round(held: Held, batch: Batch, rows: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
    """Round 0 of the DataFrame sources in one task."""
    context = TaskContext.get()
    assert context is not None
    share = context.partitionId()
    spans = frame_spans(held.job.plan.topology, batch.frames, share)
    source = FrameInput(rows, spans, batch.clock)
    task = _task(held, held.job.plan, batch, 0, _FRAME_SENDERS + share, source)
    yield from task.read(list(spans.values()))


def later_round(
    held: Held, plan: Plan, batch: Batch, number: int, pid: int, blocks: Iterable[Block]
) -> Iterator[Outgoing]:
    """A later round in one task: one state partition."""
    yield from _task(held, plan, batch, number, pid).run(blocks)


def all_rounds(held: Held, batch: Batch, folder: str | None) -> Iterator[Outgoing]:
    """All rounds of a batch, those of the global tables first; what the driver gets of it.

    Large blobs on their way from one round to another lie in files of ``folder``, if there is one.
    """
    yield from _all_plans(held, batch, folder)
    if held.writer is not None:
        held.writer.flush()
    held.stores.root.settled()


def _all_plans(held: Held, batch: Batch, folder: str | None) -> Iterator[Outgoing]:
    plan = held.job.plan
    if plan.global_stage is not None and batch.read_by(plan.global_stage.sources):
        changed, has_more = Report(), follows(plan, batch)
        recording = msgspec.structs.replace(batch, recorded=has_more)
        for block in loaded(_all_of(held, plan.global_stage, recording, folder)):
            changed.add(unpack_report(block[4]))
            yield 0, [block]
        if not has_more:
            return
        batch = msgspec.structs.replace(batch, histories=changed.histories)
    for block in _all_of(held, plan, batch, folder):
        yield 0, [block]


def _all_of(held: Held, plan: Plan, batch: Batch, folder: str | None) -> Iterator[Block]:

    def later(number: int, pid: int, blocks: list[Block]) -> Iterator[Outgoing]:
        sent = later_round(held, plan, batch, number, pid, loaded(blocks))
        return spilled(sent, folder, batch.id)

    def has(store: str, pid: int) -> bool:
        return pid in batch.versions.get(store, {})

    first = spilled(read_round(held, plan, batch, 0, 1), folder, batch.id)
    return in_turn(plan, batch, first, later, has)


def send_nothing(index: int, _: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
    """A task that starts its worker and sends an empty block."""
    yield index, b""


def current_batch() -> Batch:
    """The batch of the running task, from the job's local property."""
    context = TaskContext.get()
    assert context is not None
    text = context.getLocalProperty(BATCH_PROPERTY)
    assert text is not None
    return _batches.decode(text)


# -- pages of mapped files, given back before they make a worker large (decision 0014)
#
# Stores, and blocks on their way, are mapped files. What a worker has read of them counts as its resident memory until
# it is given back, also for programs that set limits to processes. That costs next to nothing: the pages stay in the
# cache of the system.

RESIDENT = 1 << 30
"""Resident bytes above which pages are given back."""

_PAGE = mmap.PAGESIZE
_DONTNEED = 4  # MADV_DONTNEED


def give_back(folders: Sequence[str]) -> None:
    """If this process holds more than `RESIDENT` bytes, gives back the pages of mapped files.

    Of files with one of ``folders`` in their path. Does nothing where the system has no /proc.
    """
    if resident() > RESIDENT and (advise := _madvise()) is not None:
        for start, size in mapped(folders):
            advise(start, size, _DONTNEED)


def resident() -> int:
    """Resident bytes of this process; 0 where the system does not report it."""
    file = _statm(os.getpid())
    return 0 if file is None else int(os.pread(file, 128, 0).split()[1]) * _PAGE


def mapped(folders: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Start and size of each mapping that can only be read, of files with one of ``folders`` in their path."""
    with open("/proc/self/maps") as file:
        for line in file:
            span, rights, _, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            if path and rights.startswith("r-") and any(folder in path[0] for folder in folders):
                start, end = (int(address, 16) for address in span.split("-"))
                yield start, end - start


@cache
def _statm(process: int) -> int | None:
    """Kept open, for it is read often; of this process, whatever it was forked from."""
    try:
        return os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
