"""What `crossstream run` shows: a live view on a terminal, a line for each batch elsewhere, or JSON lines."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TextIO

from crossstream.cli.console import counted, is_terminal, make_console, middle, say
from crossstream.errors import CrossStreamError
from crossstream.query.text import to_json
from crossstream.task.counts import Counts, merge

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from crossstream.metrics.observation import Progress, Running
    from crossstream.spark import SparkStreams

WINDOW_SECONDS = 10.0
"""Rows per second are an average over this time."""
STARTING = "starting Spark…"


@dataclass(slots=True)
class Figures:
    """Sums over batches. Times are seconds of the caller's clock."""

    started: float
    last: Progress | None = None
    rows: int = 0
    sums: Counts = field(default_factory=Counts)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, progress: Progress, now: float) -> None:
        """Adds a committed batch."""
        self.last = progress
        self.rows += progress.rows
        merge(self.sums, progress)
        self._recent.append((now, progress.rows))

    def rows_per_second(self, now: float) -> float:
        """The average of the last `WINDOW_SECONDS`, or since a later start."""
        while self._recent and self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()
        seconds = min(WINDOW_SECONDS, now - self.started)
        return sum(rows for _, rows in self._recent) / seconds if seconds > 0 else 0.0


def as_line(progress: Progress, time: float) -> dict[str, Any]:
    """A batch as one JSON object; ``time``: of its commit, in seconds since the epoch."""
    numbers = progress.to_dict()
    phases = numbers.pop("phases")
    first = {
        "time": datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="milliseconds"),
        "batch": numbers.pop("batch"),
        "rows": numbers.pop("rows"),
        "seconds": round(numbers.pop("seconds"), 6),
        "rows_per_second": round(progress.rows / progress.seconds, 1) if progress.seconds else 0.0,
        "lag": numbers.pop("lag"),
        "phases_ms": {phase: round(value, 3) for phase, value in phases.items()},
    }
    return first | numbers


def as_text(progress: Progress, time: float) -> str:
    """A batch as one readable line; ``time``: of its commit, in seconds since the epoch."""
    moment = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    parts = [f"{counted(progress.rows, 'record')} in {progress.seconds:.3g} s"]
    parts += [f"{progress.lag:,} waiting"] if progress.lag else []
    parts += [f"dropped {rows:,} ({reason})" for reason, rows in progress.dropped.items()]
    return f"{moment} batch {progress.batch}: {', '.join(parts)}"


def make_view(form: str, out: TextIO) -> View:
    """The view of ``--format`` (auto, live, lines or json); ``out`` goes to standard output."""
    if form == "live" or (form == "auto" and is_terminal(out)):
        return LiveView(out)
    return JsonView(out) if form == "json" else LinesView(out)


class LinesView:
    """Prints a line for each batch on standard output, and messages on standard error.

    ``batch`` and ``line``, which prints what a function of the application printed, are called by other threads.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._end = "stopped"

    def starting(self, what: str = STARTING) -> None:
        say(what)

    def started(self, title: str, app: SparkStreams) -> None:
        say("running " + ", ".join(title.splitlines()))

    def batch(self, progress: Progress) -> None:
        print(as_text(progress, time.time()), file=self._out, flush=True)

    def line(self, text: str) -> None:
        say(text)

    def stopping(self) -> None:
        say("stopping after the running batch; a second signal ends at once")

    def failed(self) -> None:
        """What is closed next has failed."""
        self._end = "failed"

    def close(self) -> None:
        say(self._end)


class JsonView(LinesView):
    """Prints a JSON object for each batch."""

    def batch(self, progress: Progress) -> None:
        print(to_json(as_line(progress, time.time())), file=self._out, flush=True)


class LiveView:
    """Draws the terminal's last lines, four times a second; methods as in `LinesView`."""

    def __init__(self, out: TextIO) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._title = ""
        self._state = "running"
        self._figures = Figures(time.monotonic())
        self._app: SparkStreams | None = None
        self._live_rows: LiveRows | None = None
        console = make_console(out)
        console.soft_wrap = False
        self._live = Live(Spinner("dots", STARTING), console=console, refresh_per_second=4)
        self._spinner = Spinner

    def starting(self, what: str = STARTING) -> None:
        self._live.update(self._spinner("dots", what))
        self._live.start()

    def started(self, title: str, app: SparkStreams) -> None:
        self._title, self._app = title, app
        self._live_rows = LiveRows(app)
        self._figures = Figures(time.monotonic())
        self._live.get_renderable = self._render  # type: ignore[method-assign]

    def batch(self, progress: Progress) -> None:
        self._figures.add(progress, time.monotonic())

    def line(self, text: str) -> None:
        self._live.console.print(text)

    def stopping(self) -> None:
        self._state = "stopping after this batch; Ctrl-C again ends at once"

    def failed(self) -> None:
        self._state = "failed"

    def close(self) -> None:
        if self._state != "failed":
            self._state = "stopped"
        self._app = None
        if self._live_rows is not None:
            self._live_rows.close()
        self._live.stop()

    def _render(self) -> RenderableType:
        running = None if self._app is None else self._app.running
        live = {} if self._live_rows is None else self._live_rows.counts
        now = time.monotonic()
        batch = None if running is None else (running, time.time() - running.since)
        size = self._live.console.size
        waits = () if self._app is None else self._app.progress.waits
        state = "; ".join((self._state, *waits))
        return render(self._figures, self._title, state, now, batch, live, (size.width, size.height))


