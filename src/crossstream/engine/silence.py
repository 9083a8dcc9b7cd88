"""When an application without input lets stream time go on with the clock (`StreamsConfig(idle_after=…)`)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from crossstream.engine.batch import Silence
from crossstream.topology.plan import BUFFER, WAITING, Plan

TICK_MS = 1_000
"""How often stream time goes on, at most; also not more than ten times in `after`."""


@dataclass(slots=True)
class Listener:
    """Notes what comes in, and tells each batch of the clock. All times in ms, as the clock shows them.

    ``after``: None where stream time stands still without input. ``since``: from when on the application has read
    all there is; the time before its start does not count. ``heard``, ``ticked``: the last batch with records, and
    the last one without; ``moved``: the last one without that was followed by a change of what is kept. ``shown``:
    what the clock showed last; where it is set back, the silence begins anew.
    """

    after: int | None
    since: int
    heard: int = 0
    ticked: int = 0
    moved: int = 0
    shown: int = 0

    def silence(self, now: int, taken: int, *, has_more: bool) -> Silence | None:
        """What a batch that takes so many records knows; nothing where there is, or may be, more to read."""
        if now < self.shown:
            self._begin_anew(now)
        self.shown = now
        if taken:
            self.heard = now
        if has_more:
            self.since = now
        if self.after is None or has_more:
            return None
        return Silence(now, self.since, self.after)

    def is_tick(self, silence: Silence | None) -> bool:
        """Whether a batch without records is due, if somebody waits for stream time to go on.

        Nobody does where one changed nothing although every partition had been silent for long enough: for twice as
        long, as one that takes a time of a clock that was set back for its last input may need.
        """
        if silence is None or silence.clock - max(silence.since, self.heard) < silence.after:
            return False
        if self.ticked - max(silence.since, self.heard, self.moved) > 2 * silence.after:
            return False
        if silence.clock - self.ticked < max(TICK_MS, silence.after // 10):
            return False
        self.ticked = silence.clock
        return True

    def stored(self) -> None:
        """Notes that the last batch changed what is kept: somebody may wait again."""
        self.moved = self.ticked

    def _begin_anew(self, now: int) -> None:
        """The clock was set back: how long it has been silent cannot be told by it."""
        self.since = now
        self.heard, self.ticked, self.moved = (min(t, now) for t in (self.heard, self.ticked, self.moved))


def somebody_waits(plan: Plan, state: Mapping[str, tuple[int, int]]) -> bool:
    """Whether records may wait for stream time to go on; ``state``: (rows, bytes) by ``store/partition``."""
    waiting = {
        store.name for store in plan.stores.values() if store.layout.kind in (WAITING.kind, BUFFER.kind)
    }
    return any(rows and place.rpartition("/")[0] in waiting for place, (rows, _) in state.items())


def milliseconds() -> int:
    """What the clock shows."""
    return time.time_ns() // 1_000_000
