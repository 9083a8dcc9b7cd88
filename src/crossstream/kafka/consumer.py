"""Exact offset ranges out of Kafka, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from crossstream.gc_pause import paused_gc
from crossstream.kafka import errors as faults
from crossstream.kafka.client import Complaints, find_brokers, is_denial, logger, open_consumer
from crossstream.kafka.cursor import Cursor, ready, runs
from crossstream.kafka.stall import Stall
from crossstream.topics import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from crossstream.kafka.settings import KafkaSettings


Cursors = Mapping[TopicPartition, Cursor]

CHUNK = 4096
"""Messages taken from the client at once: enough to be fast, few enough to stay in the cache."""
HELD_BYTES = 32 << 20
"""Records held back to fill batches, over all partitions of a read."""
AHEAD = 20_000
"""Messages kept of a partition whose range is done while others are still read."""
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
        self._consumer: Consumer | None = None
        self._left: dict[TopicPartition, Cursor] = {}  # finished, and still assigned
        self._known_topics: set[str] = set()  # topics whose brokers the consumer knows
        self._reads = 0
        self._reading = False

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        """The records of the range, in offset order, in batches of at most ``max_rows`` rows of `RECORDS`.

        Raises `SourceError` (CS-601 to CS-604, see `crossstream.kafka.errors`).
        """
        for _, batch in self.read_many([span], max_rows):
            yield batch

    def read_many(
        self, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """The records of several ranges, fetched at once: batches as they come, each of one range.

        Batches of a range come in offset order; those of different ranges interleave. A batch has less
        than ``max_rows`` rows where a range ends or records are big. Raises as `read` does.
        """
        self._reads += 1
        mine = self._reads
        for wave in _waves(spans):
            for cursor, batch in self._read_wave(wave, max_rows):
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

    def _read_wave(
        self, spans: Sequence[OffsetRange], max_rows: int
    ) -> Iterator[tuple[Cursor, pa.RecordBatch]]:
        cursors = {cursor.tp: cursor for cursor in map(Cursor, spans)}
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

    def _begin(self, cursors: Cursors) -> Consumer:
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

    def _open(self) -> Consumer:
        """A new consumer, which knows no topic yet."""
        self._known_topics = set()
        self._consumer = open_consumer(self._connection, self._complaints)
        return self._consumer

    def _find_brokers(self, consumer: Consumer, topics: set[str]) -> None:
        """Makes the consumer look for the brokers of new topics; if one cannot be asked for, it asks for no other."""
        for topic in topics - self._known_topics:
            if not find_brokers(consumer, topic, self._connection):
                return
            self._known_topics.add(topic)

    def _reopen(self, cursors: Cursors) -> Consumer:
        """Another consumer, which continues where this one is: it may be cut off."""
        if self._consumer is not None:
            self._consumer.close()
        consumer = self._open()
        for cursor in cursors.values():
            cursor.assigned, cursor.ahead = not cursor.done, []
        _assign(consumer, [cursor for cursor in cursors.values() if cursor.assigned])
        return consumer

    def _fetch(self, consumer: Consumer, cursors: Cursors, stall: Stall) -> None:
        """Takes what has arrived, or waits a little for it."""
        asked = monotonic()
        advanced = False
        with paused_gc():
            first = consumer.poll(POLL_SECONDS)
            if first is not None:
                more = _room(cursors) - 1
                messages = [first, *consumer.consume(more, 0)] if more else [first]
                advanced = self._distribute(consumer, messages, cursors, stall)
                del messages, first  # before the collector is back
        if advanced:
            stall.progress()
        else:
            unfinished = [(cursor.span, cursor.position) for cursor in cursors.values() if not cursor.done]
            stall.waited_for(monotonic() - asked, unfinished)

    def _distribute(
        self, consumer: Consumer, messages: list[Message], cursors: Cursors, stall: Stall
    ) -> bool:
        """Gives messages to their cursors; whether there were any, or a range is done."""
        records = messages
        if any(map(Message.error, messages)):
            records = [message for message in messages if message.error() is None]
        for tp, run in runs(records) if records else ():
            if tp in cursors:
                cursors[tp].take(run)
        advanced = bool(records)
        if records is not messages:
            for message in messages:
                if (error := message.error()) is not None:
                    advanced |= self._handle(consumer, message, error, cursors, stall)
        return advanced

    def _handle(
        self, consumer: Consumer, message: Message, error: KafkaError, cursors: Cursors, stall: Stall
    ) -> bool:
        """Handles an event of a partition; whether it finished a range."""
        if is_denial(error):
            raise faults.refused(error.str(), message.topic())
        cursor = cursors.get(_tp(message))
        if cursor is None:
            return False
        was_done = cursor.done
        if error.code() == KafkaError._PARTITION_EOF:
            cursor.reach(message.offset() or 0)
        elif was_done:
            _unassign_done(consumer, [cursor])  # whatever it is, it is not fetched ahead any more
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            _restart(consumer, cursor, stall)
        elif error.code() in faults.GARBLED or error.fatal():
            raise faults.unreadable(cursor.tp, cursor.position, error.str())
        else:
            logger.info("%s [%s]: %s", message.topic(), message.partition(), error.str())
        return cursor.done and not was_done

    def _drop_idle(self, consumer: Consumer, cursors: Cursors) -> None:
        """Unassigns the partitions that are done and not worth fetching ahead."""
        idle = [cursor for cursor in cursors.values() if cursor.done and cursor.assigned]
        idle = [cursor for cursor in idle if len(cursor.ahead) > AHEAD or _left(consumer, cursor) < BACKLOG]
        _unassign_done(consumer, idle)

    def _unassign_all(self, consumer: Consumer) -> None:
        consumer.unassign()
        self._left, self._reading = {}, False


def _waves(spans: Iterable[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """What can be read at once: one range of each partition. Ranges of the same one follow each other."""
    waiting = [span for span in spans if span.start < span.end]
    while waiting:
        wave: dict[tuple[str, int], OffsetRange] = {}
        later = []
        for span in waiting:
            tp = span.topic, span.partition
            if tp in wave:
                later.append(span)
            else:
                wave[tp] = span
        yield list(wave.values())
        waiting = later


def _room(cursors: Cursors) -> int:
    """How many messages to take: of a single partition no more than its range can hold."""
    if len(cursors) > 1:
        return CHUNK
    [cursor] = cursors.values()
    return min(CHUNK, cursor.span.end - cursor.position)


def _left(consumer: Consumer, cursor: Cursor) -> int:
    """Offsets between the range and the end of its partition, as far as the client has heard."""
    _, end = consumer.get_watermark_offsets(KafkaPartition(*_pair(cursor.tp)), cached=True)
    return int(end) - cursor.position


def _restart(consumer: Consumer, cursor: Cursor, stall: Stall) -> None:
    """The broker does not hold the position: raises `SourceError` if it never will, or begins the read again."""
    try:
        stall.check_range(cursor.span, cursor.position, settled=True)
    except KafkaException as failed:
        logger.info("cannot ask for the offsets of %s: %s", cursor.tp, failed)
    sleep(0.05)
    _unassign(consumer, [cursor.tp])
    _assign(consumer, [cursor])


def _unassign_done(consumer: Consumer, cursors: Sequence[Cursor]) -> None:
    _unassign(consumer, [cursor.tp for cursor in cursors])
    for cursor in cursors:
        cursor.assigned, cursor.ahead = False, []


def _assign(consumer: Consumer, cursors: Iterable[Cursor]) -> None:
    if partitions := [KafkaPartition(*_pair(cursor.tp), cursor.position) for cursor in cursors]:
        consumer.incremental_assign(partitions)


def _unassign(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
    if gone := [KafkaPartition(*_pair(tp)) for tp in partitions]:
        consumer.incremental_unassign(gone)


def _tp(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _pair(tp: TopicPartition) -> tuple[str, int]:
    return tp.topic, tp.partition
