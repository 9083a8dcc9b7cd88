"""`crossstream run`: runs the application of a file until Ctrl-C, or once through its topics (`--once`).

`views` shows the progress: a live view on a terminal, a line for each batch elsewhere, JSON with ``--json``.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import signal
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from crossstream.cli.arguments import DEAD_LETTER, kafka_settings, of_option
from crossstream.cli.console import SparkOutput, own_stdout, say, shortest, show_error
from crossstream.cli.loading import Loaded, load
from crossstream.cli.restarts import TEMPORARY, is_orphaned
from crossstream.cli.views import View, make_view
from crossstream.config import DeadLetter, StreamsConfig
from crossstream.errors import ConfigError, CrossStreamError
from crossstream.graph.nodes import Sink, Source
from crossstream.jvm import EarlyJvm
from crossstream.spark import SparkStreams
from crossstream.spark.errors import is_temporary
from crossstream.spark.session import SHARED
from crossstream.spark.topics import connection_of
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
    # All that Spark reports: it goes to a file, which errors refer to.
    config = replace(config, spark={"spark.log.level": "ERROR", **config.spark})
    _check_folders(config)
    app = SparkStreams(loaded.topology, config)
    with own_stdout() as out:
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
            try:
                with output.inherited():
                    app.start()
                interrupts.install()
                view.started(_title(config, app), app)
                _wait(app, interrupts.asked, once=once)
            except KeyboardInterrupt:
                pass  # SparkContext had its own handler of the signal
            finally:
                app.stop()
        except BaseException:
            view.failed()
            raise
        finally:
            output.close()
            view.close()


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
    topics = config.servers or (shortest(config.topics_path) if config.topics_path else "DataFrames")
    parts = [f"topics: {topics}", f"state: {state if state.is_remote else shortest(state.here)}"]
    if application is not None:
        parts.append(f"partitions: {application.partitions}")
    addresses = {"page": app.ui_address, "Spark": app.spark_ui_address}
    pages = [f"{name}: {address}" for name, address in addresses.items() if address]
    return "\n".join([config.application_id, ", ".join(parts), *([", ".join(pages)] if pages else [])])


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
