"""`crossstream demo`: the marketplace of the foreign-key article, step by step on this machine."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from crossstream.cli.console import (
    SparkOutput,
    aligned,
    counted,
    is_terminal,
    make_console,
    own_stdout,
    shortest,
)
from crossstream.cli.loading import load
from crossstream.dev import broker
from crossstream.dev.market import STEPS, Market, Outcome, Step
from crossstream.error_codes import refuse

if TYPE_CHECKING:
    from crossstream.spark import SparkStreams

Waiting = Callable[[str], AbstractContextManager[Any]]
"""Shows a text while something takes its time."""


@dataclass(frozen=True, slots=True)
class DemoTopics:
    """Where the topics of the demo are: as options of a command, with a suffix, and how to restart the broker."""

    options: str
    suffix: str = ""
    restart: str | None = None


def main(arguments: Namespace) -> int:
    """Runs the demo from beginning to end."""
    folder = DemoFolder(Path(arguments.dir).expanduser().absolute())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds: the demo's own broker stops
    folder.empty()
    with own_stdout() as out:
        view = DemoView(out)
        view.say("Products name their merchant. Both tables change, and their join follows.", "bold")
        with _topics(arguments, folder, view) as topics:
            _play(folder, topics, view, debug=arguments.debug)
        for line in farewell(folder, topics, command()):
            view.say(line, "bold" if line and not line.startswith(" ") else "")
    return 0


def _play(folder: DemoFolder, topics: DemoTopics, view: DemoView, *, debug: bool) -> None:
    """Shows every step of the story."""
    with running_market(folder, view.say, topics.suffix, view.waiting, debug=debug) as market:
        for number, step in enumerate(STEPS, 1):
            view.announce(number, step)
            with view.waiting("Waiting for the batch") if number == 1 else nullcontext():
                outcome = market.apply(step.changes)
            view.show(step, outcome)
        view.say()


@contextmanager
def running_market(
    folder: DemoFolder,
    show: Callable[[str], None],
    suffix: str = "",
    waiting: Waiting = nullcontext,
    *,
    debug: bool,
) -> Iterator[Market]:
    """The demo's application, started on empty topics; ``show`` gets what its functions print."""
    from crossstream.application.inputs import connection_of
    from crossstream.spark import SparkStreams

    loaded = load(str(folder.application))
    assert loaded.config is not None
    connection = connection_of(loaded.config)
    assert connection is not None
    app = SparkStreams(loaded.topology, loaded.config)
    market = Market(connection, app, suffix)
    output = SparkOutput(show, folder.log, everything=debug)
    with on_spark(app, output, waiting):
        with waiting("Starting Spark on this machine"), output.inherited():
            market.open()
        yield market


@contextmanager
def on_spark(app: SparkStreams, output: SparkOutput, waiting: Waiting) -> Iterator[None]:
    """Stops the application after the block, which starts it."""
    try:
        yield
        with waiting("Stopping Spark"):
            app.stop()
    finally:
        with suppress(Exception):  # the first error is the one to report
            app.stop()
        output.close()


@contextmanager
def _topics(arguments: Namespace, folder: DemoFolder, view: DemoView) -> Iterator[DemoTopics]:
    """Files, a broker that runs, or one that starts here and stops at the end."""
    if not arguments.kafka:
        folder.write_application()
        yield DemoTopics(f"--topics-dir {shown(folder.topics)}")
        return
    running = broker.status(arguments.port)
    suffix = time.strftime("-%H%M%S")
    starting = "Starting a Kafka broker (the first start fetches its jars, about 45 MB)"
    with nullcontext() if running else view.waiting(starting):
        info = running or broker.start(arguments.port)
    view.say(f"Using the broker at {info.bootstrap_servers}; its topics end in {suffix}.")
    restart = None if running else f"broker start --port {info.port}"
    try:
        folder.write_application(info.bootstrap_servers, suffix)
        yield DemoTopics(f"--bootstrap-servers {info.bootstrap_servers}", suffix, restart)
    finally:
        if not running:
            broker.stop(info.port)


