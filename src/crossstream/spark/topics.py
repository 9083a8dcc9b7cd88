"""The topics of an application: where they are, how far they reach, what is lost, and what is published."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from crossstream.config import DeadLetter, StreamsConfig
from crossstream.errors import ConfigError, SinkError, SourceError
from crossstream.filetopics import FileTopics, Staged
from crossstream.graph.nodes import Graph, Sink, Source
from crossstream.lakehouse.tables import Tables, staged_rows, unstaged_rows
from crossstream.planning.plan import Plan
from crossstream.runtime.backlog_split import ExtractedTimes
from crossstream.runtime.batch import Report
from crossstream.runtime.scheduler import SourcePlanner
from crossstream.spark.claim import Found
from crossstream.spark.worker import TopicInput
from crossstream.storage.commit_log import STAGED, BatchLog
from crossstream.storage.files import file_names
from crossstream.storage.log_entries import (
    Application,
    BatchEntry,
    Commit,
    Publication,
    SourceRange,
    StagedFrame,
    StagedRows,
)
from crossstream.storage.manifest import checked_staged, staged_name
from crossstream.storage.root import StateRoot
from crossstream.topics import TopicConnection, TopicLog, TopicPartition

if TYPE_CHECKING:
    from crossstream.kafka.instance import Instance
    from crossstream.kafka.log import KafkaLog


REFRESH_SECONDS = 5.0
"""How often new topics and partitions are looked for."""


class Inputs:
    """The topics of an application, through a connection of its thread; `planner` says what a batch reads of them."""

    planner: SourcePlanner

    def __init__(
        self, plan: Plan, config: StreamsConfig, connection: TopicConnection | None, log: BatchLog
    ) -> None:
        self._topology = plan.topology
        self._config = config
        self._connection = connection
        self._log = log
        self.topics = None if connection is None else connection.log()
        self._reader = None if connection is None else connection.reader()
        self._times = None
        if self.topics is not None and self._reader is not None:
            self._times = ExtractedTimes.of(plan, self.topics, TopicInput(self._reader))
        self._instance = instance_of(config, self.topics, log.root)
        self._refreshed = 0.0

    def check(self, found: Found) -> None:
        """Checks what can be known of the topics at once; ``found``: the state.

        Raises `ConfigError` CS-203 if it is not set where topics are; `SourceError` CS-602 and `SinkError` CS-652 if
        one is missing; `StateError`: CS-740 if another instance runs, CS-741 if the state is lost.
        """
        if self.topics is None:
            if any(isinstance(node, Source | Sink) for node in self._topology):
                raise ConfigError(
                    "neither bootstrap_servers nor topics_dir is set",
                    code="CS-203",
                    next="StreamsConfig(bootstrap_servers='host:port') for Kafka, topics_dir='folder' for file topics",
                )
            return
        known = self.topics.topics()
        read = SourcePlanner(self._topology, self.topics, {}).topic_names(known)
        check_written(self._topology, self._config, self.topics, known)
        if self._instance is not None:
            state = None if found.application is None else found.application.state_id
            partitions = [
                TopicPartition(topic, partition) for topic in read for partition in range(known[topic])
            ]
            self._instance.check(partitions, state, has_commits=found.commit is not None)

    def find(self, commit: Commit, application: Application) -> SourcePlanner:
        """Finds the topics, and continues in them where the last batch ended.

        Where it begins in those that are new is noted with the application. Raises `StateError` CS-740 if another
        instance runs.
        """
        positions = {n: {t: dict(p) for t, p in topics.items()} for n, topics in commit.positions.items()}
        starts = application.starts
        ids = {**starts.topic_ids, **commit.topic_ids}
        lost = self._config.on_lost_records
        self.planner = SourcePlanner(
            self._topology, self.topics, positions, lost, ids, starts=starts, times=self._times
        )
        self.planner.refresh()
        if self.planner.starts != starts:
            self._log.write_application(structs.replace(application, starts=self.planner.starts))
            self._log.settled()
        if self._instance is not None:
            self._instance.begin(self.planner.consumed(), application.state_id, has_commits=commit.id >= 0)
        self._refreshed = time.monotonic()
        return self.planner

    def refresh(self, *, force: bool = False) -> None:
        """Looks for topics and partitions that are new or gone, if it was not done just before."""
        if force or time.monotonic() - self._refreshed > REFRESH_SECONDS:
            self.planner.refresh()
            instance = self._owner()
            if instance is not None:
                instance.beat(self.planner.consumed())
            self._refreshed = time.monotonic()

    def end_offsets(self) -> dict[TopicPartition, int]:
        self.refresh(force=True)
        return dict(self.planner.end_offsets())

    def end_offsets_from_outside(self) -> dict[TopicPartition, int]:
        """The end offsets, asked for by another thread than the application's."""
        if self._connection is None:
            return {}
        log = self._connection.log()
        try:
            topics = log.topics()
            wanted = [
                TopicPartition(t, p) for t in self.planner.topic_names(topics) for p in range(topics[t])
            ]
            return dict(log.end_offsets(wanted)) if wanted else {}
        finally:
            log.close()

    def reached(self, ends: dict[TopicPartition, int], known: Mapping[str, str]) -> bool:
        """Whether all is read up to ``ends``, of the topics that are still there; ``known``: their ids then."""
        gone = self.planner.gone() | self._recreated_since(known)
        consumed = self.planner.consumed()
        return all(tp.topic in gone or consumed.get(tp, 0) >= end for tp, end in ends.items())

    def _recreated_since(self, known: Mapping[str, str]) -> set[str]:
        """The topics that have another id than was ``known``."""
        ids = self.planner.topic_ids
        return {topic for topic, was in known.items() if ids.get(topic, was) != was}

    def allows(
        self, error: Exception, ranges: Iterable[SourceRange], ends: dict[TopicPartition, int]
    ) -> bool:
        """Whether what a batch of these ranges failed on is that records are gone which may be: they are left out.

        From ``ends`` too, up to which the application reads, where their topics were made again.
        """
        return isinstance(error, SourceError) and (
            self.planner.leave_out(error) or self._replaced(ranges, ends) or self._lost(ranges)
        )

    def _replaced(self, ranges: Iterable[SourceRange], ends: dict[TopicPartition, int]) -> bool:
        """Whether topics were made again under a running batch, where that is allowed."""
        if self._config.on_lost_records != "skip":
            return False
        known = dict(self.planner.topic_ids)
        self.refresh(force=True)
        recreated = self._recreated_since(known)
        for tp in [tp for tp in ends if tp.topic in recreated]:
            del ends[tp]
        return not recreated.isdisjoint(span.topic for span in ranges)

    def _lost(self, ranges: Iterable[SourceRange]) -> bool:
        """Whether records were deleted under a running batch, where that is allowed."""
        if self._config.on_lost_records != "skip" or self.topics is None:
            return False
        read = [(TopicPartition(span.topic, span.partition), span) for span in ranges]
        begins = self.topics.begin_offsets([tp for tp, _ in read])
        lost = [(tp, span) for tp, span in read if begins[tp] > span.start]
        for tp, span in lost:
            self.planner.lose(span.node, tp, span.start, begins[tp])
        return bool(lost)

    def written_ends(self) -> dict[str, list[int]]:
        """Where the topics that sinks and dead letters may go to end, by partition."""
        if self.topics is None:
            return {}
        known = self.topics.topics()
        written = _written(self._topology, self._config, known)
        wanted = [TopicPartition(topic, partition) for topic in written for partition in range(known[topic])]
        ends = self.topics.end_offsets(wanted)
        found: dict[str, list[int]] = {}
        for tp in wanted:
            found.setdefault(tp.topic, []).append(ends[tp])
        return found

    def note_consumed(self) -> None:
        """Commits how far the application is.

        Raises `StateError`: CS-740 if an earlier instance runs, CS-720 if another one has taken the state.
        """
        instance = self._owner()
        if instance is not None:
            instance.commit(self.planner.consumed())

    def _owner(self) -> Instance | None:
        """The instance, if it still has the state: one that lost it leaves the group to its successor.

        A process that stood still for a while (SIGSTOP) would else stop that one by its earlier mark.
        """
        instance, self._instance = self._instance, None
        if instance is not None:
            self._log.assure()
        self._instance = instance
        return instance

    def close(self) -> None:
        if self._instance is not None:
            self._instance.end()
        if self.topics is not None:
            self.topics.close()
        if self._reader is not None:
            self._reader.close()


