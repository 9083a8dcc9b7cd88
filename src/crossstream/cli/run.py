"""`crossstream run`: runs the application of a file until Ctrl-C, or once through its topics (`--once`).

`views` shows the progress: a live view on a terminal, a line for each batch elsewhere, JSON with ``--json``.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field, replace
from types import FrameType

from crossstream.application.inputs import connection_of
from crossstream.cli.console import SparkOutput, own_stdout, say, shortest, show_error
from crossstream.cli.loading import Loaded, load, settled
from crossstream.cli.restarts import TEMPORARY, is_orphaned, on_signals
from crossstream.cli.views import STARTING, View, make_view
from crossstream.config import StreamsConfig
from crossstream.errors import CrossStreamError
from crossstream.jvm import EarlyJvm
from crossstream.spark import SparkStreams
from crossstream.spark.errors import is_temporary
from crossstream.spark.session import SHARED
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import root_of

PATIENCE_SECONDS = 0.2
"""The wait before it checks again whether the application ended or should stop."""


def run_file(arguments: Namespace, early: EarlyJvm | None) -> int:
    """Runs the topology of a file; ``early``: the JVM for its session.

    0 when it was stopped or, with ``--once``, is done; `TEMPORARY` for a failure that another start may not meet.
    """
    if early is not None:
        early.note_environment()  # Polars has changed it
    return run_loaded(load(arguments.file), arguments, early)[0]


def run_loaded(
    loaded: Loaded, arguments: Namespace, early: EarlyJvm | None = None
) -> tuple[int, SparkStreams]:
    """Runs a topology with the settings of its file and the options: the exit code, and the application, stopped."""
    config = settled(loaded, arguments)
    if early is not None and config.engine == "local":  # as the file says
        early.end()
        early = None
    # All that Spark reports: it goes to a file, which errors refer to.
    config = replace(config, spark={"spark.log.level": "ERROR", **config.spark})
    _check_folders(config)
    app = SparkStreams(loaded.topology, config)
    with own_stdout() as out, _printing(config):
        view = make_view(arguments.format, out)
        log = root_of(config.state_path).here / "spark.log"
        output = SparkOutput(view.line, log, everything=arguments.debug)
        if early is not None:
            output.follow(early.output)
            SHARED.early = early
        app.on_progress(view.batch)
        try:
            with _logged(view, debug=arguments.debug):
                _run(app, config, view, output, once=arguments.once)
        except CrossStreamError as error:
            asked = (
                early is None or SHARED.early is not early
            )  # for the session; before that Spark has no part in it
            if output.log is not None and asked:
                error.where.setdefault("log", output.log)
            if arguments.debug or not is_temporary(error):
                raise
            show_error(error)
            return TEMPORARY, app
    return 0, app


@contextmanager
def _printing(config: StreamsConfig) -> Iterator[None]:
    """What functions print that run in this process goes to standard error, as what Spark's workers print does."""
    with redirect_stdout(sys.stderr) if config.engine == "local" else nullcontext():
        yield


def _check_folders(config: StreamsConfig) -> None:
    """Raises what is wrong with the folders before Spark starts: CS-201, CS-720, CS-723."""
    connection_of(config)
    log = BatchLog(config.state_path)
    log.lock(config.application_id, config.state_rights)
    log.unlock()


def _run(app: SparkStreams, config: StreamsConfig, view: View, output: SparkOutput, *, once: bool) -> None:
    view.starting(STARTING if config.engine == "spark" else "starting…")
    interrupts = Interrupts(view.stopping)
    with on_signals(interrupts.handle):
        try:
            try:
                interrupts.while_starting = view.close
                with output.inherited():
                    _start(app)
                interrupts.while_starting = None
                view.started(_title(config, app), app)
                _wait(app, interrupts.asked, once=once)
            except KeyboardInterrupt:
                pass  # the file had made a SparkContext, which has its own handler of the signal
            finally:
                app.stop()
        except BaseException:
            view.failed()
            raise
        finally:
            output.close()
            view.close()


def _start(app: SparkStreams) -> None:
    """Starts the application in another thread: in this one a SparkContext takes SIGINT, and then fails at length."""
    failures: list[BaseException] = []

    def start() -> None:
        try:
            app.start()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=start, name="start", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


@contextmanager
def _logged(view: View, *, debug: bool) -> Iterator[None]:
    """Shows warnings of the log, or with ``debug`` all of it, unless the file of the application takes the log."""
    ours = logging.getLogger("crossstream")
    if ours.hasHandlers():
        yield
        return
    handler, level = _ToView(view), ours.level
    if debug:
        ours.setLevel(logging.DEBUG)
    else:
        handler.setLevel(logging.WARNING)
        handler.addFilter(lambda record: record.name != ours.name)  # the view itself shows what it says
    ours.addHandler(handler)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)


class _ToView(logging.Handler):
    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        self._view.line(self.format(record))


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


def _title(config: StreamsConfig, app: SparkStreams) -> str:
    """The application; on a second line its topics and its state; then the addresses of pages that show it."""
    state = root_of(config.state_path)
    application = BatchLog(state).application()
    others = "lake tables" if any(node.lake is not None for node in app.topology) else "DataFrames"
    topics = config.servers or (shortest(config.topics_path) if config.topics_path else others)
    parts = [f"topics: {topics}", f"state: {state if state.is_remote else shortest(state.here)}"]
    if application is not None:
        parts.append(f"partitions: {application.partitions}")
    addresses = {"page": app.ui_address, "Spark": app.spark_ui_address}
    pages = [f"{name}: {address}" for name, address in addresses.items() if address]
    return "\n".join([config.application_id, ", ".join(parts), *([", ".join(pages)] if pages else [])])


ENDED = 130
"""The exit code after a second signal, or after Ctrl-C while Spark starts."""


@dataclass(slots=True)
class Interrupts:
    """The first signal sets ``asked`` and calls ``on_first``. The second ends the process at once.

    Then the next start repeats the batch that was running. ``while_starting``: until it is None, nothing has begun, and
    Ctrl-C calls it and ends the process.
    """

    on_first: Callable[[], None]
    asked: threading.Event = field(default_factory=threading.Event)
    while_starting: Callable[[], None] | None = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.while_starting is not None:
            self.while_starting()
            os._exit(ENDED)
        if self.asked.is_set():
            say("\nended; the next start repeats the batch that was running")
            os._exit(ENDED)
        self.asked.set()
        self.on_first()
