"""The first record of a time or later, also where the broker's index names something else.

`ListOffsets` by timestamp looks at all that a log holds: at records that were read long ago, at those of aborted
transactions, and at the markers that end transactions, which have the broker's clock for a timestamp. In a topic of
past events that was written in transactions the first marker is later than all events, and the answer to every
question. It is certain only that nothing so late lies before it; from there on the records themselves are looked at.
Decision 0022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from crossstream.errors import SourceError
from crossstream.topics import Moment, OffsetRange, TopicPartition

if TYPE_CHECKING:
    from crossstream.kafka.connection import KafkaConnection
    from crossstream.kafka.reader import KafkaReader

Ranges = Mapping[TopicPartition, OffsetRange]
Places = dict[TopicPartition, Moment | None]
"""The first entry or record of a time or later, if there is one, in each partition."""
Columns = tuple[list[np.ndarray], list[np.ndarray]]
"""Offsets and timestamps, in parts."""

CHUNK, GROWTH = 500, 4
"""Offsets of a partition that are looked at first, and how many times more at each further look."""

FETCH_LESS: Mapping[str, object] = {
    "queued.min.messages": 2_000,
    "queued.max.messages.kbytes": 8_192,
    "max.partition.fetch.bytes": 128 << 10,
}
"""How far the client fetches ahead: most looks are for one record, and the next may be elsewhere, or may not come."""
LARGE = 1 << 20
"""Rows of a batch that is read: the reader makes smaller ones where records are big."""


def _nothing() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The offsets and timestamps of all committed records of a partition from ``begin`` to ``end``."""

    begin: int
    end: int
    offsets: np.ndarray = field(default_factory=_nothing)
    times: np.ndarray = field(default_factory=_nothing)

    def first(self, offset: int, timestamp: int) -> Moment | None:
        """The first record from ``offset`` on with that timestamp (ms) or a later one."""
        start = int(np.searchsorted(self.offsets, offset))
        late = self.times[start:] >= timestamp
        if not late.any():
            return None
        row = start + int(late.argmax())
        return Moment(int(self.offsets[row]), int(self.times[row]))

    def last(self, timestamp: int) -> Moment:
        """Where it ends, and its latest time; where that is not known, the one before ``timestamp``."""
        return Moment(self.end, int(self.times.max()) if len(self.times) else timestamp - 1)

    def since(self, offset: int) -> Timeline:
        """Without the records before ``offset``."""
        row = int(np.searchsorted(self.offsets, offset))
        return Timeline(max(self.begin, offset), self.end, self.offsets[row:], self.times[row:])

    def until(self, end: int, more: Columns) -> Timeline:
        """With ``more``, which is all that follows up to ``end``."""
        offsets, times = more
        return Timeline(
            self.begin, end, np.concatenate([self.offsets, *offsets]), np.concatenate([self.times, *times])
        )


