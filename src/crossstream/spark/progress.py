"""What the last batch of an application did: for listeners that are called with it, and in a notebook."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

from crossstream.config import StreamsConfig
from crossstream.errors import ConfigError, ProcessingError, caller_location, type_and_text
from crossstream.graph.nodes import FrameSource, Graph, Source
from crossstream.metrics.observation import Progress, Running, by_store
from crossstream.notebook import html_note, html_table, html_title
from crossstream.signatures import deferred_kind, fits_call
from crossstream.task.batch import Report, by_operator
from crossstream.task.unmatched_joins import UnmatchedJoins

logger = logging.getLogger("crossstream.sources")

_SECONDS = (1_000_000, int(datetime(1980, 1, 1, tzinfo=timezone.utc).timestamp() * 1000))
"""Timestamps in ms from which on, and before which, they are more likely seconds; tests count in smaller numbers."""


@dataclass(slots=True)
class Account:
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
    def of(cls, topology: Graph) -> Account:
        sources = frozenset(node.name for node in topology if isinstance(node, Source | FrameSource))
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


REFRESH_SECONDS = 0.5
ENDED = ("stopped", "failed")


class Application(Protocol):
    """As much of `SparkStreams` as is shown."""

    config: StreamsConfig

    @property
    def status(self) -> str: ...

    @property
    def progress(self) -> Progress: ...

    @property
    def running(self) -> Running | None: ...


def html_of(app: Application) -> str:
    last, running = app.progress, app.running
    facts = [app.status]
    if last.batch >= 0:
        facts += [f"{_records(last.total_rows)} so far", f"{last.lag:,} waiting"]
    parts = [html_title(app.config.application_id, facts)]
    if running is not None:
        seconds = max(0.0, time.time() - running.since)
        parts.append(
            html_note(f"batch {running.batch} running: {_records(running.records)}, {seconds:.0f} s")
        )
    if last.batch >= 0:
        phases = ", ".join(f"{name} {value:,.0f} ms" for name, value in last.phases.items())
        parts.append(
            html_note(f"batch {last.batch}: {_records(last.rows)} in {last.seconds:.3g} s ({phases})")
        )
        names = dict.fromkeys([*last.rows_in, *last.rows_out])
        rows = [(name, last.rows_in.get(name), last.rows_out.get(name)) for name in names]
        parts.append(html_table(("operator, last batch", "rows in", "rows out"), rows))
        stores = [(name, entries, last.state_bytes.get(name)) for name, entries in last.state_rows.items()]
        parts += [html_table(("store", "entries on disk", "bytes"), stores)] if stores else []
        dropped = list(last.total_dropped.items())
        parts += [html_table(("dropped", "rows"), dropped)] if dropped else []
        waiting = list(last.waiting.items())
        parts += [html_table(("waiting for source partitions", "rows"), waiting)] if waiting else []
        parts += [html_note(f"warning: {warning}") for warning in last.warnings]
    return "".join(parts)


def _records(number: int) -> str:
    return f"{number:,} record{'' if number == 1 else 's'}"


def show_live(app: Application) -> None:
    """Shows the application in the cell and follows it. `NotImplementedError` where no notebook runs."""
    try:
        shell: Any = importlib.import_module("IPython").get_ipython()
        display: Any = importlib.import_module("IPython.display")
    except ImportError as missing:
        raise NotImplementedError from missing
    if shell is None or not hasattr(shell, "kernel"):
        raise NotImplementedError  # a terminal: IPython prints repr() then
    handle = display.display(display.HTML(html_of(app)), display_id=True)

    def follow() -> None:
        while app.status not in ENDED:
            time.sleep(REFRESH_SECONDS)
            handle.update(display.HTML(html_of(app)))
        handle.update(display.HTML(html_of(app)))

    threading.Thread(target=follow, name="notebook", daemon=True).start()
