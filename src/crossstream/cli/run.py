"""`crossstream run`: runs the application of a file until Ctrl-C, or once through its topics (`--once`).

Shows the progress: a live view on a terminal, JSON lines elsewhere.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import threading
import time
from argparse import Namespace
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from crossstream.cli.arguments import DEAD_LETTER, kafka_settings, of_option
from crossstream.cli.console import (
    SparkOutput,
    is_terminal,
    make_console,
    own_stdout,
    say,
    shortest,
    show_error,
)
from crossstream.cli.loading import Loaded, load
from crossstream.cli.restarts import TEMPORARY, is_orphaned, is_supervised, supervise
from crossstream.config import DeadLetter, StreamsConfig
from crossstream.errors import ConfigError, CrossStreamError
from crossstream.graph.nodes import Sink, Source
from crossstream.query.text import to_json
from crossstream.spark import SparkStreams
from crossstream.spark.errors import is_temporary
from crossstream.spark.topics import connection_of
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import root_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from crossstream.spark.progress import Progress

PATIENCE_SECONDS = 0.2
"""The wait before it checks again whether the application ended or should stop."""


def main(arguments: Namespace) -> int:
    """Runs the topology of a file.

    0 when it was stopped or, with ``--once``, is done; `TEMPORARY` for a failure that another start may not meet.
    """
    if arguments.restarts and not is_supervised():
        return supervise(arguments.words, arguments.restarts)
    return run_loaded(load(arguments.file), arguments)[0]


def run_loaded(loaded: Loaded, arguments: Namespace) -> tuple[int, SparkStreams]:
    """Runs a topology with the settings of its file and the options: the exit code, and the application, stopped."""
    config = settled(loaded, arguments)
    # All that Spark reports: it goes to a file, which errors refer to.
    config = replace(config, spark={"spark.log.level": "ERROR", **config.spark})
    _check_folders(config)
    app = SparkStreams(loaded.topology, config)
    with own_stdout() as out:
        view = make_view(arguments.format, out)
        log = root_of(config.state_path).here / "spark.log"
        output = SparkOutput(view.line, log, everything=arguments.debug)
        app.on_progress(view.batch)
        try:
            _run(app, config, view, output, once=arguments.once)
        except CrossStreamError as error:
            if output.log is not None:
                error.at(log=output.log)
            if arguments.debug or not is_temporary(error):
                raise
            show_error(error)
            return TEMPORARY, app
    return 0, app


def _check_folders(config: StreamsConfig) -> None:
    """Raises what is wrong with the folders before Spark starts: CS-201, CS-720, CS-723."""
    connection_of(config)
    log = BatchLog(config.state_path)
    log.lock(config.application_id, config.state_rights)
    log.unlock()


def _run(app: SparkStreams, config: StreamsConfig, view: View, output: SparkOutput, *, once: bool) -> None:
    view.starting()
    with Interrupts(view.stopping) as interrupts:
        try:
            with output.inherited():
                app.start()
            interrupts.install()
            view.started(_title(config, app.ui_address))
            _wait(app, interrupts.asked, once=once)
        except KeyboardInterrupt:
            pass  # SparkContext had its own handler of the signal
        finally:
            try:
                app.stop()
            finally:
                output.close()
                view.close()


def _wait(app: SparkStreams, asked: threading.Event, *, once: bool) -> None:
    """Returns when the application should stop or, with ``once``, is done; raises its failure."""
    done = threading.Event()
    failures: list[Exception] = []

    def process() -> None:
        try:
            app.process_available()
        except Exception as error:
            failures.append(error)
        finally:
            done.set()

    if once:
        threading.Thread(target=process, name="once", daemon=True).start()
    while not asked.is_set() and not done.is_set() and not is_orphaned():
        if app.await_termination(0 if once else PATIENCE_SECONDS):
            break
        done.wait(PATIENCE_SECONDS if once else 0)
    if failures:
        raise failures[0]


def _title(config: StreamsConfig, page: str | None = None) -> str:
    """The application, on a second line its topics and its state, and then the address of its page."""
    state = root_of(config.state_path)
    application = BatchLog(state).application()
    topics = config.servers or (shortest(config.topics_path) if config.topics_path else "DataFrames")
    parts = [f"topics: {topics}", f"state: {state if state.is_remote else shortest(state.here)}"]
    if application is not None:
        parts.append(f"partitions: {application.partitions}")
    return f"{config.application_id}\n{', '.join(parts)}" + (f"\npage: {page}" if page else "")


ON_ERROR = ("deserialization_errors", "processing_errors")
CLIENTS = ("kafka", "spark")


def settled(loaded: Loaded, arguments: Namespace) -> StreamsConfig:
    """The settings to run with. Raises `ConfigError`: CS-203 without topics, and what `StreamsConfig` raises."""
    try:
        given = _given(arguments)
        config = _made(loaded, given) if loaded.config is None else _changed(loaded.config, given)
    except ConfigError as error:
        raise of_option(error) from None
    reads_topics = any(isinstance(node, Source | Sink) for node in loaded.topology)
    if reads_topics and config.servers is None and config.topics_path is None:
        raise ConfigError(
            "the application reads or writes topics, but no option or setting says where they are",
            code="CS-203",
            where={"file": loaded.file},
            next="give --topics-dir or --bootstrap-servers, or a StreamsConfig named `config` in the file",
        )
    return config


def _given(arguments: Namespace) -> dict[str, Any]:
    """The options that were typed, by the names of their settings."""
    settings = {field.name for field in dataclasses.fields(StreamsConfig)}
    given = {name: value for name, value in vars(arguments).items() if name in settings and value is not None}
    given |= {name: _on_error(given[name]) for name in ON_ERROR if name in given}
    given |= {"kafka": kafka_settings(arguments), "spark": dict(arguments.spark)}
    return {name: value for name, value in given.items() if value != {}}


def _on_error(text: str) -> Any:
    return DeadLetter(text.removeprefix(DEAD_LETTER)) if text.startswith(DEAD_LETTER) else text


def _made(loaded: Loaded, given: dict[str, Any]) -> StreamsConfig:
    """Settings from options alone; the file gives the application its name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", loaded.file.stem)
    return StreamsConfig(**{"application_id": name, **given})