class Moments:
    """Finds the first records of a time. What was looked at is remembered until it has been read."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._reader: KafkaReader | None = None
        self._timelines: dict[TopicPartition, Timeline] = {}
        self._proven: dict[TopicPartition, int] = {}  # an entry of each that is a committed record
        self._mixed: set[TopicPartition] = set()  # those in which other entries were found

    def find(self, spans: Sequence[OffsetRange], told: Places, timestamp: int, most: int) -> Places:
        """The first record of each range with that timestamp (ms) or a later one; see `TopicLog.moments_at`.

        ``told``: what the brokers answer. Raises `SourceError` as `KafkaReader.read` does, but not where records were
        deleted meanwhile: whoever reads them tells, and knows whether it matters.
        """
        ranges = {_place(span): span for span in spans}
        try:
            return self._find(ranges, told, timestamp, most)
        except SourceError as error:
            if error.code != "CS-601":
                raise
            return {place: _within(span, told[place]) for place, span in ranges.items()}

    def close(self) -> None:
        """Closes the client; a later question opens another."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _find(self, ranges: Ranges, told: Places, timestamp: int, most: int) -> Places:
        self._prove(ranges, told)
        doubtful = {
            place: span for place, span in ranges.items() if self._is_doubtful(place, span, told[place])
        }
        certain = {
            place: _within(span, told[place]) for place, span in ranges.items() if place not in doubtful
        }
        sought = {place: self._turn_to(place, span, told[place]) for place, span in doubtful.items()}
        passed = sum(_passed(ranges[place], moment) for place, moment in certain.items())
        skipped = sum(sought[place].start - span.start for place, span in doubtful.items())
        return certain | self._seek(sought, timestamp, most - passed - skipped)

    def _prove(self, ranges: Ranges, told: Places) -> None:
        """Looks whether the entries that are told are committed records; a partition where one is not is mixed."""
        unknown = {
            place: OffsetRange(span.topic, span.partition, moment.offset, moment.offset + 1)
            for place, span in ranges.items()
            if (moment := told[place]) is not None
            and span.start <= moment.offset < span.end
            and self._proven.get(place) != moment.offset
            and place not in self._mixed
        }
        for place, (offsets, _) in self._read(unknown).items():
            if offsets:
                self._proven[place] = unknown[place].start
            else:
                self._mixed.add(place)

    def _is_doubtful(self, place: TopicPartition, span: OffsetRange, told: Moment | None) -> bool:
        """Whether the entry that is told may be another one than the record that is asked for."""
        if told is None or told.offset >= span.end:
            return False
        return told.offset < span.start or place in self._mixed

    def _turn_to(self, place: TopicPartition, span: OffsetRange, told: Moment | None) -> OffsetRange:
        """The part of the range that may hold the record; its timeline can be continued from there."""
        assert told is not None
        first = max(span.start, told.offset)
        known = self._timelines.get(place)
        if known is None or not known.begin <= first <= known.end:
            known = Timeline(first, first)
        self._timelines[place] = known.since(span.start)
        return OffsetRange(span.topic, span.partition, first, span.end)

    def _seek(self, sought: Ranges, timestamp: int, most: int) -> Places:
        """Looks through the ranges together, until all is found or more than ``most`` offsets lie before it."""
        chunk = CHUNK
        while True:
            found = {
                place: self._timelines[place].first(span.start, timestamp) for place, span in sought.items()
            }
            ends = {place: self._timelines[place].end for place in sought}
            left = {
                place: span
                for place, span in sought.items()
                if found[place] is None and ends[place] < span.end
            }
            found |= {place: self._timelines[place].last(timestamp) for place in left}
            passed = sum(_passed(span, found[place]) for place, span in sought.items())
            if not left or passed > most:
                return found
            self._look_further(left, min(chunk, (most - passed) // len(left) + 1))
            chunk *= GROWTH

    def _look_further(self, spans: Ranges, chunk: int) -> None:
        """Continues the timelines by as many offsets, or to the ends of the ranges."""
        wanted = {}
        for place, span in spans.items():
            known = self._timelines[place].end
            wanted[place] = OffsetRange(place.topic, place.partition, known, min(known + chunk, span.end))
        for place, more in self._read(wanted).items():
            self._timelines[place] = self._timelines[place].until(wanted[place].end, more)

    def _read(self, spans: Ranges) -> dict[TopicPartition, Columns]:
        """Where and when the records of the ranges are."""
        columns: dict[TopicPartition, Columns] = {place: ([], []) for place in spans}
        if spans and self._reader is None:
            settings = {**FETCH_LESS, **self._connection.settings}
            self._reader = replace(self._connection, settings=settings).reader()
        if self._reader is not None:
            for span, batch in self._reader.read_many(spans.values(), LARGE):
                offsets, times = columns[_place(span)]
                offsets.append(batch.column("offset").to_numpy())
                times.append(batch.column("timestamp").to_numpy())
        return columns


def _place(span: OffsetRange) -> TopicPartition:
    return TopicPartition(span.topic, span.partition)


def _within(span: OffsetRange, moment: Moment | None) -> Moment | None:
    """What is told, as far as it lies in the range."""
    if moment is None or moment.offset >= span.end:
        return None
    return moment if moment.offset >= span.start else Moment(span.start, moment.timestamp)


def _passed(span: OffsetRange, moment: Moment | None) -> int:
    """How many offsets of the range lie before a record; all, if there is none."""
    return (span.end if moment is None else moment.offset) - span.start
