"""How commands print, with rich on a terminal, as plain text elsewhere; and what becomes of Spark's own lines.

The JVM inherits standard output and error of this process, and Python workers print through the JVM. While
`SparkOutput.inherited`, both are a pipe. A thread reads it, shows what is not Spark's own and writes Spark's log
lines to a file. What this process itself prints meanwhile bypasses the pipe: else it would be shown twice.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, TextIO

from crossstream.errors import CrossStreamError, in_one_line

if TYPE_CHECKING:
    from rich.console import Console

_PLAIN: Mapping[str, str] = MappingProxyType({})


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def make_console(stream: TextIO) -> Console:
    """A rich console that prints text unchanged: no markup, no guessed colours."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


def own_stdout() -> TextIO:
    """Standard output under another number: Spark's processes may inherit a different one meanwhile."""
    return os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding=sys.stdout.encoding)


def say(text: str = "") -> None:
    """A message beside the results: on standard error."""
    print("\n".join(map(in_one_line, text.split("\n"))), file=sys.stderr, flush=True)


def counted(number: int, noun: str) -> str:
    """How many there are of something.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shortest(path: str | Path) -> str:
    """A path as short as it can be typed here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def show_error(error: CrossStreamError) -> None:
    """Prints code, what, where and next on standard error."""
    if not is_terminal(sys.stderr):
        return say(str(error))
    from rich.text import Text

    text = Text(str(error))
    text.stylize("bold red", 0, len(error.code) + 2)
    for label in ("  where:", "  next: "):
        start = str(error).rfind(f"\n{label}")
        if start >= 0:
            text.stylize("bold", start, start + len(label) + 1)
    make_console(sys.stderr).print(text)
    return None


def middle(text: str, width: int) -> str:
    """The text in at most ``width`` characters: what does not fit is left out of its middle.

    >>> middle("orders.join(customers).filter", 15)
    'orders.….filter'
    """
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return text[: width - 1 - end] + "…" + (text[-end:] if end else "")


def fitted(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    to_right: Sequence[bool],
    width: int,
    spare: Sequence[str] = (),
) -> tuple[list[str], list[list[str]], list[bool]]:
    """The table in ``width`` characters: without ``spare`` columns, in their order, until the rest fits.

    If that is not enough, cells of texts are shortened in the middle, the longest first. Numbers keep their width.
    """
    columns = [[name, *cells] for name, *cells in zip(head, *rows, strict=True)]
    right, widths = list(to_right), [max(map(len, column)) for column in columns]

    def needed() -> int:
        return sum(widths) + GAP * (len(widths) - 1) + 2

    for name in spare:
        if needed() <= width:
            break
        at = [column[0] for column in columns].index(name)
        del columns[at], right[at], widths[at]
    texts = [at for at, number in enumerate(right) if not number]
    while needed() > width and (long := [at for at in texts if widths[at] > SHORTEST]):
        widths[max(long, key=lambda at: widths[at])] -= 1
    shown = [[middle(cell, most) for cell in column] for column, most in zip(columns, widths, strict=True)]
    head, *cells = map(list, zip(*shown, strict=True))
    return list(head), cells, right


