"""What a processor can do: forward records, use its stores, set timers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from crossstream.durations import Duration, to_milliseconds, to_record_timestamp
from crossstream.errors import ProcessingError, StateError
from crossstream.operators.process.record import Record
from crossstream.operators.process.stores import NOTHING, ProcessorView, Undo
from crossstream.operators.process.timers import Kind, Timer, Timers
from crossstream.records import Header, encode_headers

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
    come here (ms), that of the record in hand included; −1 before the first one.
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
            raise ProcessingError(
                f"a record cannot have the timestamp {time}",
                code="CS-507",
                next="forward it with milliseconds since the epoch, 0 or more; or leave the timestamp out",
            )
        out.rows.append(self._at)
        out.keys.append(key if type(key) in _PLAIN else _snapshot(key))
        out.values.append(value if type(value) in _PLAIN else _snapshot(value))
        out.times.append(time)
        out.headers.append(given)

    def store(self, name: str) -> Any:
        """The store of this name, which was given to the operator. Raises CS-710 for another name."""
        if name not in self._holds:
            known = ", ".join(self._holds) or "none"
            raise StateError(
                f"the processor was given no store named {name!r}; its stores are: {known}",
                code="CS-710",
                where={"store": name},
                next=f'pass it where the processor is: stores=[cs.KeyValueStore("{name}", key=…, value=…)]',
            )
        return self._holds[name]

    def schedule(self, interval: Duration, kind: Kind, callback: Callable[[int], None]) -> Timer:
        """Calls ``callback(time)`` every ``interval``, in "stream-time" or on the "wall-clock"; only in `init`.

        Returns the timer, which has `cancel()`. In stream time it fires between records, with the record that brings
        stream time to a multiple of the interval; on the clock at most once in a batch, after its records. An
        exception in ``callback`` stops the application. Raises CS-501 outside of `init`, and for other kinds.
        """
        if self._timers is None:
            raise ProcessingError(
                "a timer can be set in init only: what is set later would end with the batch",
                code="CS-501",
                next="set it in init, and let the callback look into a store what there is to do",
            )
        if kind not in ("stream-time", "wall-clock") or not callable(callback):
            raise ProcessingError(
                f'schedule takes "stream-time" or "wall-clock" and a callable, not {kind!r} and {callback!r}',
                code="CS-501",
                next='write context.schedule("1 minute", "stream-time", self.on_timer)',
            )
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
