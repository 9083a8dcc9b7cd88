"""Windowed aggregation of a stream, one record at a time, in plain Python: the rules of semantics 3.4.

`Windowing` follows ``KStreamWindowAggregate``, ``KStreamSessionWindowAggregate`` and ``KStreamSlidingWindowAggregate``
of Kafka 4.3. It differs in two decisions: with ``emit="close"`` every window that closes comes out (8.20), and a record
that comes in time sees the sliding windows before it (8.27).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["time", "session", "sliding"]


class Result(NamedTuple):
    """A result record; ``value`` None: a tombstone."""

    key: str
    start: int
    end: int
    value: Any
    ts: int


@dataclass(frozen=True, slots=True)
class Functions:
    """What is done with records. ``first``: makes the aggregate that begins; ``add``: takes None for "no aggregate"."""

    first: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]


COUNT = Functions(lambda: 0, lambda n, value: n + 1, lambda left, right: left + right)
REDUCE = Functions(
    lambda: None,
    lambda text, value: value if text is None else joined(text, value),
    lambda left, right: right if left is None else joined(left, right),
)
AGGREGATE = Functions(
    lambda: "",
    lambda text, value: None if value == "x" else f"{text or ''}{'-' if value is None else value}",
    lambda left, right: f"({left}|{right})",
)


def joined(left: str, right: str | None) -> str | None:
    """The reducer: it deletes where it meets an x."""
    return None if right == "x" else f"{left}+{right}"


@dataclass(slots=True)
class Windowing:
    """The operator. ``size``: of time windows, the gap of sessions, the difference of sliding windows; all in ms.

    ``rows``: value and timestamp by key, start and end. ``dropped``: records without key, and windows that were closed
    for a record. ``newest``: the largest start of a window that was ever put, of sessions the largest end. ``apart``:
    records that began a session beside a closed one that they are within the gap of. ``as_kafka_shows``: records see
    the sliding windows that Kafka's store still shows.
    """

    kind: Kind
    size: int
    functions: Functions
    grace: int = 0
    advance: int = 0
    final: bool = False
    as_kafka_shows: bool = False
    rows: dict[tuple[str, int, int], tuple[Any, int]] = field(default_factory=dict)
    dropped: int = 0
    now: int = -1
    newest: int = -1
    twins: int = 0
    apart: int = 0
    _out: list[Result] = field(default_factory=list)
    _emitted: set[tuple[str, int, int]] = field(default_factory=set)

    def process(self, key: str | None, value: Any, ts: int) -> list[Result]:
        """The results of a record."""
        self._out = []
        if key is None or (value is None and self.kind == "sliding"):
            self.dropped += 1
            return []
        self.now = max(self.now, ts)
        closed = self.now - self.grace - (self.size if self.kind == "session" else 0)
        if self.kind == "time":
            self._time(key, value, ts, closed)
        elif self.kind == "session":
            self._session(key, value, ts, closed)
        else:
            self._sliding(key, value, ts, closed)
        return self._close() if self.final else self._out

    # -- the kinds -------------------------------------------------------------------------------------

    def _time(self, key: str, value: Any, ts: int, closed: int) -> None:
        start = max(0, ts - self.size + self.advance) // self.advance * self.advance
        for begin in range(start, ts + 1, self.advance):
            if begin + self.size <= closed:
                self.dropped += 1
                continue
            old, old_ts = self.rows.get((key, begin, begin + self.size), (None, ts))
            made = self.functions.add(self.functions.first() if old is None else old, value)
            self._put(key, begin, begin + self.size, made, max(ts, old_ts))

    def _session(self, key: str, value: Any, ts: int, closed: int) -> None:
        shown = self.newest - self.size - self.grace + 1
        found = sorted(
            (end, start)
            for k, start, end in self.rows
            if k == key and end >= max(ts - self.size, shown) and start <= ts + self.size
        )
        if (
            self.final
        ):  # ours, not Kafka's: a session that has yet to come out does not stay beside one with its end
            twin = [(e, s) for k, s, e in self.rows if k == key and s < e == ts == shown - 1 >= closed]
            found = sorted({*found, *twin})
            self.twins += len(twin)
        start, end = min([ts, *(s for _, s in found)]), max([ts, *(e for e, _ in found)])
        if end < closed:
            self.dropped += 1
            return
        joined_ends = {e for e, _ in found}
        self.apart += any(
            k == key and ts - self.size <= e <= ts and e not in joined_ends for k, _, e in self.rows
        )
        aggregate = self.functions.first()
        for e, s in found:
            aggregate = self.functions.merge(aggregate, self.rows[key, s, e][0])
        if (start, end) != (ts, ts):
            for e, s in found:
                self._put(key, s, e, None, e)
        self._put(key, start, end, self.functions.add(aggregate, value), end)

    def _sliding(self, key: str, value: Any, ts: int, closed: int) -> None:
        size = self.size
        if ts + size < closed:
            self.dropped += 1
            return
        shown = 0
        if self.as_kafka_shows:
            shown = self.newest - 2 * size - self.grace + (0 if self.final else 1)
        there = {s: row for (k, s, _), row in self.rows.items() if k == key and shown <= s <= ts + 1}
        early = ts < size
        low = 0 if early else max(0, ts - 2 * size)
        there = {s: there[s] for s in sorted(there, reverse=not early) if s >= low}

        def update(start: int, aggregate: Any, at: int) -> None:
            if start + size < closed:
                self.dropped += 1
                return
            made = self.functions.add(self.functions.first() if aggregate is None else aggregate, value)
            self._put(key, start, start + size, made, max(ts, at))

        right: tuple[Any, int] | None = None
        previous: int | None = None
        if early:
            for start, row in there.items():
                if start == 0:
                    previous = row[1] if row[1] < ts else None
                elif start <= ts:
                    right = row
                    update(start, *row)
            whole = there.get(0)
            if right is None and whole is not None and whole[1] > ts:
                right = whole
            if ts + 1 not in there and right is not None and right[1] > ts:
                self._put(key, ts + 1, ts + 1 + size, *right)
            if previous is not None and previous + 1 not in there:
                update(previous + 1, None, ts)
            update(0, *(whole or (None, ts)))
            return
        left = None
        for start, row in there.items():
            end = start + size
            if start == ts + 1:
                continue
            if end > ts:
                right = right or row
                update(start, *row)
            elif end == ts:
                update(start, *row)
                if row[1] == ts:
                    return
                previous = row[1]
            else:
                left, previous = row[0], row[1]
                break
        if previous is not None and previous + 1 not in there and previous + 1 + size >= ts:
            update(previous + 1, None, ts)
        if ts - size not in there:
            update(ts - size, left if previous is not None and ts - size <= previous else None, ts)
        if ts + 1 not in there and right is not None and right[1] > ts:
            self._put(key, ts + 1, ts + 1 + size, *right)

    # -- the store, and what comes out -----------------------------------------------------------------

    def _put(self, key: str, start: int, end: int, value: Any, ts: int) -> None:
        self.newest = max(self.newest, end if self.kind == "session" else start)
        if value is None:
            self.rows.pop((key, start, end), None)
        else:
            self.rows[key, start, end] = value, ts
        if not self.final:
            self._out.append(Result(key, start, end, value, ts))

    def _close(self) -> list[Result]:
        """The windows that have closed and were not given out, by start (sessions: by end), then key."""
        found = []
        for window, (value, ts) in self.rows.items():
            key, start, end = window
            closing = end + self.grace + {"time": 0, "session": self.size + 1, "sliding": 1}[self.kind]
            if closing <= self.now and window not in self._emitted:
                self._emitted.add(window)
                found.append(Result(key, start, end, value, ts))
        return sorted(
            found, key=lambda r: (r.end, r.start, r.key) if self.kind == "session" else (r.start, r.key)
        )
