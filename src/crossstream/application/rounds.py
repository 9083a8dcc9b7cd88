"""What the loop asks of an engine: to run the rounds of a batch, and to deliver rows that the engine itself reads.

`spark.rounds.SparkRounds` runs them on Spark, `local.LocalRounds` in this process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.once import BatchMark
from crossstream.runtime.round import Sent
from crossstream.runtime.worker import Job
from crossstream.storage.log_entries import BatchEntry, Commit, StagedRows
from crossstream.storage.root import StateRoot
from crossstream.task.batch import Batch, Report

FRAMES = "frames"
"""The folder of the checkpoint that Spark keeps of DataFrame sources."""
_logger = logging.getLogger("crossstream.spark")
_PAUSES = (0.0, 1.0, 5.0)
"""Seconds before a batch whose workers ended is run again, each time; after that the application fails."""


class Rounds(Protocol):
    """An engine of one application, in the order of its calls.

    `prepare`, `start` and `open` come once for each time that the state is opened, `close` ends that; `release` comes
    last, when the application ends.
    """

    def prepare(self, job: Job, state: StateRoot) -> None:
        """Checks what can be known of the job before the state is locked, and before the engine runs."""

    def start(self) -> int:
        """Starts the engine, if it does not run yet; how many tasks it runs at a time."""

    def open(self) -> None:
        """Gives the job to the workers."""

    def run(self, batch: Batch, rows: Any = None) -> tuple[Report, Sent]:
        """All rounds of a batch: what the tasks did, and records for the driver. Raises what a task raised.

        ``rows``: of the engine's own sources, as its feed has delivered them.
        """

    def deliver(self, sent: Sent, files: Sequence[StagedRows], mark: BatchMark) -> None:
        """Calls the functions of `FrameSink` nodes with the records of the batch of this mark.

        ``sent``: what it has sent to the driver; ``files``: what its tasks have staged, as `Report.frame_files`.
        """

    def feed(self, state: StateRoot) -> RowFeed:
        """The rows of the engine's own sources, for one loop."""

    def lost_worker(self, error: Exception) -> str | None:
        """What the engine said, if a batch failed because a process that ran it has ended; None for other errors."""

    def ours(self, error: Exception) -> CrossStreamError:
        """The error of ours behind one that the engine raised; CS-590 if there is none."""

    def close(self) -> None:
        """Frees what `open` has taken; nothing happens if it is not open."""

    def release(self) -> None:
        """Leaves the engine, which another `start` may start again."""

    @property
    def ui_address(self) -> str | None:
        """The address of the engine's own pages, while it has any."""


class Turns(Protocol):
    """The loop as a `RowFeed` sees it: rows come in another thread, and take turns with batches of topics."""

    @property
    def last_epoch(self) -> int:
        """The newest micro-batch of rows that is committed."""

    def await_resume(self) -> None:
        """Returns when the application is not paused, or ends."""

    def turn(self) -> AbstractContextManager[bool]:
        """Between two batches; False: the application is stopped or has failed, and no batch begins."""

    def run_rows(self, rows: Any, epoch: int) -> None:
        """Runs batches until these rows are committed; in a `turn`."""


class RowFeed(Protocol):
    """Rows that the engine itself reads, beside the topics: those of streaming DataFrames.

    They come in micro-batches with a number, the epoch, and each is a batch of its own.
    """

    def order(self, commit: Commit, begun: BatchEntry | None, noted: Sequence[str]) -> tuple[str, ...]:
        """The sources in the order in which the engine knows them; ``noted``: that of the last run.

        ``commit``: the last one; ``begun``: the batch that was begun after it.
        """

    def start(self, turns: Turns, order: Sequence[str], *, once: bool) -> bool:
        """Begins to deliver; ``once``: delivers what there is now. False: the application was stopped meanwhile."""

    def check(self) -> None:
        """Raises what has ended the feed."""

    def is_behind(self) -> bool:
        """Whether there may be rows to read."""

    def call_when_through(self, call: Callable[[], None]) -> None:
        """Calls ``call`` when the rows that are there now are through; not if the feed ends before."""

    def stop(self) -> None:
        """Ends the feed; a micro-batch that runs is interrupted."""


@dataclass(frozen=True, slots=True)
class NoRows:
    """The feed of an engine that reads topics only. ``state``: of the application."""

    state: StateRoot

    def order(self, commit: Commit, begun: BatchEntry | None, noted: Sequence[str]) -> tuple[str, ...]:
        check_none_begun(self.state.here / FRAMES, begun, noted)
        return tuple(noted)

    def start(self, turns: Turns, order: Sequence[str], *, once: bool) -> bool:
        return True

    def check(self) -> None: ...

    def is_behind(self) -> bool:
        return False

    def call_when_through(self, call: Callable[[], None]) -> None:
        call()

    def stop(self) -> None: ...


def check_none_begun(folder: Path, begun: BatchEntry | None, noted: Sequence[str]) -> None:
    """A topology without DataFrame sources cannot repeat a batch that has rows of some: `IncompatibleStateError`."""
    if begun is not None and begun.epoch >= 0:
        what = (
            f"batch {begun.id} was begun with rows of DataFrame sources that the topology no longer has: "
            + ", ".join(noted)
        )
        step = "start the application once with the sources it had, to finish the batch; then leave them out"
        raise refuse("CS-750", what, step, folder=str(folder))


def run_again(rounds: Rounds, batch: Batch, rows: Any) -> tuple[Report, Sent]:
    """Runs the rounds of a batch, again if a process that ran them was killed: nothing of it counts yet.

    Spark repeats no task with a ``local[…]`` master. A batch may be what ends its workers, so not without bound.
    """
    for pause in _PAUSES:
        try:
            return rounds.run(batch, rows)
        except Exception as error:
            said = rounds.lost_worker(error)
            if said is None:
                raise
            _logger.warning("a worker ended while it ran batch %d, which is run again: %s", batch.id, said)
        time.sleep(pause)
    return rounds.run(batch, rows)
