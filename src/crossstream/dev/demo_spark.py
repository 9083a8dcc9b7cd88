"""`crossstream demo --spark`: two tables of a lake, commits to both, and their join as a table of Spark."""

from __future__ import annotations

import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from crossstream.cli.console import SparkOutput, own_stdout, shortest
from crossstream.cli.loading import load
from crossstream.dev.demo import DemoFolder, DemoView, Kind, Line, Rows, cell_of, command, compared, shown
from crossstream.dev.lake import SCENES, TABLES, Scene, check_deltalake

if TYPE_CHECKING:
    from crossstream.spark import SparkStreams

Session: TypeAlias = Any
"""A session of Spark, of which only the room `spark/` knows the class."""
STORE = "sales"
COLUMNS = ("customer_name", "customer_city", "item", "price")
HEAD = ("", "key", *COLUMNS, "")
RIGHT = (False, True, False, False, False, True, False)
CHANGES = ("_commit_version", "_change_type", "key", "customer_name", "customer_city", "item")
"""What the demo shows of the stream of changes: what a terminal of 80 columns has room for."""
CHANGED: Mapping[str, Any] = {"startingBatch": 1, "preimages": True}
"""From which batch on, and with the rows before."""
STREAM_HEAD = tuple(name.removeprefix("_") for name in CHANGES)
STREAM_RIGHT = (True, False, True, False, False, False)


def main(arguments: Namespace) -> int:
    """Runs the demo from beginning to end."""
    check_deltalake()
    folder = DemoFolder(Path(arguments.dir).expanduser().absolute())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds: Spark stops
    folder.empty()
    folder.write_sales()
    with own_stdout() as out:
        view = DemoView(out)
        view.say("Orders name their customer. Both are tables of a lake, and their join follows.", "bold")
        view.say("No topic, no broker, and no jar beside those of Spark.", "dim")
        view.say()
        for statement in TABLES:
            view.say(f"   {statement.sql};", "cyan")
            statement.run(folder.lake)
        _play(folder, view, debug=arguments.debug)
        for line in farewell(folder, command()):
            view.say(line, "bold" if line and not line.startswith(" ") else "")
    return 0


def _play(folder: DemoFolder, view: DemoView, *, debug: bool) -> None:
    """Shows the result of the tables, every scene, and at the end the changes of all of them as a stream."""
    output = SparkOutput(view.say, folder.log, everything=debug)
    with _session(output, view) as spark, closing(Sales(folder, spark)) as sales:
        view.say()
        view.say("Their join is a table of Spark", "bold")
        _say_reading(view, "spark.read", folder)
        with view.waiting("Waiting for the first batch"):
            followed = sales.follow()
        _show(view, followed)
        view.say("   The lamp is not in it: there is no customer 4.")
        view.pause()
        for number, scene in enumerate(SCENES, 1):
            _announce(view, number, scene)
            if scene.restarts:
                sales.stop()
            for statement in scene.statements:
                statement.run(folder.lake)
            _show(view, sales.follow())
            view.say(f"   {scene.remark}")
            view.pause()
        view.say()
        view.say("Its changes are a stream of Spark", "bold")
        _say_reading(view, "spark.readStream", folder, **CHANGED)
        with view.waiting("Reading it"):
            changes = sales.changes()
        view.say()
        view.table(STREAM_HEAD, changes, STREAM_RIGHT)


def _announce(view: DemoView, number: int, scene: Scene) -> None:
    view.say()
    view.say(f"{number}. {scene.title}", "bold")
    for statement in scene.statements:
        view.say(f"   {statement.sql};", "cyan")


def _say_reading(view: DemoView, reader: str, folder: DemoFolder, **options: Any) -> None:
    view.say(f'   {reader}.format("crossstream").option("store", "{STORE}")', "cyan")
    if options:
        view.say(f"     .options({', '.join(f'{name}={value}' for name, value in options.items())})", "cyan")
    view.say(f'     .load("{shortest(folder.state)}")', "cyan")


