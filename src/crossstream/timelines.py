"""Searches partitions for the first records of a time, and keeps what it read until the search has passed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition

Ranges = Mapping[TopicPartition, OffsetRange]
FirstRecords = dict[TopicPartition, OffsetAndTimestamp | None]
"""The first record of a time or later in each partition; None without one."""
Columns = tuple[list[np.ndarray], list[np.ndarray]]
"""Offsets and timestamps, in parts."""

CHUNK, GROWTH = 500, 4
"""How many offsets of a partition the first look reads, and the factor of each further look."""


def _nothing() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The offsets and timestamps of all records of a partition from ``begin`` to ``end``."""

    begin: int
    end: int
    offsets: np.ndarray = field(default_factory=_nothing)
    times: np.ndarray = field(default_factory=_nothing)

    def first(self, offset: int, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record from ``offset`` on with that timestamp (ms) or a later one."""
        start = int(np.searchsorted(self.offsets, offset))
        late = self.times[start:] >= timestamp
        if not late.any():
            return None
        row = start + int(late.argmax())
        return OffsetAndTimestamp(int(self.offsets[row]), int(self.times[row]))

    def last(self, timestamp: int) -> OffsetAndTimestamp:
        """The end and the latest time; without records, the time before ``timestamp``."""
        return OffsetAndTimestamp(self.end, int(self.times.max()) if len(self.times) else timestamp - 1)

    def since(self, offset: int) -> Timeline:
        """Without the records before ``offset``."""
        row = int(np.searchsorted(self.offsets, offset))
        return Timeline(max(self.begin, offset), self.end, self.offsets[row:], self.times[row:])

    def until(self, end: int, more: Columns) -> Timeline:
        """With ``more``, all records that follow up to ``end``."""
        offsets, times = more
        return Timeline(
            self.begin, end, np.concatenate([self.offsets, *offsets]), np.concatenate([self.times, *times])
        )


@dataclass(frozen=True, slots=True)
class Timelines:
    """Searches several partitions together; ``read`` returns the offsets and timestamps of ranges."""

    read: Callable[[Ranges], Mapping[TopicPartition, Columns]]
    _known: dict[TopicPartition, Timeline] = field(default_factory=dict)

    def turn_to(self, tp: TopicPartition, position: int, first: int) -> None:
        """Prepares a search from ``first``, with what is known of the partition since ``position``."""
        known = self._known.get(tp)
        if known is None or not known.begin <= first <= known.end:
            known = Timeline(first, first)
        self._known[tp] = known.since(position)

    def seek(self, sought: Ranges, timestamp: int, most: int) -> FirstRecords:
        """Searches the ranges together until all is found, or more than ``most`` offsets are earlier."""
        chunk = CHUNK
        while True:
            found = {tp: self._known[tp].first(span.start, timestamp) for tp, span in sought.items()}
            ends = {tp: self._known[tp].end for tp in sought}
            left = {tp: span for tp, span in sought.items() if found[tp] is None and ends[tp] < span.end}
            found |= {tp: self._known[tp].last(timestamp) for tp in left}
            before = sum(passed(span, found[tp]) for tp, span in sought.items())
            if not left or before > most:
                return found
            self._look_further(left, min(chunk, (most - before) // len(left) + 1))
            chunk *= GROWTH

    def _look_further(self, spans: Ranges, chunk: int) -> None:
        """Reads ``chunk`` more offsets of each range, or to its end."""
        wanted = {}
        for tp, span in spans.items():
            known = self._known[tp].end
            wanted[tp] = OffsetRange(tp.topic, tp.partition, known, min(known + chunk, span.end))
        for tp, more in self.read(wanted).items():
            self._known[tp] = self._known[tp].until(wanted[tp].end, more)


def passed(span: OffsetRange, moment: OffsetAndTimestamp | None) -> int:
    """How many offsets of the range are before a record; all without a record."""
    return (span.end if moment is None else moment.offset) - span.start


def partition_of(span: OffsetRange) -> TopicPartition:
    return TopicPartition(span.topic, span.partition)
