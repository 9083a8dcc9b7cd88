"""What the demo prints: the changes, and the result table with what they changed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from crossstream.cli.console import aligned, is_terminal, make_console
from crossstream.demo.market import Outcome, Table
from crossstream.demo.story import Step

PAUSE_SECONDS = 1.5
"""Between two steps, for the eyes; none where nobody looks."""
HEAD = ("", "key", "product", "price", "shop", "")
RIGHT = (False, False, False, True, False, False)
Kind = Literal["same", "new", "changed", "gone"]
MARKS: dict[Kind, str] = {"same": "", "new": "+", "changed": "~", "gone": "-"}
NOTES: dict[Kind, str] = {"same": "", "new": "new", "gone": "deleted"}
STYLES: dict[Kind, str] = {"same": "", "new": "green", "changed": "yellow", "gone": "red strike"}


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the result, and what happened to it."""

    kind: Kind
    cells: tuple[str, ...]


def compared(before: Table, after: Table) -> list[Line]:
    """The rows before and after some changes, in the order of their keys."""
    return [_line(key, before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys())]


def _line(key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> Line:
    kind: Kind = "same" if old == new else "new" if old is None else "gone" if new is None else "changed"
    row = new if new is not None else old or {}
    note = f"was {_difference(old or {}, row)}" if kind == "changed" else NOTES[kind]
    return Line(kind, (MARKS[kind], key, row["product"], f"{row['price']:.2f}", row["shop"], note))


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    changed = [value for name, value in old.items() if value != new[name]]
    return ", ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in changed)


class DemoView:
    """Prints: with colours and pauses on a terminal, as plain text elsewhere."""

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
        """Shows that something takes a while."""
        if self._terminal:
            with self._console.status(text):
                yield
        else:
            print(f"{text}…", file=self._out, flush=True)
            yield

    def announce(self, number: int, step: Step) -> None:
        """The title of a step, and the records that are written."""
        self.say()
        self.say(f"{number}. {step.title}", "bold")
        width = max(len(change.key) for change in step.changes)
        for change in step.changes:
            value = "null" if change.value is None else json.dumps(change.value)
            self.say(f"   {change.topic:9} <- {change.key:{width}}  {value}", "cyan")

    def show(self, step: Step, outcome: Outcome) -> None:
        """The table after a step."""
        self.say()
        lines = compared(outcome.before, outcome.after)
        if self._terminal:
            self._print_table(lines)
        else:
            text = aligned(HEAD, [line.cells for line in lines], RIGHT)
            self.say("\n".join(f"   {line}".rstrip() for line in text.splitlines()))
        rows = f"{_many(outcome.records, 'record')} in, {_many(outcome.results, 'result')} out"
        self.say(f"   batch {outcome.batch}: {rows}, {outcome.seconds:.2f} s", "dim")
        self.say(f"   {step.remark}")
        if self._terminal:
            time.sleep(PAUSE_SECONDS)

    def _print_table(self, lines: list[Line]) -> None:
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold underline")
        for name, right in zip(HEAD, RIGHT, strict=True):
            table.add_column(name, justify="right" if right else "left")
        for line in lines:
            *cells, note = line.cells
            mark, *row = cells
            style = STYLES[line.kind]
            plain = style.replace(" strike", "")
            table.add_row(Text(mark, plain), *(Text(cell, style) for cell in row), Text(note, plain))
        self._console.print(Padding(table, (0, 0, 0, 3)), soft_wrap=False)


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