def _changed(config: StreamsConfig, given: dict[str, Any]) -> StreamsConfig:
    """A file's settings, overridden by options; other topics or another name also reset what depends on them."""
    if "topics_dir" in given:
        given = {"bootstrap_servers": None, "kafka": {}, **given}
    elif "bootstrap_servers" in given:
        given = {"topics_dir": None, **given}
    if "application_id" in given and _has_default_state(config):
        given = {"state_dir": None, **given}
    for name in CLIENTS:
        if given.get(name):
            given[name] = {**getattr(config, name), **given[name]}
    return dataclasses.replace(config, **given)


def _has_default_state(config: StreamsConfig) -> bool:
    default = StreamsConfig(application_id=config.application_id).state_path
    return Path(config.state_path) == Path(default)


SIGNALS = (signal.SIGINT, signal.SIGTERM)
ENDED = 130
"""The exit code after a second signal."""


class Interrupts:
    """Handles the signals inside a ``with`` block, in the main thread.

    The first signal sets ``asked`` and calls ``on_first``. The second ends the process at once: the next start
    repeats the batch that was running.
    """

    def __init__(self, on_first: Callable[[], None]) -> None:
        self.asked = threading.Event()
        self._on_first = on_first
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def install(self) -> None:
        """Takes the signals; needed again after a SparkContext was made, which takes SIGINT for itself."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            say("\nended; the next start repeats the batch that was running")
            os._exit(ENDED)
        self.asked.set()
        self._on_first()


WINDOW_SECONDS = 10.0
"""Rows per second are an average over this time."""


@dataclass(slots=True)
class Figures:
    """Sums over batches. Times are seconds of the caller's clock."""

    started: float
    last: Progress | None = None
    batches: int = 0
    rows: int = 0
    rows_in: Counter[str] = field(default_factory=Counter)
    rows_out: Counter[str] = field(default_factory=Counter)
    matched: Counter[str] = field(default_factory=Counter)
    unmatched: Counter[str] = field(default_factory=Counter)
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, progress: Progress, now: float) -> None:
        """Adds a committed batch."""
        self.last = progress
        self.batches += 1
        self.rows += progress.rows
        for name in ("rows_in", "rows_out", "matched", "unmatched"):
            getattr(self, name).update(getattr(progress, name))
        self._recent.append((now, progress.rows))

    def rows_per_second(self, now: float) -> float:
        """The average of the last `WINDOW_SECONDS`, or since a later start."""
        while self._recent and self._recent[0][0] < now - WINDOW_SECONDS:
            self._recent.popleft()
        seconds = min(WINDOW_SECONDS, now - self.started)
        return sum(rows for _, rows in self._recent) / seconds if seconds > 0 else 0.0


def as_line(progress: Progress, time: float) -> dict[str, Any]:
    """A batch as one JSON object; ``time``: of its commit, in seconds since the epoch."""
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


NAMED = ("plan", "run", "publish", "commit")
"""The phases of a batch, one after the other; all others are work of the tasks in parallel."""
TABLE_ROWS = 12


def make_view(form: str, out: TextIO) -> View:
    """The view of ``--format`` (auto, live or json); ``out`` goes to standard output."""
    live = form == "live" or (form == "auto" and is_terminal(out))
    return LiveView(out) if live else JsonView(out)


