"""The messages of one range, as they come from Kafka and as columns of `RECORDS`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter, ne
from typing import cast

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from crossstream.records import RECORDS, Header, concat, encode_headers
from crossstream.topics import OffsetRange, TopicPartition

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


class Cursor:
    """The read of one range.

    ``position`` is the next offset it needs, ``ahead`` what came past its end, and ``known_end`` how far the
    client has reported the partition empty of more (it does so once for each end).
    """

    def __init__(self, span: OffsetRange) -> None:
        self.span = span
        self.tp = TopicPartition(span.topic, span.partition)
        self.position = span.start
        self.assigned = True
        self.ahead: list[Message] = []
        self.known_end = span.start
        self.rows = 0
        self.size = 0
        self._batches: list[pa.RecordBatch] = []

    @property
    def done(self) -> bool:
        return self.position >= self.span.end

    def take(self, messages: Sequence[Message]) -> None:
        """Keeps the messages of the range as columns, and those past it as messages."""
        if offset_of(messages[0]) < self.position:
            messages = messages[bisect_left(messages, self.position, key=offset_of) :]
        cut = len(messages)
        if cut and offset_of(messages[-1]) >= self.span.end:
            cut = bisect_left(messages, self.span.end, key=offset_of)
            self.ahead.extend(messages[cut:])
            self.position = self.span.end
        elif cut:
            self.position = offset_of(messages[-1]) + 1
        if cut:
            self._keep(to_batch(messages[:cut]))

    def reach(self, offset: int) -> None:
        """The partition ends at ``offset``: nothing but what came already lies below it."""
        self.known_end = max(self.known_end, offset)
        if offset >= self.span.end:
            self.position = self.span.end

    def continue_from(self, last: Cursor) -> None:
        """Takes over what came past the end of the range before this one."""
        if last.ahead:
            self.take(last.ahead)
        self.reach(last.known_end)

    def full_batches(self, max_rows: int, *, everything: bool) -> Iterator[pa.RecordBatch]:
        """Batches of ``max_rows`` rows; with ``everything`` also the rows that do not fill one."""
        if not self.rows:
            return
        whole = concat(self._batches)
        end = self.rows if everything else self.rows - self.rows % max_rows
        self._batches, self.rows, self.size = [], 0, 0
        if end < whole.num_rows:
            self._keep(whole.slice(end))
        for start in range(0, end, max_rows):
            yield whole.slice(start, min(max_rows, end - start))

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.size += batch.nbytes


def ready(
    cursors: Iterable[Cursor], max_rows: int, max_bytes: int
) -> Iterator[tuple[Cursor, pa.RecordBatch]]:
    """Batches to yield now: full ones, ends of ranges, and more while over ``max_bytes`` are held."""
    held = sorted((cursor for cursor in cursors if cursor.rows), key=lambda cursor: -cursor.size)
    excess = sum(cursor.size for cursor in held) - max_bytes
    for cursor in held:
        everything = cursor.done or excess > 0
        if everything:
            excess -= cursor.size
        if everything or cursor.rows >= max_rows:
            for batch in cursor.full_batches(max_rows, everything=everything):
                yield cursor, batch
