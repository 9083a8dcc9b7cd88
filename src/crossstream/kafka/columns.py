"""Kafka messages as columns of `RECORDS`, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import cast

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
    """The messages as one batch of `RECORDS`, in their order. No Python frame per message."""
    headers = list(map(_headers_of, messages))
    bare = headers.count(None) == len(headers)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(list(map(Message.key, messages)), pa.large_binary()),
            pa.array(list(map(Message.value, messages)), pa.large_binary()),
            pa.array(list(map(_milliseconds, map(Message.timestamp, messages))), pa.int64()),
            pa.array(list(map(offset_of, messages)), pa.int64()),
            pa.nulls(len(headers), pa.large_binary())
            if bare
            else pa.array(list(map(encode_headers, headers)), pa.large_binary()),
        ],
        schema=RECORDS,
    )


def runs(messages: Sequence[Message]) -> Iterator[tuple[TopicPartition, Sequence[Message]]]:
    """Neighbouring messages of the same partition, together."""
    partitions = list(map(partition_of, messages))
    topics = list(map(topic_of, messages))
    if partitions.count(partitions[0]) == topics.count(topics[0]) == len(messages):
        yield TopicPartition(topics[0], partitions[0]), messages
        return
    places = list(zip(topics, partitions, strict=True))
    start = 0
    for place, rows in groupby(places):
        end = start + sum(1 for _ in rows)
        yield TopicPartition(*place), messages[start:end]
        start = end
