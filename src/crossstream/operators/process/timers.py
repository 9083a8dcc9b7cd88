"""The timers of a processor in one state partition: when they fire, and what is kept of them.

A timer in stream time fires at multiples of its interval: after each record that brings stream time to the next one or
past it, once, whatever number of them it passes. So what is due follows from stream time alone. A timer on the clock is
due an interval after it was set, and then after each that follows; what is due is kept. So is that a timer was
cancelled. Source: ``PunctuationSchedule``, ``StreamTask#schedule``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.operators.runner import OpenStore
from crossstream.storage.columns import take

Kind = Literal["stream-time", "wall-clock"]

CANCELLED = -1


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
    """``kept``: what is kept of timers, by number: the time that is due on the clock, or `CANCELLED`."""

    stream_time: int
    clock: int
    kept: dict[int, int]
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
        return self._queue[0][0] if self._queue else 1 << 63

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

    def to_keep(self) -> dict[int, int]:
        """What has changed of what is kept."""
        now = {
            timer.number: CANCELLED if timer.cancelled else timer.due
            for timer in self.timers
            if timer.cancelled or timer.kind == "wall-clock"
        }
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
