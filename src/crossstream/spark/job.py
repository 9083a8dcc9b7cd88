"""A batch on Spark: what every worker gets, and blobs through RDDs, one shuffle for each round (decision 0002)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark import RDD, SparkContext
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame

from crossstream.errors import TopologyError, type_and_text
from crossstream.graph.nodes import Node
from crossstream.planning.plan import Plan
from crossstream.runtime.round import Outgoing, Sent, collected, follows
from crossstream.serdes.shipping import dumps
from crossstream.spark.errors import with_packed_errors
from crossstream.spark.frames import packed_blocks, unpacked_row
from crossstream.spark.session import check_running, is_running, is_stopped
from crossstream.spark.shuffle_spill import drop_batch, loaded, shared_folder, spilled
from crossstream.spark.worker import (
    BATCH_PROPERTY,
    Held,
    Job,
    all_rounds,
    current_batch,
    frame_round,
    held_for,
    later_round,
    read_round,
)
from crossstream.task.batch import Batch, Report


@dataclass(frozen=True, slots=True)
class Run:
    """What every task of an application run gets. ``folder``: where large blobs lie, if all tasks share a machine."""

    run_id: str
    token: str
    job: Broadcast[bytes]
    folder: str | None

    def task(self, work: Callable[[Held, Batch], Iterable[Any]]) -> Iterator[Any]:
        """Does ``work`` for the running batch in a worker; errors of ours cross as `with_packed_errors` packs them."""
        return with_packed_errors(
            lambda: work(held_for(self.run_id, lambda: self.job.value), current_batch()), self.token
        )


# -- what Spark ships to the workers: a round of a plan, or all rounds of a small batch


def round_zero(run: Run, before: bool, index: int, _: Iterable[Any]) -> Iterator[Any]:
    def work(held: Held, batch: Batch) -> Iterator[Any]:
        plan = held.job.stage(before)
        return spilled(read_round(held, plan, batch, index, share_count(plan, batch)), run.folder, batch.id)

    return run.task(work)


def round_after(run: Run, before: bool, number: int, index: int, blocks: Iterable[Any]) -> Iterator[Any]:
    def work(held: Held, batch: Batch) -> Iterator[Any]:
        taken = loaded(block for sent in blocks for block in sent[1])
        sent = later_round(held, held.job.stage(before), batch, number, index, taken)
        return spilled(sent, run.folder, batch.id)

    return run.task(work)


def round_of_frames(run: Run, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return run.task(lambda held, batch: packed_blocks(frame_round(held, batch, rows)))


def rounds_alone(run: Run, index: int, _: Iterable[Any]) -> Iterator[Any]:
    return run.task(lambda held, batch: all_rounds(held, batch, run.folder))


def share_count(plan: Plan, batch: Batch) -> int:
    """How many tasks read a batch: no more than it has ranges for the plan."""
    return min(batch.shares, max(1, len(batch.read_by(plan.sources))))


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


@dataclass(slots=True)
class SparkRounds:
    """Runs batches of one application run. ``pickled``: the job; ``token``: as in `errors.with_packed_errors`."""

    context: SparkContext
    job: Job
    pickled: bytes
    token: str
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _shipped: Run = field(init=False)
    _alone: Any = None

    def __post_init__(self) -> None:
        folder = shared_folder(self.context, self.run_id)
        self._shipped = Run(self.run_id, self.token, self.context.broadcast(self.pickled), folder)
        alone = partial(rounds_alone, self._shipped)
        self._alone = self.context.parallelize(range(1), 1).mapPartitionsWithIndex(alone)

    def run(self, batch: Batch, frame: DataFrame | None = None) -> tuple[Report, Sent]:
        """All rounds of a batch: what the tasks did, and records for the driver. Raises what a task raised.

        ``frame``: rows of the DataFrame sources that belong to the batch. Where a global table changes, its rounds
        are a job of their own; the others follow if there is anything for them to do.
        """
        try:
            return self._run_batch(batch, frame)
        except Exception:
            check_running(self.context)
            raise

    def _run_batch(self, batch: Batch, frame: DataFrame | None) -> tuple[Report, Sent]:
        if not batch.shares:
            return self._run_alone(batch)
        before = self.job.plan.global_stage
        if before is None or not batch.read_by(before.sources):
            return self._run(False, batch, frame)
        has_more = frame is not None or follows(self.job.plan, batch)
        changed, _ = self._run(True, replace(batch, recorded=has_more))
        if not has_more:
            return changed, {}
        report, frames = self._run(False, replace(batch, histories=changed.histories), frame)
        report.add(changed)
        return report, frames

    def _run(self, before: bool, batch: Batch, frame: DataFrame | None = None) -> tuple[Report, Sent]:
        """The rounds of one plan; ``before``: that of the global tables."""
        plan = self.job.stage(before)
        shares = share_count(plan, batch)
        first = partial(round_zero, self._shipped, before)
        blocks = self.context.parallelize(range(shares), shares).mapPartitionsWithIndex(first)
        if frame is not None:
            rows = frame.mapInArrow(partial(round_of_frames, self._shipped), "pid int, blocks binary")
            blocks = blocks.union(rows.rdd.map(unpacked_row))
        for number in range(1, plan.rounds):
            later = partial(round_after, self._shipped, before, number)
            blocks = blocks.partitionBy(batch.partitions, int).mapPartitionsWithIndex(later)
        return self._collected(blocks, batch, ", global tables" if before else "")

    def _run_alone(self, batch: Batch) -> tuple[Report, Sent]:
        """All rounds in one task."""
        return self._collected(self._alone, batch)

    def _collected(self, blocks: RDD[Outgoing], batch: Batch, what: str = "") -> tuple[Report, Sent]:
        application = self.job.application_id
        with kept_properties(self.context):
            self.context.setLocalProperty(BATCH_PROPERTY, msgspec.json.encode(batch).decode())
            self.context.setJobGroup(f"crossstream {application}", f"{application}: batch {batch.id}{what}")
            try:
                return collected(list(loaded(block for _, sent in blocks.collect() for block in sent)))
            finally:
                drop_batch(self._shipped.folder, batch.id)

    def close(self) -> None:
        """Frees the workers' memory; nothing is left to free once the session has been stopped or its JVM has ended."""
        if is_running(self.context):
            self._shipped.job.destroy()


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


def _refusal(node: Node, part: str, error: Exception) -> TopologyError:
    name = _NAMES.get(part, part.replace("_", " "))
    return TopologyError(
        f"the {name} of {node.name} cannot be sent to Spark's workers ({type_and_text(error)})",
        code="CS-112",
        where=node.where,
        next="let each worker make what it holds when it is first needed, in a function with functools.cache "
        "for instance",
    )
