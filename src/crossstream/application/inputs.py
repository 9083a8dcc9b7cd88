"""The topics of an application: where they are, how far they reach, and what is lost."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from time import monotonic, sleep
from typing import TYPE_CHECKING, cast

from msgspec import structs

from crossstream.application.open_state import Found
from crossstream.config import BROKER_PATIENCE, DeadLetter, StreamsConfig
from crossstream.durations import to_milliseconds
from crossstream.error_codes import refuse
from crossstream.errors import SourceError
from crossstream.filetopics import FileTopics
from crossstream.filetopics.refreshed_topics import RefreshedTables
from crossstream.graph.nodes import Graph, Node, Sink, Source
from crossstream.lakehouse.connection import LakeTables
from crossstream.lakehouse.history_topics import HistoryLog, with_histories
from crossstream.lakehouse.past_tables import PastTables
from crossstream.planning.plan import Plan
from crossstream.runtime.backlog import copied
from crossstream.runtime.delivery import DeliveringConnection
from crossstream.runtime.extracted_times import ExtractedTimes
from crossstream.runtime.scheduler import SourcePlanner
from crossstream.runtime.tables_and_topics import CONNECT, Logs, with_tables
from crossstream.runtime.transactions.together import Transactions
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import (
    Application,
    Commit,
    SourceRange,
)
from crossstream.storage.root import Place, StateRoot, root_of
from crossstream.task.batch import TopicInput
from crossstream.topics import TopicConnection, TopicLog, TopicPartition, all_partitions, is_elsewhere

if TYPE_CHECKING:
    from crossstream.kafka.instance import Instance
    from crossstream.kafka.log import KafkaLog


REFRESH_SECONDS = 5.0
"""How often new topics and partitions are looked for."""


class TopicInputs:
    """The topics of an application, through a connection of its thread; `planner` says what a batch reads of them.

    ``is_beside``: the connection is not that of the settings, and the application is in no consumer group.
    """

    planner: SourcePlanner

    def __init__(
        self,
        plan: Plan,
        config: StreamsConfig,
        connection: TopicConnection | None,
        log: BatchLog,
        *,
        is_beside: bool = False,
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
        self._is_beside = is_beside
        self._instance = None if is_beside else instance_of(config, self.topics, log.root)
        self._refreshed = 0.0

    def check(self, found: Found) -> None:
        """Checks what can be known of the topics at once; ``found``: the state.

        Raises `ConfigError` CS-203 if it is not set where topics are; `SourceError` CS-602 and `SinkError` CS-652 if
        one is missing; `StateError`: CS-740 if another instance runs, CS-741 if the state is lost.
        """
        if self._config.servers is None and self._config.topics_path is None and not self._is_beside:
            self._check_connected()
        if self.topics is None:
            return
        known = self._known(self.topics, found)
        read = SourcePlanner(self._topology, self.topics, {}).topic_names(known)
        check_written(self._topology, self._config, self.topics, known)
        if self._instance is not None:
            state = None if found.application is None else found.application.state_id
            there = all_partitions([topic for topic in read if not is_elsewhere(topic)], known)
            self._instance.check(there, state, has_commits=found.commit is not None)

    def _check_connected(self) -> None:
        """Raises `ConfigError` CS-203 for a topology that reads or writes topics, where none are connected."""
        if any(map(reads_topics, self._topology)) or any(self._topology.each(Sink)):
            raise refuse("CS-203", "neither bootstrap_servers nor topics_dir is set", CONNECT)

    def _known(self, topics: TopicLog, found: Found) -> Mapping[str, int]:
        """The topics. At a first start the address may be a wrong one, so it is not waited for as long as later."""
        first = first_patience(self._config) if found.application is None else None
        if (
            first is None
            or self._is_beside
            or (connection := self._connected(replace(self._config, broker_patience=first))) is None
        ):
            return topics.topics()
        with closing(connection.log()) as log:
            return log.topics()

    def _connected(self, config: StreamsConfig) -> DeliveringConnection | None:
        return connection_of(config, self._topology, self._log.root)

    def find(self, commit: Commit, application: Application) -> SourcePlanner:
        """Finds the topics, and continues in them where the last batch ended.

        Where it begins in those that are new is noted with the application. Raises `StateError` CS-740 if another
        instance runs.
        """
        starts = application.starts
        ids = {**starts.topic_ids, **commit.topic_ids}
        lost = self._config.on_lost_records
        positions = copied(commit.positions)
        self.planner = SourcePlanner(
            self._topology,
            self.topics,
            positions,
            lost,
            ids,
            starts=starts,
            times=self._times,
            transactions=self._transactions(commit),
        )
        self.planner.refresh()
        if self.planner.starts != starts:
            self._log.write_application(structs.replace(application, starts=self.planner.starts))
            self._log.settled()
        if self._instance is not None:
            self._instance.begin(self._in_topics(), application.state_id, has_commits=commit.id >= 0)
        self._refreshed = time.monotonic()
        return self.planner

    def _transactions(self, commit: Commit) -> Transactions:
        if self.topics is None or self._reader is None:
            return Transactions()
        sources, most = list(self._topology.each(Source)), self._config.max_transaction_records
        return Transactions.of(sources, self.topics, TopicInput(self._reader), commit.stands, most)

    def refresh(self, *, force: bool = False) -> None:
        """Looks for topics and partitions that are new or gone, if it was not done just before."""
        if force or time.monotonic() - self._refreshed > REFRESH_SECONDS:
            self.planner.refresh()
            instance = self._owner()
            if instance is not None:
                instance.beat(self._in_topics())
            self._refreshed = time.monotonic()

    def end_offsets(self) -> dict[TopicPartition, int]:
        self.refresh(force=True)
        return dict(self.planner.end_offsets())

    def end_offsets_from_outside(self) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The end offsets, of what sources read and of topics of transactions, asked for by another thread."""
        if self._connection is None:
            return {}, {}
        log = self._connection.log()
        try:
            topics = log.topics()
            wanted = all_partitions(self.planner.topic_names(topics), topics)
            transactions = self.planner.transactions.ends(log, topics)
            return dict(log.end_offsets(wanted)) if wanted else {}, transactions
        finally:
            log.close()

    def reached(
        self,
        ends: Mapping[TopicPartition, int],
        transactions: Mapping[TopicPartition, int],
        known: Mapping[str, str],
    ) -> bool:
        """Whether all is read up to ``ends`` that can be taken, of topics that are there.

        ``transactions``: up to where topics of transactions say what can be; ``known``: the ids of topics then.
        """
        gone = self.planner.gone() | self._recreated_since(known)
        consumed, waits = self.planner.consumed(), self.planner.transactions.held_at(transactions)
        return all(
            tp.topic in gone or max(consumed.get(tp, 0), waits.get(tp, 0)) >= end for tp, end in ends.items()
        )

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
        if not isinstance(error, SourceError):
            return False
        if self.planner.leave_out(error):
            return True
        may_be_lost = self._config.on_lost_records == "skip" and self.topics is not None
        return may_be_lost and (self._replaced(ranges, ends) or self._lost(ranges))

    def _replaced(self, ranges: Iterable[SourceRange], ends: dict[TopicPartition, int]) -> bool:
        """Whether topics were made again under a running batch."""
        known = dict(self.planner.topic_ids)
        self.refresh(force=True)
        recreated = self._recreated_since(known)
        for tp in [tp for tp in ends if tp.topic in recreated]:
            del ends[tp]
        return not recreated.isdisjoint(span.topic for span in ranges)

    def _lost(self, ranges: Iterable[SourceRange]) -> bool:
        """Whether records were deleted under a running batch."""
        assert self.topics is not None
        read = [(TopicPartition(span.topic, span.partition), span) for span in ranges]
        begins = self.topics.begin_offsets([tp for tp, _ in read])
        lost = [(tp, span) for tp, span in read if begins[tp] > span.start]
        for tp, span in lost:
            self.planner.lose(span.node, tp, span.start, begins[tp])
        return bool(lost)

    def note_changes(self, found: Mapping[str, Mapping[int, int]]) -> None:
        """Notes with the application the first changes of topics that load, which a batch has read."""
        starts = self.planner.starts.and_changes(found)
        if starts != self.planner.starts and (application := self._log.application()) is not None:
            self.planner.starts = starts
            self._log.write_application(structs.replace(application, starts=starts))
            self._log.settled()

    def written_ends(self) -> dict[str, list[int]]:
        """Where the topics that sinks and dead letters may go to end, by partition."""
        return {} if self.topics is None else ends_of_written(self._topology, self._config, self.topics)

    def note_consumed(self) -> None:
        """Commits how far the application is.

        Raises `StateError`: CS-740 if an earlier instance runs, CS-720 if another one has taken the state.
        """
        instance = self._owner()
        if instance is not None:
            instance.commit(self._in_topics())

    def _in_topics(self) -> dict[TopicPartition, int]:
        """The positions in topics, without those in tables."""
        return {tp: at for tp, at in self.planner.consumed().items() if not is_elsewhere(tp.topic)}

    def _owner(self) -> Instance | None:
        """The instance, if it still has the state: one that lost it leaves the group to its successor.

        A process that stood still for a while (SIGSTOP) would else stop that one by its earlier mark.
        """
        instance, self._instance = self._instance, None  # also if this process has lost the state
        if instance is not None:
            self._log.assure()
        self._instance = instance
        return instance

    def close(self) -> None:
        if self._instance is not None:
            self._instance.end()
        for client in (self.topics, self._reader):
            if client is not None:
                client.close()


