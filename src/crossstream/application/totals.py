"""What an application has done since its start, and what it holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from crossstream.graph.nodes import Graph
from crossstream.metrics.observation import Progress, by_store
from crossstream.task.batch import Report, by_operator
from crossstream.task.unmatched_joins import UnmatchedJoins

logger = logging.getLogger("crossstream.sources")

_SECONDS = (1_000_000, int(datetime(1980, 1, 1, tzinfo=timezone.utc).timestamp() * 1000))
"""Timestamps in ms from which on, and before which, they are more likely seconds; tests count in smaller numbers."""


@dataclass(slots=True)
class Totals:
    """What an application has done since its start, and what it holds.

    ``sources``: the nodes whose records count; ``read``: those that have had records; ``state``: (rows, bytes) held, by
    ``store/partition``; ``due``: when the next timer on the clock fires (ms; 0: there is none), the same way;
    ``waiting``: as in a `Report`.
    """

    sources: frozenset[str]
    unmatched_joins: UnmatchedJoins
    read: set[str] = field(default_factory=set)
    state: dict[str, tuple[int, int]] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    total_rows: int = 0
    total_dropped: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Graph) -> Totals:
        sources = frozenset(node.name for node in topology if node.reads_input)
        return cls(sources, UnmatchedJoins.of(topology))

    def add(self, report: Report) -> None:
        """Takes in what a batch did."""
        self.total_rows += self._read(report)
        self.state.update(report.state)
        self.due.update(report.due)
        self.waiting.update(report.waiting)
        self.unmatched_joins.add(report)
        for source in sorted((report.newest.keys() & self.sources) - self.read):
            self.read.add(source)
            _warn_of_seconds(source, report.newest[source])
        for key, number in report.dropped.items():
            self.total_dropped[key] = self.total_dropped.get(key, 0) + number

    def timer_is_due(self, now: int) -> bool:
        """Whether a timer on the clock fires at this time (ms)."""
        return any(0 < due <= now for due in self.due.values())

    def rows(self) -> dict[str, int]:
        """Rows held by each store."""
        return by_store(self.state)[0]

    def progress(
        self, batch: int, report: Report, phases: Mapping[str, float], seconds: float, lag: int
    ) -> Progress:
        """A batch that was added; ``phases``: in seconds."""
        return Progress(
            batch=batch,
            rows=self._read(report),
            seconds=seconds,
            rows_in=report.rows_in,
            rows_out=report.rows_out,
            dropped=report.dropped,
            matched=report.matched,
            unmatched=report.unmatched,
            state_rows=self.rows(),
            state_bytes=by_store(self.state)[1],
            phases={phase: 1000 * value for phase, value in phases.items()},
            lag=lag,
            total_rows=self.total_rows,
            total_dropped=dict(self.total_dropped),
            warnings=self.unmatched_joins.warnings,
            newest=report.newest,
            fan_out=report.fan_out,
            waiting=by_operator(self.waiting),
        )

    def _read(self, report: Report) -> int:
        return sum(report.rows_in.get(name, 0) for name in self.sources)


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