class JsonView:
    """Prints a JSON object for each batch on standard output, and messages on standard error.

    ``batch`` and ``line``, which prints what a function of the application printed, are called by other threads.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def starting(self) -> None:
        say("starting Spark…")

    def started(self, title: str) -> None:
        say("running " + ", ".join(title.splitlines()))

    def batch(self, progress: Progress) -> None:
        print(to_json(as_line(progress, time.time())), file=self._out, flush=True)

    def line(self, text: str) -> None:
        say(text)

    def stopping(self) -> None:
        say("stopping after the running batch; a second signal ends at once")

    def close(self) -> None:
        say("stopped")


class LiveView:
    """Draws a few lines at the bottom of the terminal, four times a second; methods as in `JsonView`."""

    def __init__(self, out: TextIO) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._title = ""
        self._state = "running"
        self._figures = Figures(time.monotonic())
        console = make_console(out)
        console.soft_wrap = False
        self._live = Live(Spinner("dots", "starting Spark…"), console=console, refresh_per_second=4)

    def starting(self) -> None:
        self._live.start()

    def started(self, title: str) -> None:
        self._title = title
        self._figures = Figures(time.monotonic())
        self._live.get_renderable = self._render  # type: ignore[method-assign]

    def batch(self, progress: Progress) -> None:
        self._figures.add(progress, time.monotonic())

    def line(self, text: str) -> None:
        self._live.console.print(text)

    def stopping(self) -> None:
        self._state = "stopping after the running batch; Ctrl-C again ends at once"

    def close(self) -> None:
        self._state = "stopped"
        self._live.stop()

    def _render(self) -> RenderableType:
        return render(self._figures, self._title, self._state, time.monotonic())


View = JsonView | LiveView


def render(figures: Figures, title: str, state: str, now: float) -> RenderableType:
    """The live view at a moment; ``title``: the application, and on further lines where it works."""
    from rich.console import Group
    from rich.text import Text

    name, _, details = title.partition("\n")
    heading = Text.assemble((name, "bold"), f"  {state}  ", (_clock(now - figures.started), "cyan"))
    parts: list[RenderableType] = [Text(), heading, Text(details, "dim"), Text()]
    if figures.last is None:
        return Group(*parts, Text("waiting for records", "dim"))
    return Group(*parts, _facts(figures, figures.last, now), Text(), _rows(figures, figures.last))


def _facts(figures: Figures, last: Progress, now: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(no_wrap=True, overflow="ellipsis")

    def fact(name: str, *cells: tuple[str, str]) -> None:
        facts.add_row(name, Text("   ").join(Text.assemble((value, "bold"), label) for value, label in cells))

    rate = figures.rows_per_second(now)
    fact(
        "rows", (f"{rate:,.0f}", " a second"), (f"{figures.rows:,}", " so far"), (f"{last.lag:,}", " waiting")
    )
    fact(
        "batch", (f"{last.batch:,}", ""), (f"{last.rows:,}", " rows"), (f"{1000 * last.seconds:,.0f}", " ms")
    )
    fact("phases", *((f"{last.phases[name]:,.0f}", f" ms {name}") for name in NAMED if name in last.phases))
    work = [(f"{value:,.0f}", f" ms {name}") for name, value in last.phases.items() if name not in NAMED]
    if work:
        fact("tasks", *work)
    return facts


def _rows(figures: Figures, last: Progress) -> Table:
    """Operators and joins with their rows since the start, stores, and what was dropped."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", min_width=30)
    table.add_column(justify="right", min_width=10)
    table.add_column(justify="right", min_width=10)
    names = dict.fromkeys([*figures.rows_in, *figures.rows_out])
    operators = {name: (figures.rows_in.get(name), figures.rows_out.get(name)) for name in names}
    _section(table, ("operator", "rows in", "rows out"), operators)
    joins = {name: (figures.matched.get(name), rows) for name, rows in figures.unmatched.items()}
    _section(table, ("join", "matched", "unmatched"), joins)
    _section(table, ("store", "rows", ""), {name: (rows, None) for name, rows in last.state_rows.items()})
    dropped = {name: (rows, None) for name, rows in last.total_dropped.items()}
    _section(table, ("dropped", "rows", ""), dropped, "red")
    return table


def _section(
    table: Table,
    head: tuple[str, str, str],
    rows: Mapping[str, tuple[int | None, int | None]],
    style: str = "",
) -> None:
    from rich.text import Text

    if not rows:
        return
    table.add_row(*head, style="dim")
    for name, numbers in list(rows.items())[:TABLE_ROWS]:
        table.add_row(Text(name, style), *("" if number is None else f"{number:,}" for number in numbers))
    if len(rows) > TABLE_ROWS:
        table.add_row(Text(f"… and {len(rows) - TABLE_ROWS} more", "dim"))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
