"""One batch after the other: planned, logged, run on Spark, published, committed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs
from pyspark.sql import SparkSession

from crossstream.api.topology import Topology
from crossstream.config import StreamsConfig
from crossstream.graph.nodes import FrameSink
from crossstream.lakehouse.tables import Tables
from crossstream.metrics.observation import Progress, Running
from crossstream.once import BatchMark
from crossstream.planning.plan import Plan
from crossstream.runtime.idle import Idling, Listener, inputs_of_stream_joins, milliseconds, rows_wait
from crossstream.runtime.rescaling import misplaced, placements, rescale
from crossstream.runtime.round import Sent
from crossstream.runtime.sizing import Sizing, fans_of
from crossstream.spark.claim import claim, find
from crossstream.spark.errors import heart, is_lost_worker, unpacked
from crossstream.spark.feed import FrameFeed
from crossstream.spark.frames import check_frames, complete, deliver, frame_names, united
from crossstream.spark.job import SparkRounds, pickled_job
from crossstream.spark.progress import Account
from crossstream.spark.publishing import Publishing, mark_topic, staging_of
from crossstream.spark.topics import Inputs, connection_of
from crossstream.spark.worker import Job
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import make_folder
from crossstream.storage.log_entries import BatchEntry, Commit
from crossstream.storage.root import Place, root_of
from crossstream.storage.vacuum import Vacuum
from crossstream.task.batch import Batch, Report, settings_of
from crossstream.task.stores import measure
from crossstream.topics import TopicPartition

_logger = logging.getLogger("crossstream.spark")
_FRAMES = "frames"
"""The folder of the checkpoint of Spark's query."""
_story = logging.getLogger("crossstream")
"""A line for each start, recovery, batch and stop of an application."""


class Halted(Exception):
    """Ends the query of the DataFrame sources between two of its micro-batches."""


_PAUSES = (0.0, 1.0, 5.0)
"""Seconds before a batch whose workers ended is run again, each time; after that the application fails."""
_LOOK_SECONDS = 0.05
"""How often a paused batch looks whether it may begin, or has to end."""


