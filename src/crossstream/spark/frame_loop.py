"""Batches of rows: a query of Spark delivers the micro-batches of DataFrame sources, and each takes its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crossstream.api.topology import Topology
from crossstream.application.rounds import FRAMES, Turns
from crossstream.config import StreamsConfig
from crossstream.graph.nodes import FrameSource
from crossstream.spark.feed import Checkpoint, FrameFeed
from crossstream.spark.frames import complete, read_by, united
from crossstream.storage.files import make_folder
from crossstream.storage.log_entries import BatchEntry, Commit
from crossstream.storage.root import StateRoot


class Halted(Exception):
    """Ends the query of the DataFrame sources between two of its micro-batches."""


class FrameLoop:
    """The rows of the DataFrame sources of a topology; a `crossstream.application.rounds.RowFeed`.

    Spark calls `_take` in a thread of its own. ``token``: as in `errors.with_packed_errors`.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, state: StateRoot, token: str) -> None:
        self._topology = topology
        self._config = config
        self._token = token
        self._state = state
        self._feed = FrameFeed(self._take)
        self._turns: Turns | None = None

    def order(self, commit: Commit, begun: BatchEntry | None, noted: Sequence[str]) -> tuple[str, ...]:
        """Raises `StateError` and `IncompatibleStateError` where Spark's checkpoint is another's, or lacks files."""
        frames = self._topology.frames
        reads = {node.name: read_by(frames[node.name]) for node in self._topology.each(FrameSource)}
        return Checkpoint(self._checkpoint, commit, begun).order(reads, noted)

    def start(self, turns: Turns, order: Sequence[str], *, once: bool) -> bool:
        self._turns = turns
        frame = united(self._topology, order, self._token)
        if frame is None:
            return True
        pause = None if once else self._config.trigger_ms or 0
        make_folder(self._checkpoint, self._config.state_rights)
        try:
            self._feed.start(frame, str(self._checkpoint), pause)
        except Halted:
            return False
        return True

    def _take(self, frame: Any, epoch: int) -> None:
        """A micro-batch of the DataFrame sources; of those that were committed before a restart nothing is taken."""
        assert self._turns is not None
        self._turns.await_resume()
        with self._turns.turn() as may_run:
            if not may_run:
                raise Halted("the application is stopped; the rows come again at its next start")
            if epoch <= self._turns.last_epoch:
                complete(frame, self._checkpoint)
            else:
                self._turns.run_rows(frame, epoch)

    def check(self) -> None:
        self._feed.check()

    def is_behind(self) -> bool:
        return self._feed.is_behind()

    def call_when_through(self, call: Callable[[], None]) -> None:
        if self._topology.frames:
            self._feed.call_when_through(call)
        else:
            call()

    def stop(self) -> None:
        self._feed.stop()

    @property
    def _checkpoint(self) -> Path:
        self._state.storage(FRAMES)  # refuses a link
        return self._state.here / FRAMES
