"""Cutting what is there to read at one time in all topics, so that a backlog is read in the order of its events.

A batch that may not take everything takes, of every partition, the records whose running maximum of timestamps lies
before one moment: batch after batch they are those that one large batch would take in that order, as Kafka's tasks do
(the partition with the lowest timestamp goes first). Cut by counts, a topic of one day would be read beside a topic of
one month, its stream time would run ahead, and the other's records would come too late for their partners.
The moment is found by asking for offsets by timestamp, a few times a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from crossstream.topics import Moment, TopicPartition

Span = tuple[str, str, int, int, int]
"""Source node, topic, partition, first offset, and the offset after the last one."""

NEVER = 1 << 62
"""A time after every timestamp."""
FIRST_STEP = 1_000
"""How far to look ahead in ms when nothing is known."""
GROWTH = 8
"""How much farther each time, until it is far enough."""
ENOUGH, AIM = 0.9, 0.95
"""The shares of the limit that a batch should have at least, and that are aimed at."""


class Times(Protocol):
    """The part of a `TopicLog` that cutting needs."""

    def moments_at(
        self, starts: Mapping[TopicPartition, int], timestamp: int
    ) -> Mapping[TopicPartition, Moment | None]: ...


@dataclass(slots=True)
class Cutter:
    """Cuts spans at one time. ``until``: where the last cut was; ``step``: how far the next is likely to go, in ms."""

    log: Times
    until: int = 0
    step: int = FIRST_STEP

    def cut(self, spans: Sequence[Span], most: int) -> list[Span]:
        """The parts of ``spans`` to read first, together about ``most`` records.

        Records of the very time at which the cut falls are shared out in proportion.
        """
        if count(spans) <= most or len(spans) == 1:
            return in_proportion(spans, most)
        if not self.until:
            self.until = self._earliest(spans)
        low, before = 0, [(*span[:4], span[3]) for span in spans]
        high, after = NEVER, list(spans)
        ahead, turn = self.step, 0
        while high - low > 1:
            if high == NEVER:
                guess, ahead = self.until + ahead, ahead * GROWTH
            elif low < self.until < high:
                guess = self.until
            elif turn % 3:
                share = (most * AIM - count(before)) / (count(after) - count(before))
                guess = low + int((high - low) * share)
            else:
                guess = (low + high) // 2
            guess, turn = min(max(guess, low + 1), high - 1), turn + 1
            found = self._until(spans, guess)
            if count(found) > most:
                high, after = guess, found
            else:
                low, before = guess, found
                if count(found) >= most * ENOUGH:
                    break
        else:
            tied = [(*early[:3], early[4], late[4]) for early, late in zip(before, after, strict=True)]
            some = in_proportion(tied, most - count(before))
            before = [(*early[:4], part[4]) for early, part in zip(before, some, strict=True)]
        if low > self.until:
            self.step = max(1, int((low - self.until) * most * AIM / max(1, count(before))))
            self.until = low
        return [span for span in before if span[4] > span[3]]

    def _earliest(self, spans: Sequence[Span]) -> int:
        """The time of the first record there is, or of an earlier one."""
        starts = {TopicPartition(topic, partition): start for _, topic, partition, start, _ in spans}
        found = self.log.moments_at(starts, 0).values()
        return max(1, min((moment.timestamp for moment in found if moment is not None), default=1))

    def _until(self, spans: Sequence[Span], timestamp: int) -> list[Span]:
        """Each span up to its first record of that time or later.

        Where such a record has been read before, the log does not tell which one comes next: those spans go as
        far as the others do.
        """
        starts: dict[TopicPartition, int] = {}
        for _, topic, partition, start, _ in spans:
            place = TopicPartition(topic, partition)
            starts[place] = min(start, starts.get(place, start))
        moments = self.log.moments_at(starts, timestamp)
        known: dict[int, Span] = {}
        for number, (node, topic, partition, start, end) in enumerate(spans):
            moment = moments[TopicPartition(topic, partition)]
            if moment is None or moment.offset >= start:
                known[number] = (
                    node,
                    topic,
                    partition,
                    start,
                    end if moment is None else min(moment.offset, end),
                )
        total = count([spans[number] for number in known])
        share = count(list(known.values())) / total if total else 0.0
        return [
            known.get(number) or (*span[:4], span[3] + int((span[4] - span[3]) * share))
            for number, span in enumerate(spans)
        ]


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
