"""When windows close, and how long the store keeps them. Times in ms.

A *position* is what the store orders windows by: their start, of sessions their end. All kinds close by one formula, in
which only the delay from the position differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.stream_time import Timeline
from crossstream.columns.values import Values
from crossstream.columns.windows import WindowSpec
from crossstream.operators.aggregate.kernel import END, START
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.windowed import NO_END
from crossstream.storage.columns import Column


@dataclass(frozen=True, slots=True)
class Closing:
    """``delay``: from the position of a window to the stream time at which it closes; None: it never does.

    ``least``: how long the store keeps a window at least (`retention`); ``longer``: how much more than that, counted
    from the position. ``step``: positions are multiples of it. ``remembered``: how long a window stays that is over.
    ``copied``: windows that have closed are copied by records to come, so they stay.
    """

    delay: int | None
    least: int = 0
    longer: int = 0
    step: int = 1
    remembered: int = 0
    copied: bool = False

    @classmethod
    def of(cls, windows: WindowSpec) -> Closing:
        """Of windows of this kind.

        >>> hourly = Closing.of(WindowSpec("time", size=60, advance=60, grace=5))
        >>> hourly.close(64), hourly.close(65), hourly.notify_at(np.array([0]))
        (0, 1, array([65]))
        """
        return _OF_KIND[windows.kind](windows)

    def close(self, stream_time: int) -> int:
        """The smallest position of a window that is open at a stream time: those before have closed."""
        return 0 if self.delay is None else stream_time - self.delay + 1

    def notify_at(self, positions: np.ndarray) -> np.ndarray:
        """The stream time at which the windows at these positions close."""
        return np.full(len(positions), NO_END) if self.delay is None else positions + self.delay

    def retention(self, asked: int | None) -> int | None:
        """How long the store keeps a window after its start, a sliding window or a session after its end, at least.

        None: for good. Source: KIP-328.
        """
        return None if self.delay is None else max(asked or 0, self.least)

    def leave(self, retention: int | None) -> bool:
        """Whether windows that come out when they close leave the store then: they are not kept for longer.

        So the store has what is yet to come out, wherever rescaling puts it.
        """
        return not self.copied and retention == self.retention(None)

    def oldest(self, stream_time: int, retention: int) -> int:
        """The oldest position that the store keeps: the retention before the newest one."""
        return stream_time // self.step * self.step - retention + 1 - self.longer

    def closed(
        self, rows: Mapping[str, Column], key: EngineSerde, value: EngineSerde, timeline: Timeline
    ) -> Changes:
        """Windows of the store that closed, each where stream time rose to its moment. ``key``, ``value``: serdes."""
        positions = np.asarray(rows["s"])
        rises = timeline.first(self.notify_at(positions))
        bounds = {START: rows["start"], END: positions} if "start" in rows else {START: positions}
        return Changes(
            Values(key, wire=rows["key"]),
            Values(value, wire=rows["value"]),
            rows["ts"],
            timeline.major[rises],
            timeline.minor[rises],
            timeline.headers_at(rises),
            extra=bounds,
        )


def _time(windows: WindowSpec) -> Closing:
    """The end of a time window does not belong to it."""
    open_for = windows.size + windows.grace
    return Closing(open_for, open_for, step=windows.advance)


def _sliding(windows: WindowSpec) -> Closing:
    """The end belongs to the window.

    A record that is late by the size and the grace still changes a window. What it copies, and the record before it,
    are in windows that begin up to twice the size before it. So they ended twice the size and the grace before. They
    stay for the retention after their end, and its last moment.
    """
    size, grace = windows.size, windows.grace
    return Closing(size + grace + 1, 2 * size + grace, longer=size + 1, copied=True)


def _session(windows: WindowSpec) -> Closing:
    """The end and the gap belong to the session. A late record may yet belong to one that is over, and is counted."""
    open_for = windows.size + windows.grace
    return Closing(open_for + 1, open_for, remembered=windows.size + 1)


def _unlimited(windows: WindowSpec) -> Closing:
    return Closing(None)


_OF_KIND: Mapping[str, Callable[[WindowSpec], Closing]] = MappingProxyType(
    {"time": _time, "sliding": _sliding, "session": _session, "unlimited": _unlimited}
)
