"""Exact offset ranges out of Kafka, as columns of `RECORDS`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic, sleep

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.kafka import errors
from crossstream.kafka.client import Complaints, Stall, find_brokers, logger, open_consumer
from crossstream.kafka.ports import Event, ReadingClient, Run
from crossstream.kafka.settings import KafkaSettings
from crossstream.records import concat
from crossstream.topics import OffsetRange, TopicPartition


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
        self.ahead: list[Run] = []
        self.known_end = span.start
        self.rows = 0
        self.size = 0
        self._batches: list[pa.RecordBatch] = []

    @property
    def done(self) -> bool:
        return self.position >= self.span.end

    @property
    def rows_ahead(self) -> int:
        return sum(run.records.num_rows for run in self.ahead)

    def take(self, run: Run) -> None:
        """Keeps the records of the range, and apart from them those past it."""
        if run.first < self.position:
            run = _part(run, self.position, run.last + 1)
        if run.records.num_rows and run.last >= self.span.end:
            self.ahead.append(_part(run, self.span.end, run.last + 1))
            run = _part(run, run.first, self.span.end)
            self.position = self.span.end
        elif run.records.num_rows:
            self.position = run.last + 1
        if run.records.num_rows:
            self._keep(run.records)

    def reach(self, offset: int) -> None:
        """The partition ends at ``offset``: nothing but what came already lies below it."""
        self.known_end = max(self.known_end, offset)
        if offset >= self.span.end:
            self.position = self.span.end

    def continue_from(self, last: Cursor) -> None:
        """Takes over what came past the end of the range before this one."""
        for run in last.ahead:
            self.take(run)
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


def _part(run: Run, start: int, end: int) -> Run:
    """The records with offsets from ``start`` up to ``end``."""
    offsets = run.records.column("offset").to_numpy()
    first, last = np.searchsorted(offsets, [start, end]).tolist()
    return Run(run.tp, run.records.slice(first, last - first), start, end - 1)


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


Cursors = Mapping[TopicPartition, Cursor]

CHUNK = 4096
"""Messages taken from the client at once: enough to be fast, few enough to stay in the cache."""
HELD_BYTES = 32 << 20
"""Records held back to fill batches, over all partitions of a read."""
AHEAD = 20_000
"""Records kept of a partition whose range is done while others are still read."""
BACKLOG = 100_000
"""Offsets left in a log that make fetching ahead worth it: its queue gets full, and the client rests."""
POLL_SECONDS = 0.25


class KafkaReader:
    """Reads exact ranges with one consumer that stays open; a `crossstream.topics.RangeReader`.

    One read at a time: beginning a read ends the one before it.
    """

    def __init__(self, connection: KafkaSettings) -> None:
        self._connection = connection
        self._complaints = Complaints()
        self._consumer: ReadingClient | None = None
        self._left: dict[TopicPartition, Cursor] = {}  # finished, and still assigned
        self._known_topics: set[str] = set()  # topics whose brokers the consumer knows
        self._reads = 0
        self._reading = False

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The records of the range, in offset order, in batches of at most ``max_rows`` rows of `RECORDS`.

        Raises `SourceError`: CS-601 to CS-604.
        """
        for _, batch in self.read_many([span], max_rows):
            yield batch

    def read_many(
        self, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """The records of ranges of different partitions, fetched at once: batches as they come, each of one range.

        Batches of a range come in offset order; those of different ranges interleave. A batch has less
        than ``max_rows`` rows where a range ends or records are big. Raises as `read` does.
        """
        self._reads += 1
        mine = self._reads
        wanted = [Cursor(span) for span in spans if span.start < span.end]
        cursors = {cursor.tp: cursor for cursor in wanted}
        if len(cursors) < len(wanted):
            raise ValueError("two ranges of one partition cannot be read at once")
        for cursor, batch in self._read(cursors, max_rows) if cursors else ():
            yield cursor.span, batch
            if mine != self._reads:
                raise RuntimeError("the reader was closed or began another read")

    def close(self) -> None:
        """Closes the consumer; a later read opens another."""
        self._reads += 1
        self._left = {}
        self._reading = False
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, cursors: Cursors, max_rows: int) -> Iterator[tuple[Cursor, pa.RecordBatch]]:
        consumer = self._begin(cursors)
        mine, finished = self._reads, False
        stall = Stall(consumer, self._complaints, self._connection.patience_seconds)
        try:
            while True:
                self._drop_idle(consumer, cursors)
                yield from ready(cursors.values(), max_rows, HELD_BYTES)
                if all(cursor.done for cursor in cursors.values()):
                    break
                self._fetch(consumer, cursors, stall)
                if stall.wants_another_client():
                    consumer = stall.consumer = self._reopen(cursors)
            self._left = {tp: cursor for tp, cursor in cursors.items() if cursor.assigned}
            self._reading, finished = False, True
        finally:
            if not finished and mine == self._reads:
                self._unassign_all(consumer)

    def _begin(self, cursors: Cursors) -> ReadingClient:
        """Assigns the partitions; those that were left where their ranges start continue from there."""
        consumer = self._open() if self._consumer is None else self._consumer
        if self._reading:
            self._unassign_all(consumer)
        self._reading = True
        self._complaints.denied = None
        continued = {
            tp: last
            for tp, last in self._left.items()
            if tp in cursors and cursors[tp].position == last.position
        }
        _unassign(consumer, self._left.keys() - continued.keys())
        self._left = {}
        self._find_brokers(consumer, {tp.topic for tp in cursors})
        _assign(consumer, [cursor for tp, cursor in cursors.items() if tp not in continued])
        for tp, last in continued.items():
            cursors[tp].continue_from(last)
        return consumer

    def _open(self) -> ReadingClient:
        """A new consumer, which knows no topic yet."""
        self._known_topics = set()
        self._consumer = open_consumer(self._connection, self._complaints)
        return self._consumer

    def _find_brokers(self, consumer: ReadingClient, topics: set[str]) -> None:
        """Makes the consumer look for the brokers of new topics; if one cannot be asked for, it asks for no other."""
        for topic in topics - self._known_topics:
            if not find_brokers(consumer, topic, self._connection):
                return
            self._known_topics.add(topic)

    def _reopen(self, cursors: Cursors) -> ReadingClient:
        """Another consumer, which continues where this one is: it may be cut off."""
        if self._consumer is not None:
            self._consumer.close()
        consumer = self._open()
        for cursor in cursors.values():
            cursor.assigned, cursor.ahead = not cursor.done, []
        _assign(consumer, [cursor for cursor in cursors.values() if cursor.assigned])
        return consumer

    def _fetch(self, consumer: ReadingClient, cursors: Cursors, stall: Stall) -> None:
        """Takes what has arrived, or waits a little for it."""
        asked = monotonic()
        taken = consumer.take(_room(cursors), POLL_SECONDS)
        for run in taken.runs:
            if run.tp in cursors:
                cursors[run.tp].take(run)
        advanced = bool(taken.runs)
        for event in taken.events:
            advanced |= self._handle(consumer, event, cursors, stall)
        if advanced:
            stall.progress()
        else:
            unfinished = [(cursor.span, cursor.position) for cursor in cursors.values() if not cursor.done]
            stall.waited_for(monotonic() - asked, unfinished)

    def _handle(self, consumer: ReadingClient, event: Event, cursors: Cursors, stall: Stall) -> bool:
        """Handles an event of a partition; whether it finished a range."""
        error = event.error
        if errors.is_denial(error):
            raise errors.refused(error.str(), event.topic)
        cursor = cursors.get(TopicPartition(event.topic or "", event.partition))
        if cursor is None:
            return False
        was_done = cursor.done
        if error.code() == KafkaError._PARTITION_EOF:
            cursor.reach(event.offset)
        elif was_done:
            _unassign_done(consumer, [cursor])  # whatever it is, it is not fetched ahead any more
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            _restart(consumer, cursor, stall)
        elif error.code() in errors.GARBLED or error.fatal():
            raise errors.unreadable(cursor.tp, cursor.position, error.str())
        else:
            logger.info("%s [%s]: %s", event.topic, event.partition, error.str())
        return cursor.done and not was_done

    def _drop_idle(self, consumer: ReadingClient, cursors: Cursors) -> None:
        """Unassigns the partitions that are done and not worth fetching ahead."""
        idle = [cursor for cursor in cursors.values() if cursor.done and cursor.assigned]
        idle = [cursor for cursor in idle if cursor.rows_ahead > AHEAD or _left(consumer, cursor) < BACKLOG]
        _unassign_done(consumer, idle)

    def _unassign_all(self, consumer: ReadingClient) -> None:
        consumer.unassign()
        self._left, self._reading = {}, False