def farewell(folder: DemoFolder, topics: DemoTopics, run: str) -> list[str]:
    """What to do next, with the paths of this demo."""
    state, application = shown(folder.state), shown(folder.application)
    merchants, promotions = (name + topics.suffix for name in ("merchants", "promotions"))
    record = '{"key": "m2", "value": {"display_name": "Best Knits"}}'
    again = [f"  {run} {topics.restart}   # the demo stopped its broker"] if topics.restart else []
    return [
        "",
        "Topics and state stay. Query the result, also while an application runs:",
        f"  {run} query {state}",
        f"  {run} query {state} promotions",
        f"  {run} query {state} promotions get sweater",
        f"  {run} query {state} promotions --as-of 2   # after step 3",
        "",
        "Change something yourself:",
        *again,
        f"  echo '{record}' | {run} topics write {merchants} {topics.options}",
        f"  {run} run {application} --once",
        f"  {run} query {state} promotions",
        f"  {run} topics read {promotions} {topics.options}",
        "",
        "Read next:",
        f"  {application}: the application, thirty lines",
        f"  {run} describe {application} --plan",
        "  docs/quickstart.md: from here to an application of your own",
        "  docs/command-line.md: every command",
    ]


def command() -> str:
    """How to call this command line from here."""
    found = shutil.which("crossstream")
    if found is not None and Path(found).parent.absolute() == Path(sys.executable).parent.absolute():
        return "crossstream"
    return f"{shown(Path(sys.executable))} -m crossstream"


def shown(path: Path) -> str:
    return shlex.quote(shortest(path))


PAUSE_SECONDS = 1.5
"""The pause between two steps on a terminal."""
HEAD = ("", "key", "product", "price", "shop", "")
RIGHT = (False, False, False, True, False, False)
Kind = Literal["same", "new", "changed", "gone"]
MARKS: dict[Kind, str] = {"same": "", "new": "+", "changed": "~", "gone": "-"}
NOTES: dict[Kind, str] = {"same": "", "new": "new", "changed": "", "gone": "deleted"}
STYLES: dict[Kind, str] = {"same": "", "new": "green", "changed": "yellow", "gone": "red"}


Rows = Mapping[Any, Sequence[Any]]
"""The fields of each key."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the result and its change."""

    kind: Kind
    cells: tuple[str, ...]


def compared(before: Rows, after: Rows) -> list[Line]:
    """The rows before and after some changes, by key."""
    return [_line(key, before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())]


def _line(key: Any, old: Sequence[Any] | None, new: Sequence[Any] | None) -> Line:
    kind: Kind = "same" if old == new else "new" if old is None else "gone" if new is None else "changed"
    note = NOTES[kind]
    if old is not None and new is not None:
        changed = [cell_of(was) for was, now in zip(old, new, strict=True) if was != now]
        note = f"was {', '.join(changed)}" if changed else ""
    return Line(kind, (MARKS[kind], str(key), *map(cell_of, new or old or ()), note))


def cell_of(value: Any) -> str:
    """A cell of a table of the demo."""
    return "" if value is None else f"{value:.2f}" if isinstance(value, float | Decimal) else str(value)