GAP = 3
"""Between two columns of a table on a terminal."""
SHORTEST = 6
"""Texts are not shortened below this."""


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], to_right: Sequence[bool] = ()) -> str:
    """A table as plain text: columns as wide as their widest cell, two blanks between them."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        columns = zip(cells, widths, to_right or [False] * len(head), strict=True)
        padded = (cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns)
        return "  ".join(padded).rstrip()

    return "\n".join([line(head), "  ".join("-" * width for width in widths), *map(line, rows)])


def show_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    to_right: Sequence[bool] = (),
    styles: Mapping[str, str] = _PLAIN,
    spare: Sequence[str] | None = None,
) -> None:
    """Prints a table on standard output; ``to_right``: which columns are numbers; ``styles``: of certain cells.

    ``spare``: on a terminal each row is one line, and these columns are left out where it is too narrow. Without it
    long texts are folded.
    """
    head, rows = list(map(in_one_line, head)), [list(map(in_one_line, row)) for row in rows]
    if not is_terminal(sys.stdout):
        print(aligned(head, rows, to_right))
        return
    if spare is not None:
        width = make_console(sys.stdout).width
        head, rows, to_right = fitted(head, rows, to_right or [False] * len(head), width, spare)
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, number in zip(head, to_right or [False] * len(head), strict=True):
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        table.add_row(*(Text(cell, styles.get(cell, "")) for cell in row))
    make_console(sys.stdout).print(table, soft_wrap=False)


_LOG_LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ")
_CONTINUED = re.compile(
    r"\s|Caused by:|Traceback \(most recent|Driver stacktrace|During handling of|The above exception"
    r"|[\w.$]+(Error|Exception|Exit|Throwable|Interrupt)\b|crossstream-error:|$"
)
_GREETINGS = re.compile(
    r"WARNING: (Using incubator|A |Please consider|Use --|All illegal|package sun|sun\.|An illegal|sun)"
    r"|Using Spark's default log4j|Setting default log level|To adjust logging level|Setting Spark log level"
    r'|Exception in thread "'
    r"|Picked up (_JAVA_OPTIONS|JAVA_TOOL_OPTIONS)|NOTE: Picked up|SLF4J"
)
QUIET_SECONDS = 0.1


class SparkOutput:
    """Sorts the lines of Spark's processes.

    ``show`` gets what the application's own functions printed; with ``everything`` all lines. ``log`` is the file
    for Spark's lines, made when the first one comes.
    """

    def __init__(self, show: Callable[[str], None], log: Path, *, everything: bool = False) -> None:
        self._show = show
        self._log = log
        self._everything = everything
        self._file: IO[str] | None = None
        self._logged = False
        self._closed = False
        self._in_log = False
        self._last = 0.0
        self._showing = threading.Lock()

    @property
    def log(self) -> Path | None:
        """The file with Spark's log lines; None if there were none."""
        return self._log if self._logged else None

    def follow(self, pipe: int) -> None:
        """Sorts also what processes print that were started before."""
        threading.Thread(target=self._read, args=(pipe,), name="spark output", daemon=True).start()

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Processes that start in this block print into the pipe."""
        reading, writing = os.pipe()
        self.follow(reading)
        sys.stdout.flush()
        sys.stderr.flush()
        bypass = ExitStack()
        out, err = bypass.enter_context(_copy_of(1)), bypass.enter_context(_copy_of(2))
        bypass.enter_context(redirect_stdout(out))
        bypass.enter_context(redirect_stderr(err))
        try:
            os.dup2(writing, 1)
            os.dup2(writing, 2)
            yield
        finally:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.close(writing)
            with self._showing:
                bypass.close()

    def close(self, seconds: float = 1.0) -> None:
        """Waits for a moment without output, at most ``seconds``; ignores what comes later."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(QUIET_SECONDS)
            if time.monotonic() - self._last > QUIET_SECONDS:
                break
        self._closed = True
        if self._file is not None:
            with suppress(OSError):  # a full disk; the lines it refused were shown
                self._file.close()

    def take(self, line: str) -> None:
        """Sorts one line; a log line behind printed text without a line end is another line."""
        self._last = time.monotonic()
        if self._closed:
            return
        if logged := _LOG_LINE.search(line, 1):
            self.take(line[: logged.start()])
            line = line[logged.start() :]
        if self.is_logged(line):
            self._keep(line)
        if self._everything or not self._in_log:
            with self._showing:
                self._show(line)

    def is_logged(self, line: str) -> bool:
        """Whether a line is Spark's own, or continues one that is."""
        if _GREETINGS.match(line) or _LOG_LINE.match(line):
            self._in_log = True
        elif self._in_log and not _CONTINUED.match(line):
            self._in_log = False
        return self._in_log

    def _keep(self, line: str) -> None:
        from crossstream.storage.files import PRIVATE, make_folder, opener, rights_in

        try:
            if self._file is None:
                rights = rights_in(self._log.parent) or PRIVATE
                make_folder(self._log.parent, rights)
                self._file = open(self._log, "a", 1, "utf-8", opener=opener(rights))  # noqa: SIM115
            self._file.write(line + "\n")
            self._logged = True
        except OSError:
            self._everything = True  # a full or forbidden disk: show the line instead of losing it

    def _read(self, pipe: int) -> None:
        with os.fdopen(pipe, "r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self.take(line.rstrip("\n"))


def _copy_of(number: int) -> IO[str]:
    """A stream to the present target of standard output (1) or error (2)."""
    return os.fdopen(os.dup(number), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
