"""Records out of Kafka into Arrow arrays, without a Python object for each."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import addressof, byref, c_int64

import pyarrow as pa
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.kafka.native import library as native
from crossstream.kafka.native.client import NativeClient, milliseconds
from crossstream.kafka.ports import Event, Run, Taken
from crossstream.records import RECORDS
from crossstream.topics import TopicPartition


class NativeConsumer(NativeClient):
    """A `crossstream.kafka.ports.ReadingClient`."""

    kind = 1

    def take(self, most: int, seconds: float) -> Taken:
        self._alive()
        taken = self._library.cs_take(self._client, most, milliseconds(seconds))
        if not taken:
            raise MemoryError
        found = taken.contents
        runs = [_run(run) for run in found.runs[: found.run_count]]
        events = [_event(event) for event in found.events[: found.event_count]]
        self._report()
        return Taken(runs, events)

    def incremental_assign(self, partitions: Iterable[KafkaPartition]) -> None:
        with self._places(partitions) as places:
            self._check(self._library.kafka_incremental_assign(self._alive(), places))

    def incremental_unassign(self, partitions: Iterable[KafkaPartition]) -> None:
        with self._places(partitions) as places:
            self._check(self._library.kafka_incremental_unassign(self._alive(), places))

    def unassign(self) -> None:
        self._check_code(self._library.kafka_assign(self._alive(), None), "Failed to remove assignment")

    def get_watermark_offsets(
        self, partition: KafkaPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        begin, end = c_int64(-1), c_int64(-1)
        topic = self._alive(), partition.topic.encode(), partition.partition, byref(begin), byref(end)
        if cached:
            code = self._library.kafka_get_watermark_offsets(*topic)
        else:
            code = self._library.kafka_query_watermark_offsets(*topic, milliseconds(timeout))
        self._report()
        self._check_code(code, "Failed to get watermark offsets")
        return begin.value, end.value

    def close(self) -> None:
        self._close()


def _run(run: native.Run) -> Run:
    records = pa.RecordBatch._import_from_c(addressof(run.rows), RECORDS)
    return Run(TopicPartition(run.topic.decode(), run.partition), records, run.first, run.last)


def _event(event: native.Event) -> Event:
    topic = None if event.topic is None else event.topic.decode()
    error = KafkaError(event.code, event.text.decode(errors="replace"))
    return Event(topic, event.partition, event.offset, error)
