"""A batch on Spark: parcels through RDDs, one shuffle for each round.

The functions shipped to the workers are the same for every batch; what differs, the batch itself, travels
in a local property of the job (decision 0002).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import SparkContext
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame

from crossstream.engine.batch import Batch, Report, unpack_report
from crossstream.engine.parcels import FRAME, REPORT, Parcel
from crossstream.serdes.shipping import dumps
from crossstream.spark.errors import carried
from crossstream.spark.exchange import brought, drop_batch, put_aside, shared_folder
from crossstream.spark.frames import unpacked_row
from crossstream.spark.worker import BATCH_PROPERTY, Job


@dataclass(frozen=True, slots=True)
class RoundZero:
    """Round 0, shipped to the workers."""

    run_id: str
    job: Broadcast[bytes]
    shares: int
    folder: str | None

    def __call__(self, index: int, _: Iterable[Any]) -> Iterator[Any]:
        from crossstream.spark import worker

        def items() -> Iterator[Any]:
            held = worker.held_for(self.run_id, lambda: self.job.value)
            batch = worker.current_batch()
            sent = worker.read_round(held, batch, index, share_count(self.shares, batch))
            return put_aside(sent, self.folder, batch.id)

        return carried(items)


@dataclass(frozen=True, slots=True)
class LaterRound:
    """A later round, shipped to the workers."""

    run_id: str
    job: Broadcast[bytes]
    number: int
    folder: str | None

    def __call__(self, index: int, parcels: Iterable[Any]) -> Iterator[Any]:
        from crossstream.spark import worker

        def items() -> Iterator[Any]:
            held = worker.held_for(self.run_id, lambda: self.job.value)
            batch = worker.current_batch()
            taken = brought(parcel for sent in parcels for parcel in sent[1])
            return put_aside(
                worker.later_round(held, batch, self.number, index, taken), self.folder, batch.id
            )

        return carried(items)


@dataclass(frozen=True, slots=True)
class FrameRound:
    """Round 0 of DataFrame sources, shipped to the workers."""

    run_id: str
    job: Broadcast[bytes]

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from crossstream.spark import worker
        from crossstream.spark.frames import packed_parcels

        def items() -> Iterator[Any]:
            held = worker.held_for(self.run_id, lambda: self.job.value)
            return packed_parcels(worker.frame_round(held, worker.current_batch(), rows))

        return carried(items)


def share_count(most: int, batch: Batch) -> int:
    """How many tasks read a batch: no more than it has ranges."""
    return min(most, max(1, len(batch.ranges)))


def same(pid: int) -> int:
    """Parcels are addressed already."""
    return pid


@dataclass(slots=True)
class SparkRounds:
    """Runs batches of one application run."""

    context: SparkContext
    job: Job
    application_id: str
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _broadcast: Any = None
    _functions: list[Callable[..., Any]] = field(default_factory=list)
    _shares: int = 1
    _folder: str | None = None

    def __post_init__(self) -> None:
        self._broadcast = self.context.broadcast(dumps(self.job))
        shares = max(1, self.context.defaultParallelism)
        folder = self._folder = shared_folder(self.context, self.run_id)
        self._functions = [RoundZero(self.run_id, self._broadcast, shares, folder)]
        self._functions += [
            LaterRound(self.run_id, self._broadcast, number, folder)
            for number in range(1, self.job.plan.rounds)
        ]
        self._shares = shares

    def run(self, batch: Batch, frame: DataFrame | None = None) -> tuple[Report, dict[str, list[bytes]]]:
        """All rounds of a batch: what the tasks did, and records for the driver. Raises what a task raised.

        ``frame``: rows of the DataFrame sources that belong to the batch.
        """
        context = self.context
        context.setLocalProperty(BATCH_PROPERTY, msgspec.json.encode(batch).decode())
        context.setJobGroup(f"crossstream {self.application_id}", f"{self.application_id}: batch {batch.id}")
        shares, folder = share_count(self._shares, batch), self._folder
        parcels = context.parallelize(range(shares), shares).mapPartitionsWithIndex(self._functions[0])
        if frame is not None:
            rows = frame.mapInArrow(FrameRound(self.run_id, self._broadcast), "pid int, parcels binary")
            parcels = parcels.union(rows.rdd.map(unpacked_row))
        for function in self._functions[1:]:
            parcels = parcels.partitionBy(batch.partitions, same).mapPartitionsWithIndex(function)
        try:
            return collected(list(brought(parcel for _, sent in parcels.collect() for parcel in sent)))
        finally:
            drop_batch(folder, batch.id)

    def close(self) -> None:
        """Frees the workers' memory; nothing is left to free once the session has been stopped."""
        if self.context._jsc is not None:
            self._broadcast.destroy()


def collected(parcels: list[Parcel]) -> tuple[Report, dict[str, list[bytes]]]:
    """Reports added up, and records for the driver by node, in order of the tasks."""
    report = Report()
    frames: dict[str, list[bytes]] = {}
    for _, exchange, _, _, blob in sorted(parcels, key=lambda parcel: parcel[:4]):
        if exchange == REPORT:
            report.add(unpack_report(blob))
        elif exchange == FRAME:
            length = 4 + int.from_bytes(blob[:4], "big")
            frames.setdefault(bytes(blob[4:length]).decode(), []).append(bytes(blob[length:]))
    return report, frames
