"""How long the phases of a batch take."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Phases:
    """A watch that runs from one phase to the next. ``seconds``: of each phase that has ended."""

    seconds: dict[str, float] = field(default_factory=dict)
    _started: float = field(default_factory=time.perf_counter)
    _ended: float = 0.0

    def __post_init__(self) -> None:
        self._ended = self._started

    def end(self, phase: str) -> None:
        """A phase ends, and the next one begins."""
        now = time.perf_counter()
        self.seconds[phase], self._ended = now - self._ended, now

    def total(self) -> float:
        """Seconds of all phases that have ended."""
        return self._ended - self._started