View = LinesView | LiveView

MOST_COUNTED = 100_000
"""The live rows of a store with more entries than that are not counted: it would cost the driver too much."""
COUNT_SECONDS = 2.0


class LiveRows:
    """Counts the live rows of the queryable stores, in a thread, at most once for each batch."""

    def __init__(self, app: SparkStreams) -> None:
        self.counts: dict[str, int] = {}
        self._app = app
        self._closed = threading.Event()
        threading.Thread(target=self._count, name="live rows", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _count(self) -> None:
        last = -1
        while not self._closed.wait(COUNT_SECONDS):
            progress = self._app.progress
            if progress.batch == last:
                continue
            last = progress.batch
            for name, store in self._app.plan.stores.items():
                if store.public is None or progress.state_rows.get(name, 0) > MOST_COUNTED:
                    self.counts.pop(name, None)
                    continue
                with suppress(CrossStreamError, OSError):  # the next batch is counted again
                    self.counts[name] = self._app.store(store.public).count()


NAMED = ("plan", "run", "for_each_batch", "publish", "commit")
"""The phases of a batch, one after the other; all others are work of the tasks in parallel."""
SIZE = (80, 24)
ENDED = ("stopped", "failed")


def render(
    figures: Figures,
    title: str,
    state: str,
    now: float,
    running: tuple[Running, float] | None = None,
    live: Mapping[str, int] | None = None,
    size: tuple[int, int] = SIZE,
) -> RenderableType:
    """The live view at a moment, as large as ``size`` allows (columns, lines).

    ``title``: the application, and on further lines where it works. ``running``: the batch that runs, and its seconds.
    ``live``: live rows by store, as far as they are known.
    """
    from rich.console import Group
    from rich.text import Text

    width, height = size
    name, *details = title.splitlines()
    colour = "bold red" if state == "failed" else ""
    heading = Text.assemble(
        (middle(name, max(8, width - len(state) - 13)), "bold"),
        "  ",
        (state, colour),
        "  ",
        (_clock(now - figures.started), "cyan"),
    )
    lines = [heading, *(Text(middle(detail, width), "dim") for detail in details), Text()]
    if figures.last is None and running is None:
        return Group(Text(), *lines, Text("waiting for records", "dim"))
    lines += [*_facts(figures, running, now, width, ended=state in ENDED), Text()]
    # A line stays free: else the terminal would scroll.
    lines += _tables(figures, live or {}, width, height - len(lines) - 1)
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    return Group(*lines)


def _facts(
    figures: Figures, running: tuple[Running, float] | None, now: float, width: int, *, ended: bool
) -> Iterator[Text]:
    from rich.text import Text

    def fact(name: str, *cells: tuple[str, str]) -> Text:
        texts = [Text.assemble((value, "bold"), label) for value, label in cells]
        gap = "   " if 12 + sum(map(len, texts)) + 3 * len(texts) <= width else "  "
        return Text.assemble((f"{name:<12}", "dim"), Text(gap).join(texts))

    last = figures.last
    waiting = 0 if last is None else last.lag
    rate = figures.rows_per_second(now)
    yield fact(
        "rows", (f"{rate:,.0f}", " a second"), (f"{figures.rows:,}", " so far"), (f"{waiting:,}", " waiting")
    )
    if running is not None:
        batch, seconds = running
        text = f"batch {batch.batch} running: {counted(batch.records, 'record')}, {seconds:,.0f} s"
        yield fact("now", (text, ""))
    elif not ended:
        yield fact("now", ("waiting for records", ""))
    if last is None:
        return
    took = (f"{1000 * last.seconds:,.0f}", " ms")
    yield fact("last", (f"batch {last.batch:,}", ""), (counted(last.rows, "record"), ""), took)
    yield fact(
        "phases, ms", *((f"{last.phases[name]:,.0f}", f" {name}") for name in NAMED if name in last.phases)
    )
    work = [(f"{value:,.0f}", f" {name}") for name, value in last.phases.items() if name not in NAMED]
    if work:
        yield fact("tasks, ms", *work)


Numbers = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the table: names with two numbers each."""

    head: tuple[str, str, str]
    rows: Mapping[str, Numbers]
    style: str = ""


def _tables(figures: Figures, live: Mapping[str, int], width: int, room: int) -> list[Text]:
    """Operators and joins with their rows since the start, stores, and what was dropped."""
    last = figures.last
    sums = figures.sums
    names = dict.fromkeys([*sums.rows_in, *sums.rows_out])
    operators = {name: (sums.rows_in.get(name), sums.rows_out.get(name)) for name in names}
    joins = {name: (sums.matched.get(name), rows) for name, rows in sums.unmatched.items()}
    stores = {} if last is None else {name: (live.get(name), rows) for name, rows in last.state_rows.items()}
    dropped: dict[str, Numbers] = (
        {} if last is None else {name: (None, rows) for name, rows in last.total_dropped.items()}
    )
    found = [
        Section(("dropped", "", "rows"), dropped, "red"),
        Section(("operator", "rows in", "rows out"), operators),
        Section(("join", "matched", "unmatched"), joins),
        Section(("store", "live rows", "on disk"), stores),
    ]
    return _drawn([section for section in found if section.rows], width, room)


def _drawn(sections: Sequence[Section], width: int, room: int) -> list[Text]:
    """The sections in at most ``room`` lines: the longest are cut first. Numbers keep their width, names do not."""
    from rich.text import Text

    shares = _shares([len(section.rows) for section in sections], room - len(sections))
    cells = [list(section.head[1:]) for section in sections]
    cells += [list(map(_number, numbers)) for section in sections for numbers in section.rows.values()]
    widths = [max([10, *(len(row[column]) for row in cells)]) for column in (0, 1)]
    longest = max([30, *(len(name) for section in sections for name in section.rows)])
    left = max(8, min(longest, width - sum(widths) - 4))
    lines: list[Text] = []
    for section, share in zip(sections, shares, strict=True):
        hidden = len(section.rows) - share
        title = f"{section.head[0]}, {hidden} more" if hidden else section.head[0]
        lines.append(Text(_row(title, section.head[1:], left, widths), "dim"))
        for name, numbers in list(section.rows.items())[:share]:
            lines.append(Text(_row(name, list(map(_number, numbers)), left, widths), section.style))
    return lines


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """How many rows of each section are shown, of ``room`` rows: one of each, then the same of all that have more.

    >>> _shares([1, 22, 2], 9)
    [1, 6, 2]
    """
    shares = [min(1, size) for size in sizes]
    while sum(shares) < room and (left := [i for i, size in enumerate(sizes) if shares[i] < size]):
        shares[min(left, key=lambda i: shares[i])] += 1
    return shares


def _row(name: str, numbers: Sequence[str], left: int, widths: Sequence[int]) -> str:
    cells = (number.rjust(width) for number, width in zip(numbers, widths, strict=True))
    return "  ".join([middle(name, left).ljust(left), *cells]).rstrip()


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
