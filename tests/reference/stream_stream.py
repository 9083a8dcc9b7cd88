"""Stream-stream join: left l and right r with equal keys are partners iff

    l.ts - before <= r.ts <= l.ts + after          (real bounds, also negative ones)

Each pair comes out once, when the second of the two arrives:  k = j(l, r) @ max(l.ts, r.ts).
Outer sides: left of a left join, both of an outer join. With A = after for left and before for right records,
and stream time the newest timestamp that reached either side (null keys and values included),

    a record's window is closed    ts + A + grace < stream time

A record x of side S, the other side being O:

    1  x moves stream time: every waiting record whose window is now closed comes out unmatched at its own
       timestamp, ordered by (ts, right before left, key bytes, arrival)               [not in eager mode]
    2  null key, value present, S outer: unmatched at once, not stored;
       other null key or value: dropped, counted
    3  pairs with every visible partner of O, by (ts, arrival); partners stop waiting.
       A record whose unmatched row is out has no partners any more                    [not in eager mode]
    4  none, and S outer: eager mode, or window closed already: unmatched now; otherwise x waits
    5  x is stored

    visible    o.ts > newest timestamp of side O - (before + after + grace), or o.ts + A_O + grace >= that
               newest: retention, but nothing vanishes before its own window has closed

So an outer-side record has at least one pair or exactly one unmatched row, never both (not in eager mode,
where the unmatched row comes at once and pairs may follow). A late record is not dropped. Nothing comes out
at the end of input. An unmatched row carries its own record's headers, a pair those of the record that came
second.

A stream joined with itself plays both sides: first left, then right, where it also meets itself; a record
that will find itself gets no unmatched row (except in eager mode); a drop is counted once.
cf. KIP-633, KAFKA-10847, KAFKA-19536, KIP-962, KIP-862
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.reference.functions import Joiner
from tests.reference.records import NULL_KEY, NULL_VALUE, Event, Record, Side, key_bytes

OTHER: dict[Side, Side] = {"left": "right", "right": "left"}
OUTER_SIDES: dict[str, list[Side]] = {"inner": [], "left": ["left"], "outer": ["left", "right"]}


@dataclass(slots=True, eq=False)
class Stored:
    record: Record
    side: Side
    arrival: int
    unmatched: bool = False  # its unmatched row is out, for good

    @property
    def ts(self) -> int:
        return self.record.ts


class StreamStreamJoin:
    def __init__(
        self, kind: str, joiner: Joiner, window: Mapping[str, int], eager: bool, dropped: Counter[str]
    ) -> None:
        before, after, self.grace = window["before_ms"], window["after_ms"], window["grace_ms"]
        self.ahead: dict[Side, int] = {"left": after, "right": before}  # how much newer a partner may be
        self.outer: list[Side] = OUTER_SIDES[kind]
        self.retention = before + after + self.grace
        self.joiner = joiner
        self.eager = eager
        self.dropped = dropped
        self.stored: dict[Side, list[Stored]] = {"left": [], "right": []}
        self.newest: dict[Side, int] = {"left": -1, "right": -1}
        self.waiting: list[Stored] = []
        self.stream_time = -1
        self.arrivals = 0

    def receive(self, events: list[tuple[Side, Event]]) -> list[Event]:
        out: list[Event] = []
        for side, event in events:
            assert isinstance(event, Record)
            out.extend(self.arrive(event, [side]))
        return out

    def arrive(self, x: Record, sides: list[Side]) -> Iterator[Record]:
        yield from self.advance(x.ts)
        if x.key is None or x.value is None:
            yield from self.null(x, sides)
            return
        finds_itself = len(sides) == 2 and self.finds_itself(x)
        for side in sides:
            yield from self.meet(x, side, finds_itself)

    def advance(self, ts: int) -> list[Record]:
        """Moves stream time; the rows whose window closes by that."""
        if ts <= self.stream_time:
            return []
        self.stream_time = ts
        due = [u for u in self.waiting if self.closed(u.side, u.ts)]
        due.sort(key=lambda u: (u.ts, u.side == "left", key_bytes(u.record.key), u.arrival))
        self.waiting = [u for u in self.waiting if u not in due]
        for u in due:
            u.unmatched = True
        return [self.alone(u.record, u.side) for u in due]

    def null(self, x: Record, sides: list[Side]) -> list[Record]:
        rows = [] if x.value is None else [self.alone(x, side) for side in sides if side in self.outer]
        if not rows:
            self.dropped[NULL_KEY if x.key is None else NULL_VALUE] += 1
        return rows

    def meet(self, x: Record, side: Side, finds_itself: bool) -> Iterator[Record]:
        partners = self.partners(x, side)
        for o in partners:
            self.waiting = [u for u in self.waiting if u is not o]
            yield self.pair(x, side, o.record)

        self.arrivals += 1
        stored = Stored(x, side, self.arrivals)
        if not partners and side in self.outer:
            if self.eager:
                yield self.alone(x, side)
            elif finds_itself:
                pass  # it comes out with itself, when it plays the other side
            elif self.closed(side, x.ts):
                stored.unmatched = True
                yield self.alone(x, side)
            else:
                self.waiting.append(stored)
        self.stored[side].append(stored)
        self.newest[side] = max(self.newest[side], x.ts)

    def partners(self, x: Record, side: Side) -> list[Stored]:
        other = OTHER[side]
        found = [
            o
            for o in self.stored[other]
            if o.record.key == x.key
            and x.ts - self.ahead[other] <= o.ts <= x.ts + self.ahead[side]
            and self.visible(other, o.ts, self.newest[other])
            and not o.unmatched
        ]
        return sorted(found, key=lambda o: (o.ts, o.arrival))

    def visible(self, side: Side, ts: int, newest: int) -> bool:
        return ts > newest - self.retention or ts + self.ahead[side] + self.grace >= newest

    def finds_itself(self, x: Record) -> bool:
        in_window = self.ahead["left"] >= 0 and self.ahead["right"] >= 0
        return in_window and self.visible("left", x.ts, max(x.ts, self.newest["left"]))

    def closed(self, side: Side, ts: int) -> bool:
        return ts + self.ahead[side] + self.grace < self.stream_time

    def pair(self, x: Record, side: Side, o: Record) -> Record:
        left, right = (x, o) if side == "left" else (o, x)
        value = self.joiner(x.key, left.value, right.value)
        return Record(x.key, value, max(x.ts, o.ts), x.headers)

    def alone(self, x: Record, side: Side) -> Record:
        left, right = (x.value, None) if side == "left" else (None, x.value)
        return Record(x.key, self.joiner(x.key, left, right), x.ts, x.headers)


class StreamSelfJoin(StreamStreamJoin):
    """The same stream on both sides: every record arrives once and plays both."""

    def receive(self, events: list[tuple[Side, Event]]) -> list[Event]:
        out: list[Event] = []
        for side, event in events:
            assert isinstance(event, Record)
            if side == "left":
                out.extend(self.arrive(event, ["left", "right"]))
        return out
