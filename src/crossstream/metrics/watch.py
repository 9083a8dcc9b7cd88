"""The one listener behind metrics and the page: adds up batches, and looks at the driver when it is asked."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from crossstream.metrics.observation import (
    BOUNDS,
    RECENT,
    Done,
    Observation,
    Progress,
    Running,
    by_store,
    skew_of,
)


@dataclass(frozen=True, slots=True)
class Live:
    """The driver's own state at a moment. ``state``: (rows, bytes) by ``store/partition``."""

    status: str = "created"
    partitions: int = 1
    running: Running | None = None
    lag: dict[str, dict[int, int]] = field(default_factory=dict)
    state: dict[str, tuple[int, int]] = field(default_factory=dict)
    error: str | None = None


class Watch:
    """Sums over batches since the start; any thread may ask for an `Observation`.

    ``sources``, ``sinks``: the operators whose records are read and written. ``dead``: the reasons of dropped records
    that become dead letters.
    """

    def __init__(
        self,
        application: str,
        sources: Collection[str],
        sinks: Collection[str],
        dead: Collection[str],
        live: Callable[[], Live],
    ) -> None:
        self.application = application
        self._sources, self._sinks = frozenset(sources), frozenset(sinks)
        self._dead = frozenset(dead)
        self._live = live
        self._lock = threading.Lock()
        self._started = time.time()
        self._sums: dict[str, dict[str, float]] = {
            name: {} for name in ("rows_in", "rows_out", "dropped", "matched", "unmatched", "phases")
        }
        self._newest: dict[str, int] = {}
        self._fan_out: dict[str, int] = {}
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._batches, self._seconds, self._records = 0, 0.0, 0
        self._recent: deque[Done] = deque(maxlen=RECENT)
        self._warnings: tuple[str, ...] = ()
        self._waiting: dict[str, int] = {}

    def add(self, progress: Progress) -> Done:
        """Takes in a batch that was just committed."""
        done = Done(progress.batch, time.time(), progress.rows, progress.seconds, dict(progress.phases))
        with self._lock:
            for name, sums in self._sums.items():
                for key, number in getattr(progress, name).items():
                    sums[key] = sums.get(key, 0) + number
            for join, rows in progress.fan_out.items():
                self._fan_out[join] = max(rows, self._fan_out.get(join, 0))
            for operator, timestamp in progress.newest.items():
                self._newest[operator] = max(timestamp, self._newest.get(operator, timestamp))
            self._buckets[bisect_left(BOUNDS, progress.seconds)] += 1
            self._batches += 1
            self._seconds += progress.seconds
            self._records += progress.rows
            self._warnings = progress.warnings
            self._waiting = progress.waiting
            self._recent.append(done)
        return done

    def observe(self) -> Observation:
        """The application now."""
        live = self._live()
        rows, sizes = by_store(live.state)
        with self._lock:
            sums: dict[str, Any] = {
                name: {key: int(number) for key, number in found.items()}
                for name, found in self._sums.items()
                if name not in ("phases", "dropped")
            }
            dropped = _by_reason(self._sums["dropped"])
            return Observation(
                application=self.application,
                time=time.time(),
                status=live.status,
                started=self._started,
                read=self._records,
                written=sum(number for name, number in sums["rows_out"].items() if name in self._sinks),
                dead_letters=sum(
                    number
                    for reasons in dropped.values()
                    for reason, number in reasons.items()
                    if reason in self._dead
                ),
                batches=self._batches,
                batch_seconds=self._seconds,
                buckets=tuple(self._buckets),
                dropped=dropped,
                phases={name: number / 1000 for name, number in self._sums["phases"].items()},
                lag=live.lag,
                newest_read={name: ts for name, ts in self._newest.items() if name in self._sources},
                newest_written={name: ts for name, ts in self._newest.items() if name in self._sinks},
                state_rows=rows,
                state_bytes=sizes,
                skew=skew_of(live.state, live.partitions),
                running=live.running,
                last=self._recent[-1] if self._recent else None,
                recent=tuple(self._recent),
                warnings=self._warnings,
                errors=() if live.error is None else (live.error,),
                fan_out=dict(self._fan_out),
                waiting=self._waiting,
                **sums,
            )


def _by_reason(dropped: Mapping[str, float]) -> dict[str, dict[str, int]]:
    """``operator: reason`` in two; what no operator dropped has the operator ``""``."""
    found: dict[str, dict[str, int]] = {}
    for name, number in dropped.items():
        operator, _, reason = name.rpartition(": ")
        found.setdefault(operator, {})[reason] = int(number)
    return found
