"""How a running application is shown: a live view on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO

from crossstream.cli.console import is_terminal, make_console, say
from crossstream.cli.figures import Figures, as_line
from crossstream.cli.texts import to_json

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from crossstream.spark.streams import Progress

NAMED = ("plan", "run", "publish", "commit")
"""The phases of a batch, one after the other; the others are work of the tasks, side by side."""
TABLE_ROWS = 12


class View(Protocol):
    """What is told about an application while it runs; `batch` and `line` come from other threads."""

    def starting(self) -> None: ...

    def started(self, title: str) -> None: ...

    def batch(self, progress: Progress) -> None: ...

    def line(self, text: str) -> None:
        """Something that a function of the user printed."""

    def stopping(self) -> None: ...

    def close(self) -> None: ...


def make_view(form: str) -> View:
    """The view of ``--format``: auto, live or json."""
    live = form == "live" or (form == "auto" and is_terminal(sys.stdout))
    return LiveView(_own_stdout()) if live else JsonView(_own_stdout())


class JsonView:
    """One JSON object for each batch on standard output; what is said to people on standard error."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def starting(self) -> None:
        say("starting Spark…")

    def started(self, title: str) -> None:
        say(f"running {title}")

    def batch(self, progress: Progress) -> None:
        print(to_json(as_line(progress, time.time())), file=self._out, flush=True)

    def line(self, text: str) -> None:
        say(text)

    def stopping(self) -> None:
        say("stopping after the running batch; once more ends at once")

    def close(self) -> None:
        say("stopped")


class LiveView:
    """A few lines at the bottom of the terminal that are drawn anew four times a second."""

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


def render(figures: Figures, title: str, state: str, now: float) -> RenderableType:
    """The live view at a moment."""
    from rich.console import Group
    from rich.text import Text

    age = _clock(now - figures.started)
    heading = Text.assemble((title, "bold"), f"  {state} ", (age, "cyan"), overflow="ellipsis")
    last = figures.last
    if last is None:
        return Group(Text(), heading, Text("waiting for records", "dim"))
    facts = _grid()
    rate, milliseconds = figures.rows_per_second(now), 1000 * last.seconds
    facts.add_row("rows/s", f"{rate:,.0f}", "rows", f"{figures.rows:,}", "lag", f"{last.lag:,}")
    facts.add_row(
        "last batch", f"{last.batch:,}", "rows", f"{last.rows:,}", "time", f"{milliseconds:,.0f} ms"
    )
    tables = [_operators(figures), _counts("store", last.state_rows)]
    if last.total_dropped:
        tables.append(_counts("dropped", last.total_dropped, "red"))
    return Group(Text(), heading, facts, _phases(last), Text(), *tables)


def _grid() -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for style, justify in (("dim", "left"), ("bold", "right")) * 3:
        grid.add_column(style=style, justify=justify)  # type: ignore[arg-type]
    return grid


def _phases(last: Progress) -> RenderableType:
    from rich.text import Text

    wall = [f"{name} {last.phases[name]:,.0f}" for name in NAMED if name in last.phases]
    work = [f"{name} {value:,.0f}" for name, value in last.phases.items() if name not in NAMED]
    text = Text.assemble(("its time  ", "dim"), " · ".join(wall) + " ms")
    if work:
        text.append("   tasks together: " + " · ".join(work) + " ms", "dim")
    text.overflow = "ellipsis"
    text.no_wrap = True
    return text


def _operators(figures: Figures) -> Table:
    names = list(dict.fromkeys([*figures.rows_in, *figures.rows_out]))
    rows = [(name, _number(figures.rows_in.get(name)), _number(figures.rows_out.get(name))) for name in names]
    return _table(("operator", "rows in", "rows out"), rows)


def _counts(what: str, rows: Mapping[str, int], style: str = "") -> Table:
    return _table((what, "rows"), [(name, f"{number:,}") for name, number in rows.items()], style)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], style: str = "") -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(head[0], style=style, no_wrap=True, overflow="ellipsis", min_width=30)
    for name in head[1:]:
        table.add_column(name, justify="right", min_width=10)
    for row in rows[:TABLE_ROWS]:
        table.add_row(*map(Text, row))
    if len(rows) > TABLE_ROWS:
        table.add_row(Text(f"… and {len(rows) - TABLE_ROWS} more", "dim"))
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _own_stdout() -> TextIO:
    """Standard output under a number of its own: Spark's processes may inherit another one meanwhile."""
    return os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding=sys.stdout.encoding)
