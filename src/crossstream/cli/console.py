"""How commands print: with rich on a terminal, as plain text elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

from crossstream.errors import CrossStreamError

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
    print(text, file=sys.stderr, flush=True)


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
) -> None:
    """Prints a table on standard output; ``to_right``: which columns are numbers; ``styles``: of certain cells."""
    if not is_terminal(sys.stdout):
        print(aligned(head, rows, to_right))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, number in zip(head, to_right or [False] * len(head), strict=True):
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, styles.get(cell, "")) for cell in row))
    make_console(sys.stdout).print(table, soft_wrap=False)
