"""One batch after the other: planned, logged, run on Spark, published, committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import structs
from pyspark.sql import SparkSession

from crossstream.config import StreamsConfig
from crossstream.engine.batch import Batch, Report, StagedFrame
from crossstream.engine.idling import Idling
from crossstream.engine.log import (
    Application,
    BatchEntry,
    BatchLog,
    Commit,
    Publication,
    Starts,
    check_application,
)
from crossstream.engine.placement import partitioners, placements
from crossstream.engine.planning import NoTopics, SourcePlanner
from crossstream.engine.policies import settings_of
from crossstream.engine.rescaling import misplaced, rescale
from crossstream.engine.retirement import Retirement
from crossstream.engine.silence import Listener, milliseconds, somebody_waits
from crossstream.engine.sizing import Sizing, fans_of
from crossstream.engine.stores import file_names, measure
from crossstream.errors import SourceError
from crossstream.files import Staged
from crossstream.query.files import describe_readers
from crossstream.spark.checkpoint import Checkpoint
from crossstream.spark.connections import check_topics, connection_of, publisher_of, staging_of, written_ends
from crossstream.spark.errors import held, unpacked
from crossstream.spark.frames import check_checkpoint, deliver, start_query, united
from crossstream.spark.progress import Account, Progress
from crossstream.spark.rounds import SparkRounds
from crossstream.spark.shipping import packed
from crossstream.spark.worker import Job
from crossstream.state.root import Place, root_of
from crossstream.topics import TopicPartition
from crossstream.topology.graph import FrameSource, Topology
from crossstream.topology.plan import Plan

REFRESH_SECONDS = 5.0
"""How often new topics and partitions are looked for."""


class Halted(Exception):
    """Ends the query of the DataFrame sources between two of its micro-batches."""


def never() -> bool:
    """Nobody asks to stop."""
    return False


def always() -> bool:
    """Everything is over."""
    return True


class Engine:
    """The loop's body: plan a batch, log it, run it, publish, commit, retire."""

    def __init__(
        self,
        topology: Topology,
        plan: Plan,
        config: StreamsConfig,
        state: Place,
        spark: SparkSession,
        tell: Callable[[Progress], None],
    ) -> None:
        self.plan = plan
        self.config = config
        self.state = root_of(state)
        self.spark = spark
        self.topology = topology
        self.progress = Progress()
        self.log = BatchLog(self.state, config.durable)
        self.connection = connection_of(config)
        self._staging = staging_of(self.connection, self.state)
        self.topics = None if self.connection is None else self.connection.log()
        self._publisher = publisher_of(self.connection)
        self.partitions = 1
        self._wanted = 1
        self._tasks = 1
        self._tell = tell
        self._batch_lock = threading.RLock()
        self._query: Any = None
        self._failure: Exception | None = None
        self._is_halted: Callable[[], bool] = never
        self._runner: int | None = None
        self._epoch = -1
        self._frames: tuple[str, ...] = ()
        self._until: dict[TopicPartition, int] | None = None
        self._repeat: BatchEntry | None = None
        self._next = 0
        self._versions: dict[str, dict[int, str]] = {}
        self._rounds: SparkRounds | None = None
        self._refreshed = 0.0
        self._listener = Listener(config.idle_after_ms, 0)
        self._idling = Idling.of(topology, config.max_task_idle_ms)
        self._sizing = Sizing(config.single_task_rows, fans_of(plan))
        self.hurried = 0
        self._account = Account.of(topology)

    def open(self) -> None:
        """Locks and checks the state, finds the topics, ships the plan to the workers."""
        job = Job(
            self.config.application_id,
            self.plan.shipped(),
            self.state.address,
            str(self._staging),
            settings_of(self.config),
            self.connection,
        )
        shipped = packed(job)
        check_checkpoint(self.topology, self.state)
        self.log.lock(self.config.application_id)
        self._finish_publication()
        context = self.spark.sparkContext
        self._tasks = max(1, context.defaultParallelism)
        commit = self._claim(self._tasks)
        self._versions = commit.versions
        self._next = commit.id + 1
        self._epoch = commit.epoch
        self._repeat = self.log.begun(commit)
        self._order_frames(commit)
        self.retirement = Retirement(self.state, self.log, self.config.retain_batches, self._staging)
        self.retirement.sweep(self._next)
        self._account.state = measure(self.state, self._versions)
        self._rescale(bool(misplaced(self.log, placements(self.plan, self.partitions))))
        self._find_topics(commit)
        self._rounds = SparkRounds(context, job, shipped, self.config.application_id)
        self._listener.since = milliseconds()

    def _finish_publication(self) -> None:
        """Commits the batch whose results the last run of this application was publishing, if they are DataFrames'."""
        found = self.log.application()
        if found is None or found.application_id != self.config.application_id or self._publisher is None:
            return
        entry = self.log.begun(self.log.newest())
        if entry is not None and entry.publication is not None:
            self.log.repeat_batch(entry)
            self.log.settled()
            self._append(entry, entry.publication.staged)
            self.log.write_commit(entry.publication.commit)

    def _claim(self, parallelism: int) -> Commit:
        """Notes whose state this is, if it may be; the commit to go on from."""
        found = self.log.application()
        had = None if found is None else self.log.newest().partitions
        self._wanted = self.config.partitions or had or parallelism
        self.partitions = had or self._wanted
        wanted = Application(
            self.config.application_id,
            self.partitions,
            self.plan.fingerprint(),
            describe_readers(self.plan),
            tuple(sorted(partitioners(self.plan))),
            self.plan.derived,
            () if found is None else found.frames,
            found is not None and found.committed,
            Starts() if found is None else found.starts,
            self.plan.by_key2,
        )
        if found is not None:
            self._check(found, wanted)
        self.log.write_application(wanted)
        return self.log.newest()

    def _check(self, found: Application, wanted: Application) -> None:
        """Refuses state that does not fit. As long as nothing was committed there is none: all may change.

        A first batch that was begun is then planned anew, for it was one of the topology before.
        """
        same = (found.stores, found.placed) == (wanted.stores, wanted.placed)
        if same or found.application_id != wanted.application_id or self.log.last_commit() is not None:
            check_application(found, wanted, self.state)
        else:
            self.log.forget(0)

    def _order_frames(self, commit: Commit) -> None:
        """Checks the DataFrame sources against Spark's checkpoint, and notes the order it has them in."""
        application = self.log.application()
        assert application is not None
        sources = [node.name for node in self.topology if isinstance(node, FrameSource)]
        if set(sources) != set(application.frames):
            self._forget_uncommitted(commit)
        self._frames = Checkpoint(self._checkpoint, commit, self._repeat).order(sources, application.frames)
        if self._frames != application.frames:
            self.log.write_application(structs.replace(application, frames=self._frames))

    def _forget_uncommitted(self, commit: Commit) -> None:
        """As long as nothing was committed, a first batch with rows of other sources is planned anew."""
        if commit.id < 0 and self._repeat is not None and self._repeat.epoch >= 0:
            self.log.forget(self._repeat.id)
            self._repeat = None

    @property
    def _checkpoint(self) -> Path:
        """The folder of Spark's checkpoint of the DataFrame sources."""
        return self.state.here / "frames"

    def _rescale(self, anew: bool = False) -> None:
        """Between two batches: cuts the state into as many partitions as are asked for (decision 0011).

        A batch that was begun is first repeated with the partitions it had. ``anew``: into the same number, too.
        """
        if self._repeat is not None or not (anew or self.partitions != self._wanted):
            return
        done = rescale(self.log, self._wanted, placements(self.plan, self._wanted))
        self.partitions = self._wanted
        self._versions = done.commit.versions
        self._next = done.commit.id + 1
        self._account.state = measure(self.state, self._versions)
        self.retirement.add(done.commit.id, done.retired)

    def _find_topics(self, commit: Commit) -> None:
        positions = {n: {t: dict(p) for t, p in topics.items()} for n, topics in commit.positions.items()}
        check_topics(self.topology, self.connection)
        log = self.topics if self.topics is not None else NoTopics()
        application = self.log.application()
        assert application is not None
        starts = application.starts
        ids = {**starts.topic_ids, **commit.topic_ids}
        self.sources = SourcePlanner(
            self.topology, log, positions, self.config.on_lost_records, ids, starts=starts
        )
        self.sources.refresh()
        if self.sources.starts != starts:
            self.log.write_application(structs.replace(application, starts=self.sources.starts))
            self.log.settled()
        self._repeat = self._repeatable()
        self.sources.await_globals()
        self._refreshed = time.monotonic()

    def _repeatable(self) -> BatchEntry | None:
        """The batch that was begun, for the sources of now; None if its records are gone, and it is planned anew."""
        if self._repeat is None:
            return None
        ranges = self.sources.renamed(self._repeat.ranges)
        return None if ranges is None else structs.replace(self._repeat, ranges=ranges)

    def end_offsets(self) -> dict[TopicPartition, int]:
        self._refresh(force=True)
        return dict(self.sources.end_offsets())

    def end_offsets_from_outside(self) -> dict[TopicPartition, int]:
        """The end offsets, asked for by another thread than the application's."""
        if self.connection is None:
            return {}
        log = self.connection.log()
        try:
            topics = log.topics()
            wanted = [
                TopicPartition(t, p) for t in self.sources.topic_names(topics) for p in range(topics[t])
            ]
            return dict(log.end_offsets(wanted)) if wanted else {}
        finally:
            log.close()

    def reached(self, ends: dict[TopicPartition, int]) -> bool:
        consumed, gone = self.sources.consumed(), self.sources.gone()
        return all(tp.topic in gone or consumed.get(tp, 0) >= end for tp, end in ends.items())

    @property
    def runs_here(self) -> bool:
        """Whether a batch calls, by way of a function or listener of the user's."""
        return self._runner == threading.get_ident()

    def run_until(self, ends: dict[TopicPartition, int], is_halted: Callable[[], bool] = never) -> bool:
        """Batches of what DataFrame sources have, and topics up to ``ends``; False: ``is_halted`` came first."""
        outer, self._is_halted = self._is_halted, is_halted
        try:
            self._feed_up_to(ends)
            while (more := self._has_more(ends)) and not is_halted():
                self._run(ends)
            return not more
        except Halted:
            return False
        finally:
            self._is_halted = outer

    def _feed_up_to(self, ends: dict[TopicPartition, int]) -> None:
        self._until = ends
        try:
            self.feed(once=True)
        finally:
            self._until = None

    def _has_more(self, ends: dict[TopicPartition, int]) -> bool:
        return self._repeat is not None or bool(self.sources.next_ranges(ends, None))

    def run_next(self) -> bool:
        """One batch of the topics, if there is anything to read."""
        self._check_query()
        with self._batch_lock:
            self._refresh()
            ends = self.sources.end_offsets()
            idles = self._repeat is None and not self.hurried
            if idles and self._idling.holds(self.sources, ends, milliseconds()):
                return False
            return self._run(ends)

    def feed(self, *, once: bool) -> None:
        """Starts reading the DataFrame sources; ``once``: reads what there is now, and returns."""
        frame = united(self.topology, self._frames)
        if frame is None or self._query is not None:
            return
        self._query = start_query(frame, str(self._checkpoint), self._run_frame, once=once)
        if once:
            self._await_query()

    def _await_query(self) -> None:
        """Returns when the query has ended; where the wait is interrupted it has not, and `close` stops it."""
        try:
            self._query.awaitTermination()
        except Exception:
            self._query = None
            self._raise_failure()
            raise
        self._query = None
        self._raise_failure()

    def _run_frame(self, frame: Any, epoch: int) -> None:
        """A micro-batch of the DataFrame sources; those that were committed before a restart are skipped."""
        try:
            with self._batch_lock:
                if self._is_halted():
                    raise Halted("the application is stopped; the rows come again at its next start")
                if epoch > self._epoch:
                    self._refresh()
                    self._catch_up()
                while epoch > self._epoch:  # again where records were deleted under the batch
                    ends = self.sources.end_offsets() if self._until is None else self._until
                    self._run(ends, frame, epoch)
        except Exception as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = held(error)
            raise self._failure from error

    def _catch_up(self) -> None:
        """What comes before rows of a DataFrame: a batch of topics to repeat, and all of the global tables."""
        while self.sources.bootstrapping if self._repeat is None else self._repeat.epoch < 0:
            self._run({})

    def _check_query(self) -> None:
        if self._query is not None and not self._query.isActive:
            self._raise_failure()
            error = self._query.exception()
            raise SourceError(
                f"the query of the DataFrame sources ended: {error or 'it was stopped'}",
                code="CS-619",
                next="see the message of Spark; start the application again",
            )

    def _raise_failure(self) -> None:
        if self._failure is not None:
            error, self._failure = self._failure, None
            raise error

    def _refresh(self, *, force: bool = False) -> None:
        if force or time.monotonic() - self._refreshed > REFRESH_SECONDS:
            self.sources.refresh()
            self._refreshed = time.monotonic()

    def _run(self, ends: Any, frame: Any = None, epoch: int = -1) -> bool:
        """One batch, if there is anything to do."""
        outer, self._runner = self._runner, threading.get_ident()
        try:
            return self._run_batch(ends, frame, epoch)
        finally:
            self._runner = outer

    def _run_batch(self, ends: Any, frame: Any, epoch: int) -> bool:
        started = time.perf_counter()
        entry = self._repeat
        repeated = entry is not None
        if entry is not None and entry.epoch >= 0 and frame is None:
            return False  # waits for Spark to hand the same rows in again
        if entry is None:
            ranges = self.sources.next_ranges(ends, self.config.max_records_per_batch)
            taken = sum(span.end - span.start for span in ranges)
            silence = self._listener.silence(milliseconds(), taken, self.sources.lag(ends))
            is_tick = somebody_waits(self.plan, self._account.state) and self._listener.is_tick(silence)
            if not ranges and frame is None and not is_tick:
                return False
            is_small = frame is None and self._sizing.is_small(ranges, self._account.rows())
            shares = 0 if is_small else self._tasks
            entry = BatchEntry(self._next, ranges, time.time(), self._sink_ends(), epoch, silence, shares)
            self.log.write_batch(entry)
        else:
            self.log.repeat_batch(entry)
        planned = time.perf_counter()
        try:
            report = self._on_spark(entry, repeated, frame)
        except Exception as error:
            if self._is_out_of_date(entry, unpacked(error)):
                self._repeat = None
                return True
            raise
        ran = time.perf_counter()
        commit = self._following(entry, report)
        self._publish(entry, report, commit)
        published = time.perf_counter()
        self._commit(commit, report)
        committed = time.perf_counter()
        self._repeat = None
        self._rescale()
        phases = {
            "plan": planned - started,
            "run": ran - planned,
            "publish": published - ran,
            "commit": committed - published,
            **report.seconds,
        }
        self._note(entry, report, phases, committed - started, ends)
        return True

    def _on_spark(self, entry: BatchEntry, repeated: bool, frame: Any) -> Report:
        assert self._rounds is not None
        versions = {store: names for store, names in self._versions.items() if store in self.plan.stores}
        batch = Batch(
            entry.id,
            entry.ranges,
            self.partitions,
            versions,
            repeated,
            silence=entry.silence,
            shares=entry.shares,
            clock=int(entry.time * 1000),
        )
        report, frames = self._rounds.run(batch, frame)
        self._sizing.learn(sum(report.seconds.values()))
        deliver(self.spark, self.topology, frames, entry.id)
        return report

    def _is_out_of_date(self, entry: BatchEntry, error: Exception) -> bool:
        """Whether a batch that failed is to be planned anew: what it was to read is gone, and may be."""
        return isinstance(error, SourceError) and (self.sources.leave_out(error) or self._lost(entry))

    def _lost(self, entry: BatchEntry) -> bool:
        """Whether records were deleted under a running batch, where that is allowed."""
        if self.config.on_lost_records != "skip":
            return False
        begins = self.topics.begin_offsets(  # type: ignore[union-attr]
            [TopicPartition(span.topic, span.partition) for span in entry.ranges]
        )
        lost = False
        for span in entry.ranges:
            tp = TopicPartition(span.topic, span.partition)
            if begins[tp] > span.start:
                self.sources.lose(span.node, tp, span.start, begins[tp])
                lost = True
        return lost

    def _sink_ends(self) -> dict[str, list[int]]:
        """Where the file topics that are written end before the batch: publishing it again looks from there on."""
        if self._publisher is None or self.topics is None:
            return {}
        return written_ends(self.topology, self.config, self.topics)

    def _publish(self, entry: BatchEntry, report: Report, commit: Commit) -> None:
        """Makes the records that waited in staged files visible in their topics, each once, in their order.

        A frame must not outlive the entry of its batch, whose ranges it was made of.
        """
        self.log.settled()
        self.log.assure()
        self.log.settle(file_names(report.written))
        if self._publisher is None or not report.staged:
            return
        staged = tuple((Path(frame[0]).name, *frame[1:]) for frame in report.staged)
        if entry.epoch >= 0:  # Spark may split its rows otherwise next time, and so the frames
            self.log.write_publication(entry, Publication(commit, staged))
        self._append(entry, staged)

    def _append(self, entry: BatchEntry, staged: Iterable[StagedFrame]) -> None:
        """Appends the frames that are not in their topics yet; an earlier attempt's are after ``entry.sinks``."""
        since = {TopicPartition(t, p): end for t, ends in entry.sinks.items() for p, end in enumerate(ends)}
        frames = [Staged(str(self._staging / frame[0]), *frame[1:]) for frame in staged]
        self._publisher.publish(frames, since)

    def _following(self, entry: BatchEntry, report: Report) -> Commit:
        """The commit of a batch that has run."""
        versions = {store: dict(names) for store, names in self._versions.items()}
        for store, names in report.manifests.items():
            versions.setdefault(store, {}).update(names)
        positions = self.sources.after(entry.ranges)
        epoch = max(self._epoch, entry.epoch)
        ids = dict(self.sources.topic_ids)
        return Commit(entry.id, self.partitions, positions, versions, time.time(), epoch, ids)

    def _commit(self, commit: Commit, report: Report) -> None:
        self.log.write_commit(commit)
        self.sources.positions = commit.positions
        self._versions = commit.versions
        self._next = commit.id + 1
        self._epoch = commit.epoch
        if self.topics is not None:
            self.topics.commit_offsets(self.config.application_id, self.sources.consumed())
        self.retirement.add(commit.id, report.retired)
        for path, *_ in report.staged:
            Path(path).unlink(missing_ok=True)

    def _note(
        self, entry: BatchEntry, report: Report, phases: dict[str, float], seconds: float, ends: Any
    ) -> None:
        if self.sources.skipped:
            report.dropped["lost by retention"] = self.sources.skipped
            self.sources.skipped = 0
        self._account.add(report)
        lag = self.sources.lag(ends)
        self.progress = self._account.progress(entry.id, report, phases, seconds, lag)
        self._tell(self.progress)

    def finish(self) -> None:
        """Waits for the batch that runs, perhaps of DataFrame rows; no other begins."""
        with self._batch_lock:
            self._is_halted = always

    def release(self) -> None:
        """Lets another process take the state."""
        self.log.unlock()

    def close(self) -> None:
        try:
            if self._query is not None:
                self._query.stop()
                self._query = None
            self.finish()  # what the end of the query has interrupted
            if self._rounds is not None:
                self._rounds.close()
                self._rounds = None
            if self.topics is not None:
                self.topics.close()
            if self._publisher is not None:
                self._publisher.close()
        finally:
            self.log.unlock()
