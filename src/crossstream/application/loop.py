"""One batch after the other: planned and logged, run, published, committed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crossstream.api.topology import Topology
from crossstream.application.changing import finish_last
from crossstream.application.following import commit_after
from crossstream.application.inputs import TopicInputs, connection_of
from crossstream.application.lifecycle import Lifecycle
from crossstream.application.open_state import claim, find, readable
from crossstream.application.phases import Phases
from crossstream.application.publishing import Publishing, staging_of
from crossstream.application.refreshing import Refreshing
from crossstream.application.rounds import Rounds, run_again
from crossstream.application.totals import Totals
from crossstream.config import StreamsConfig
from crossstream.graph.nodes import FrameSink
from crossstream.metrics.observation import Progress, Running
from crossstream.once import BatchMark
from crossstream.planning.plan import Plan
from crossstream.runtime.delivery import DeliveringConnection
from crossstream.runtime.idle import Idling, Listener, inputs_of_stream_joins, milliseconds, rows_wait
from crossstream.runtime.rescaling import misplaced, placements, rescale
from crossstream.runtime.round import Sent
from crossstream.runtime.sizing import Sizing, fans_of
from crossstream.runtime.turns import batch_of
from crossstream.runtime.worker import Job
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import BatchEntry, Commit, Stand, shown
from crossstream.storage.root import Place, root_of
from crossstream.storage.vacuum import Vacuum
from crossstream.task.batch import Report, settings_of
from crossstream.task.stores import measure
from crossstream.topics import TopicPartition

_story = logging.getLogger("crossstream")
"""A line for each start, recovery, batch and stop of an application."""
_LOOK_SECONDS = 0.05
"""How often a paused batch looks whether it may begin, or has to end."""


class Loop:
    """Batches of one application: each is planned and logged, run, published, and committed.

    ``rounds``: the engine that runs them. ``life``: of the application, whose pauses count. ``totals``: of all its
    loops since its start. ``connection``: where it reads, if not as the settings say; then in no consumer group.
    """

    def __init__(
        self,
        topology: Topology,
        plan: Plan,
        config: StreamsConfig,
        state: Place,
        rounds: Rounds,
        on_progress: Callable[[Progress], None],
        life: Lifecycle | None = None,
        totals: Totals | None = None,
        connection: DeliveringConnection | None = None,
    ) -> None:
        self.plan = plan
        self.config = config
        self.state = root_of(state)
        self.topology = topology
        self.progress = Progress()
        self.log = BatchLog(self.state, config.durable)
        self.connection = connection or connection_of(config, topology, self.state)
        self._staging = staging_of(self.connection, self.state)
        self.retirement = Vacuum(self.state, self.log, config.retain_batches, self._staging)
        self.inputs = TopicInputs(plan, config, self.connection, self.log, is_beside=connection is not None)
        self._publishing = Publishing.of(topology, config, self.connection, self.log, self._staging)
        self._wanted = 1
        self._tasks = 1
        self._on_progress = on_progress
        self._life = life or Lifecycle()
        self._batch_lock = threading.RLock()
        self._rounds = rounds
        self._feed = rounds.feed(self.state)
        self._is_halted: Callable[[], bool] = lambda: False
        self._has_failed = False
        self._runner: int | None = None
        self._frames: tuple[str, ...] = ()
        self._until: dict[TopicPartition, int] | None = None
        self._last = Commit(-1, 1)
        self._repeat: BatchEntry | None = None
        self._listener = Listener(config.idle_after_ms, 0)
        self._idling = Idling(inputs_of_stream_joins(topology), config.max_task_idle_ms)
        self._sizing = Sizing(config.single_task_rows, fans_of(plan))
        self.running: Running | None = None
        self.ends: tuple[float, Mapping[TopicPartition, int]] = (0.0, {})
        self._totals = totals or Totals.of(topology, config)
        self.refreshing = Refreshing.of(topology, self.state, self._totals, durable=config.durable)
        self.is_open = False
        """Whether its state is open, and its topics are found."""

    def open(self) -> None:
        """Locks and checks the state, finds the topics, gives the job to the engine.

        What can be known without the engine is checked before it is started, which may take seconds.
        """
        self._rounds.prepare(self._job(), self.state)
        self.log.lock(self.config.application_id, self.config.state_rights)
        restarts = self.config.on_lost_state == "restart"
        finish_last(self._publishing, self.topology, self.config)
        there = find(self.log, self.plan, self.config)
        self.inputs.check(there)
        self._tasks = self._rounds.start()
        found = claim(self.log, self.plan, self.config, there, self._feed, self._tasks)
        commit = self._last = found.commit
        self._wanted, self._frames = found.partitions, found.application.frames
        self._repeat = found.repeat
        self.retirement.sweep(commit.id + 1)
        self._measure()
        self._rescale(bool(misplaced(self.log, placements(self.plan, self.partitions))))
        self.sources = self.inputs.find(commit, found.application)
        self._repeat = readable(self._repeat, self.sources)
        self.refreshing.read_first()
        self.sources.await_first()
        self._publishing.begin(found.application.state_id, commit, restarts=restarts)
        self._rounds.open()
        self.is_open = True
        self._listener.since = milliseconds()
        self._log_start()

    def _job(self) -> Job:
        config, folders = self.config, (self.state.address, str(self._staging))
        settings = settings_of(config)
        return Job(config.application_id, self.plan.shipped(), *folders, settings, self.connection)

    def _log_start(self) -> None:
        name, last = self.config.application_id, self._last.id
        after = "without state" if last < 0 else f"after batch {last}"
        _story.info("%s: begins %s, state partitions: %d", name, after, self.partitions)
        if self._repeat is not None:
            _story.info("%s: batch %d was begun and not committed, and is repeated", name, self._repeat.id)

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
        self._totals.hold(*measure(self.state, self._last.versions, self.plan.timers, self.plan.expiring))

    def call_when_rows_are_through(self, call: Callable[[], None]) -> None:
        """Calls ``call`` when the rows that DataFrame sources have now are through; not if their query ends before."""
        self._feed.call_when_through(call)

    @property
    def partitions(self) -> int:
        return self._last.partitions

    @property
    def stands(self) -> dict[str, Stand]:
        """Behind which transactions the last batch ends, by transaction topic."""
        return self._last.stands

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
            if not self.feed(once=True):
                return False
            while self._repeat is not None or self.sources.next_ranges(ends, None):
                if is_halted():
                    return False
                self._run(ends)
            return True
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
            if self._life.is_paused:
                return False  # a pause takes no record that was written after it
            idles = self._repeat is None and not self._life.waiters
            if idles and self._idling.holds(self.sources, ends, milliseconds()):
                return False
            return self._run(ends)

    def note_pause(self) -> None:
        """Takes the time until now for a pause: it was no silence of the sources."""
        self._listener.since = milliseconds()

    def feed(self, *, once: bool) -> bool:
        """Starts reading the DataFrame sources; ``once``: reads what there is now; False: it was stopped meanwhile."""
        return self._feed.start(self, self._frames, once=once)

    # -- turns of rows that the engine reads, in a thread of its own (`crossstream.application.rounds.Turns`)

    @property
    def last_epoch(self) -> int:
        return self._last.epoch

    def await_resume(self) -> None:
        while not self._life.resumed.wait(_LOOK_SECONDS) and not self._is_over():
            pass

    @contextmanager
    def turn(self) -> Iterator[bool]:
        with self._batch_lock:
            yield not self._is_over()

    def run_rows(self, rows: Any, epoch: int) -> None:
        """First comes what is before rows: a batch of topics to repeat, and all of the global tables."""
        self.inputs.refresh()
        while epoch > self._last.epoch:  # again where records were deleted under the batch
            while self.sources.bootstrapping if self._repeat is None else self._repeat.epoch < 0:
                if not self._run({}):
                    self.sources.end_load()  # rows of DataFrames do not wait for a snapshot of a database
            ends = dict(self.sources.end_offsets()) if self._until is None else self._until
            self._run(ends, rows, epoch)

    def _is_over(self) -> bool:
        return self._has_failed or self._is_halted()

    # -- one batch

    def _run(self, ends: Any, rows: Any = None, epoch: int = -1) -> bool:
        """One batch, if there is anything to do.

        One that fails is the last: it comes again at the next start. The thread that waits for its turn meanwhile would
        plan another with its number.
        """
        outer, self._runner = self._runner, threading.get_ident()
        try:
            return self._run_batch(ends, rows, epoch)
        except BaseException:
            self._has_failed = True
            raise
        finally:
            self._runner, self.running = outer, None

    def _run_batch(self, ends: Any, rows: Any, epoch: int) -> bool:
        phases = Phases()
        entry = self._plan_batch(ends, rows, epoch)
        if entry is None:
            return False
        phases.end("plan")
        records = sum(map(self.sources.rows, entry.ranges))
        self.running = Running(entry.id, time.time() - phases.total(), records)
        try:
            report, sent = self._run_rounds(entry, rows)
            phases.end("run")
            self._deliver(entry, report, sent, phases)
        except Exception as error:
            if self.inputs.allows(self._rounds.ours(error), entry.ranges, ends):
                self._repeat = None
                return True
            raise
        commit = self._publishing.publish(
            entry,
            report,
            commit_after(self._last, entry, report, self.sources, self._totals.state),
            sent,
        )
        phases.end("publish")
        self._commit(entry, commit, report)
        phases.end("commit")
        self._rescale()
        self._note(entry, report, phases, ends)
        return True

    def _plan_batch(self, ends: Any, rows: Any, epoch: int) -> BatchEntry | None:
        """The next batch, which is written to the log: one to repeat, or a new one; None if there is nothing to do."""
        entry = self._repeat
        if entry is None:
            return self._plan_new(ends, rows, epoch)
        if entry.epoch >= 0 and rows is None:
            return None  # waits for Spark to deliver the same rows again
        self.log.repeat_batch(entry)
        return entry

    def _plan_new(self, ends: Any, rows: Any, epoch: int) -> BatchEntry | None:
        # All records beside rows of a DataFrame: the times of both give their order.
        most = self.config.max_records_per_batch if rows is None else None
        ranges = self.sources.next_ranges(ends, most)
        taken = self.sources.taken(ranges)
        has_more = self.sources.lag(ends) > taken
        if self._listener.after is not None:  # whether there are more rows is seen when Spark looks again
            has_more = has_more or rows is not None or self._feed.is_behind()
        silence = self._listener.silence(milliseconds(), taken, has_more=has_more)
        is_tick = rows_wait(self.plan, self._totals.state) and self._listener.is_tick(silence)
        if not (ranges or rows is not None or is_tick or self._totals.timer_is_due(milliseconds())):
            return None
        is_small = rows is None and self._sizing.is_small(ranges, self._totals.rows(), self.sources.rows)
        shares = 0 if is_small else self._tasks
        sinks = self.inputs.written_ends() if self._publishing.delivery.looks_at_ends else {}
        expected = self.sources.expected(ends, ranges, every=self._listener.after is not None)
        planned = (ranges, time.time(), sinks, epoch, silence, shares)
        stands = dict(self.sources.transactions.planned)
        entry = BatchEntry(self._last.id + 1, *planned, expected=expected, stands=stands)
        self.log.write_batch(entry)
        return entry

    def _run_rounds(self, entry: BatchEntry, rows: Any) -> tuple[Report, Sent]:
        """Runs a batch; what it reports, and what it sent to the driver."""
        wants_keys = self._totals.unmatched_joins.wants_keys
        batch = batch_of(entry, self._last, self.plan, self.sources.snapshots, wants_keys=wants_keys)
        report, sent = run_again(self._rounds, batch, rows)
        self._sizing.learn(sum(report.seconds.values()))
        return report, sent

    def _deliver(self, entry: BatchEntry, report: Report, sent: Sent, phases: Phases) -> None:
        """Calls the functions of the user that get each batch as a DataFrame."""
        if any(sink.function is not None for sink in self.topology.each(FrameSink)):
            stands = shown({**self._last.stands, **entry.stands})
            mark = BatchMark(self.config.application_id, "", self._publishing.state, entry.id, stands)
            self._rounds.deliver(sent, report.frame_files, mark)
            phases.end("for_each_batch")

    def _commit(self, entry: BatchEntry, commit: Commit, report: Report) -> None:
        self.inputs.note_changes(report.first_changes)
        self.log.write_commit(commit)
        self._last = commit
        self.sources.positions = commit.positions
        self.sources.transactions.note(commit.stands)
        self.inputs.note_consumed()
        self.retirement.add(commit.id, report.retired)
        self._publishing.forget(report.staged, report.frame_files)
        self.refreshing.fold(self.log, {span.topic for span in entry.ranges})
        self._repeat = None
        if report.manifests:
            self._listener.stored()

    def _note(self, entry: BatchEntry, report: Report, phases: Phases, ends: Any) -> None:
        seconds = phases.total()
        if self.sources.skipped:
            report.dropped["lost by retention"] = self.sources.skipped
            self.sources.skipped = 0
        lag = self.sources.lag(ends)
        stands, waits = self._last.stands, self.sources.waits
        self.progress = self._totals.add(entry.id, report, phases.seconds, seconds, lag, stands, waits)
        said = (self.config.application_id, entry.id, self.progress.rows, seconds, lag)
        _story.debug("%s: batch %d committed: %d records in %.3f s, %d waiting", *said)
        self._on_progress(self.progress)

    def finish(self) -> None:
        """Waits for the batch that runs, perhaps of DataFrame rows; no other begins, and no table is read again."""
        self.refreshing.close()
        with self._batch_lock:
            self._is_halted = lambda: True

    def release(self) -> None:
        """Lets another process take the state."""
        self.log.unlock()

    def close(self) -> None:
        try:
            self._feed.stop()
            self.finish()  # what the end of the query has interrupted
            self.is_open = False
            self._rounds.close()
            self.inputs.close()
            self._publishing.close()
            self.retirement.close()
        finally:
            self.log.unlock()
