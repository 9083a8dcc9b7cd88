"""What the last batch of an application did, and the listeners that are called with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from crossstream.errors import ConfigError, ProcessingError, caller_location, type_and_text
from crossstream.graph.nodes import FrameSource, Graph, Source
from crossstream.metrics.observation import Progress, by_store
from crossstream.runtime.batch import Partnerless, Report
from crossstream.signatures import deferred_kind, fits_call


@dataclass(slots=True)
class Account:
    """What an application has done since its start, and what it holds.

    ``sources``: the nodes whose records count; ``state``: (rows, bytes) held, by ``store/partition``; ``due``: when
    the next timer on the clock fires (ms; 0: there is none), the same way.
    """

    sources: frozenset[str]
    partnerless: Partnerless
    state: dict[str, tuple[int, int]] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    total_rows: int = 0
    total_dropped: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Graph) -> Account:
        sources = frozenset(node.name for node in topology if isinstance(node, Source | FrameSource))
        return cls(sources, Partnerless.of(topology))

    def add(self, report: Report) -> None:
        """Takes in what a batch did."""
        self.total_rows += self._read(report)
        self.state.update(report.state)
        self.due.update(report.due)
        self.partnerless.add(report)
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
            warnings=self.partnerless.warnings,
            newest=report.newest,
            fan_out=report.fan_out,
        )

    def _read(self, report: Report) -> int:
        return sum(report.rows_in.get(name, 0) for name in self.sources)


def check_listener(listener: Callable[[Progress], None]) -> None:
    """Raises `ConfigError` CS-201 if it cannot be called with a `Progress`."""
    fault = _fault(listener)
    if fault is not None:
        raise ConfigError(
            f"a listener for progress is {fault}",
            code="CS-201",
            where=caller_location(),
            next="pass a function, such as lambda progress: …",
        )


def _fault(listener: object) -> str | None:
    """Why a listener cannot be called with progress; None if it can."""
    if not callable(listener):
        return f"{listener!r}, not a function"
    if not fits_call(listener, ("progress",)):
        return "called with (progress), and does not take that"
    way = deferred_kind(listener)
    return None if way is None else f"called, and not awaited or iterated: it has {way}"


def call_listener(listener: Callable[[Progress], None], progress: Progress) -> None:
    """Raises `ProcessingError` CS-591 with what it raises."""
    try:
        listener(progress)
    except Exception as error:
        raise ProcessingError(
            f"a listener for progress raised {type_and_text(error)}",
            code="CS-591",
            where={"batch": progress.batch},
            next="fix the listener; the batch itself is committed",
        ) from error