class Engine:
    """The loop's body: plan a batch, log it, run it, publish, commit, retire."""

    spark: SparkSession

    def __init__(
        self,
        topology: Topology,
        plan: Plan,
        config: StreamsConfig,
        state: Place,
        on_progress: Callable[[Progress], None],
        token: str,
    ) -> None:
        self.plan = plan
        self.config = config
        self.state = root_of(state)
        self.topology = topology
        self.progress = Progress()
        self.log = BatchLog(self.state, config.durable)
        self.connection = connection_of(config)
        self._staging = staging_of(self.connection, self.state)
        self.inputs = Inputs(plan, config, self.connection, self.log)
        mark = mark_topic(topology, config)
        tables = Tables(topology, config.application_id)
        self._publishing = Publishing(self.connection, self._staging, self.log, mark, tables)
        self._wanted = 1
        self._tasks = 1
        self._on_progress = on_progress
        self._token = token
        self._batch_lock = threading.RLock()
        self._feed = FrameFeed(self._take_frame)
        self._is_halted: Callable[[], bool] = lambda: False
        self._has_failed = False
        self.resumed = threading.Event()
        self.resumed.set()
        self._runner: int | None = None
        self._frames: tuple[str, ...] = ()
        self._until: dict[TopicPartition, int] | None = None
        self._last = Commit(-1, 1)
        self._repeat: BatchEntry | None = None
        self._rounds: SparkRounds | None = None
        self._listener = Listener(config.idle_after_ms, 0)
        self._idling = Idling(inputs_of_stream_joins(topology), config.max_task_idle_ms)
        self._sizing = Sizing(config.single_task_rows, fans_of(plan))
        self.hurried = 0
        self.running: Running | None = None
        self._delivering = 0.0
        self.ends: tuple[float, Mapping[TopicPartition, int]] = (0.0, {})
        self._account = Account.of(topology)

    def open(self, session: Callable[[], SparkSession]) -> None:
        """Locks and checks the state, finds the topics, ships the plan to the workers.

        What can be known without Spark is checked before it is asked for ``session``, which may take seconds to start.
        """
        job = Job(
            self.config.application_id,
            self.plan.shipped(),
            self.state.address,
            str(self._staging),
            settings_of(self.config),
            self.connection,
        )
        shipped = pickled_job(job)
        check_frames(self.topology, self.state)
        self.log.lock(self.config.application_id, self.config.state_rights)
        restarts = self.config.on_lost_state == "restart"
        self._publishing.finish_last(self.config.application_id, restarts=restarts)
        there = find(self.log, self.plan, self.config)
        self.inputs.check(there)
        self.spark = session()
        context = self.spark.sparkContext
        self._tasks = max(1, context.defaultParallelism)
        found = claim(self.log, self.plan, self.config, there, self._checkpoint, self._tasks)
        commit = self._last = found.commit
        self._wanted, self._frames = found.partitions, found.application.frames
        self._repeat = found.repeat
        self.retirement = Vacuum(self.state, self.log, self.config.retain_batches, self._staging)
        self.retirement.sweep(commit.id + 1)
        self._measure()
        self._rescale(bool(misplaced(self.log, placements(self.plan, self.partitions))))
        self.sources = self.inputs.find(commit, found.application)
        if self._repeat is not None:
            # For the sources of now; where its records are gone a new batch is planned.
            ranges = self.sources.renamed(self._repeat.ranges)
            self._repeat = None if ranges is None else structs.replace(self._repeat, ranges=ranges)
        self.sources.await_globals()
        self._publishing.begin(found.application.state_id, commit, restarts=restarts)
        self._rounds = SparkRounds(context, job, shipped, self._token)
        self._listener.since = milliseconds()
        name = self.config.application_id
        after = "without state" if commit.id < 0 else f"after batch {commit.id}"
        _story.info("%s: begins %s, state partitions: %d", name, after, self.partitions)
        if self._repeat is not None:
            _story.info("%s: batch %d was begun and not committed, and is repeated", name, self._repeat.id)

    @property
    def _checkpoint(self) -> Path:
        self.state.storage(_FRAMES)  # refuses a link
        return self.state.here / _FRAMES

    def _rescale(self, force: bool = False) -> None:
        """Between two batches: cuts the state into as many partitions as are asked for (decision 0011).

        A batch that was begun is first repeated with the partitions it had. ``force``: into the same number, too.
        """
        if self._repeat is not None or not (force or self.partitions != self._wanted):
            return
        done = rescale(self.log, self._wanted, placements(self.plan, self._wanted))
        self._last = done.commit
        self._measure()
        self.retirement.add(done.commit.id, done.retired)

    def _measure(self) -> None:
        self._account.state, self._account.due = measure(self.state, self._last.versions, self.plan.timers)

    def call_when_rows_are_through(self, call: Callable[[], None]) -> None:
        """Calls ``call`` when the rows that DataFrame sources have now are through; not if their query ends before."""
        if self.topology.frames:
            self._feed.call_when_through(call)
        else:
            call()

    @property
    def partitions(self) -> int:
        return self._last.partitions

    @property
    def runs_here(self) -> bool:
        """Whether a batch of this thread runs: a function or listener of the user calls."""
        return self._runner == threading.get_ident()

    def run_until(
        self, ends: dict[TopicPartition, int], is_halted: Callable[[], bool] = lambda: False
    ) -> bool:
        """Batches of what DataFrame sources have, and topics up to ``ends``; False: ``is_halted`` came first."""
        outer, self._is_halted = self._is_halted, is_halted
        self._until = ends
        self.ends = (time.monotonic(), ends)
        try:
            self.feed(once=True)
            while self._repeat is not None or self.sources.next_ranges(ends, None):
                if is_halted():
                    return False
                self._run(ends)
            return True
        except Halted:
            return False
        finally:
            self._is_halted, self._until = outer, None

    def run_next(self) -> bool:
        """One batch of the topics, if there is anything to read."""
        self._feed.check()
        with self._batch_lock:
            if self._has_failed:
                return False  # a batch of rows, meanwhile: `check` raises it
            self.inputs.refresh()
            ends = dict(self.sources.end_offsets())
            self.ends = (time.monotonic(), ends)
            if not self.resumed.is_set():
                return False  # a pause takes no record that was written after it
            idles = self._repeat is None and not self.hurried
            if idles and self._idling.holds(self.sources, ends, milliseconds()):
                return False
            return self._run(ends)

    @property
    def is_open(self) -> bool:
        """Whether its state is open, and its topics are found."""
        return self._rounds is not None

    @property
    def held(self) -> dict[str, tuple[int, int]]:
        """(rows, bytes) that the state holds, by ``store/partition``."""
        return dict(self._account.state)

    def note_pause(self) -> None:
        """Takes the time until now for a pause: it was no silence of the sources."""
        self._listener.since = milliseconds()

    def feed(self, *, once: bool) -> None:
        """Starts reading the DataFrame sources; ``once``: reads what there is now, and returns."""
        frame = united(self.topology, self._frames, self._token)
        if frame is not None:
            pause = None if once else self.config.trigger_ms or 0
            make_folder(self._checkpoint, self.config.state_rights)
            self._feed.start(frame, str(self._checkpoint), pause)

    def _take_frame(self, frame: Any, epoch: int) -> None:
        """A micro-batch of the DataFrame sources; of those that were committed before a restart nothing is taken."""
        while not self.resumed.wait(_LOOK_SECONDS) and not (self._has_failed or self._is_halted()):
            pass  # paused
        with self._batch_lock:
            if self._has_failed or self._is_halted():
                raise Halted("the application is stopped; the rows come again at its next start")
            if epoch <= self._last.epoch:
                complete(frame, self._checkpoint)
                return
            self.inputs.refresh()
            while epoch > self._last.epoch:  # again where records were deleted under the batch
                # First what comes before rows: a batch of topics to repeat, and all of the global tables.
                while self.sources.bootstrapping if self._repeat is None else self._repeat.epoch < 0:
                    self._run({})
                ends = dict(self.sources.end_offsets()) if self._until is None else self._until
                self._run(ends, frame, epoch)

    def _run(self, ends: Any, frame: Any = None, epoch: int = -1) -> bool:
        """One batch, if there is anything to do.

        One that fails is the last: it comes again at the next start. The thread that waits for its turn meanwhile would
        plan another with its number.
        """
        outer, self._runner = self._runner, threading.get_ident()
        try:
            return self._run_batch(ends, frame, epoch)
        except BaseException:
            self._has_failed = True
            raise
        finally:
            self._runner, self.running = outer, None

    def _run_batch(self, ends: Any, frame: Any, epoch: int) -> bool:
        started = time.perf_counter()
        entry = self._repeat
        if entry is None:
            entry = self._planned(ends, frame, epoch)
            if entry is None:
                return False
        elif entry.epoch >= 0 and frame is None:
            return False  # waits for Spark to deliver the same rows again
        else:
            self.log.repeat_batch(entry)
        planned = time.perf_counter()
        records = sum(span.end - span.start for span in entry.ranges)
        self.running = Running(entry.id, time.time() - planned + started, records)
        try:
            report, sent = self._on_spark(entry, frame)
        except Exception as error:
            if self.inputs.allows(unpacked(error, self._token), entry.ranges, ends):
                self._repeat = None
                return True
            raise
        ran = time.perf_counter()
        commit = self._publishing.publish(entry, report, self._following(entry, report), sent)
        published = time.perf_counter()
        self._commit(commit, report)
        if report.manifests:
            self._listener.stored()
        committed = time.perf_counter()
        self._repeat = None
        self._rescale()
        phases = {
            "plan": planned - started,
            "run": ran - planned - self._delivering,
            **({"for_each_batch": self._delivering} if self._delivers else {}),
            "publish": published - ran,
            "commit": committed - published,
            **report.seconds,
        }
        self._note(entry, report, phases, committed - started, ends)
        return True

    def _planned(self, ends: Any, frame: Any, epoch: int) -> BatchEntry | None:
        """The next batch, which is written to the log; None if there is nothing to do."""
        # All records beside rows of a DataFrame: the times of both give their order.
        most = self.config.max_records_per_batch if frame is None else None
        ranges = self.sources.next_ranges(ends, most)
        taken = sum(span.end - span.start for span in ranges)
        has_more = self.sources.lag(ends) > taken
        if self._listener.after is not None:  # whether there are more rows is seen when Spark looks again
            has_more = has_more or frame is not None or self._feed.is_behind()
        silence = self._listener.silence(milliseconds(), taken, has_more=has_more)
        is_tick = rows_wait(self.plan, self._account.state) and self._listener.is_tick(silence)
        if not (ranges or frame is not None or is_tick or self._account.timer_is_due(milliseconds())):
            return None
        is_small = frame is None and self._sizing.is_small(ranges, self._account.rows())
        shares = 0 if is_small else self._tasks
        # Where the file topics that are written end: publishing the batch again looks from there on.
        sinks = {} if self._publishing.publisher is None else self.inputs.written_ends()
        expected = self.sources.expected(ends, ranges, every=self._listener.after is not None)
        entry = BatchEntry(
            self._last.id + 1, ranges, time.time(), sinks, epoch, silence, shares, expected=expected
        )
        self.log.write_batch(entry)
        return entry

    def _on_spark(self, entry: BatchEntry, frame: Any) -> tuple[Report, Sent]:
        """Runs a batch; what it reports, and what it sent to the driver."""
        versions = {store: names for store, names in self._last.versions.items() if store in self.plan.stores}
        batch = Batch(
            entry.id,
            entry.ranges,
            self.partitions,
            versions,
            silence=entry.silence,
            shares=entry.shares,
            clock=int(entry.time * 1000),
            frames=frame_names(self.topology),
            wants_keys=self._account.unmatched_joins.wants_keys,
            expected=entry.expected,
        )
        report, sent = self._with_other_workers(batch, frame)
        self._sizing.learn(sum(report.seconds.values()))
        started = time.perf_counter()
        mark = BatchMark(self.config.application_id, "", self._publishing.state, entry.id)
        deliver(self.spark, self.topology, sent, mark)
        self._delivering = time.perf_counter() - started
        return report, sent

    @property
    def _delivers(self) -> bool:
        """Whether a function of the user gets each batch as a DataFrame."""
        return any(isinstance(node, FrameSink) and node.function is not None for node in self.topology)

    def _with_other_workers(self, batch: Batch, frame: Any) -> tuple[Report, Sent]:
        """Runs the rounds of a batch, again if a process that ran them was killed: nothing of it counts yet.

        Spark repeats no task with a ``local[…]`` master. A batch may be what ends its workers, so not without bound.
        """
        assert self._rounds is not None
        for pause in _PAUSES:
            try:
                return self._rounds.run(batch, frame)
            except Exception as error:
                if not is_lost_worker(error, self._token):
                    raise
                _logger.warning(
                    "a worker ended while it ran batch %d, which is run again: %s", batch.id, heart(error)
                )
            time.sleep(pause)
        return self._rounds.run(batch, frame)

    def _following(self, entry: BatchEntry, report: Report) -> Commit:
        """The commit of a batch that has run."""
        versions = {store: dict(names) for store, names in self._last.versions.items()}
        for store, names in report.manifests.items():
            versions.setdefault(store, {}).update(names)
        positions = self.sources.after(entry.ranges)
        epoch = max(self._last.epoch, entry.epoch)
        ids = dict(self.sources.topic_ids)
        return Commit(entry.id, self.partitions, positions, versions, time.time(), epoch, ids)

    def _commit(self, commit: Commit, report: Report) -> None:
        self.log.write_commit(commit)
        self._last = commit
        self.sources.positions = commit.positions
        self.inputs.note_consumed()
        self.retirement.add(commit.id, report.retired)
        self._publishing.forget(report.staged)

    def _note(
        self, entry: BatchEntry, report: Report, phases: dict[str, float], seconds: float, ends: Any
    ) -> None:
        if self.sources.skipped:
            report.dropped["lost by retention"] = self.sources.skipped
            self.sources.skipped = 0
        self._account.add(report)
        lag = self.sources.lag(ends)
        self.progress = self._account.progress(entry.id, report, phases, seconds, lag)
        _story.debug(
            "%s: batch %d committed: %d records in %.3f s, %d waiting",
            self.config.application_id,
            entry.id,
            self.progress.rows,
            seconds,
            lag,
        )
        self._on_progress(self.progress)

    def finish(self) -> None:
        """Waits for the batch that runs, perhaps of DataFrame rows; no other begins."""
        with self._batch_lock:
            self._is_halted = lambda: True

    def release(self) -> None:
        """Lets another process take the state."""
        self.log.unlock()

    def close(self) -> None:
        try:
            self._feed.stop()
            self.finish()  # what the end of the query has interrupted
            if self._rounds is not None:
                self._rounds.close()
                self._rounds = None
            self.inputs.close()
            self._publishing.close()
        finally:
            self.log.unlock()
