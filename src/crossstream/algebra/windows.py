"""Time in a stream–stream join: who is a partner of whom, for how long records are seen, when they are alone.

With A, how much newer a partner may be, = after for left and before for right records:

    partners     l.ts − before ≤ r.ts ≤ l.ts + after                  (real bounds, also negative ones)
    closed       ts + A + grace < stream time: no partner in time can come any more
    visible      ts > newest − (before + after + grace), or ts + A + grace ≥ newest, with the newest timestamp
                 on the record's own side: retention, but nothing vanishes before its own window has closed

Stream time is the newest timestamp that reached either side, of dropped records too; it advances record by record.
Source: semantics 2.1.1–2.1.3, 8.5, 8.6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossstream.algebra.order import running_maximum

LEFT, RIGHT = 0, 1
SIDES = (LEFT, RIGHT)
NEVER = -1
"""Stream time before any record."""


@dataclass(frozen=True, slots=True)
class Window:
    """Bounds and grace in ms. A bound may be negative; together they are not."""

    before: int
    after: int
    grace: int = 0

    @property
    def ahead(self) -> tuple[int, int]:
        """By side: how much newer than a record a partner may be."""
        return (self.after, self.before)

    @property
    def retention(self) -> int:
        return self.before + self.after + self.grace

    def closes(self, side: int, ts: np.ndarray) -> np.ndarray:
        """The last stream time at which the windows of these records are open."""
        return ts + (self.ahead[side] + self.grace)

    def closing(self, side: int, stream_time: int) -> int:
        """Records of a side with older timestamps than this have closed windows."""
        return stream_time - self.ahead[side] - self.grace

    def horizon(self, side: int, newest: int | np.ndarray) -> int | np.ndarray:
        """The oldest timestamp that is visible on a side; ``newest``: of that side."""
        return np.minimum(newest - self.retention + 1, newest - self.ahead[side] - self.grace)


@dataclass(frozen=True, slots=True)
class Times:
    """After each record of a batch: stream time, and the newest timestamp put on either side."""

    join: np.ndarray
    newest: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(
        cls, ts: np.ndarray, side: np.ndarray, put: np.ndarray, before: int, newest: tuple[int, int]
    ) -> Times:
        """``put``: the records that are kept; ``before``, ``newest``: the times before the batch."""
        left, right = (
            running_maximum(np.where(put & (side == one), ts, NEVER), newest[one]) for one in SIDES
        )
        return cls(running_maximum(ts, before), (left, right))

    def first_after(self, closes: np.ndarray) -> np.ndarray:
        """The first record at which windows that are open up to ``closes`` are closed; past the last: none."""
        return np.searchsorted(self.join, closes, "right")

    def reach(
        self, window: Window, side: int, places: np.ndarray, ts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The oldest and newest timestamps of visible partners, for records of a side at these places."""
        other = RIGHT - side
        seen = window.horizon(other, self.newest[other][places])
        return np.maximum(ts - window.ahead[other], seen), ts + window.ahead[side]