SETTLE_SECONDS, PAUSE_SECONDS = 1.0, 0.1
"""How long a topic to write to is looked for that is not there, and the pause between two looks."""


FIRST_PATIENCE = "10 seconds"
"""For brokers at a first start, if ``broker_patience`` is not set."""


def first_patience(config: StreamsConfig) -> str | None:
    """How long brokers are waited for at a first start; None: as long as the setting says, which was given."""
    is_set = config.broker_patience_ms != to_milliseconds(BROKER_PATIENCE)
    return None if config.servers is None or is_set else FIRST_PATIENCE


def connection_of(
    config: StreamsConfig, topology: Iterable[Node] = (), state: Place | None = None
) -> DeliveringConnection | None:
    """Where the topics of an application are, and the tables that a topology reads; None: it reads DataFrames only.

    ``state``: where tables that are read again have their logs; None: as the settings say.
    """
    nodes = tuple(topology)
    root = root_of(config.state_path if state is None else state)
    topics = with_histories(_topics_of(config), nodes, root)
    tables = (RefreshedTables.of(nodes, root), LakeTables.of(nodes), PastTables.of(nodes, root))
    return with_tables(topics, *tables)


def reads_topics(node: Node) -> bool:
    """Whether a node reads topics of Kafka or of a folder."""
    return node.reads_topics and not (node.topics and all(map(is_elsewhere, node.topics)))


