"""`crossstream demo`: the marketplace of the foreign-key article, on this machine, before your eyes."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from crossstream.cli.console import own_stdout, shortest
from crossstream.cli.demo_view import DemoView
from crossstream.cli.loading import load
from crossstream.cli.sparklog import SparkOutput
from crossstream.demo.folder import DemoFolder
from crossstream.demo.market import Market
from crossstream.demo.story import STEPS
from crossstream.kafka import broker


@dataclass(frozen=True, slots=True)
class Place:
    """Where the topics are: options that say it, a suffix of their names, how to restart a stopped broker."""

    options: str
    suffix: str = ""
    restart: str | None = None


def main(arguments: Namespace) -> int:
    """Runs the demo from beginning to end."""
    folder = DemoFolder(Path(arguments.dir).expanduser().absolute())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds: a broker of the demo is stopped
    _stop_broker_of(folder)
    folder.empty()
    with own_stdout() as out:
        _tell(folder, DemoView(out), arguments)
    return 0


def _stop_broker_of(folder: DemoFolder) -> None:
    """Stops a broker that works in a folder which is about to be emptied."""
    running = None if folder.port is None else broker.status(folder.port)
    if running is not None and Path(running.directory) == folder.kafka:
        broker.stop(running.port)


def _tell(folder: DemoFolder, view: DemoView, arguments: Namespace) -> None:
    view.say("Products name their merchant. Both tables change, and their join follows.", "bold")
    with _place(arguments, folder, view) as place:
        _play(folder, place, view, debug=arguments.debug)
    for line in farewell(folder, place, command()):
        view.say(line, "bold" if line and not line.startswith(" ") else "")


def _play(folder: DemoFolder, place: Place, view: DemoView, *, debug: bool) -> None:
    """Starts the application and takes it through the story."""
    from crossstream.spark import SparkStreams
    from crossstream.spark.connections import connection_of

    loaded = load(str(folder.application))
    assert loaded.config is not None
    connection = connection_of(loaded.config)
    assert connection is not None
    output = SparkOutput(view.say, folder.log, everything=debug)
    app = SparkStreams(loaded.topology, loaded.config)
    try:
        _perform(Market(connection, app, place.suffix), view, output)
        with view.waiting("Stopping Spark"):
            app.stop()
    finally:
        with suppress(Exception):  # what went wrong before is what is told
            app.stop()
        output.close()


def _perform(market: Market, view: DemoView, output: SparkOutput) -> None:
    """Every step of the story; in the end the output topic must hold what the store does."""
    with view.waiting("Starting Spark on this machine"), output.inherited():
        market.open()
    for number, step in enumerate(STEPS, 1):
        view.announce(number, step)
        with view.waiting("Waiting for the batch") if number == 1 else nullcontext():
            outcome = market.apply(step.changes)
        view.show(step, outcome)
    if market.topic_table() != outcome.after:
        raise AssertionError("the output topic and the store differ")
    view.say()


@contextmanager
def _place(arguments: Namespace, folder: DemoFolder, view: DemoView) -> Iterator[Place]:
    """File topics; or a broker, one that runs or one that is started here and stopped in the end."""
    if not arguments.kafka:
        folder.write_application()
        yield Place(f"--topics-dir {_shown(folder.topics)}")
        return
    running = broker.status(arguments.port)
    if running is not None:
        suffix = time.strftime("-%H%M%S")
        view.say(f"Using the broker at {running.bootstrap_servers}; its topics end in {suffix}.")
        folder.write_application(running.bootstrap_servers, suffix)
        yield Place(f"--bootstrap-servers {running.bootstrap_servers}", suffix)
        return
    with view.waiting("Starting a Kafka broker (the first time its jars are fetched, about 45 MB)"):
        info = broker.start(arguments.port, folder.kafka)
        folder.note_port(info.port)
    try:
        folder.write_application(info.bootstrap_servers)
        restart = f"broker start --port {info.port} --dir {_shown(folder.kafka)}"
        yield Place(f"--bootstrap-servers {info.bootstrap_servers}", restart=restart)
    finally:
        broker.stop(info.port)


def farewell(folder: DemoFolder, place: Place, run: str) -> list[str]:
    """What to do next, with paths that are there."""
    state, application = _shown(folder.state), _shown(folder.application)
    merchants, promotions = (name + place.suffix for name in ("merchants", "promotions"))
    record = '{"key": "m2", "value": {"display_name": "Best Knits"}}'
    again = [f"  {run} {place.restart}   # the demo has stopped its broker"] if place.restart else []
    return [
        "",
        "Topics and state stay. Ask for the result, also while an application runs:",
        f"  {run} query {state}",
        f"  {run} query {state} promotions",
        f"  {run} query {state} promotions get sweater",
        f"  {run} query {state} promotions --as-of 2   # after batch 2, before the scarf moved",
        "",
        "Change something yourself:",
        *again,
        f"  echo '{record}' | {run} topics write {merchants} {place.options}",
        f"  {run} run {application} --once",
        f"  {run} query {state} promotions",
        f"  {run} topics read {promotions} {place.options}",
        "",
        "Read next:",
        f"  {application}: the application, thirty lines",
        f"  {run} describe {application} --plan   # how it runs on Spark",
        "  docs/quickstart.md: from here to an application of your own",
        "  docs/command-line.md: every command",
    ]


def command() -> str:
    """How this command line is called again from here."""
    beside = Path(sys.executable).parent / "crossstream"
    found = shutil.which("crossstream")
    if found is not None and Path(found).absolute() == beside.absolute():
        return "crossstream"
    return _shown(beside) if beside.exists() else f"{_shown(Path(sys.executable))} -m crossstream"


def _shown(path: Path) -> str:
    return shlex.quote(shortest(path))
