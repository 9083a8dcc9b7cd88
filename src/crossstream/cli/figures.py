"""What a running application has done so far, from the progress of its batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossstream.spark.progress import Progress

WINDOW_SECONDS = 10.0
"""Rows per second are those of the last ten seconds."""


@dataclass(slots=True)
class Figures:
    """Sums over batches. Times are seconds of one clock, whichever the caller uses."""

    started: float
    last: Progress | None = None
    batches: int = 0
    rows: int = 0
    rows_in: dict[str, int] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    matched: dict[str, int] = field(default_factory=dict)
    unmatched: dict[str, int] = field(default_factory=dict)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, progress: Progress, now: float) -> None:
        """Takes in a batch that was just committed."""
        self.last = progress
        self.batches += 1
        self.rows += progress.rows
        _sum(self.rows_in, progress.rows_in)
        _sum(self.rows_out, progress.rows_out)
        _sum(self.matched, progress.matched)
        _sum(self.unmatched, progress.unmatched)
        self._recent.append((now, progress.rows))

    def rows_per_second(self, now: float) -> float:
        """Rows of the last seconds, or since the start where that is less long ago."""
        while self._recent and self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()
        seconds = min(WINDOW_SECONDS, now - self.started)
        return sum(rows for _, rows in self._recent) / seconds if seconds > 0 else 0.0


def as_line(progress: Progress, time: float) -> dict[str, Any]:
    """A batch as one JSON object; ``time``: seconds since the epoch when it was committed."""
    return {
        "time": datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="milliseconds"),
        "batch": progress.batch,
        "rows": progress.rows,
        "seconds": round(progress.seconds, 6),
        "rows_per_second": round(progress.rows / progress.seconds, 1) if progress.seconds else 0.0,
        "lag": progress.lag,
        "phases_ms": {phase: round(value, 3) for phase, value in progress.phases.items()},
        "rows_in": progress.rows_in,
        "rows_out": progress.rows_out,
        "dropped": progress.dropped,
        "matched": progress.matched,
        "unmatched": progress.unmatched,
        "state_rows": progress.state_rows,
        "total_rows": progress.total_rows,
        "total_dropped": progress.total_dropped,
        "warnings": progress.warnings,
    }


def _sum(totals: dict[str, int], more: dict[str, int]) -> None:
    for name, number in more.items():
        totals[name] = totals.get(name, 0) + number
