"""What an application has done since its start, and what it holds."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

from crossstream.config import DeadLetter, StreamsConfig
from crossstream.graph.nodes import FrameSink, Graph, Sink
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
from crossstream.storage.log_entries import Stand, shown
from crossstream.task.batch import Report
from crossstream.task.counts import TaskCounts, add_up, by_operator, counts_of, merge
from crossstream.task.unmatched_joins import UnmatchedJoins

logger = logging.getLogger("crossstream.sources")

_SECONDS = (1_000_000, int(datetime(1980, 1, 1, tzinfo=timezone.utc).timestamp() * 1000))
"""Timestamps in ms from which on, and before which, they are more likely seconds; tests count in smaller numbers."""


_NO_STANDS: Mapping[str, Stand] = {}


@dataclass(frozen=True, slots=True)
class Live:
    """What an `Observation` needs of this moment. ``lag``: by topic and partition. ``stands``, ``waits``: see there."""

    status: str = "created"
    partitions: int = 1
    running: Running | None = None
    lag: dict[str, dict[int, int]] = field(default_factory=dict)
    error: str | None = None
    stands: dict[str, dict[str, str | int | None]] = field(default_factory=dict)
    waits: tuple[str, ...] = ()


class BesideBatches(Protocol):
    """Something that reads while batches run."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of this moment."""

    def dropped(self) -> Mapping[str, int]:
        """Rows that were dropped since the last call, by operator and reason."""


class Totals:
    """The one place where the numbers of batches add up; any thread may ask for an `Observation`.

    ``dead``: the reasons of dropped records that become dead letters. ``started``: seconds since the epoch.
    """

    def __init__(self, application: str, topology: Graph, dead: Collection[str] = ()) -> None:
        self.application = application
        self.started = time.time()
        self.recent: deque[Done] = deque(maxlen=RECENT)
        self.unmatched_joins = UnmatchedJoins.of(topology)
        self._sources = frozenset(node.name for node in topology if node.reads_input)
        self._sinks = frozenset(node.name for node in topology if isinstance(node, Sink | FrameSink))
        self._dead = frozenset(dead)
        self._lock = threading.Lock()
        self._sums = TaskCounts()
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._warnings: tuple[str, ...] = ()
        self.beside: BesideBatches | None = None
        """What is read beside the batches, by the loop of now."""
        self._rows, self._batches, self._seconds = 0, 0, 0.0

    @classmethod
    def of(cls, topology: Graph, config: StreamsConfig) -> Totals:
        reasons = {"undecodable": config.deserialization_errors, "failed": config.processing_errors}
        dead = [reason for reason, setting in reasons.items() if isinstance(setting, DeadLetter)]
        return cls(config.application_id, topology, dead)

    def hold(self, state: dict[str, tuple[int, int]], due: dict[str, int]) -> None:
        """Replaces what is held, and when timers fire: both as in a `Report`."""
        with self._lock:
            self._sums.state.clear()
            self._sums.due.clear()
            merge(self._sums, TaskCounts(state=state, due=due))

    def add(
        self,
        batch: int,
        report: Report,
        phases: Mapping[str, float],
        seconds: float,
        lag: int,
        stands: Mapping[str, Stand] = _NO_STANDS,
        waits: tuple[str, ...] = (),
    ) -> Progress:
        """Takes in a batch that was just committed. ``phases``: of the driver, in seconds."""
        if self.beside is not None:
            report.dropped.update(self.beside.dropped())
        rows = sum(report.rows_in.get(name, 0) for name in self._sources)
        times = {phase: 1000 * value for phase, value in (*phases.items(), *report.seconds.items())}
        for source in sorted((report.newest.keys() & self._sources) - self._sums.newest.keys()):
            _warn_of_seconds(source, report.newest[source])
        self.unmatched_joins.add(report)
        with self._lock:
            merge(self._sums, report)
            add_up(self._sums.seconds, phases)
            self._warnings = self.unmatched_joins.warnings
            self._rows += rows
            self._batches += 1
            self._seconds += seconds
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self.recent.append(Done(batch, time.time(), rows, seconds, times))
        return Progress(
            batch=batch,
            rows=rows,
            seconds=seconds,
            dropped=report.dropped,
            phases=times,
            lag=lag,
            newest=report.newest,
            total_rows=self._rows,
            total_dropped=dict(self._sums.dropped),
            stands=shown(stands),
            waits=waits,
            **self._now(),
            **counts_of(report),
        )

    def observe(self, live: Live) -> Observation:
        """The application now."""
        with self._lock:
            sums, dropped = self._sums, _by_reason(self._sums.dropped)
            return Observation(
                application=self.application,
                time=time.time(),
                status=live.status,
                started=self.started,
                read=self._rows,
                written=sum(sums.rows_out.get(name, 0) for name in self._sinks),
                dead_letters=sum(
                    reasons.get(reason, 0) for reasons in dropped.values() for reason in self._dead
                ),
                batches=self._batches,
                batch_seconds=self._seconds,
                buckets=tuple(self._buckets),
                dropped=dropped,
                phases=dict(sums.seconds),
                lag=live.lag,
                newest_read={name: ts for name, ts in sums.newest.items() if name in self._sources},
                newest_written={name: ts for name, ts in sums.newest.items() if name in self._sinks},
                skew=skew_of(sums.state, live.partitions),
                running=live.running,
                last=self.recent[-1] if self.recent else None,
                recent=tuple(self.recent),
                errors=() if live.error is None else (live.error,),
                stands=live.stands,
                waits=live.waits,
                **self._now(),
                **counts_of(sums),
            )

    def _now(self) -> dict[str, Any]:
        """What `Progress` and `Observation` say of this moment, and not of batches."""
        rows, sizes = by_store(self._sums.state)
        return {
            "state_rows": rows,
            "state_bytes": sizes,
            "waiting": by_operator(self._sums.waiting),
            "warnings": (*self._warnings, *(() if self.beside is None else self.beside.warnings)),
        }

    # -- what plans the next batch

    @property
    def state(self) -> dict[str, tuple[int, int]]:
        """(rows, bytes) held, by ``store/partition``."""
        return self._sums.state

    def rows(self) -> dict[str, int]:
        """Rows held by each store."""
        return by_store(self.state)[0]

    def timer_is_due(self, now: int) -> bool:
        """Whether a timer on the clock fires at this time (ms)."""
        return any(0 < due <= now for due in self._sums.due.values())


def _by_reason(dropped: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """``operator: reason`` in two; what no operator dropped has the operator ``""``."""
    found: dict[str, dict[str, int]] = {}
    for name, number in dropped.items():
        operator, _, reason = name.rpartition(": ")
        found.setdefault(operator, {})[reason] = number
    return found


def _warn_of_seconds(source: str, newest: int) -> None:
    """Where all records that a source reads first are from before 1980: seconds are taken as milliseconds."""
    if _SECONDS[0] <= newest < _SECONDS[1]:
        logger.warning(
            "%s: its first records end at %s (timestamp %d): timestamps are milliseconds since the epoch. If these "
            "are seconds, give Consumed(timestamp_extractor=lambda key, value, timestamp: 1000 * timestamp)",
            source,
            datetime.fromtimestamp(newest // 1000, timezone.utc).date(),
            newest,
        )