SETTLE_SECONDS, PAUSE_SECONDS = 1.0, 0.1
"""How long a topic to write to is looked for that is not there, and the pause between two looks."""


def connection_of(config: StreamsConfig) -> TopicConnection | None:
    """Where the topics of an application live; None: it reads DataFrames only."""
    if config.servers is not None:
        from crossstream.kafka import KafkaConnection, TransactionalKafka

        patience = config.broker_patience_ms / 1000
        if config.processing_guarantee == "exactly_once":
            return TransactionalKafka(config.servers, config.kafka, patience, config.application_id)
        return KafkaConnection(config.servers, config.kafka, patience)
    if config.topics_path is not None:
        return FileTopics(config.topics_path, durable=config.durable)
    return None


def check_written(topology: Graph, config: StreamsConfig, log: TopicLog, known: Mapping[str, int]) -> None:
    """Raises `SinkError` CS-652 if a topic that a sink or a `DeadLetter` names is not among the ``known`` ones.

    File topics are made when they are first written to, and others where the brokers may make them.
    """
    makes = str(config.kafka.get("allow.auto.create.topics", False)).lower() == "true"
    if config.servers is None or makes:
        return
    for topic, where in _named(topology, config):
        if topic not in known and not _is_there(log, topic):
            raise SinkError(
                f"the topic {topic!r} to write to does not exist, or the user may not see it",
                code="CS-652",
                where=where,
                next="create it, or correct the name; `crossstream topics list` shows what is there",
            )


