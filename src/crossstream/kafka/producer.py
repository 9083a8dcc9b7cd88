"""Records into Kafka: one idempotent producer, kept open.

A producer that is cut off (`crossstream.kafka.client`) gives way to another, which gets what was not flushed. Some of
that may have been stored by the first, and is then there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from types import MappingProxyType

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from crossstream.kafka import errors as faults
from crossstream.kafka.client import (
    ASK_SECONDS,
    LARGEST_RECORD_BYTES,
    SIZES,
    Complaints,
    FlushStall,
    find_brokers,
    is_cut_off,
    logger,
    open_admin,
    open_producer,
)
from crossstream.kafka.partition_counts import PartitionCounts
from crossstream.kafka.ports import Failure, Outgoing, WritingClient
from crossstream.kafka.settings import KafkaSettings
from crossstream.partitioning import Partitions
from crossstream.runtime.staged_records import BY_KEY
from crossstream.topics import check_name

CHUNK = 16_384
"""Records that go to the client at once, between looks at what it reports."""
WORTH_SORTING = 512
"""Fewer records at once are written in the order in which they come."""
MOST_PARTITIONS = 1 << 16
"""Of a topic with more, or of numbers that are no partitions, records are not sorted."""
WAIT_SECONDS = 0.25
IDLE_SECONDS = 1.0
"""After so long a producer may have lost its brokers unnoticed."""
HELD_BYTES = 32 << 20
"""What is kept of written records until they are flushed. If there are more, no other producer can get them."""
SETTING = "max.message.bytes"

Chosen = Sequence[int] | Partitions
"""A partition for each record."""
Written = tuple[str, pa.RecordBatch, Chosen | None]


class KafkaWriter:
    """Writes records with one producer that stays open; a `crossstream.topics.RecordWriter`.

    Records of a partition are stored in the order they are written, once each, also when the producer has
    to repeat itself. After an error the writer begins afresh: what was not flushed must be written again.

    Kafka's C client takes the timestamp 0 for "now"; a record with that timestamp is written with 1.
    """

    def __init__(self, connection: KafkaSettings) -> None:
        self._connection = connection
        self._complaints = Complaints()
        self._producer: WritingClient | None = None
        self._held: list[Written] | None = []  # since the last flush, unless they are too many
        self._held_bytes = 0
        self._flushed_at = 0.0
        self._failure: Failure | None = None  # the last that was raised
        self._admin: AdminClient | None = None  # while topics are asked for their limits
        self._counts = PartitionCounts(connection.patience_seconds)
        self._sizes = SIZES
        self._fitting: set[str] = set()  # topics that take the producer's batches, as far as is known
        self._asked: dict[str, int | None] = {}  # what topics have said of their limits

    def open(self) -> WritingClient:
        """Opens the producer, if it is not: it connects in the background, and the first records need not wait."""
        if self._producer is None:
            self._producer = self._opened()
            self._forget()
            self._flushed_at = -IDLE_SECONDS
        return self._producer

    def _opened(self, transaction: Mapping[str, object] = MappingProxyType({})) -> WritingClient:
        self._failure, self._complaints = None, Complaints()
        return open_producer(self._connection, self._complaints, self._sizes, transaction=transaction)

    def write(self, topic: str, records: pa.RecordBatch, partitions: Chosen | None = None) -> None:
        """Appends ``records`` (columns of `RECORDS`, ``offset`` not needed) in order, in the background.

        ``partitions``: one per record, or None for murmur2 of the key (null keys anywhere). Waits while
        the producer's queue is full. Raises `SinkError` (CS-651 to CS-654) for this and earlier records, and
        CS-656 for what cannot be the name of a topic.
        """
        if partitions is not None and len(partitions) != records.num_rows:
            raise ValueError(f"{len(partitions)} partitions were given for {records.num_rows} records")
        self._fit(topic)
        producer = self._connected(topic)
        self._hold(topic, records, partitions)
        self._pass_on(producer, topic, records, partitions)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; raises `SinkError` (CS-651 to CS-653, CS-656) if that cannot be known."""
        check_name(topic)
        return self._counts.of(topic, self.open(), self._complaints)

    def record_limit(self, topic: str) -> int:
        """The most bytes of a record of the topic, before compression: what the topic and the client allow."""
        check_name(topic)
        self.open()  # refuses a setting that is no number
        given, limit = self._connection.settings.get("message.max.bytes"), self._limit(topic)
        if given is None:
            return self._sizes.record if limit is None else min(limit, LARGEST_RECORD_BYTES)
        return int(str(given)) if limit is None else min(limit, int(str(given)))

    def flush(self) -> None:
        """Returns when everything written is stored; raises `SinkError` if anything was not.

        The error (CS-651 to CS-654) names topic, partition and key of the first record that was not.
        """
        producer = self._producer
        if producer is None:
            return
        stall = FlushStall()
        while left := self._answer(producer, partial(producer.flush, WAIT_SECONDS)):
            self._check(producer)
            if self._held is not None and stall.lasts(left) and is_cut_off(producer, self._connection):
                producer = self._replace(producer, self._held)
        self._check(producer)
        self._forget()
        self._admin = None
        self._flushed_at = monotonic()

    def close(self) -> None:
        """Closes the producer without waiting: what was not flushed may be lost."""
        self._admin = None
        if self._producer is not None:
            self._abandon(self._producer)

    def _fit(self, topic: str) -> None:
        """Before the first records of a topic: one of smaller batches, or larger records, gets another producer.

        What was written is flushed before, so nothing is written twice. The settings of the user are kept.
        """
        if topic in self._fitting:
            return
        check_name(topic)
        is_given = self._sizes.settings().keys() <= self._connection.settings.keys()
        limit = None if is_given else self._limit(topic)
        sizes = self._sizes if limit is None else self._sizes.fitting(limit)
        if sizes != self._sizes:
            self.flush()
            self.close()
            self._sizes = sizes
        self._fitting.add(topic)

    def _limit(self, topic: str) -> int | None:
        """What the topic says; it is asked once as long as all goes well."""
        if topic not in self._asked:
            self._asked[topic] = self._ask_for_limit(topic)
        return self._asked[topic]

    def _ask_for_limit(self, topic: str) -> int | None:
        """The most bytes; None if unknown: there is no such topic, no answer, or no right to it."""
        if self._admin is None:
            self._admin = open_admin(self._connection, Complaints())
        seconds = min(ASK_SECONDS, self._connection.patience_seconds)
        try:
            wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
            [found] = self._admin.describe_configs([wanted], request_timeout=seconds).values()
            return int(found.result()[SETTING].value)
        except (KafkaException, KeyError, ValueError) as failed:
            logger.info("cannot ask for %s of %s: %s", SETTING, topic, failed)
            return None

    def _connected(self, topic: str) -> WritingClient:
        """The producer; if it has been idle, it is asked for the topic first, so that it has a connection.

        A new client needs one to get its producer id. If there is none when records come, it looks again after half a
        second, and they wait for as long.
        """
        producer = self.open()
        if self._held_bytes or monotonic() - self._flushed_at < IDLE_SECONDS:
            return producer
        # If it cannot be asked, the records will fail.
        if not find_brokers(producer, topic, self._connection) and is_cut_off(producer, self._connection):
            producer = self._replace(producer, [])
        return producer

    def _hold(self, topic: str, records: pa.RecordBatch, partitions: Chosen | None) -> None:
        """Keeps the records for another producer, while they are few."""
        self._held_bytes += records.get_total_buffer_size()
        if self._held_bytes > HELD_BYTES:
            self._held = None
        if self._held is not None:
            self._held.append((topic, records, partitions))

    def _forget(self) -> None:
        self._held, self._held_bytes = [], 0

    def _replace(self, producer: WritingClient, held: Sequence[Written]) -> WritingClient:
        """Another producer, which gets the records that are ``held``."""
        self._abandon(producer)
        producer = self.open()
        for written in held:
            self._hold(*written)
            self._pass_on(producer, *written)
        return producer

    def _pass_on(
        self,
        producer: WritingClient,
        topic: str,
        records: pa.RecordBatch,
        partitions: Chosen | None,
    ) -> None:
        chosen = None if partitions is None else np.asarray(partitions, np.int32)
        for start in range(0, records.num_rows, CHUNK):
            some = records.slice(start, CHUNK)
            goes = None if chosen is None else chosen[start : start + CHUNK]
            outgoing = producer.outgoing(topic, some, goes, self._sorted_by(producer, topic, some, goes))
            while (refusal := outgoing.send()) is not None:
                self._retry(producer, refusal, topic, outgoing)
            self._answer(producer, partial(producer.poll, 0))
            self._check(producer)

    def _sorted_by(
        self, producer: WritingClient, topic: str, records: pa.RecordBatch, partitions: Partitions | None
    ) -> int | None:
        """Of how many partitions records are sorted by theirs; None: they are not."""
        if records.num_rows < WORTH_SORTING:
            return None
        if partitions is not None and (partitions != BY_KEY).all():
            most = int(partitions.max()) + 1
            return most if most <= MOST_PARTITIONS else None
        return self._counts.known(topic, producer)

    def _retry(self, producer: WritingClient, refusal: KafkaError, topic: str, outgoing: Outgoing) -> None:
        """Waits a little for room in the queue; records in it expire after the patience. Raises what else there is."""
        if refusal.code() == KafkaError._QUEUE_FULL:
            self._answer(producer, partial(producer.poll, WAIT_SECONDS))
            self._check(producer)
            return
        if refusal.code() == KafkaError._FATAL:
            self._answer(producer, partial(producer.poll, 0))
        self._abandon(producer)
        raise faults.undelivered(refusal, topic, *outgoing.refused()) from KafkaException(refusal)

    def _answer(self, producer: WritingClient, ask: Callable[[], int]) -> int:
        """What the client answers. One that cannot continue (it may have no right to a producer id) raises once."""
        try:
            return ask()
        except KafkaException as ended:
            self._abandon(producer)
            error = ended.args[0]
            raise faults.not_written(
                f"the Kafka client cannot write any more: {error.str()}", error
            ) from ended

    def _check(self, producer: WritingClient) -> None:
        """Raises what the producer's threads reported."""
        denied = self._complaints.denied
        failure = producer.failure()
        if failure is not None:
            self._failure = failure
            error = failure.error
            if error.code() in faults.TIMED_OUT and denied is not None:
                error = denied
            record = failure.topic, failure.partition, failure.key
            refusal = faults.undelivered(error, *record, failure.lost, self._complaints.last)
        elif denied is not None:
            refusal = faults.not_allowed(denied.str())
        else:
            return
        self._abandon(producer)
        raise refusal

    def _abandon(self, producer: WritingClient) -> None:
        """Throws the queue away; the next write opens another producer."""
        self._producer = None
        self._fitting, self._asked = set(), {}
        with suppress(KafkaException):
            producer.purge()
            producer.flush(1.0)