def _topics_of(config: StreamsConfig) -> DeliveringConnection | None:
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
    for topic, where in named_topics(topology, config):
        if topic not in known and not _is_there(log, topic):
            what = f"the topic {topic!r} to write to does not exist, or the user may not see it"
            step = "create it, or correct the name; `crossstream topics list` shows what is there"
            raise refuse("CS-652", what, step, **where)


def named_topics(topology: Graph, config: StreamsConfig) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The topics that are written to, as far as it is known before any record; and what names each."""
    for sink in topology.each(Sink):
        if sink.topic is not None:
            yield sink.topic, sink.where
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

    while isinstance(log, Logs | HistoryLog):
        log = log.of_topics
    place = str(state) if state.is_remote else f"{state} on {socket.gethostname()}"
    return Instance(cast("KafkaLog", log), config.application_id, place, config.on_lost_state == "restart")


def ends_of_written(topology: Graph, config: StreamsConfig, log: TopicLog) -> dict[str, list[int]]:
    """Where the topics that sinks and dead letters may go to end, by partition."""
    known = {topic: count for topic, count in log.topics().items() if not is_elsewhere(topic)}
    return ends_of(log, _written(topology, config, known), known)


def ends_of(log: TopicLog, topics: Iterable[str], known: Mapping[str, int]) -> dict[str, list[int]]:
    """Where topics end, by partition; ``known``: the topics there are, with their numbers of partitions."""
    wanted = all_partitions(topics, known)
    ends = log.end_offsets(wanted)
    found: dict[str, list[int]] = {}
    for tp in wanted:
        found.setdefault(tp.topic, []).append(ends[tp])
    return found


def _written(topology: Graph, config: StreamsConfig, known: Mapping[str, int]) -> list[str]:
    """Those of the ``known`` topics that sinks and dead letters may go to."""
    if any(sink.topic is None for sink in topology.each(Sink)):
        return sorted(known)
    return sorted(known.keys() & {topic for topic, _ in named_topics(topology, config)})
