"""Windows as the engine takes them, as frozen data, and what users and planners ask of each kind. Times in ms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from crossstream.serdes.windowed import NO_END


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Windows. ``size``: of time windows; the difference of sliding ones, the gap of sessions, or the start of the one
    unlimited window. ``advance``: from the start of one time window to the next.

    >>> WindowSpec("session", size=300_000, advance=0, grace=60_000).open_after_end
    360000
    """

    kind: Literal["time", "sliding", "session", "unlimited"]
    size: int
    advance: int
    grace: int

    @property
    def end(self) -> bool:
        """Whether they have an end, and so close."""
        return self.kind != "unlimited"

    @property
    def merge(self) -> bool:
        """Whether two of them become one when a record is near to both."""
        return self.kind == "session"

    @property
    def move(self) -> bool:
        """Whether their bounds depend on the records."""
        return self.kind in ("session", "sliding")

    @property
    def take_nulls(self) -> bool:
        """Whether records without a value are aggregated (Kafka's rules)."""
        return self.kind != "sliding"

    @property
    def length(self) -> int | None:
        """From the start of a window to its end; None: they have several lengths."""
        if self.merge:
            return None
        return self.size if self.end else NO_END

    def ends_of(self, starts: np.ndarray) -> np.ndarray:
        """Where windows end that begin at ``starts``; not of sessions."""
        return starts + self.size if self.end else np.full(len(starts), NO_END)

    @property
    def open_after_end(self) -> int:
        """How long a window takes records after its end: for the grace period, a session for the gap before."""
        return self.grace + (self.size if self.merge else 0)
