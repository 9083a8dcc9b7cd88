"""The first record of a time or later, also where the broker's index names something else.

`ListOffsets` by timestamp looks at all that a log holds: at records that were read long ago, at those of aborted
transactions, and at the markers that end transactions, which have the broker's clock for a timestamp. In a topic of
past events that was written in transactions the first marker is later than all events, and the answer to every
question. It is certain only that nothing so late lies before it; from there on the records themselves are looked at.
Decision 0022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from crossstream.errors import SourceError
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.settings import KafkaSettings
from crossstream.topics import (
    Columns,
    FirstRecords,
    OffsetAndTimestamp,
    OffsetRange,
    Ranges,
    Timelines,
    TopicPartition,
    partition_of,
    passed,
)

FETCH_LESS: Mapping[str, object] = {
    "queued.min.messages": 2_000,
    "queued.max.messages.kbytes": 8_192,
    "max.partition.fetch.bytes": 128 << 10,
}
"""How far the client fetches ahead: most looks are for one record, and the next may be elsewhere, or may not come."""
LARGE = 1 << 20
"""Rows of a batch that is read: the reader makes smaller ones where records are big."""


class OffsetsForTimes:
    """Finds the first records of a time. What was looked at is remembered until it has been read."""

    def __init__(self, connection: KafkaSettings) -> None:
        self._connection = connection
        self._reader: KafkaReader | None = None
        self._timelines = Timelines(self._read)
        self._proven: dict[TopicPartition, int] = {}  # an entry of each that is a committed record
        self._mixed: set[TopicPartition] = set()  # those in which other entries were found

    def find(
        self, spans: Sequence[OffsetRange], answers: FirstRecords, timestamp: int, most: int
    ) -> FirstRecords:
        """The first record of each range with that timestamp (ms) or a later one; see `TopicLog.offsets_for_times`.

        ``answers``: of the brokers. Raises `SourceError` as `KafkaReader.read` does, but not where records were
        deleted meanwhile: the read of them reports it, if it matters.
        """
        ranges = {partition_of(span): span for span in spans}
        try:
            return self._find(ranges, answers, timestamp, most)
        except SourceError as error:
            if error.code != "CS-601":
                raise
            return {tp: _within(span, answers[tp]) for tp, span in ranges.items()}

    def close(self) -> None:
        """Closes the client; a later question opens another."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _find(self, ranges: Ranges, answers: FirstRecords, timestamp: int, most: int) -> FirstRecords:
        self._prove(ranges, answers)
        doubtful = {tp: span for tp, span in ranges.items() if self._is_doubtful(tp, span, answers[tp])}
        certain = {tp: _within(span, answers[tp]) for tp, span in ranges.items() if tp not in doubtful}
        sought = {tp: self._turn_to(tp, span, answers[tp]) for tp, span in doubtful.items()}
        before = sum(passed(ranges[tp], moment) for tp, moment in certain.items())
        skipped = sum(sought[tp].start - span.start for tp, span in doubtful.items())
        return certain | self._timelines.seek(sought, timestamp, most - before - skipped)

    def _prove(self, ranges: Ranges, answers: FirstRecords) -> None:
        """Checks that the entries in the answers are committed records; a partition where one is not is mixed."""
        unknown = {
            tp: OffsetRange(span.topic, span.partition, moment.offset, moment.offset + 1)
            for tp, span in ranges.items()
            if (moment := answers[tp]) is not None
            and span.start <= moment.offset < span.end
            and self._proven.get(tp) != moment.offset
            and tp not in self._mixed
        }
        for tp, (offsets, _) in self._read(unknown).items():
            if offsets:
                self._proven[tp] = unknown[tp].start
            else:
                self._mixed.add(tp)

    def _is_doubtful(self, tp: TopicPartition, span: OffsetRange, answer: OffsetAndTimestamp | None) -> bool:
        """Whether the answer may be another entry than the record that is asked for."""
        if answer is None or answer.offset >= span.end:
            return False
        return answer.offset < span.start or tp in self._mixed

    def _turn_to(
        self, tp: TopicPartition, span: OffsetRange, answer: OffsetAndTimestamp | None
    ) -> OffsetRange:
        """The part of the range that may hold the record; its timeline can be continued from there."""
        assert answer is not None
        first = max(span.start, answer.offset)
        self._timelines.turn_to(tp, span.start, first)
        return OffsetRange(span.topic, span.partition, first, span.end)

    def _read(self, spans: Ranges) -> dict[TopicPartition, Columns]:
        """Where and when the records of the ranges are."""
        columns: dict[TopicPartition, Columns] = {tp: ([], []) for tp in spans}
        if spans and self._reader is None:
            settings = {**FETCH_LESS, **self._connection.settings}
            self._reader = KafkaReader(replace(self._connection, settings=settings))
        if self._reader is not None:
            for span, batch in self._reader.read_many(spans.values(), LARGE):
                offsets, times = columns[partition_of(span)]
                offsets.append(batch.column("offset").to_numpy())
                times.append(batch.column("timestamp").to_numpy())
        return columns


def _within(span: OffsetRange, moment: OffsetAndTimestamp | None) -> OffsetAndTimestamp | None:
    """The answer, as far as it lies in the range."""
    if moment is None or moment.offset >= span.end:
        return None
    return moment if moment.offset >= span.start else OffsetAndTimestamp(span.start, moment.timestamp)