def _named(topology: Graph, config: StreamsConfig) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The topics that are written to, as far as it is known before any record; and what names each."""
    for node in topology:
        if isinstance(node, Sink) and node.topic is not None:
            yield node.topic, node.where
    for setting in ("deserialization_errors", "processing_errors"):
        policy = getattr(config, setting)
        if isinstance(policy, DeadLetter):
            yield policy.topic, {"setting": setting}


def _is_there(log: TopicLog, topic: str) -> bool:
    """Whether a topic that was not listed is there after all: brokers learn of a new one, one after the other."""
    deadline = monotonic() + SETTLE_SECONDS
    while topic not in log.topics():
        if monotonic() > deadline:
            return False
        sleep(PAUSE_SECONDS)
    return True


def instance_of(config: StreamsConfig, log: TopicLog | None, state: StateRoot) -> Instance | None:
    """This run of the application in its consumer group; None: file topics and DataFrames have none."""
    if config.servers is None:
        return None
    from crossstream.kafka.instance import Instance

    place = str(state) if state.is_remote else f"{state} on {socket.gethostname()}"
    return Instance(cast("KafkaLog", log), config.application_id, place, config.on_lost_state == "restart")


def staging_of(connection: TopicConnection | None, state: StateRoot) -> Path:
    """Where records for file topics wait for their batch: with local state, else with the topics.

    All workers see both; what is on this machine of remote state they do not.
    """
    if state.is_remote and connection is not None and hasattr(connection, "staging_folder"):
        folder: Path = connection.staging_folder(state.here.name)
        return folder
    return state.here / "staged"


def _written(topology: Graph, config: StreamsConfig, known: Mapping[str, int]) -> list[str]:
    """Those of the ``known`` topics that sinks and dead letters may go to."""
    if any(isinstance(node, Sink) and node.topic is None for node in topology):
        return sorted(known)
    return sorted(known.keys() & {topic for topic, _ in _named(topology, config)})


class Publishing:
    """Publishes staged records when their batch has run, each once: to file topics, in a transaction, in tables.

    ``publisher``: of file topics, ``transactions``: of Kafka; None where sinks write by themselves. ``staging``: the
    folder of the files. ``mark``: the topic that has the mark of the transactions. ``tables``: of Delta and Iceberg.
    """

    def __init__(
        self, connection: TopicConnection | None, staging: Path, log: BatchLog, mark: str, tables: Tables
    ) -> None:
        self.publisher: Any = None
        self.transactions: Any = None
        if connection is not None and hasattr(connection, "publisher"):
            self.publisher = connection.publisher()
        if connection is not None and hasattr(connection, "transactions"):
            self.transactions = connection.transactions(partial(log.assure, 0.0))
        self.staging = staging
        self.log = log
        self.mark = mark
        self.tables = tables
        self.state = ""
        self._rows: tuple[StagedRows, ...] = ()

    def begin(self, state: str, newest: Commit, *, restarts: bool) -> None:
        """Before the first batch. ``state``: its id; ``newest``: its last batch; ``restarts``: it may be older."""
        self.state = state
        if self.transactions is not None and self.mark:
            self.transactions.begin(self.mark, state, newest.id, restarts=restarts)
        self.tables.begin(state, newest.id, {} if restarts else newest.tables, restarts=restarts)

    def publish(
        self, entry: BatchEntry, report: Report, commit: Commit, sent: Mapping[str, list[bytes]]
    ) -> Commit:
        """Publishes what a batch has staged, in its order. ``sent``: what it sent to the driver, by sink.

        Returns the commit, which knows of the tables as well.

        A frame must not outlive the entry of its batch, whose ranges it was made of.
        """
        self.log.settled()
        self.log.assure()
        self.log.settle(file_names(report.written))
        self._rows = self._stage(entry, sent)
        written = {sink: entry.id for _, sink in self._rows}
        commit = structs.replace(commit, tables={**self.tables.written, **written})
        if not report.staged and not self._rows:
            return commit
        staged = tuple((Path(frame[0]).name, *frame[1:]) for frame in report.staged)
        held = [frame[0] for frame in staged] if self.transactions is not None else []
        self.log.settle(f"{STAGED}/{name}" for name in [*held, *(name for name, _ in self._rows)])
        # Functions may give other values, and Spark split its rows otherwise, if the batch ran again.
        publication = Publication(commit, staged, self.mark, self._rows)
        note = partial(self.log.write_publication, entry, publication)
        if held:
            self._append(entry, publication, note)
            return commit
        if entry.epoch >= 0 or self._rows:
            note()
        self._append(entry, publication)
        return commit

    def finish_last(self, application_id: str, *, restarts: bool) -> None:
        """Commits the batch whose results the last run of this application was publishing, if they were noted."""
        found = self.log.application()
        if found is None or found.application_id != application_id:
            return
        newest = self.log.newest()
        entry = self.log.take_over(newest)
        publication = None if entry is None else entry.publication
        if entry is None or publication is None:
            return
        if publication.staged and self.publisher is None and self.transactions is None:
            return
        self.state = found.state_id
        self.log.repeat_batch(entry)
        self.log.settled()
        if not restarts:
            self.tables.written = dict(newest.tables)
        self._append(entry, publication)
        self.log.write_commit(publication.commit)

    def forget(self, staged: Iterable[StagedFrame]) -> None:
        """Removes the files of a batch that is committed."""
        rows, self._rows = [f"{STAGED}/{name}" for name, _ in self._rows], ()
        if self.transactions is not None:
            rows += [f"{STAGED}/{frame[0]}" for frame in staged]
        else:
            for path, *_ in staged:
                Path(path).unlink(missing_ok=True)
        if rows:
            self.log.root.discard(rows, ())

    def close(self) -> None:
        for one in (self.publisher, self.transactions):
            if one is not None:
                one.close()
        self.tables.close()

    def _stage(self, entry: BatchEntry, sent: Mapping[str, list[bytes]]) -> tuple[StagedRows, ...]:
        """Writes the rows of tables to files."""
        storage, names = self.log.root.storage(STAGED), []
        for sink, rows in self.tables.rows(sent).items():
            data = staged_rows(rows)
            name = staged_name(f"table-{entry.id}", data)
            storage.write(name, data)
            names.append((name, sink))
        return tuple(names)

    def _append(
        self, entry: BatchEntry, publication: Publication, note: Callable[[], None] = lambda: None
    ) -> None:
        """Publishes what is not there yet; in file topics an earlier attempt's is after ``entry.sinks``.

        ``note``: what a transaction does before it is committed.
        """
        read, staged = partial(checked_staged, self.log.root.storage(STAGED)), publication.staged
        if staged and self.transactions is not None:
            self.transactions.publish(publication.mark, self.state, entry.id, staged, read, note)
        elif staged:
            since = {
                TopicPartition(t, p): end for t, ends in entry.sinks.items() for p, end in enumerate(ends)
            }
            frames = [Staged(str(self.staging / frame[0]), *frame[1:]) for frame in staged]
            self.publisher.publish(frames, since)
        for name, sink in publication.tables:
            self.tables.write(sink, unstaged_rows(read(name)), entry.id, self.state)


def mark_topic(topology: Graph, config: StreamsConfig) -> str:
    """The topic whose first partition has the mark of the transactions: one that is written, else one that is read.

    Empty if nothing is written. Raises `ConfigError` CS-201 if no topic is known by its name.
    """
    written = sorted(topic for topic, _ in _named(topology, config))
    if written or not any(isinstance(node, Sink) for node in topology):
        return next(iter(written), "")
    read = sorted(topic for node in topology if isinstance(node, Source) for topic in node.topics)
    if not read and config.processing_guarantee == "exactly_once":
        raise ConfigError(
            "exactly_once needs one topic that the topology names: functions and patterns name all of them",
            code="CS-201",
            next='read or write one topic by its name, or use processing_guarantee="at_least_once"',
        )
    return next(iter(read), "")
