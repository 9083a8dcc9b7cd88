"""What a processor can do: forward records, use its stores, set timers."""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.durations import Duration, to_milliseconds, to_record_timestamp
from crossstream.error_codes import refuse
from crossstream.operators.process.stores import NOTHING, ProcessorView, Undo
from crossstream.records import Header, encode_headers
from crossstream.storage.columns import take
from crossstream.task.runner import OpenStore

Kind = Literal["stream-time", "wall-clock"]

CANCELLED = -1
STREAM_TIME = -1
"""Under this number is kept when a timer in stream time is due next."""
NEVER = 1 << 62


@dataclass(slots=True)
class Timer:
    """What `schedule` returns. ``cancel()`` ends it, for good."""

    number: int
    interval: int
    kind: Kind
    callback: Callable[[int], None]
    due: int
    cancelled: bool = False

    def cancel(self) -> None:
        """Lets the timer fire no more, in later batches neither."""
        self.cancelled = True

    def advance(self, now: int) -> None:
        """To the next time after ``now``; those in between are passed over."""
        self.due += self.interval * ((now - self.due) // self.interval + 1)


@dataclass(slots=True)
class Timers:
    """``kept``: what is kept of timers, by number: the time that is due on the clock, or `CANCELLED`.

    ``alone``: the batch has no record here.
    """

    stream_time: int
    clock: int
    kept: dict[int, int]
    alone: bool = False
    timers: list[Timer] = field(default_factory=list)
    _queue: list[tuple[int, int]] = field(default_factory=list)

    def add(self, interval: int, kind: Kind, callback: Callable[[int], None]) -> Timer:
        """A timer; those of an earlier batch are known by the order in which they are set."""
        number = len(self.timers)
        kept = self.kept.get(number)
        if kind == "stream-time":
            due = 0 if self.stream_time < 0 else (self.stream_time // interval + 1) * interval
        else:
            due = self.clock + interval if kept is None else kept
        timer = Timer(number, interval, kind, callback, due, kept == CANCELLED)
        self.timers.append(timer)
        if kind == "stream-time" and not timer.cancelled:
            heapq.heappush(self._queue, (due, number))
        return timer

    @property
    def next(self) -> int:
        """The stream time at which a timer is due; far away if there is none."""
        return self._queue[0][0] if self._queue else NEVER

    def fire(self, stream_time: int) -> Iterator[Timer]:
        """The timers that are due, one after the other; each is to be called before the next one is asked for."""
        while self._queue and self._queue[0][0] <= stream_time:
            timer = self.timers[heapq.heappop(self._queue)[1]]
            if not timer.cancelled:
                yield timer
                timer.advance(stream_time)
            if not timer.cancelled:
                heapq.heappush(self._queue, (timer.due, timer.number))

    def fire_on_the_clock(self) -> Iterator[Timer]:
        """As `fire`, of timers on the clock."""
        due = [one for one in self.timers if one.kind == "wall-clock" and one.due <= self.clock]
        for timer in sorted(due, key=lambda one: (one.due, one.number)):
            if not timer.cancelled:
                yield timer
                timer.advance(self.clock)

    @property
    def next_on_the_clock(self) -> int:
        """The time of the clock at which a timer is due; 0 if none is."""
        left = (one.due for one in self.timers if one.kind == "wall-clock" and not one.cancelled)
        return min(left, default=0)

    def _next_of_stream_time(self) -> int:
        left = (one.due for one in self.timers if one.kind == "stream-time" and not one.cancelled)
        return min(left, default=NEVER)

    def to_keep(self) -> dict[int, int]:
        """What has changed of what is kept."""
        now = {
            timer.number: CANCELLED if timer.cancelled else timer.due
            for timer in self.timers
            if timer.cancelled or timer.kind == "wall-clock"
        }
        due = self._next_of_stream_time()
        if due != NEVER or STREAM_TIME in self.kept or self.alone:
            now[STREAM_TIME] = due
        return {number: due for number, due in now.items() if self.kept.get(number) != due}


def load(store: OpenStore) -> dict[int, int]:
    """What is kept of the timers of a state partition, by number."""
    if not store.view.rows:
        return {}
    live = store.view.live()
    order = np.argsort(live["ts"], kind="stable")
    names = [key.as_py().decode().partition("/")[0] for key in take(live["key"], order)]
    kept: dict[int, int] = {}
    for name, due in zip(map(int, names), np.asarray(live["ts"])[order].tolist(), strict=True):
        if kept.get(name) != CANCELLED:
            kept[name] = due
    return kept


def save(store: OpenStore, changed: dict[int, int], partition: int, partitions: int, bits: int) -> None:
    """Keeps it, under keys whose rows belong to this state partition."""
    if not changed:
        return
    names = [_name(number, partition, partitions, bits) for number in changed]
    wire = pa.array(names, pa.large_binary())
    due = list(changed.values())
    store.view.put(
        {
            "h": hash_keys(wire, bits),
            "key": wire,
            "value": pa.array([one.to_bytes(8, "big", signed=True) for one in due], pa.large_binary()),
            "ts": np.array(due, np.int64),
            "gone": np.zeros(len(due), np.uint8),
        }
    )


def _name(number: int, partition: int, partitions: int, bits: int) -> bytes:
    for salt in count():
        name = f"{number}/{salt}".encode()
        if partition_of(hash_keys(pa.array([name], pa.large_binary()), bits), partitions)[0] == partition:
            return name
    raise AssertionError("unreachable")


class Record(NamedTuple):
    """A record in a processor; it cannot be changed. ``timestamp``: ms since the epoch; ``headers``: (name, bytes).

    ``topic``, ``partition``, ``offset``: of the record that was read from a topic and led to this one; None where
    there is none.

    >>> Record("ada", 7, 1000).headers
    ()
    """

    key: Any
    value: Any
    timestamp: int
    headers: tuple[Header, ...] = ()
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


_PLAIN = (str, int, float, bool, bytes, type(None))


@dataclass(slots=True)
class Forwarded:
    """What was forwarded in a batch, and the row of the batch that it came with."""

    rows: list[int] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    headers: list[bytes | None] = field(default_factory=list)

    def cut(self, size: int) -> None:
        """Only the first ``size``."""
        for column in (self.rows, self.keys, self.values, self.times, self.headers):
            del column[size:]


class ProcessorContext:
    """What `init` of a processor gets; valid until `close`.

    ``partition``: the number of the state partition. ``stream_time``: the largest timestamp of the records that have
    come (ms), to any state partition, that of the record in hand included; of several source partitions the time of
    the one that is furthest behind; −1 before the first record.
    """

    __slots__ = ("_at", "_check", "_holds", "_now", "_out", "_record", "_timers", "partition", "stream_time")

    def __init__(
        self,
        partition: int,
        stores: Mapping[str, ProcessorView],
        timers: Timers,
        check: Callable[[Any, Record | None], None] | None,
    ) -> None:
        self.partition = partition
        self.stream_time = timers.stream_time
        self._holds = dict(stores)
        self._timers: Timers | None = timers
        self._check = check
        self._out = Forwarded()
        self._record: Record | None = None
        self._now = max(timers.stream_time, 0)
        self._at = 0

    def forward(
        self,
        key: Any,
        value: Any,
        timestamp: int | datetime | None = None,
        headers: Iterable[Header] | None = None,
    ) -> None:
        """Gives a record to the operators below.

        Without ``timestamp`` and ``headers`` it has those of the record in hand; in a timer, the time that the timer
        got, and none. Raises CS-501 if `process_values` forwards another key, CS-507 for a negative timestamp.
        """
        if self._check is not None:
            self._check(key, self._record)
        out = self._out
        if headers is not None:
            given = encode_headers(headers)
        else:
            given = (
                encode_headers(self._record.headers)
                if self._record is not None and self._record.headers
                else None
            )
        time = self._now if timestamp is None else to_record_timestamp(timestamp)
        if time < 0:
            step = "forward it with milliseconds since the epoch, 0 or more; or leave the timestamp out"
            raise refuse("CS-507", f"a record cannot have the timestamp {time}", step)
        out.rows.append(self._at)
        out.keys.append(key if type(key) in _PLAIN else _snapshot(key))
        out.values.append(value if type(value) in _PLAIN else _snapshot(value))
        out.times.append(time)
        out.headers.append(given)

    def store(self, name: str) -> Any:
        """The store of this name, which was given to the operator. Raises CS-710 for another name."""
        if name not in self._holds:
            known = ", ".join(self._holds) or "none"
            what = f"the processor was given no store named {name!r}; its stores are: {known}"
            step = f'pass it where the processor is: stores=[cs.KeyValueStore("{name}", key=…, value=…)]'
            raise refuse("CS-710", what, step, store=name)
        return self._holds[name]

    def schedule(self, interval: Duration, kind: Kind, callback: Callable[[int], None]) -> Timer:
        """Calls ``callback(time)`` every ``interval``, in "stream-time" or on the "wall-clock"; only in `init`.

        Returns the timer, which has `cancel()`. In stream time it fires between records, with the record that brings
        stream time to a multiple of the interval; on the clock at most once in a batch, after its records. An
        exception in ``callback`` stops the application. Raises CS-501 outside of `init`, and for other kinds.
        """
        if self._timers is None:
            what = "a timer can be set in init only: what is set later would end with the batch"
            step = "set it in init, and let the callback look into a store what there is to do"
            raise refuse("CS-501", what, step)
        if kind not in ("stream-time", "wall-clock") or not callable(callback):
            what = (
                f'schedule takes "stream-time" or "wall-clock" and a callable, not {kind!r} and {callback!r}'
            )
            raise refuse("CS-501", what, 'write context.schedule("1 minute", "stream-time", self.on_timer)')
        return self._timers.add(to_milliseconds(interval, "interval", minimum=1), kind, callback)


def undo_all(undo: Undo) -> None:
    """Puts back what a record that failed had changed in the stores."""
    while undo:
        held, key, before = undo.pop()
        if before is NOTHING:
            del held[key]
        else:
            held[key] = before


def _snapshot(value: Any) -> Any:
    """A copy: the processor may change the value afterwards."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {key: one if type(one) in _PLAIN else _snapshot(one) for key, one in value.items()}
    if kind is list:
        return [one if type(one) in _PLAIN else _snapshot(one) for one in value]
    return copy.deepcopy(value)
