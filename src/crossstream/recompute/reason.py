"""The answer of `why`: the records and steps behind a row, as a tree for the terminal, a notebook or JSON."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import msgspec

from crossstream.errors import in_one_line
from crossstream.graph.nodes import Node
from crossstream.serdes.windowed import Windowed
from crossstream.topics import is_legal_name


@dataclass(frozen=True, slots=True)
class InputRecord:
    """A record of a topic. ``timestamp``: ms; ``batch``: that which read it, None if it is not in the log any more."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    batch: int | None = None

    def __str__(self) -> str:
        batch = "" if self.batch is None else f", batch {self.batch}"
        place = f"{self.topic}, partition {self.partition}, offset {self.offset}"
        if not is_legal_name(self.topic):  # a lake table
            place = f"{self.topic}, version {self.offset}"
        place += f", {_moment(self.timestamp)}{batch}"
        return f"{text_of(self.key)} = {text_of(self.value)}  ({place})"


@dataclass(frozen=True, slots=True)
class Step:
    """An operator on the way of a row. ``line``: of the application that made it; ``kind``: its class.

    ``rows``: what it gives from these records alone, (key, value), the first ones. ``records``: of a source.
    ``inputs``: the steps before it. ``note``: what was dropped, or why it cannot be traced.
    """

    operator: str
    kind: str
    line: str | None
    rows: tuple[tuple[Any, Any], ...] = ()
    records: tuple[InputRecord, ...] = ()
    inputs: tuple[Step, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """The reason of a row. ``value``: of the row in the state after ``batch``; None: it has no such row.

    ``records``: those that made it, in the order in which they arrived; ``step``: the same as a tree. ``ended``: of a
    missing row, where it ended. ``exact``: the records alone make the row, and it changes if one is left out.
    ``notes``: why not, if so.
    """

    store: str
    key: Any
    value: Any
    batch: int
    records: tuple[InputRecord, ...]
    step: Step
    ended: str | None = None
    exact: bool = False
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(in_one_line, _lines(self)))

    @property
    def is_inexact(self) -> bool:
        """Whether there is a row, and the records may be too many, too few, or not its own."""
        return self.value is not None and not self.exact

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, ``exact`` first; keys and values in the form that JSON can hold."""
        plain = msgspec.to_builtins(self, enc_hook=_plain, str_keys=True)
        assert isinstance(plain, dict)
        return {"exact": self.exact, **plain}

    def _repr_html_(self) -> str:
        """The tree that a notebook shows."""
        head, *rest = _lines(self)
        lines = "\n".join(html.escape(line) for line in rest)
        return f"<div><b>{html.escape(head)}</b><pre style='line-height:1.35'>{lines}</pre></div>"


def _lines(found: Why) -> Iterator[str]:
    if found.is_inexact:
        yield f"not exact: {'; '.join(found.notes)}"
    what = "no row" if found.value is None else text_of(found.value)
    yield f"{found.store} {text_of(found.key)}: {what}  (after batch {found.batch})"
    if found.ended is not None:
        yield f"ended: {found.ended}"
    for note in () if found.is_inexact else found.notes:
        yield f"note: {note}"
    yield from _tree(found.step, "", "", set())


def _tree(step: Step, first: str, rest: str, seen: set[str]) -> Iterator[str]:
    line = "" if step.line is None else f"  {_short(step.line)}"
    if step.operator in seen:
        yield f"{first}{step.operator}  (see above)"
        return
    seen.add(step.operator)
    note = "" if step.note is None else f"  [{step.note}]"
    yield f"{first}{step.operator}  {step.kind}{line}{note}"
    below = [("record", record) for record in step.records] + [("step", one) for one in step.inputs]
    if not step.records:
        for key, value in step.rows:
            yield f"{rest}{'│ ' if below else '  '}gives {text_of(key)} = {text_of(value)}"
    for number, (kind, one) in enumerate(below, 1):
        last = number == len(below)
        start, then = (f"{rest}└─ ", f"{rest}   ") if last else (f"{rest}├─ ", f"{rest}│  ")
        if kind == "record":
            yield f"{start}{one}"
        else:
            assert isinstance(one, Step)
            yield from _tree(one, start, then, seen)


def _short(line: str) -> str:
    """A line without the folder, if that is the current one."""
    return line.removeprefix(os.getcwd() + os.sep)


def _moment(milliseconds: int) -> str:
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}"


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, bytes):
            return value.decode()
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError):  # also bytes that are no text
        return repr(value)


def _plain(value: Any) -> Any:
    return [value.key, value.start, value.end] if isinstance(value, Windowed) else str(value)


def located(node: Node) -> str:
    """An operator, and the line of the application that made it."""
    return node.name if node.location is None else f"{node.name} ({node.location})"
