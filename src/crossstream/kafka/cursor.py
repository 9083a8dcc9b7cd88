"""How far the read of one range has come, and its records that were not handed on yet."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from confluent_kafka import Message

from crossstream.kafka.columns import offset_of, to_batch
from crossstream.records import concat
from crossstream.topics import OffsetRange, TopicPartition


class Cursor:
    """The read of one range.

    ``position`` is the next offset it needs, ``ahead`` what came past its end, and ``known_end`` how far the
    client has reported the partition empty of more (it does so once for each end).
    """

    def __init__(self, span: OffsetRange) -> None:
        self.span = span
        self.place = TopicPartition(span.topic, span.partition)
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
        """Keeps the messages of the range as columns, and those past it as they are."""
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

    def go_on_from(self, last: Cursor) -> None:
        """Takes over what came past the end of the range before this one."""
        if last.ahead:
            self.take(last.ahead)
        self.reach(last.known_end)

    def hand_on(self, max_rows: int, *, everything: bool) -> Iterator[pa.RecordBatch]:
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
    """Batches to hand on now: full ones, ends of ranges, and more while over ``max_bytes`` are held."""
    held = sorted((cursor for cursor in cursors if cursor.rows), key=lambda cursor: -cursor.size)
    excess = sum(cursor.size for cursor in held) - max_bytes
    for cursor in held:
        everything = cursor.done or excess > 0
        if everything:
            excess -= cursor.size
        if everything or cursor.rows >= max_rows:
            for batch in cursor.hand_on(max_rows, everything=everything):
                yield cursor, batch
