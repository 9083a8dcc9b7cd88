"""`crossstream run`: an application from a file, until Ctrl-C, or through what there is (`--once`)."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import threading
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from crossstream.cli.console import own_stdout, say, shortest
from crossstream.cli.loading import Loaded, load
from crossstream.cli.places import kafka_settings
from crossstream.cli.sparklog import SparkOutput
from crossstream.cli.values import DEAD_LETTER, typed
from crossstream.cli.views import View, make_view
from crossstream.config import DeadLetter, StreamsConfig
from crossstream.errors import ConfigError, CrossStreamError
from crossstream.graph.nodes import Sink, Source
from crossstream.spark import SparkStreams
from crossstream.spark.topics import connection_of
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import root_of

PATIENCE_SECONDS = 0.2
"""Between two looks whether the application has ended or was asked to."""


def main(arguments: Namespace) -> int:
    """Runs the topology of a file; 0 when it was stopped or, with ``--once``, is through."""
    loaded = load(arguments.file)
    config = _logged(settled(loaded, arguments))
    _check_places(config)
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
            raise
    return 0


def _check_places(config: StreamsConfig) -> None:
    """Raises now, and not when Spark has started, what is wrong with the folders: CS-201, CS-720, CS-723."""
    connection_of(config)
    log = BatchLog(config.state_path)
    log.lock(config.application_id, config.state_rights)
    log.unlock()


def _run(app: SparkStreams, config: StreamsConfig, view: View, output: SparkOutput, *, once: bool) -> None:
    view.starting()
    with Interrupts(view.stopping, _say_ended) as interrupts:
        try:
            with output.inherited():
                app.start()
            interrupts.install()
            view.started(_title(config))
            _wait(app, interrupts.asked, once=once)
        except KeyboardInterrupt:
            pass  # it came while SparkContext had the signal to itself
        finally:
            try:
                app.stop()
            finally:
                output.close()
                view.close()


def _logged(config: StreamsConfig) -> StreamsConfig:
    """With a log of all that Spark reports: here it goes to a file, which errors refer to."""
    return replace(config, spark={"spark.log.level": "ERROR", **config.spark})


def _say_ended() -> None:
    say("\nended; the batch that was running will be repeated")


def _wait(app: SparkStreams, asked: threading.Event, *, once: bool) -> None:
    """Returns when the application is to stop or, with ``once``, is through; raises what it failed with."""
    through = threading.Event()
    failures: list[Exception] = []

    def process() -> None:
        try:
            app.process_available()
        except Exception as error:
            failures.append(error)
        finally:
            through.set()

    if once:
        threading.Thread(target=process, name="once", daemon=True).start()
    while not asked.is_set() and not through.is_set():
        if app.await_termination(0 if once else PATIENCE_SECONDS):
            break
        through.wait(PATIENCE_SECONDS if once else 0)
    if failures:
        raise failures[0]


def _title(config: StreamsConfig) -> str:
    """The application, and on a second line where it works."""
    state = root_of(config.state_path)
    application = BatchLog(state).application()
    topics = config.servers or (shortest(config.topics_path) if config.topics_path else "DataFrames")
    places = [f"topics: {topics}", f"state: {state if state.is_remote else shortest(state.here)}"]
    if application is not None:
        places.append(f"partitions: {application.partitions}")
    return f"{config.application_id}\n{', '.join(places)}"


PLAIN = (
    "application_id",
    "bootstrap_servers",
    "topics_dir",
    "state_dir",
    "partitions",
    "trigger",
    "max_records_per_batch",
    "single_task_rows",
    "max_task_idle",
    "on_lost_records",
    "on_lost_state",
    "broker_patience",
    "retain_batches",
    "idle_after",
    "durable",
    "state_mode",
)
"""Options that are settings of the same name."""
ON_ERROR = ("deserialization_errors", "processing_errors")
CLIENTS = ("kafka", "spark")


def settled(loaded: Loaded, arguments: Namespace) -> StreamsConfig:
    """The settings to run with. Raises `ConfigError`: CS-203 no place for topics, and `StreamsConfig`'s."""
    try:
        given = _given(arguments)
        config = _made(loaded, given) if loaded.config is None else _changed(loaded.config, given)
    except ConfigError as error:
        raise typed(error) from None
    reads_topics = any(isinstance(node, Source | Sink) for node in loaded.topology)
    if reads_topics and config.servers is None and config.topics_path is None:
        raise ConfigError(
            "it is not said where the topics are",
            code="CS-203",
            where={"file": loaded.file},
            next="give --topics-dir or --bootstrap-servers, or name a StreamsConfig `config` in the file",
        )
    return config


def _given(arguments: Namespace) -> dict[str, Any]:
    options = {name: value for name, value in vars(arguments).items() if value not in (None, [])}
    given = {name: options[name] for name in PLAIN if name in options}
    given |= {name: _on_error(options[name]) for name in ON_ERROR if name in options}
    clients = {"kafka": kafka_settings(arguments), "spark": dict(arguments.spark)}
    return given | {name: settings for name, settings in clients.items() if settings}


def _on_error(text: str) -> Any:
    return DeadLetter(text.removeprefix(DEAD_LETTER)) if text.startswith(DEAD_LETTER) else text


def _made(loaded: Loaded, given: dict[str, Any]) -> StreamsConfig:
    """Settings from options alone; the application is called after its file."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", loaded.file.stem)
    return StreamsConfig(**{"application_id": name, **given})


def _changed(config: StreamsConfig, given: dict[str, Any]) -> StreamsConfig:
    """A file's settings with options on top; another place or name also replaces what hangs on it."""
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
"""Exit code of a process that was told twice."""


class Interrupts:
    """Handles the signals inside a ``with`` block, in the main thread.

    ``asked`` is set by the first signal, which calls ``on_first``; the second calls ``on_second`` and ends
    the process at once: whatever batch was running is repeated at the next start.
    """

    def __init__(self, on_first: Callable[[], None], on_second: Callable[[], None]) -> None:
        self.asked = threading.Event()
        self._on_first = on_first
        self._on_second = on_second
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
        """Takes the signals; again after a SparkContext was made, which takes SIGINT for itself."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            self._on_second()
            os._exit(ENDED)
        self.asked.set()
        self._on_first()