def _room(cursors: Cursors) -> int:
    """How many messages to take: of a single partition no more than its range can hold."""
    if len(cursors) > 1:
        return CHUNK
    [cursor] = cursors.values()
    return min(CHUNK, cursor.span.end - cursor.position)


def _left(consumer: ReadingClient, cursor: Cursor) -> int:
    """Offsets between the range and the end of its partition, as far as the client has heard."""
    _, end = consumer.get_watermark_offsets(
        KafkaPartition(cursor.span.topic, cursor.span.partition), cached=True
    )
    return int(end) - cursor.position


def _restart(consumer: ReadingClient, cursor: Cursor, stall: Stall) -> None:
    """The broker does not hold the position: raises `SourceError` if it never will, or begins the read again."""
    try:
        stall.check_range(cursor.span, cursor.position, settled=True)
    except KafkaException as failed:
        logger.info("cannot ask for the offsets of %s: %s", cursor.tp, failed)
    sleep(0.05)
    _unassign(consumer, [cursor.tp])
    _assign(consumer, [cursor])


def _unassign_done(consumer: ReadingClient, cursors: Sequence[Cursor]) -> None:
    _unassign(consumer, [cursor.tp for cursor in cursors])
    for cursor in cursors:
        cursor.assigned, cursor.ahead = False, []


def _assign(consumer: ReadingClient, cursors: Iterable[Cursor]) -> None:
    positions = [(cursor.tp, cursor.position) for cursor in cursors]
    if partitions := [KafkaPartition(tp.topic, tp.partition, position) for tp, position in positions]:
        consumer.incremental_assign(partitions)


def _unassign(consumer: ReadingClient, partitions: Iterable[TopicPartition]) -> None:
    if gone := [KafkaPartition(tp.topic, tp.partition) for tp in partitions]:
        consumer.incremental_unassign(gone)
