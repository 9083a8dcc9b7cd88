"""Records into Kafka: one idempotent producer, kept open.

A producer that is cut off (`crossstream.kafka.client`) gives way to another, which gets what was not flushed. Some of
that may have been stored by the first, and is then there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from time import monotonic
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
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
from crossstream.kafka.settings import KafkaSettings
from crossstream.partitioning import Partitions, default_partitions
from crossstream.records import decode_headers
from crossstream.runtime.staged_records import BY_KEY
from crossstream.topics import check_name

CHUNK = 16_384
"""Records made Python objects at once."""
WORTH_SORTING = 512
"""Fewer records at once are written in the order in which they come."""
WAIT_SECONDS = 0.25
IDLE_SECONDS = 1.0
"""After so long a producer may have lost its brokers unnoticed."""
HELD_BYTES = 32 << 20
"""What is kept of written records until they are flushed. If there are more, no other producer can get them."""
SETTING = "max.message.bytes"

Rows = tuple["Sequence[bytes | None]", "Sequence[bytes | None]", Sequence[int], Sequence[int]]
Headers = list[tuple[str, "str | bytes | None"]]
Written = tuple[str, pa.RecordBatch, "Sequence[int] | None"]


class KafkaWriter:
    """Writes records with one producer that stays open; a `crossstream.topics.RecordWriter`.

    Records of a partition are stored in the order they are written, once each, also when the producer has
    to repeat itself. After an error the writer begins afresh: what was not flushed must be written again.

    Kafka's C client takes the timestamp 0 for "now"; a record with that timestamp is written with 1.
    """

    def __init__(self, connection: KafkaSettings) -> None:
        self._connection = connection
        self._complaints = Complaints()
        self._producer: Producer | None = None
        self._held: list[Written] | None = []  # since the last flush, unless they are too many
        self._held_bytes = 0
        self._flushed_at = 0.0
        self._failures: list[tuple[KafkaError, Message]] = []
        self._admin: AdminClient | None = None  # while topics are asked for their limits
        self._counts = PartitionCounts(connection.patience_seconds)
        self._sizes = SIZES
        self._fitting: set[str] = set()  # topics that take the producer's batches, as far as is known
        self._asked: dict[str, int | None] = {}  # what topics have said of their limits

    def open(self) -> Producer:
        """Opens the producer, if it is not: it connects in the background, and the first records need not wait."""
        if self._producer is None:
            self._producer = self._opened()
            self._forget()
            self._flushed_at = -IDLE_SECONDS
        return self._producer

    def _opened(self, transaction: Mapping[str, object] = MappingProxyType({})) -> Producer:
        self._failures, self._complaints = [], Complaints()
        return open_producer(
            self._connection, self._complaints, self._undelivered, self._sizes, transaction=transaction
        )

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
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
        self._failures = []
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

    def _connected(self, topic: str) -> Producer:
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

    def _hold(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None) -> None:
        """Keeps the records for another producer, while they are few."""
        self._held_bytes += records.get_total_buffer_size()
        if self._held_bytes > HELD_BYTES:
            self._held = None
        if self._held is not None:
            self._held.append((topic, records, partitions))

    def _forget(self) -> None:
        self._held, self._held_bytes = [], 0

    def _replace(self, producer: Producer, held: Sequence[Written]) -> Producer:
        """Another producer, which gets the records that are ``held``."""
        self._abandon(producer)
        producer = self.open()
        for written in held:
            self._hold(*written)
            self._pass_on(producer, *written)
        return producer

    def _pass_on(
        self, producer: Producer, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None
    ) -> None:
        chosen = None if partitions is None else np.asarray(partitions, np.int32)
        for start in range(0, records.num_rows, CHUNK):
            some = records.slice(start, CHUNK)
            goes = None if chosen is None else chosen[start : start + CHUNK]
            if some.num_rows >= WORTH_SORTING:
                some, goes = self._by_partition(producer, topic, some, goes)
            self._produce(producer, topic, _rows(some, goes), some.column("headers"))
            self._answer(producer, partial(producer.poll, 0))
            self._check(producer)

    def _by_partition(
        self, producer: Producer, topic: str, records: pa.RecordBatch, partitions: Partitions | None
    ) -> tuple[pa.RecordBatch, Partitions | None]:
        """One partition after the other, the records of each in their order; without a key, in any partition's.

        The client keeps, sends and frees the records of a partition together. Where those of several come by turns, it
        takes nearly twice the processor time. It still chooses the partition of records that have none.
        """
        goes = partitions
        if goes is None or (goes == BY_KEY).any():
            count = self._counts.known(topic, producer)
            if count is None:
                return records, partitions
            by_key = default_partitions(records.column("key"), count)
            goes = by_key if goes is None else np.where(goes == BY_KEY, by_key, goes)
        order = np.argsort(goes.astype(np.uint16), kind="stable")
        return records.take(pa.array(order)), None if partitions is None else partitions[order]

    def _produce(self, producer: Producer, topic: str, rows: Rows, cells: pa.Array) -> None:
        keys, values, partitions, timestamps = rows
        nothing = repeat(None)
        headers: Sequence[Headers | None] = [None] * len(keys)
        last: tuple[Sequence[Headers | None], ...] = ()
        if cells.null_count < len(cells):
            headers = [list(decode_headers(cell)) or None for cell in cells.to_pylist()]
            last = (headers,)
        # By position: half the cost of keywords. No Python frame per record without headers.
        calls = map(
            producer.produce, repeat(topic), values, keys, partitions, nothing, nothing, timestamps, *last
        )
        done: list[None] = []
        while len(done) < len(keys):
            try:
                done.extend(calls)
            except (BufferError, KafkaException) as full:
                row = len(done)
                record = values[row], keys[row], partitions[row], None, None, timestamps[row], headers[row]
                self._retry(producer, full, topic, record)
                done.append(None)

    def _retry(self, producer: Producer, problem: Exception, topic: str, record: tuple[Any, ...]) -> None:
        """Waits for room in the queue, for as long as it takes: records in it expire after the patience."""
        while isinstance(problem, BufferError):
            self._answer(producer, partial(producer.poll, WAIT_SECONDS))
            self._check(producer)
            try:
                return producer.produce(topic, *record)
            except (BufferError, KafkaException) as again:
                problem = again
        if problem.args[0].code() == KafkaError._FATAL:
            self._answer(producer, partial(producer.poll, 0))
        self._abandon(producer)
        _, key, partition, *_ = record
        raise faults.undelivered(problem.args[0], topic, partition, key) from problem

    def _answer(self, producer: Producer, ask: Callable[[], int]) -> int:
        """What the client answers. One that cannot continue (it may have no right to a producer id) raises once."""
        try:
            return ask()
        except KafkaException as ended:
            self._abandon(producer)
            error = ended.args[0]
            raise faults.not_written(
                f"the Kafka client cannot write any more: {error.str()}", error
            ) from ended

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append((error, message))

    def _check(self, producer: Producer) -> None:
        """Raises what the producer's threads reported."""
        denied = self._complaints.denied
        if self._failures:
            error, message = self._failures[0]
            if error.code() in faults.TIMED_OUT and denied is not None:
                error = denied
            record = message.topic(), message.partition(), message.key()
            refusal = faults.undelivered(error, *record, len(self._failures), self._complaints.last)
        elif denied is not None:
            refusal = faults.not_allowed(denied.str())
        else:
            return
        self._abandon(producer)  # which purges, and so adds failures
        raise refusal

    def _abandon(self, producer: Producer) -> None:
        """Throws the queue away; the next write opens another producer."""
        self._producer = None
        self._fitting, self._asked = set(), {}
        with suppress(KafkaException):
            producer.purge()
            producer.flush(1.0)


def _rows(records: pa.RecordBatch, partitions: Partitions | None) -> Rows:
    stamps = records.column("timestamp").to_numpy(zero_copy_only=False)
    return (
        records.column("key").to_pylist(),
        records.column("value").to_pylist(),
        [BY_KEY] * records.num_rows if partitions is None else partitions.tolist(),
        np.where(stamps == 0, 1, stamps).tolist(),
    )
