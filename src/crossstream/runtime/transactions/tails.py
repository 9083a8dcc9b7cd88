"""Where a batch of a long backlog may end, by the last records of each partition.

Reading every event twice would cost as much as the batch. In a partition, events are in the order of their
transactions, and the rows of the first snapshot are before all of them. So its last records show that it has all of
earlier ones. That holds where no connector started again in between: an event that comes again is younger than the END
of its transaction, and the id of an END that comes again was there before. Where the tails do not say for sure,
everything is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from crossstream.runtime.transactions.ahead import NOTHING, PENDING, Ahead
from crossstream.runtime.transactions.cutting import Course, course_of, first_missing
from crossstream.runtime.transactions.ends import Ends
from crossstream.runtime.transactions.reading import Reading
from crossstream.runtime.transactions.snapshots import of_snapshot, unloaded
from crossstream.topics import TopicPartition

LONG = 50_000
"""Records from which on a backlog is not read in whole."""
TAIL = 1_000
"""Records of a tail."""

Spans = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Tails:
    """The last records of partitions, up to where a batch may end. ``is_first``: no batch has taken any before.

    ``whole``: the partitions all of whose records are known.
    """

    reading: Reading
    parts: dict[TopicPartition, Ahead]
    ends: Ends
    whole: frozenset[TopicPartition]
    is_first: bool

    @classmethod
    def of(cls, reading: Reading, spans: Spans, topic: tuple[int, int], *, is_first: bool) -> Tails:
        """``spans``: what waits of each partition, ``topic``: of the transaction topic."""
        position, end = topic
        starts = {tp: max(start, end - TAIL) for tp, (start, end) in spans.items()}
        parts = {tp: Ahead(tp, start, start) for tp, start in starts.items()}
        reading.events(
            parts, {tp: (starts[tp], end) for tp, (_, end) in spans.items()}, Ends(position, position)
        )
        whole = frozenset(tp for tp, (start, _) in spans.items() if starts[tp] == start)
        found = cls(reading, parts, Ends(position, position), whole, is_first)
        first = max(position, end - 2 * TAIL)
        counted = sorted({tp.topic for tp in parts if found._is_counted(tp)})
        if counted:
            reading.ends(found.ends, first, only_of=counted)
        found.ends.end = first
        reading.ends(found.ends, end)
        for ahead in parts.values():
            reading.rank_again(ahead, found.ends)
        return found

    def loading(self) -> list[str]:
        """The topics whose rows of the first snapshot are not all there."""
        if not any(of_snapshot(ahead.events).any() for ahead in self.parts.values()):
            return []
        return unloaded(list(self.parts.values()), self.ends.latest, is_first=self.is_first)

    def cut(self) -> tuple[int, dict[TopicPartition, int]] | None:
        """The last transaction behind which a batch may end for sure, and where; None: the tails do not show it."""
        courses = {tp: course_of(ahead) for tp, ahead in self.parts.items()}
        if self.ends.repeated or not all(
            self._is_plain(ahead, courses[tp]) for tp, ahead in self.parts.items()
        ):
            return None
        missing = first_missing(
            self.ends,
            [(ahead, courses[tp]) for tp, ahead in self.parts.items()],
            self.reading.collections({tp.topic for tp in self.parts}, self.ends.names),
            {},
        )
        stop = len(self.ends.ranks) if missing is None else self.ends.row(missing.rank)
        least = self.ends.position - 1
        for tp, ahead in self.parts.items():
            if not self._is_counted(
                tp
            ):  # there may be more of the first one that is known, and none of the last one
                known = _known(ahead)
                least = max(least, int(known[0])) if len(known) else PENDING
                stop = min(stop, self.ends.row(int(known[-1]))) if len(known) else 0
        rank = int(self.ends.ranks[stop - 1]) if stop else self.ends.position - 1
        if rank < least or not (rank < self.ends.position or self.reading.is_new(self.ends, rank)):
            return None
        return rank, {tp: course.offset(rank) for tp, course in courses.items()}

    def _is_counted(self, tp: TopicPartition) -> bool:
        """Whether all events of a partition are known: those before its tail are of a snapshot, or there are none."""
        return tp in self.whole or (self.is_first and bool(of_snapshot(self.parts[tp].events).any()))

    def _is_plain(self, ahead: Ahead, course: Course) -> bool:
        """Whether the records are in the order of their transactions, and do not come again."""
        events = ahead.events
        if not course.settled.all() or (of_snapshot(events).any() and not self.is_first):
            return False
        known = (events.ranks != NOTHING) & (events.ranks != PENDING)
        moments = self.ends.moments[np.searchsorted(self.ends.ranks, events.ranks[known])]
        return bool((events.times[known] <= moments).all())


def _known(ahead: Ahead) -> np.ndarray:
    """The ranks of events whose transactions have ended, as far as that is known."""
    ranks = ahead.events.ranks
    found: np.ndarray = ranks[(ranks != NOTHING) & (ranks != PENDING)]
    return found
