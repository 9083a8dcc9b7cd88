"""`crossstream run`: an application from a file, until Ctrl-C, or through what there is (`--once`)."""

from __future__ import annotations

import threading
from argparse import Namespace
from dataclasses import replace

from crossstream.cli.console import own_stdout, say, shortest
from crossstream.cli.interrupts import Interrupts
from crossstream.cli.loading import load
from crossstream.cli.settings import settled
from crossstream.cli.sparklog import SparkOutput
from crossstream.cli.views import View, make_view
from crossstream.config import StreamsConfig
from crossstream.engine.log import BatchLog
from crossstream.errors import CrossStreamError
from crossstream.spark import SparkStreams
from crossstream.spark.connections import connection_of
from crossstream.state.root import root_of

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
    """Raises now, and not when Spark has started, what is wrong with the folders: CS-266, CS-720, CS-723, CS-724."""
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
