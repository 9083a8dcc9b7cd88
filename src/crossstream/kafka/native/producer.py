"""Rows of Arrow arrays into Kafka, without a Python object for each."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import addressof, byref, c_int64, c_void_p
from time import monotonic

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.kafka.native.client import NativeClient, milliseconds
from crossstream.kafka.native.library import ArrowArray, Failed
from crossstream.kafka.ports import Failure
from crossstream.partitioning import Partitions
from crossstream.records import PRODUCER_RECORDS
from crossstream.runtime.staged_records import BY_KEY

SLICE_SECONDS = 0.2
"""How long a signal may have to wait."""
PURGE_ALL = 3
"""What is in the queue and what is under way."""


class NativeProducer(NativeClient):
    """A `crossstream.kafka.ports.WritingClient`."""

    kind = 0

    def outgoing(
        self, topic: str, records: pa.RecordBatch, partitions: Partitions | None, count: int | None
    ) -> NativeOutgoing:
        return NativeOutgoing(self, topic, records, partitions, count)

    def failure(self) -> Failure | None:
        failed = Failed()
        if not self._library.cs_take_failure(self._client, byref(failed)):
            return None
        topic = ctypes.string_at(failed.topic).decode()
        key = None if failed.key_size < 0 else ctypes.string_at(failed.key, failed.key_size)
        self._library.cs_free(failed.topic)
        self._library.cs_free(failed.key)
        return Failure(failed.count, KafkaError(failed.code), topic, failed.partition, key)

    def poll(self, timeout: float) -> int:
        served: int = self._library.kafka_poll(self._alive(), milliseconds(timeout))
        self._report()
        return served

    def flush(self, timeout: float) -> int:
        deadline = monotonic() + timeout
        while self._library.kafka_flush(self._alive(), milliseconds(min(timeout, SLICE_SECONDS))):
            timeout = deadline - monotonic()
            if timeout <= 0:
                break
        self._report()
        return len(self)

    def purge(self) -> None:
        code = self._library.kafka_purge(self._alive(), PURGE_ALL)
        self._check_code(code, "Purge failed")

    def __len__(self) -> int:
        queued: int = self._library.kafka_outq_len(self._alive())
        return queued

    def init_transactions(self, timeout: float) -> None:
        self._check(self._library.kafka_init_transactions(self._alive(), milliseconds(timeout)))

    def begin_transaction(self) -> None:
        self._check(self._library.kafka_begin_transaction(self._alive()))

    def send_offsets_to_transaction(
        self, positions: list[KafkaPartition], group_metadata: object, timeout: float
    ) -> None:
        """``group_metadata``: of a consumer of Python's client; bytes as librdkafka writes them."""
        written, library, group = bytes(group_metadata), self._library, c_void_p()  # type: ignore[call-overload]
        self._check(library.kafka_consumer_group_metadata_read(byref(group), written, len(written)))
        try:
            with self._places(positions) as places:
                self._check(
                    library.kafka_send_offsets_to_transaction(
                        self._alive(), places, group, milliseconds(timeout)
                    )
                )
        finally:
            library.kafka_consumer_group_metadata_destroy(group)

    def commit_transaction(self, timeout: float) -> None:
        self._check(self._library.kafka_commit_transaction(self._alive(), milliseconds(timeout)))

    def abort_transaction(self, timeout: float) -> None:
        self._check(self._library.kafka_abort_transaction(self._alive(), milliseconds(timeout)))


class NativeOutgoing:
    """A `crossstream.kafka.ports.Outgoing`; it holds the records until it is forgotten."""

    def __init__(
        self,
        producer: NativeProducer,
        topic: str,
        records: pa.RecordBatch,
        partitions: Partitions | None,
        count: int | None,
    ) -> None:
        self._producer, self._topic, self._records = producer, topic.encode(), records
        self._partitions = None if partitions is None else np.ascontiguousarray(partitions, np.int32)
        self._row = c_int64()
        library = producer._library
        chosen = None if self._partitions is None else self._partitions.ctypes.data
        exported = ArrowArray()
        _sent(records)._export_to_c(addressof(exported))
        self._rows = library.cs_outgoing_new(byref(exported), chosen, count or 0)
        if self._rows is None:
            raise MemoryError
        weakref.finalize(self, library.cs_outgoing_free, self._rows).atexit = False

    def order(self) -> list[int]:
        """The rows in the order in which they are sent."""
        order = self._producer._library.cs_outgoing_order(self._rows)
        return order[: self._records.num_rows] if order else list(range(self._records.num_rows))

    def send(self) -> KafkaError | None:
        producer = self._producer
        producer._alive()
        code = producer._library.cs_outgoing_send(self._rows, producer._client, self._topic, byref(self._row))
        if not code:
            return None
        reason = producer._library.kafka_err2str(code).decode()
        return KafkaError(code, f"Unable to produce message: {reason}")

    def refused(self) -> tuple[int, bytes | None]:
        row = self._row.value
        partition = BY_KEY if self._partitions is None else int(self._partitions[row])
        return partition, self._records.column("key")[row].as_py()


def _sent(records: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are sent, of the types that the native part reads."""
    columns = [records.column(field.name) for field in PRODUCER_RECORDS]
    fitting = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, PRODUCER_RECORDS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(fitting, schema=PRODUCER_RECORDS)
