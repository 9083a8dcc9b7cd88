"""Kafka's Python client, with an object for each record, as the reader and the writer ask for it (`ports`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from logging import Logger
from operator import itemgetter, ne
from typing import Any, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from crossstream.gc_pause import paused_gc
from crossstream.kafka.ports import Event, Failure, Run, Taken
from crossstream.partitioning import Partitions, default_partitions
from crossstream.records import RECORDS, Header, decode_headers, encode_headers
from crossstream.runtime.staged_records import BY_KEY
from crossstream.topics import TopicPartition

# Of a record that was read, none of these is None.
_offset_of = cast("Callable[[Message], int]", Message.offset)
_topic_of = cast("Callable[[Message], str]", Message.topic)
_partition_of = cast("Callable[[Message], int]", Message.partition)
_headers_of = cast("Callable[[Message], list[Header] | None]", Message.headers)
_milliseconds = cast("Callable[[tuple[int, int]], int]", itemgetter(1))

NOTHING = Taken((), ())


class MessageConsumer(Consumer):
    """A `crossstream.kafka.ports.ReadingClient`."""

    def take(self, most: int, seconds: float) -> Taken:
        with paused_gc():
            first = self.poll(seconds)
            if first is None:
                return NOTHING
            messages = [first, *self.consume(most - 1, 0)] if most > 1 else [first]
            records = messages
            if any(map(Message.error, messages)):
                records = [message for message in messages if message.error() is None]
            taken = Taken([_run(*run) for run in _runs(records)] if records else [], _events(messages))
            del messages, records, first  # before the collector is back
        return taken


def _run(tp: TopicPartition, messages: Sequence[Message]) -> Run:
    return Run(tp, _to_batch(messages), _offset_of(messages[0]), _offset_of(messages[-1]))


def _events(messages: Sequence[Message]) -> list[Event]:
    return [
        Event(message.topic(), message.partition() or 0, message.offset() or 0, error)
        for message in messages
        if (error := message.error()) is not None
    ]


def _to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """The messages of one partition as a batch of `RECORDS`, in their order. No Python frame per message."""
    headers = list(map(_headers_of, messages))
    bare = headers.count(None) == len(headers)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(list(map(Message.key, messages)), pa.large_binary()),
            pa.array(list(map(Message.value, messages)), pa.large_binary()),
            pa.array(np.array(list(map(_milliseconds, map(Message.timestamp, messages))), np.int64)),
            pa.array(_offsets(messages)),
            pa.nulls(len(headers), pa.large_binary())
            if bare
            else pa.array(list(map(encode_headers, headers)), pa.large_binary()),
        ],
        schema=RECORDS,
    )


def _offsets(messages: Sequence[Message]) -> np.ndarray:
    """They ascend, so the first and the last one say whether there are gaps."""
    first, last = _offset_of(messages[0]), _offset_of(messages[-1])
    if last - first == len(messages) - 1:
        return np.arange(first, last + 1)
    return np.array(list(map(_offset_of, messages)), np.int64)


def _runs(messages: Sequence[Message]) -> Iterator[tuple[TopicPartition, Sequence[Message]]]:
    """Neighbouring messages of the same partition, together."""
    partitions = list(map(_partition_of, messages))
    topics = list(map(_topic_of, messages))
    if partitions.count(partitions[0]) == topics.count(topics[0]) == len(messages):
        yield TopicPartition(topics[0], partitions[0]), messages
        return
    begins = np.diff(partitions, prepend=-1) != 0
    begins[1:] |= np.fromiter(map(ne, topics[1:], topics), np.bool_, len(topics) - 1)
    starts = np.flatnonzero(begins).tolist()
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        yield TopicPartition(topics[start], partitions[start]), messages[start:end]


class MessageProducer(Producer):
    """A `crossstream.kafka.ports.WritingClient`."""

    def __init__(self, settings: Mapping[str, object], *, logger: Logger) -> None:
        self._failures = _Failures()
        super().__init__({**settings, "on_delivery": self._failures}, logger=logger)

    def outgoing(
        self, topic: str, records: pa.RecordBatch, partitions: Partitions | None, count: int | None
    ) -> MessageOutgoing:
        if count is not None:
            records, partitions = by_partition(records, partitions, count)
        return MessageOutgoing(self, topic, records, partitions)

    def failure(self) -> Failure | None:
        failed, self._failures.failed = self._failures.failed, []
        if not failed:
            return None
        error, message = failed[0]
        return Failure(len(failed), error, message.topic(), message.partition(), message.key())


class _Failures:
    """Keeps the records that were not stored."""

    def __init__(self) -> None:
        self.failed: list[tuple[KafkaError, Message]] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append((error, message))


def by_partition(
    records: pa.RecordBatch, partitions: Partitions | None, count: int
) -> tuple[pa.RecordBatch, Partitions | None]:
    goes = partitions
    if goes is None or (goes == BY_KEY).any():
        by_key = default_partitions(records.column("key"), count)
        goes = by_key if goes is None else np.where(goes == BY_KEY, by_key, goes)
    order = np.argsort(goes.astype(np.uint16), kind="stable")
    return records.take(pa.array(order)), None if partitions is None else partitions[order]


class MessageOutgoing:
    """Calls ``producer`` once for each record: by position, half the cost of keywords, without a Python frame."""

    def __init__(
        self, producer: Producer, topic: str, records: pa.RecordBatch, partitions: Partitions | None
    ) -> None:
        self._producer, self._topic, self._next = producer, topic, 0
        stamps = records.column("timestamp").to_numpy(zero_copy_only=False)
        cells = records.column("headers")
        nothing = [None] * records.num_rows
        self._columns: list[Sequence[Any]] = [
            records.column("value").to_pylist(),
            records.column("key").to_pylist(),
            [BY_KEY] * records.num_rows if partitions is None else partitions.tolist(),
            nothing,
            nothing,
            np.where(stamps == 0, 1, stamps).tolist(),  # the client takes 0 for now
        ]
        if cells.null_count < len(cells):
            self._columns.append([list(decode_headers(cell)) or None for cell in cells.to_pylist()])

    def send(self) -> KafkaError | None:
        calls = map(
            self._producer.produce, repeat(self._topic), *(column[self._next :] for column in self._columns)
        )
        done: list[None] = []
        try:
            done.extend(calls)
        except BufferError:
            return KafkaError(KafkaError._QUEUE_FULL)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            return error
        finally:
            self._next += len(done)
        return None

    def refused(self) -> tuple[int, bytes | None]:
        _, keys, partitions, *_ = self._columns
        return partitions[self._next], keys[self._next]
