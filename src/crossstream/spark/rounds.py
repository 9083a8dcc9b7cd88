"""A batch on Spark: what every worker gets, and blobs through RDDs, one shuffle for each round (decision 0002)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession

from crossstream.api.topology import Topology
from crossstream.application.rounds import RowFeed
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.graph.nodes import Node
from crossstream.once import BatchMark
from crossstream.runtime.round import Outgoing, Sent
from crossstream.runtime.turns import collected, run_stages
from crossstream.runtime.worker import Job, WorkerState, all_rounds, later_round, read_round, share_count
from crossstream.serdes.shipping import dumps
from crossstream.spark.batch_frames import StagedFrames, deliver
from crossstream.spark.changes import in_order
from crossstream.spark.errors import (
    heart,
    is_lost_worker,
    is_stopped,
    jvm_ended,
    unpacked,
    with_packed_errors,
)
from crossstream.spark.frame_loop import FrameLoop
from crossstream.spark.frames import check_frames, packed_blocks, unpacked_row
from crossstream.spark.session import SessionUse, check_running, is_running
from crossstream.spark.shuffle_spill import BlockFiles, drop_batch, loaded, shared_folder, spilled
from crossstream.spark.worker import BATCH_PROPERTY, current_batch, frame_round, state_for
from crossstream.storage.log_entries import StagedRows
from crossstream.storage.root import StateRoot
from crossstream.task.batch import Batch, Report


@dataclass(frozen=True, slots=True)
class Run:
    """What every task of an application run gets. ``folder``: where large blobs lie, if all tasks share a machine."""

    run_id: str
    token: str
    job: Broadcast[bytes]
    folder: str | None

    def task(self, work: Callable[[WorkerState, Batch], Iterable[Any]]) -> Iterator[Any]:
        """Does ``work`` for the running batch in a worker; errors of ours cross as `with_packed_errors` packs them."""
        return with_packed_errors(
            lambda: work(state_for(self.run_id, lambda: self.job.value), current_batch()), self.token
        )


# -- what Spark ships to the workers: a round of a plan, or all rounds of a small batch


def round_zero(run: Run, global_stage: bool, index: int, _: Iterable[Any]) -> Iterator[Any]:
    def work(state: WorkerState, batch: Batch) -> Iterator[Any]:
        plan = state.job.stage(global_stage)
        sent = read_round(state, plan, batch, index, share_count(plan, batch))
        return spilled(sent, run.folder, batch.id)

    return run.task(work)


def round_after(
    run: Run, global_stage: bool, number: int, index: int, blocks: Iterable[Any]
) -> Iterator[Any]:
    def work(state: WorkerState, batch: Batch) -> Iterator[Any]:
        taken = loaded(block for sent in blocks for block in sent[1])
        sent = later_round(state, state.job.stage(global_stage), batch, number, index, taken)
        return spilled(sent, run.folder, batch.id)

    return run.task(work)


def round_of_frames(run: Run, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return run.task(lambda state, batch: packed_blocks(frame_round(state, batch, rows)))


def rounds_alone(run: Run, index: int, _: Iterable[Any]) -> Iterator[Any]:
    return run.task(lambda state, batch: all_rounds(state, batch, BlockFiles(run.folder)))


_PROPERTIES = (
    BATCH_PROPERTY,
    "spark.jobGroup.id",
    "spark.job.description",
    "spark.job.interruptOnCancel",
)
"""What a batch sets of the properties that the jobs of a thread have."""


@contextmanager
def kept_properties(context: SparkContext) -> Iterator[None]:
    """Restores the properties of the jobs of this thread, which may be one of the user."""
    before = {name: context.getLocalProperty(name) for name in _PROPERTIES}
    try:
        yield
    finally:
        if not is_stopped(context):
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None unsets it


class SparkRounds:
    """Runs the batches of an application on Spark; a `crossstream.application.rounds.Rounds`.

    ``session``: where; ``token``: as in `errors.with_packed_errors`.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, session: SessionUse, token: str) -> None:
        self._topology = topology
        self._config = config
        self._session = session
        self._token = token
        self._job: Job | None = None
        self._pickled = b""
        self._spark: SparkSession | None = None
        self._open: _OpenRun | None = None

    def prepare(self, job: Job, state: StateRoot) -> None:
        self._job, self._pickled = job, pickled_job(job)
        check_frames(self._topology, state)

    def start(self) -> int:
        """Spark may take seconds to start."""
        self._spark = self._session.open()
        return max(1, self._spark.sparkContext.defaultParallelism)

    def open(self) -> None:
        assert self._spark is not None
        assert self._job is not None
        self._open = _OpenRun.of(self._spark.sparkContext, self._job, self._pickled, self._token)

    def run(self, batch: Batch, rows: DataFrame | None = None) -> tuple[Report, Sent]:
        assert self._open is not None
        try:
            return self._open.run(batch, rows)
        except Exception:
            check_running(self._open.context)
            raise

    def deliver(self, sent: Sent, files: Sequence[StagedRows], mark: BatchMark) -> None:
        assert self._spark is not None
        assert self._job is not None
        deliver(
            self._spark, self._topology, sent, mark, StagedFrames(self._job.state_dir, files, self._token)
        )

    def feed(self, state: StateRoot) -> RowFeed:
        return FrameLoop(self._topology, self._config, state, self._token)

    def lost_worker(self, error: Exception) -> str | None:
        return heart(error) if is_lost_worker(error, self._token) else None

    def ours(self, error: Exception) -> CrossStreamError:
        lost = not isinstance(error, CrossStreamError) and self._session.has_lost_jvm()
        return jvm_ended() if lost else unpacked(error, self._token)

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def release(self) -> None:
        self._spark = None
        self._session.release()

    @property
    def ui_address(self) -> str | None:
        return None if self._spark is None else getattr(self._spark.sparkContext, "uiWebUrl", None)


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """A job that the workers have. ``alone``: the RDD of one task that does all rounds."""

    context: SparkContext
    job: Job
    shipped: Run
    alone: Any

    @classmethod
    def of(cls, context: SparkContext, job: Job, pickled: bytes, token: str) -> _OpenRun:
        run_id = uuid.uuid4().hex
        shipped = Run(run_id, token, context.broadcast(pickled), shared_folder(context, run_id))
        alone = context.parallelize(range(1), 1).mapPartitionsWithIndex(partial(rounds_alone, shipped))
        return cls(context, job, shipped, alone)

    def run(self, batch: Batch, frame: DataFrame | None) -> tuple[Report, Sent]:
        """A small batch is one task. Where a global table changes, its rounds are a job of their own."""
        if not batch.shares:
            return self._collected(self.alone, batch)

        def stage(is_global: bool, batch: Batch) -> tuple[Report, Sent]:
            return self._run_stage(is_global, batch, None if is_global else frame)

        return run_stages(self.job.plan, batch, stage, has_rows=frame is not None)

    def _run_stage(self, global_stage: bool, batch: Batch, frame: DataFrame | None) -> tuple[Report, Sent]:
        """The rounds of one plan."""
        plan = self.job.stage(global_stage)
        shares = share_count(plan, batch)
        first = partial(round_zero, self.shipped, global_stage)
        blocks = self.context.parallelize(range(shares), shares).mapPartitionsWithIndex(first)
        if frame is not None:
            rows = in_order(frame).mapInArrow(
                partial(round_of_frames, self.shipped), "pid int, blocks binary"
            )
            blocks = blocks.union(rows.rdd.map(unpacked_row))
        for number in range(1, plan.rounds):
            later = partial(round_after, self.shipped, global_stage, number)
            blocks = blocks.partitionBy(batch.partitions, int).mapPartitionsWithIndex(later)
        return self._collected(blocks, batch, ", global tables" if global_stage else "")

    def _collected(self, blocks: RDD[Outgoing], batch: Batch, what: str = "") -> tuple[Report, Sent]:
        application = self.job.application_id
        with kept_properties(self.context):
            self.context.setLocalProperty(BATCH_PROPERTY, msgspec.json.encode(batch).decode())
            self.context.setJobGroup(f"crossstream {application}", f"{application}: batch {batch.id}{what}")
            try:
                return collected(list(loaded(block for _, sent in blocks.collect() for block in sent)))
            finally:
                drop_batch(self.shipped.folder, batch.id)

    def close(self) -> None:
        """Frees the workers' memory; nothing is left to free once the session has been stopped or its JVM has ended."""
        if is_running(self.context):
            self.shipped.job.destroy()


_NAMES = {"key": "key serde", "value": "value serde", "topic_of": "topic extractor", "action": "function"}
"""Parts of a node whose field names differ from what the user passed."""


def pickled_job(job: Job) -> bytes:
    """The job for `pickle.loads` in any worker.

    Raises `TopologyError` CS-112 if something the user passed cannot be sent: it holds an open file, a lock, a
    connection, the Spark session.
    """
    try:
        return dumps(job)
    except Exception:  # whatever the objects' own methods raise
        for node in job.plan.topology:
            for part, error in _unsendable(node):
                raise _refusal(node, part, error) from error
        raise


def _unsendable(node: Node) -> Iterator[tuple[str, Exception]]:
    for one in fields(node):
        try:
            dumps(getattr(node, one.name))
        except Exception as error:  # as above
            yield one.name, error


def _refusal(node: Node, part: str, error: Exception) -> CrossStreamError:
    name = _NAMES.get(part, part.replace("_", " "))
    what = f"the {name} of {node.name} cannot be sent to Spark's workers ({type_and_text(error)})"
    step = (
        "let each worker make what it holds when it is first needed, in a function with functools.cache "
        "for instance"
    )
    return refuse("CS-112", what, step, **node.where)
