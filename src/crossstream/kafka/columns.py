"""Kafka messages as columns of `RECORDS`, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter, ne
from typing import cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from crossstream.records import RECORDS, Header, encode_headers
from crossstream.topics import TopicPartition

# Of a record that was read, none of these is None.
offset_of = cast("Callable[[Message], int]", Message.offset)
topic_of = cast("Callable[[Message], str]", Message.topic)
partition_of = cast("Callable[[Message], int]", Message.partition)
_headers_of = cast("Callable[[Message], list[Header] | None]", Message.headers)
_milliseconds = cast("Callable[[tuple[int, int]], int]", itemgetter(1))


def to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
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
    first, last = offset_of(messages[0]), offset_of(messages[-1])
    if last - first == len(messages) - 1:
        return np.arange(first, last + 1)
    return np.array(list(map(offset_of, messages)), np.int64)


def runs(messages: Sequence[Message]) -> Iterator[tuple[TopicPartition, Sequence[Message]]]:
    """Neighbouring messages of the same partition, together."""
    partitions = list(map(partition_of, messages))
    topics = list(map(topic_of, messages))
    if partitions.count(partitions[0]) == topics.count(topics[0]) == len(messages):
        yield TopicPartition(topics[0], partitions[0]), messages
        return
    begins = np.diff(partitions, prepend=-1) != 0
    begins[1:] |= np.fromiter(map(ne, topics[1:], topics), np.bool_, len(topics) - 1)
    starts = np.flatnonzero(begins).tolist()
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        yield TopicPartition(topics[start], partitions[start]), messages[start:end]