class DemoView:
    """Prints with colours and pauses on a terminal, as plain text elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = is_terminal(out)
        self._console = make_console(out)

    def say(self, text: str = "", style: str = "") -> None:
        if self._terminal:
            self._console.print(text, style=style or None)
        else:
            print(text, file=self._out, flush=True)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        if self._terminal:
            with self._console.status(text):
                yield
        else:
            print(f"{text}…", file=self._out, flush=True)
            yield

    def announce(self, number: int, step: Step) -> None:
        """The title of a step, and the records it writes."""
        self.say()
        self.say(f"{number}. {step.title}", "bold")
        width = max(len(change.key) for change in step.changes)
        for change in step.changes:
            value = "null" if change.value is None else json.dumps(change.value)
            self.say(f"   {change.topic:9} <- {change.key:{width}}  {value}", "cyan")

    def show(self, step: Step, outcome: Outcome) -> None:
        """The table after a step."""
        self.say()
        before, after = (
            {key: list(row.values()) for key, row in table.items()}
            for table in (outcome.before, outcome.after)
        )
        self.table(HEAD, compared(before, after), RIGHT)
        rows = f"{counted(outcome.records, 'record')} in, {counted(outcome.results, 'result')} out"
        self.say(f"   batch {outcome.batch}: {rows}, {outcome.seconds:.2f} s", "dim")
        self.say(f"   {step.remark}")
        self.pause()

    def table(self, head: Sequence[str], lines: Sequence[Line], to_right: Sequence[bool]) -> None:
        """Rows in the colours of their changes."""
        text = aligned(head, [line.cells for line in lines], to_right).splitlines()
        for row, style in zip(text, ["bold", "dim", *(STYLES[line.kind] for line in lines)], strict=True):
            self.say(f"   {row}".rstrip(), style)

    def pause(self) -> None:
        """Time to read, on a terminal."""
        if self._terminal:
            time.sleep(PAUSE_SECONDS)


MARK = ".crossstream-demo"
"""A file that marks a folder as made by the demo."""
MADE = ("topics", "state", "marketplace.py", "shop.py", "sales.py", "lake", "spark.log", "__pycache__")
"""What the demo makes in it; it deletes nothing else."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where the demo keeps its topics, its state and its application."""

    path: Path

    @property
    def application(self) -> Path:
        """The application, a file for `crossstream run`."""
        return self.path / "marketplace.py"

    @property
    def shop(self) -> Path:
        """The application of the demo with Postgres."""
        return self.path / "shop.py"

    @property
    def sales(self) -> Path:
        """The application of the demo with tables of a lake."""
        return self.path / "sales.py"

    @property
    def lake(self) -> Path:
        """Its tables."""
        return self.path / "lake"

    @property
    def topics(self) -> Path:
        return self.path / "topics"

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def log(self) -> Path:
        """Spark's log."""
        return self.path / "spark.log"

    def empty(self) -> None:
        """Makes the folder, or removes what an earlier demo made; `ConfigError` CS-281 if another program made it."""
        mark = self.path / MARK
        is_free = not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir()))
        if not mark.is_file() and not is_free:
            what = "the folder of the demo exists, but the demo did not make it"
            raise refuse("CS-281", what, "choose another one with --dir, or move it away", folder=self.path)
        try:
            for made in (self.path / name for name in MADE):
                if made.is_dir() and not made.is_symlink():
                    shutil.rmtree(made)
                else:
                    made.unlink(missing_ok=True)
            self.path.mkdir(parents=True, exist_ok=True)
            mark.write_text("made by crossstream demo\n", encoding="utf-8")
        except OSError as error:
            what = f"the folder of the demo cannot be made: {error.strerror}"
            raise refuse("CS-281", what, "choose another one with --dir", folder=self.path) from error

    def write_application(self, bootstrap_servers: str | None = None, suffix: str = "") -> None:
        """Writes the application for file topics or Kafka; ``suffix`` follows the names of topics."""
        text = files("crossstream.dev").joinpath("marketplace.py").read_text(encoding="utf-8")
        if bootstrap_servers is not None:
            text = _replaced(text, 'topics_dir=HERE / "topics"', f'bootstrap_servers="{bootstrap_servers}"')
        for start in ('builder.table("products', 'builder.table("merchants', '.to("promotions'):
            text = _replaced(text, start + '"', f'{start}{suffix}"')
        self.application.write_text(text, encoding="utf-8")

    def write_shop(self) -> None:
        """Writes the application of the demo with Postgres."""
        _copy(self.shop)

    def write_sales(self) -> None:
        """Writes the application of the demo with tables of a lake."""
        _copy(self.sales)


def _copy(file: Path) -> None:
    """Writes an application of the package, under its own name."""
    file.write_bytes(files("crossstream.dev").joinpath(file.name).read_bytes())


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise AssertionError(f"{old!r} is {text.count(old)} times in the application of the demo")
    return text.replace(old, new)
