"""The driver's side of Kafka: which topics there are, how far they reach, and how far they were read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, sleep
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, TopicMetadata  # type: ignore[attr-defined]

from crossstream.errors import CrossStreamError
from crossstream.kafka import errors
from crossstream.kafka.client import (
    SETTLE_SECONDS,
    UNANSWERED,
    Complaints,
    logger,
    open_admin,
)
from crossstream.kafka.group import Committed, Group
from crossstream.kafka.offsets_for_times import OffsetsForTimes
from crossstream.kafka.settings import KafkaSettings
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition, partition_of

T = TypeVar("T")

LOOK_SECONDS = 5.0
CHANGE_SECONDS = 30.0
"""How long one request may take, that asks or that changes something; then it is made again."""
PAUSE_SECONDS = 0.2
TRY_SECONDS = 1.0
NO_ID = str(Uuid(0, 0))
"""The id of every topic where brokers know none."""

STALE = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH})
"""The client and the broker know different elections of a leader, as after a broker that was away is back."""

INCONSISTENT_TOPIC_ID = 103
"""Kafka's number, for older clients have no name of it."""

PASSING = frozenset(
    {
        *STALE,
        *UNANSWERED,
        *errors.MISSING,
        KafkaError._RESOLVE,
        KafkaError._IN_PROGRESS,
        *errors.UNLED,
        KafkaError._SSL,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_ID,
        INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that a little patience may cure: those that Java's clients retry, for the requests that are made here."""


class KafkaLog:
    """Topics and offsets of a cluster; a `crossstream.topics.TopicLog`.

    Every call waits quietly while brokers are away, up to the connection's patience, and then raises
    `SourceError`: CS-602 missing topic, CS-604 no answer or another refusal, CS-605 access refused.
    """

    def __init__(self, connection: KafkaSettings) -> None:
        self._connection = connection
        self._complaints = Complaints()
        self._client: AdminClient | None = None
        self._committing: Group | None = None
        self._times = OffsetsForTimes(connection)

    def topics(self) -> Mapping[str, int]:
        """Every topic and its number of partitions, of those that the user may see."""
        found = self._patiently(lambda timeout: self._admin().list_topics(timeout=timeout).topics)
        return {name: len(topic.partitions) for name, topic in sorted(found.items()) if topic.error is None}

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """The topic ids (KIP-516), if a broker gives them now: those before Kafka 2.8 have none.

        No patience: nothing rests on the answer, and unlike other questions this one is for the controller.
        """
        found = {}
        wanted = TopicCollection(list(topics))
        asked = self._admin().describe_topics(wanted, request_timeout=LOOK_SECONDS) if topics else {}
        for topic, answer in asked.items():
            try:
                found[topic] = str(answer.result().topic_id)
            except KafkaException as failed:
                logger.info("the id of the topic %s is not known: %s", topic, failed)
        return {topic: known for topic, known in found.items() if known != NO_ID}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset still held, for each partition."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset one past the last readable record: the last stable offset."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each range with that timestamp (ms) or a later one; see `TopicLog.offsets_for_times`.

        One request, and in topics that are written in transactions a look at records: `offsets_for_times`.
        """
        wanted = [partition_of(span) for span in spans]
        found = self._moments(wanted, OffsetSpec.for_timestamp(timestamp), nowhere=True)
        answers = {tp: None if moment.offset < 0 else moment for tp, moment in found.items()}
        return self._times.find(spans, answers, timestamp, most)

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates the topic with the cluster's replication factor, and returns when it can be used.

        Raises `SinkError` CS-656: it exists already, or it cannot be created.
        """
        if topic in self.topics():
            raise errors.exists(topic)
        new = NewTopic(topic, partitions, config=dict(config or {}))

        def create(timeout: float) -> None:
            self._admin().create_topics([new], request_timeout=timeout)[topic].result()

        try:
            self._patiently(create, CHANGE_SECONDS)
        except KafkaException as failed:
            error = failed.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise errors.exists(topic) from failed
            raise errors.not_created(topic, error.str()) from failed

        def look(timeout: float) -> None:
            found = self._describe(topic, timeout).partitions.values()
            if sum(partition.leader != -1 for partition in found) < partitions:
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

        self._patiently(look)

    def delete_topic(self, topic: str) -> None:
        """Deletes the topic with its records, and returns when the brokers do not show it any more.

        Raises `SourceError` CS-602: there is none; `SinkError` CS-656: it cannot be deleted.
        """
        if topic not in self.topics():
            raise errors.missing(topic)

        def delete(timeout: float) -> None:
            self._admin().delete_topics([topic], request_timeout=timeout)[topic].result()

        try:
            self._patiently(delete, CHANGE_SECONDS)
        except KafkaException as failed:
            error = failed.args[0]
            if error.code() not in errors.MISSING:  # a request before this one has deleted it
                raise errors.not_deleted(topic, error.str()) from failed
        ends = monotonic() + self._connection.patience_seconds
        while topic in self.topics() and monotonic() < ends:
            sleep(PAUSE_SECONDS)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], note: str = "") -> None:
        """Commits ``offsets`` (next offset to read) to the consumer group, where lag tools find them.

        ``note``: the metadata of each. Raises `SourceError` CS-608 if the group is in use by others or not ours to
        write.
        """
        if not offsets:
            return
        try:
            self._patiently(partial(self._group(group).commit, _marks(offsets, note)))
        except KafkaException as failed:
            raise errors.uncommitted(group, failed.args[0].str()) from failed

    def try_to_commit(self, group: str, offsets: Mapping[TopicPartition, int], note: str) -> None:
        """Commits if the group's broker answers at once; nothing rests on it."""
        with suppress(KafkaException):
            self._group(group).commit(_marks(offsets, note), TRY_SECONDS)

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Committed]:
        """What was committed to the consumer group, where anything was. Raises `SourceError` CS-608."""
        wanted = [KafkaPartition(tp.topic, tp.partition) for tp in partitions]
        try:
            found = self._patiently(partial(self._group(group).committed, wanted)) if wanted else []
        except KafkaException as failed:
            raise errors.uncommitted(group, failed.args[0].str()) from failed
        return {
            TopicPartition(mark.topic, mark.partition): Committed(mark.offset, mark.metadata or "")
            for mark in found
            if mark.offset >= 0
        }

    def close(self) -> None:
        """Closes the clients; a later call opens others."""
        self._client = None
        self._times.close()
        self._close_group()

    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = open_admin(self._connection, self._complaints)
        return self._client

    def _offsets(self, partitions: Sequence[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        return {tp: moment.offset for tp, moment in self._moments(partitions, spec).items()}

    def _moments(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec, nowhere: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """One request per broker for all partitions; ``nowhere``: the offset -1 is an answer."""
        if not partitions:
            return {}
        wanted = {KafkaPartition(tp.topic, tp.partition): spec for tp in partitions}

        def ask(timeout: float) -> dict[TopicPartition, OffsetAndTimestamp]:
            answers = self._admin().list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=timeout
            )
            moments = {
                TopicPartition(at.topic, at.partition): OffsetAndTimestamp(
                    found.result().offset, found.result().timestamp
                )
                for at, found in answers.items()
            }
            if not nowhere and any(moment.offset < 0 for moment in moments.values()):
                # A leader that has just come back does not know yet how far its log may be read.
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return moments

        patience, began = self._connection.patience_seconds, monotonic()
        while True:
            try:
                return self._patiently(ask)
            except KafkaException as failed:
                error = failed.args[0]
                missing = self._missing(partitions)
                if missing is not None:
                    raise missing from failed
                if not _may_pass(error):
                    raise errors.unanswerable(error.str()) from failed
                if monotonic() - began >= patience:
                    raise errors.away(patience, error.str()) from failed

    def _missing(self, partitions: Sequence[TopicPartition]) -> CrossStreamError | None:
        """What is wrong with one of the partitions, for which a request failed."""
        for tp in partitions:
            topic = self._patiently(partial(self._describe, tp.topic))
            if topic.error is not None:
                is_denied = errors.is_denial(topic.error)
                return errors.refused(topic.error.str(), tp.topic) if is_denied else errors.missing(tp.topic)
            if tp.partition not in topic.partitions:
                return errors.missing(tp.topic, tp.partition)
        return None

    def _describe(self, topic: str, timeout: float) -> TopicMetadata:
        return self._admin().list_topics(topic, timeout=timeout).topics[topic]

    def _group(self, name: str) -> Group:
        if self._committing is None or self._committing.name != name:
            self._close_group()
            self._committing = Group(self._connection, name, self._complaints)
        return self._committing

    def _close_group(self) -> None:
        if self._committing is not None:
            self._committing.close()
            self._committing = None

    def _patiently(self, ask: Callable[[float], T], seconds: float = LOOK_SECONDS) -> T:
        """The answer, also where brokers are away for a part of the patience; raises other errors at once."""
        patience = self._connection.patience_seconds
        began = monotonic()
        self._complaints.denied = None
        while True:
            try:
                return ask(min(seconds, patience))
            except KafkaException as failed:
                error = failed.args[0]
                self._admin().poll(0)  # brings in complaints
                waited = monotonic() - began
                denial = error if errors.is_denial(error) else self._complaints.denied
                if denial is not None:
                    raise errors.refused(denial.str()) from failed
                if error.code() in STALE | UNANSWERED:
                    self._client = None  # what it knows of leaders or brokers is outdated
                if not _may_pass(error):
                    raise
                if error.code() in errors.MISSING | errors.UNLED and waited >= min(SETTLE_SECONDS, patience):
                    raise
                if waited >= patience:
                    raise errors.away(patience, self._complaints.last or error.str()) from failed
                logger.info("waiting for the brokers: %s", error.str())
                sleep(PAUSE_SECONDS)


def _marks(offsets: Mapping[TopicPartition, int], note: str) -> list[KafkaPartition]:
    return [KafkaPartition(tp.topic, tp.partition, offset, note) for tp, offset in offsets.items()]


def _may_pass(error: KafkaError) -> bool:
    """Whether the same request may succeed a little later."""
    return error.retriable() or error.code() in PASSING
