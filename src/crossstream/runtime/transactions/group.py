"""The tables of one database that are cut together: those that have the same transaction topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.runtime.transactions.ahead import PENDING, Ahead
from crossstream.runtime.transactions.cutting import Course, Missing, course_of, first_missing
from crossstream.runtime.transactions.ends import REMEMBERED, Ends
from crossstream.runtime.transactions.reading import Reading
from crossstream.runtime.transactions.snapshots import lsn_of, of_snapshot, unloaded
from crossstream.runtime.transactions.splitting import Split, split_of
from crossstream.runtime.transactions.tails import LONG, Tails
from crossstream.storage.log_entries import Stand
from crossstream.topics import TopicLog, TopicPartition

logger = logging.getLogger("crossstream.sources")

Places = Mapping[TopicPartition, int]
"""Offsets, by partition."""

WAITS_FOR_REST = ("waits for the rest of the last transactions",)
"""What the end of a long backlog waits for, until the next look."""
LOOKED_BACK = 100
"""Records before the position that are looked at when an application starts: how far their transactions came."""


class Cut(NamedTuple):
    """Where a batch may end. ``stand``: behind which transaction; ``waits``: what the rest of the records waits for."""

    ends: dict[TopicPartition, int]
    stand: Stand
    waits: tuple[str, ...] = ()
    is_split: bool = False
    is_of_tails: bool = False


@dataclass(slots=True)
class Group:
    """Finds where a batch ends. ``reading``: of its topics; ``stand``: of the last batch.

    ``most``: records of a transaction that is kept whole.
    """

    reading: Reading
    log: TopicLog
    stand: Stand | None
    most: int
    end: int = 0
    """Where the transaction topic ends, as it was seen last."""
    is_there: bool = False
    """Whether there is a transaction topic."""
    loading: Sequence[str] = ()
    """The topics of whose snapshot rows are missing."""
    _ends: Ends | None = None
    _parts: dict[TopicPartition, Ahead] = field(default_factory=dict)
    _tails: dict[TopicPartition, Ahead] = field(default_factory=dict)
    _courses: dict[TopicPartition, Course] = field(default_factory=dict)
    _asked: tuple[Places, Places, int] = ({}, {}, -1)
    _answer: Cut = field(init=False)
    _is_first: bool = False
    _said: str = ""

    @property
    def topic(self) -> str:
        """The transaction topic."""
        return self.reading.tp.topic

    def cut(self, positions: Places, limits: Places) -> Cut:
        """The last place at which a batch may end that stops at the limits. Raises `SourceError` CS-601, CS-622."""
        asked = (dict(positions), dict(limits), self.end)
        if self._asked != asked:
            self._answer = self._of_tails(positions, limits) or self._cut(positions, limits)
            self._asked = asked
        return self._answer

    def _cut(self, positions: Places, limits: Places) -> Cut:
        """The same, with all records read."""
        ends = self._follow(positions, limits)
        parts = list(self._parts.values())
        loading = self.loading = unloaded(parts, ends.latest, is_first=self._is_first)
        for tp, ahead in self._parts.items():
            held = of_snapshot(ahead.events) if loading else None
            self._courses[tp] = course_of(ahead, held)
        missing = self._missing(ends)
        stop = len(ends.ranks) if missing is None else ends.row(missing.rank)
        rank = int(ends.ranks[stop - 1]) if stop > ends.first_new else ends.position - 1
        found = {tp: course.offset(rank) for tp, course in self._courses.items()}
        left = sum(ahead.end - found[tp] for tp, ahead in self._parts.items())
        if left > self.most and not loading and all(found[tp] == at for tp, at in positions.items()):
            part = self._split(missing, ends)
            if part.ends != found:
                return part
        return Cut(found, self._stand_at(rank, found), self._waits(loading, missing) if left else ())

    def within(self, cut: Cut, limits: Places) -> Cut:
        """The same, for a batch that stops at limits that are not as far; at least one transaction, if there is one."""
        if cut.is_split or all(limits[tp] >= end for tp, end in cut.ends.items()):
            return cut
        if cut.is_of_tails:
            positions = self._asked[0]
            shorter = self._of_tails(positions, limits) or self._cut(positions, limits)
            if shorter.ends != positions:
                return shorter
            cut = self._cut(positions, cut.ends)
        assert self._ends is not None
        ends, last = self._ends, cut.stand.position - 1
        before = ends.position - 1
        far = min(self._courses[tp].within(limit) for tp, limit in limits.items())
        row = int(np.searchsorted(ends.ranks, min(far, last), side="right"))
        least = max(before, min(course.first for course in self._courses.values()))
        ranks = [int(ends.ranks[row - 1])] if row > ends.first_new else []
        for rank in (*ranks, before, least):
            most = limits if rank == before and not self._has_snapshot() else {}
            found = {tp: course.offset(rank, most.get(tp)) for tp, course in self._courses.items()}
            if rank <= last and any(end > self._parts[tp].begin for tp, end in found.items()):
                return Cut(found, self._stand_at(rank, found))
        return cut

    def note(self, stand: Stand | None) -> None:
        """A batch is committed that ends there."""
        self.stand = stand
        if self._ends is None or stand is None:
            return
        self._is_first = False
        if stand.position > self._ends.end:  # a batch of a long backlog: what is before it was not read
            self._ends, self._courses, self._parts = None, {}, self._tails
        else:
            self._ends.advance(stand.position)

    def _of_tails(self, positions: Places, limits: Places) -> Cut | None:
        """The same of a long backlog, of which the last records are read; None: all have to be."""
        known = {tp: self._parts[tp].end if tp in self._parts else at for tp, at in positions.items()}
        left = {tp: (max(known[tp], at), limits[tp]) for tp, at in positions.items()}
        if sum(max(0, end - start) for start, end in left.values()) < LONG or (
            self.stand and self.stand.split
        ):
            return None
        ends = self._ends = self._opened(positions) if self._ends is None else self._ends
        spans = {tp: (at, limits[tp]) for tp, at in positions.items()}
        tails = Tails.of(self.reading, spans, (ends.position, self.end), is_first=self._is_first)
        if loading := tails.loading():
            return Cut(dict(positions), self.stand or Stand(ends.position), self._waits(loading, None))
        if (found := tails.cut()) is None:
            return None
        rank, stops = found
        self._tails = {tp: tails.parts[tp].taken(stop) for tp, stop in stops.items()}
        stand = _stand_at(
            rank, tails.ends, self.stand, self.reading.by_topic, list(tails.parts.values()), stops
        )
        waits = () if all(limits[tp] <= end for tp, end in stops.items()) else WAITS_FOR_REST
        return Cut(stops, stand, waits, is_of_tails=True)

    # -- reading ahead

    def _follow(self, positions: Places, limits: Places) -> Ends:
        """Reads what is new up to the limits, and up to the end of the transaction topic."""
        ends = self._ends = self._opened(positions) if self._ends is None else self._ends
        has_new = self.reading.ends(ends, self.end)
        for tp in [tp for tp in self._parts if tp not in positions]:
            del self._parts[tp], self._courses[tp]
        for tp, position in positions.items():
            ahead = self._parts.setdefault(tp, Ahead(tp, position, position))
            ahead.advance(position)
            if has_new:
                self.reading.rank_again(ahead, ends)
        spans = {
            tp: (self._parts[tp].end, limit) for tp, limit in limits.items() if limit > self._parts[tp].end
        }
        self.reading.events(self._parts, spans, ends)
        return ends

    def _opened(self, positions: Places) -> Ends:
        """What is known before the first batch of a start: transactions of before, and how far partitions came."""
        tp, stand = self.reading.tp, self.stand
        begin = int(self.log.begin_offsets([tp])[tp]) if self.is_there else 0
        begins = self.log.begin_offsets(list(positions))
        self._is_first = stand is None and all(positions[tp] <= begins[tp] for tp in positions)
        if stand is None:
            later = all(node.offset_reset != "earliest" for node in self.reading.sources)
            position = self.end if later and self._is_first else begin
        elif begin <= stand.position <= max(self.end, begin):
            position = stand.position
        else:
            raise self._lost(stand.position, begin)
        for topic, names in {} if stand is None else stand.collections.items():
            for name in names:
                self.reading.note(topic, name)
        ends = Ends(position, max(begin, position - REMEMBERED))
        if stand is None and not self._is_first:
            self.reading.ends(ends, self.end)
        else:
            self.reading.remember(ends, position)
        self._look_back(positions, begins, ends)
        return ends

    def _look_back(self, positions: Places, begins: Places, ends: Ends) -> None:
        there = {tp for tp, ahead in self._parts.items() if ahead.begin == positions.get(tp)}
        back = {
            tp: (max(begins[tp], at - LOOKED_BACK), at)
            for tp, at in positions.items()
            if at > begins[tp] and tp not in there
        }
        self._parts |= {tp: Ahead(tp, start, start) for tp, (start, _) in back.items()}
        self.reading.events(self._parts, back, ends)
        head = self._pending() if self.stand is None else None
        if head is not None:
            taken = split_of(head, PENDING, list(self._parts.values()), self.reading.names, self.most).taken
            self.stand = Stand(ends.position, split=head, taken=dict(taken))
        for tp, (_, at) in back.items():
            self._parts[tp].advance(at)
        if self.stand is None or head is not None:  # these topics were read before, not by transactions
            ends.advance(max([ends.position, *(ahead.high.rank + 1 for ahead in self._parts.values())]))

    # -- what is said

    def _missing(self, ends: Ends) -> Missing | None:
        topics = {ahead.tp.topic for ahead in self._parts.values()}
        parts = [(ahead, self._courses[tp]) for tp, ahead in self._parts.items()]
        collections = self.reading.collections(topics, ends.names)
        return first_missing(ends, parts, collections, {} if self.stand is None else self.stand.taken)

    def _stand_at(self, rank: int, stops: Places) -> Stand:
        """What a batch says that ends behind a transaction."""
        assert self._ends is not None
        return _stand_at(
            rank, self._ends, self.stand, self.reading.by_topic, list(self._parts.values()), stops
        )

    def _waits(self, loading: Sequence[str], missing: Missing | None) -> tuple[str, ...]:
        assert self._ends is not None
        if loading:
            return tuple(f"waits for the snapshot of {topic}" for topic in loading)
        if missing is not None:
            events = "1 event" if missing.events == 1 else f"{missing.events} events"
            return (
                f"waits for {events} of transaction {self._ends.id(missing.rank)} in {missing.collection}",
            )
        pending = self._pending()
        if pending is not None:
            return (f"waits for the end of transaction {pending} in {self.topic}",)
        again = {
            tp.topic for tp, course in self._courses.items() if len(course.settled) and not course.settled[-1]
        }
        return tuple(f"waits for events of {topic} that come again" for topic in sorted(again))

    def _pending(self) -> str | None:
        """The first transaction that has not ended: one that was split, or that of the earliest event."""
        split = "" if self.stand is None else self.stand.split
        if split and (self._ends is None or not self._ends.has(split)):
            return split
        first: list[tuple[int, str]] = []
        for ahead in self._parts.values():
            rows = np.flatnonzero(ahead.events.ranks == PENDING)[:1]
            first += [(int(ahead.events.times[row]), ahead.events.ids[int(row)]) for row in rows]
        return min(first, key=lambda one: one[0])[1] if first else None

    def _has_snapshot(self) -> bool:
        return any(of_snapshot(ahead.events).any() for ahead in self._parts.values())

    def _split(self, missing: Missing | None, ends: Ends) -> Cut:
        """A part of a transaction that is too large to be kept whole."""
        head, rank = (self._pending(), PENDING) if missing is None else (ends.id(missing.rank), missing.rank)
        split: Split = split_of(head or "", rank, list(self._parts.values()), self.reading.names, self.most)
        if self._said != split.transaction:
            self._said = split.transaction
            logger.warning(
                "transaction %s of %s has more than %d records (max_transaction_records): it is split",
                split.transaction,
                self.topic,
                self.most,
            )
        before = self.stand or Stand(ends.position)
        stand = split.stand(before, {**before.collections, **self.reading.by_topic})
        return Cut(split.ends, stand, (f"splits transaction {split.transaction}",), is_split=True)

    def _lost(self, position: int, begin: int) -> CrossStreamError:
        if position < begin:
            what = f"records were deleted before they were read: offsets {position} to {begin - 1}"
            return refuse("CS-601", what, topic=self.topic, partition=0, offset=position)
        what = f"the transaction topic ends at offset {self.end}, but it was read up to {position}"
        return refuse("CS-603", what, topic=self.topic, partition=0, offset=position)


def _stand_at(
    rank: int,
    ends: Ends,
    before: Stand | None,
    collections: dict[str, tuple[str, ...]],
    parts: Sequence[Ahead],
    stops: Places,
) -> Stand:
    """Where a batch stands behind a transaction; behind a snapshot as before, and at the place of its rows."""
    before = before or Stand(ends.position)
    collections = {**before.collections, **collections}
    if rank >= ends.position:
        return ends.stand(rank, collections)
    found = lsn_of(parts, stops)
    lsn = before.lsn if found < 0 else max(found, before.lsn or 0)
    return Stand(ends.position, before.transaction, lsn, before.time, collections, before.split, before.taken)
