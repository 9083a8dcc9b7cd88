"""Rounds in this process: one task after the other, without Spark, a JVM, or a copy of the functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from crossstream.application.rounds import NoRows, RowFeed
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, plain_place, type_and_text
from crossstream.graph.nodes import FrameSink, FrameSource, Graph
from crossstream.machine import cores
from crossstream.once import BatchMark
from crossstream.runtime.one_by_one import first_round, in_inboxes, next_round, taken
from crossstream.runtime.round import Outgoing, Sent
from crossstream.runtime.turns import run_stages
from crossstream.runtime.worker import InMemory, Job, WorkerState, all_rounds
from crossstream.storage.log_entries import StagedRows
from crossstream.storage.resident import BESIDE_OTHERS, give_back
from crossstream.storage.root import StateRoot, root_of
from crossstream.task.batch import Batch, Report
from crossstream.task.shuffle_codec import Block


class LocalRounds:
    """Runs the tasks of a batch one after the other. ``parallelism``: into how many a large batch is cut.

    New state gets as many partitions, if no setting says otherwise. By default it is the number of cores, as on Spark.
    """

    def __init__(self, parallelism: int | None = None) -> None:
        self._parallelism = parallelism or cores()
        self._job: Job | None = None
        self._state: WorkerState | None = None

    def prepare(self, job: Job, state: StateRoot) -> None:
        self._job = job

    def start(self) -> int:
        return self._parallelism

    def open(self) -> None:
        assert self._job is not None
        folder = str(root_of(self._job.state_dir).here)
        self._state = WorkerState.of(self._job, partial(give_back, (folder,), BESIDE_OTHERS))

    def run(self, batch: Batch, rows: None = None) -> tuple[Report, Sent]:
        """A small batch runs all rounds at once."""
        if not batch.shares:
            return taken(all_rounds(self.state, batch, InMemory()))
        return run_stages(self.state.job.plan, batch, self.run_stage)

    @property
    def state(self) -> WorkerState:
        """What the tasks share."""
        assert self._state is not None
        return self._state

    def run_stage(self, global_stage: bool, batch: Batch) -> tuple[Report, Sent]:
        """The rounds of one plan, one after the other."""
        plan = self.state.job.stage(global_stage)
        sent = self.first_round(global_stage, batch)
        for number in range(1, plan.rounds):
            sent = self.next_round(global_stage, batch, number, in_inboxes(sent))
        return taken(sent)

    def first_round(self, global_stage: bool, batch: Batch) -> list[Outgoing]:
        """What the tasks that read send."""
        return first_round(self.state, global_stage, batch)

    def next_round(
        self, global_stage: bool, batch: Batch, number: int, inboxes: dict[int, list[Block]]
    ) -> list[Outgoing]:
        """What the tasks of a later round send; ``inboxes``: blocks by state partition."""
        return next_round(self.state, global_stage, batch, number, inboxes)

    def deliver(self, sent: Sent, files: Sequence[StagedRows], mark: BatchMark) -> None: ...

    def feed(self, state: StateRoot) -> RowFeed:
        return NoRows(state)

    def lost_worker(self, error: Exception) -> str | None:
        return None

    def ours(self, error: Exception) -> CrossStreamError:
        if isinstance(error, CrossStreamError):
            error.where = plain_place(error.where)
            return error
        what = f"a batch could not be run: {type_and_text(error)}"
        return refuse("CS-590", what, "see the cause below")

    def close(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            state.close()

    def release(self) -> None: ...

    @property
    def ui_address(self) -> str | None:
        return None


def check_local(topology: Graph) -> None:
    """Raises `ConfigError` CS-201 for a topology with DataFrames, which only Spark has."""
    for node in topology:
        if isinstance(node, FrameSource) or (isinstance(node, FrameSink) and node.function is not None):
            what = (
                "reads a DataFrame" if isinstance(node, FrameSource) else "calls a function with DataFrames"
            )
            raise refuse(
                "CS-201",
                f'{node.name} {what}, and engine="local" has none',
                'read and write topics or tables instead, or leave engine out: "spark"',
                **node.where,
                setting="engine",
            )
