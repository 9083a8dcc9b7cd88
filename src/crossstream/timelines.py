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
        offsets, times = (
            np.concatenate([old, *new]) for old, new in zip((self.offsets, self.times), more, strict=True)
        )
        return Timeline(self.begin, end, offsets, times)


@dataclass(frozen=True, slots=True)
class Timelines:
    """Searches several partitions together; ``read`` returns the offsets and timestamps of ranges."""

    read: Callable[[Ranges], Mapping[TopicPartition, Columns]]
    _known: dict[TopicPartition, Timeline] = field(default_factory=dict)

    def begin(self, partition: TopicPartition, position: int, first: int) -> None:
        """Prepares a search from ``first``, with what is known of the partition since ``position``."""
        known = self._known.get(partition)
        if known is None or not known.begin <= first <= known.end:
            known = Timeline(first, first)
        self._known[partition] = known.since(position)

    def seek(self, sought: Ranges, timestamp: int, most: int) -> FirstRecords:
        """Searches the ranges together until all is found, or more than ``most`` offsets are earlier."""
        chunk = CHUNK
        while True:
            found = {one: self._known[one].first(span.start, timestamp) for one, span in sought.items()}
            left = {
                one: span
                for one, span in sought.items()
                if found[one] is None and self._known[one].end < span.end
            }
            found |= {one: self._known[one].last(timestamp) for one in left}
            before = sum(offsets_before(span, found[one]) for one, span in sought.items())
            if not left or before > most:
                return found
            self._look_further(left, min(chunk, (most - before) // len(left) + 1))
            chunk *= GROWTH

    def _look_further(self, spans: Ranges, chunk: int) -> None:
        """Reads ``chunk`` more offsets of each range, or to its end."""
        wanted = {}
        for one, span in spans.items():
            known = self._known[one].end
            wanted[one] = OffsetRange(one.topic, one.partition, known, min(known + chunk, span.end))
        for one, more in self.read(wanted).items():
            self._known[one] = self._known[one].until(wanted[one].end, more)


def offsets_before(span: OffsetRange, record: OffsetAndTimestamp | None) -> int:
    """How many offsets of the range are before a record; all without a record."""
    return (span.end if record is None else record.offset) - span.start