def _show(view: DemoView, followed: Followed) -> None:
    """The rows of the result, and what they were before."""
    view.say()
    view.table(HEAD, compared(followed.before, followed.after), RIGHT)
    query = "its first query of Spark" if followed.batch == 0 else "a query of Spark"
    times = f"{followed.joining:.2f} s, and {followed.reading:.2f} s for {query}"
    view.say(f"   batch {followed.batch}: {times}", "dim")


@contextmanager
def _session(output: SparkOutput, view: DemoView) -> Iterator[Session]:
    """A session for the application and for what reads its store."""
    import crossstream as cs
    from crossstream.spark.session import make_session

    spark: Session = None
    try:
        with view.waiting("Starting Spark on this machine"), output.inherited():
            spark = make_session("crossstream demo", {})
        cs.register(spark)
        yield spark
        with view.waiting("Stopping Spark"):
            spark.stop()
    finally:
        if spark is not None:
            with suppress(Exception):  # the first error is the one to report
                spark.stop()
        output.close()


@dataclass(frozen=True, slots=True)
class Followed:
    """The result before and after some commits, and the seconds that the application took, and a query after it."""

    before: Rows
    after: Rows
    batch: int
    joining: float
    reading: float


@dataclass(slots=True)
class Sales:
    """The application in a session of Spark, whose queries show what it made."""

    folder: DemoFolder
    spark: Session
    _app: SparkStreams | None = None
    _rows: dict[int, tuple[Any, ...]] = field(default_factory=dict)

    def follow(self) -> Followed:
        """Starts the application if it does not run, and lets it process the commits there are."""
        began = time.perf_counter()
        app = self._running()
        app.process_available()
        joined = time.perf_counter()
        before, self._rows = self._rows, self.rows()
        read = time.perf_counter()
        return Followed(before, self._rows, app.progress.batch, joined - began, read - joined)

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """The result as a user of Spark sees it: the columns of each key."""
        rows = self._load(self.spark.read).select("key", *COLUMNS).collect()
        return {key: tuple(cells) for key, *cells in rows}

    def changes(self) -> list[Line]:
        """What a stream of Spark finds: the changes of each batch but the first, old rows above new ones."""
        query = (
            self._load(self.spark.readStream, **CHANGED)
            .select(*CHANGES)
            .writeStream.format("memory")
            .queryName("sales_changes")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = sorted(self.spark.table("sales_changes").collect(), key=_place)
        return [Line(STYLE_OF[row[1]], tuple(map(cell_of, row))) for row in found]

    def stop(self) -> None:
        """Stops the application, and leaves the session."""
        app, self._app = self._app, None
        if app is not None:
            app.stop()

    close = stop

    def _running(self) -> SparkStreams:
        from crossstream.spark import SparkStreams

        if self._app is None:
            loaded = load(str(self.folder.sales))
            assert loaded.config is not None
            self._app = SparkStreams(loaded.topology, loaded.config, self.spark)
        return self._app

    def _load(self, reader: Any, **options: Any) -> Any:
        stored = reader.format("crossstream").option("store", STORE)
        return stored.options(**options).load(str(self.folder.state))


def _place(row: Sequence[Any]) -> tuple[Any, ...]:
    """Where a change stands: by its batch and key; the row before an update above the one after it."""
    version, kind, key, *_ = row
    return version, key, kind == "update_postimage"


STYLE_OF: Mapping[str, Kind] = {
    "insert": "new",
    "update_preimage": "same",
    "update_postimage": "changed",
    "delete": "gone",
}


def farewell(folder: DemoFolder, run: str) -> list[str]:
    """What to do next, with the paths of this demo."""
    sales, state = shown(folder.sales), shown(folder.state)
    return [
        "",
        "The tables and the state stay. Query the result without Spark:",
        f"  {run} query {state} sales",
        f"  {run} query {state} sales --as-of 0   # at first",
        f"  {run} why {sales} {state} sales 10",
        "",
        "Read next:",
        f"  {sales}: the application, ten lines",
        "  docs/coming-from-spark.md: the same with tables of yours",
    ]
