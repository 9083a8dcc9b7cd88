"""How much of a backlog a batch takes: cut at one time in all topics (decision 0022)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.topics import (
    OffsetAndTimestamp,
    OffsetRange,
    TopicPartition,
)


class Times(Protocol):
    """Knows the times of records."""

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """See `TopicLog.offsets_for_times`."""


Span = tuple[str, str, int, int, int]
"""Source node, topic, partition, first offset, and the offset after the last one."""

Positions = dict[str, dict[str, dict[int, int]]]
"""Next offset to read, by source node, topic and partition."""

NEVER = 1 << 62
"""A time after every timestamp."""
FIRST_STEP = 1_000
"""How far to look ahead in ms when nothing is known."""
GROWTH = 8
"""How much farther each time, until it is far enough."""
ENOUGH, AIM = 0.9, 0.95
"""The shares of the limit that a batch should have at least, and that are aimed at."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """The parts of spans before a time, as far as they were looked at.

    ``next``: the time of the first record that is not before it. ``seen``: the latest time that was seen.
    """

    until: int
    spans: list[Span]
    next: int
    seen: int


@dataclass(slots=True)
class Cutter:
    """Cuts spans at one time. ``until``: where the last cut was; ``step``: how far the next is likely to go, in ms."""

    log: Times
    until: int = 0
    step: int = FIRST_STEP

    def cut(self, spans: Sequence[Span], most: int) -> list[Span]:
        """The parts of ``spans`` to read first, together about ``most`` records.

        Of the records of the very time at which the cut falls those of the first spans come first.
        """
        if count(spans) <= most or len(spans) == 1:
            return in_proportion(spans, most)
        early, begun = self._bracket(spans, most)
        if count(early.spans) < most * ENOUGH:
            taken = self._with_tied(spans, early, most - count(early.spans))
        else:
            taken = early.spans
            self.step = max(1, int((early.until - begun) * most * AIM / count(taken)))
        self.until = max(self.until, early.until)
        return [span for span in taken if span[4] > span[3]]

    def _with_tied(self, spans: Sequence[Span], early: _Cut, room: int) -> list[Span]:
        """The early parts, each with the records of the time of the cut, span by span as long as there is room."""
        taken = []
        for span, before in zip(spans, early.spans, strict=True):
            end = before[4]
            if room > 0 and end < span[4]:
                [tied] = self._at([(*span[:3], end, span[4])], early.until + 1, room).spans
                end = min(tied[4], end + room)
                room -= end - before[4]
            taken.append((*span[:4], end))
        return taken

    def _bracket(self, spans: Sequence[Span], most: int) -> tuple[_Cut, int]:
        """A cut with enough records and not too many; or with too few, where one a millisecond later has too many.

        Also when about the records begin.
        """
        early = _Cut(0, [(*span[:4], span[3]) for span in spans], self.until, 0)
        late = _Cut(NEVER, list(spans), NEVER, NEVER)
        ahead, begun, first = self.step if self.until else 0, self.until, self.until
        for turn in itertools.count():
            few, many = count(early.spans), count(late.spans)
            if few >= most * ENOUGH or late.until - early.until <= 1:
                break
            if late.until == NEVER:
                guess, ahead = begun + ahead, max(FIRST_STEP, ahead * GROWTH)
            elif early.until < begun < late.until:
                guess = begun
            elif turn % 3:
                guess = early.until + int((late.seen - early.until) * (most * AIM - few) / (many - few))
            else:
                guess = (early.until + late.until) // 2
            found = self._at(spans, min(max(guess, early.until + 1), late.until - 1), most)
            if count(found.spans) > most:
                late = found
            else:  # nothing lies between it and the record that comes next
                early = replace(found, until=min(max(found.until, found.next), late.until - 1))
                begun = early.until
                if not count(found.spans):
                    first = begun
        return early, first

    def _at(self, spans: Sequence[Span], timestamp: int, most: int) -> _Cut:
        """Each span up to its first record of that time or later; or less, if that is more than ``most`` as well."""
        ranges = [OffsetRange(topic, partition, start, end) for _, topic, partition, start, end in spans]
        moments = self.log.offsets_for_times(ranges, timestamp, most)
        found = [moments[TopicPartition(topic, partition)] for _, topic, partition, _, _ in spans]
        parts = [
            (*span[:4], span[4] if moment is None else moment.offset)
            for span, moment in zip(spans, found, strict=True)
        ]
        times = [moment.timestamp for moment in found if moment is not None]
        next_one = min(times, default=NEVER)
        seen = max((time for time in times if time < timestamp), default=timestamp)
        return _Cut(timestamp, parts, next_one, seen)


def count(spans: Sequence[Span]) -> int:
    return sum(end - start for *_, start, end in spans)


def in_proportion(spans: Sequence[Span], most: int) -> list[Span]:
    """Each span cut in proportion, so that together they have about ``most`` records."""
    total = count(spans)
    if total <= most:
        return list(spans)
    share = most / total
    return [
        (node, topic, partition, start, min(end, start + max(1, int((end - start) * share))))
        for node, topic, partition, start, end in spans
    ]


def shorter(node: str, tp: TopicPartition, end: int, start: int) -> CrossStreamError:
    """The refusal (CS-603) of a partition that ends before what was read of it."""
    what = (
        f"the topic ends at offset {end}, but offsets up to {start - 1} have been read: "
        "it was truncated, or deleted and recreated"
    )
    return refuse("CS-603", what, operator=node, topic=tp.topic, partition=tp.partition, offset=start)


def copied(positions: Positions) -> Positions:
    """Positions that can be changed without these."""
    return {node: {topic: dict(at) for topic, at in topics.items()} for node, topics in positions.items()}
