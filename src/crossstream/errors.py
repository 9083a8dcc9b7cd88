"""The errors of crossstream: one tree, stable codes, the line at fault, and the next step in every message.

    CrossStreamError
    ├── TopologyError            the topology cannot be built as written
    │   └── CopartitionError         inputs of a join cannot be brought to the same partitions
    ├── ConfigError              a setting is unknown, missing or contradictory
    ├── SerdeError               bytes and values do not fit each other
    ├── ProcessingError          a function raised, or a record cannot be processed
    ├── SourceError              a topic, a range of it, or the broker cannot be read
    ├── SinkError                a result cannot be written
    └── StateError               state is damaged, missing, locked or of another application
        └── IncompatibleStateError   the topology changed since the checkpoint

Every error has a stable ``code`` (``CS-…``), says *what* is wrong, *where* (operator, file and line; at run time also
topic, partition, offset and key) and what to do *next*.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from types import FrameType
from typing import Any

_PACKAGE = os.path.dirname(__file__) + os.sep


class CrossStreamError(Exception):
    """Root of all errors of crossstream.

    ``where`` maps names such as ``operator``, ``line``, ``topic``, ``partition``, ``offset`` and ``key`` to values;
    it is printed in this order.
    """

    default_code = "CS-000"

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        where: dict[str, Any] | None = None,
        next: str | None = None,
    ) -> None:
        self.code = code or self.default_code
        self.what = what
        self.where = dict(where or {})
        self.next = next
        super().__init__(what)

    def at(self, **where: Any) -> CrossStreamError:
        """Adds to ``where``, without replacing what is known, and returns the error."""
        self.where = {**where, **{name: value for name, value in self.where.items() if value is not None}}
        return self

    def __str__(self) -> str:
        places = [f"{name} {in_one_line(value)}" for name, value in self.where.items() if value is not None]
        lines = [f"[{self.code}] {_without_forged_lines(self.what)}"]
        if places:
            lines.append(f"  where: {', '.join(places)}")
        if self.next:
            lines.append(f"  next:  {_without_forged_lines(self.next)}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.code, self.where, self.next)


def _rebuild(
    kind: type[CrossStreamError], what: str, code: str, where: dict[str, Any], next: str | None
) -> CrossStreamError:
    return kind(what, code=code, where=where, next=next)


def plain_place(where: Mapping[Any, Any]) -> dict[str, str | int | None]:
    """``where`` as every engine gives it: what JSON holds unchanged; of a key of any other type its text."""
    return {str(name): _plain_value(value) for name, value in where.items()}


def _plain_value(value: Any) -> str | int | None:
    if value is None or type(value) in (str, bool):
        return value  # type: ignore[no-any-return]
    if isinstance(value, Integral) and -(1 << 63) <= int(value) < 1 << 64:
        return int(value)
    try:
        return str(value)
    except Exception as error:
        return f"(the text of a {type(value).__name__} raised {type(error).__name__})"


def type_and_text(error: BaseException) -> str:
    """The type and the text of an error, also if the text raises or is not UTF-8; with the code of one of ours."""
    try:
        text = f"[{error.code}] {error.what}" if isinstance(error, CrossStreamError) else str(error)
    except Exception as failed:
        text = f"(its own text raised {type(failed).__name__})"
    return utf8_safe(f"{type(error).__name__}: {text}")


_UNSEEN = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Characters that move the cursor, colour what follows, or turn the direction of text around; without the newline."""
_CONTROLS = re.compile(rf"[\n{_UNSEEN}]")
_FORGED = re.compile(rf"\n(?!    (?!\s*(?:where|next):)\S)|[{_UNSEEN}]")
"""The same, but for lines that are indented by four, as those of a log in an error of ours are."""


def in_one_line(text: object) -> str:
    """The text with escapes for what a terminal would not print: it may be a key or a value of anybody.

    >>> in_one_line("one" + chr(10) + "two" + chr(27))
    'one\\\\ntwo\\\\x1b'
    """
    return _CONTROLS.sub(_escape, str(text))


def _without_forged_lines(text: str) -> str:
    return _FORGED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def utf8_safe(text: str) -> str:
    """The text with escapes for halves of surrogate pairs, which UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


class TopologyError(CrossStreamError):
    """The topology cannot be built as written; raised in the line that is wrong."""

    default_code = "CS-100"


class CopartitionError(TopologyError):
    """Inputs of a join cannot be brought to the same partitions."""

    default_code = "CS-128"


class ConfigError(CrossStreamError):
    """A setting is unknown, missing or contradicts another one."""

    default_code = "CS-200"


class SerdeError(CrossStreamError):
    """Bytes and values do not fit each other."""

    default_code = "CS-400"


class ProcessingError(CrossStreamError):
    """A function raised, or a record cannot be processed."""

    default_code = "CS-500"


class SourceError(CrossStreamError):
    """A topic, a range of it, or the broker cannot be read."""

    default_code = "CS-600"


class SinkError(CrossStreamError):
    """A result cannot be written to its topic."""

    default_code = "CS-650"


class StateError(CrossStreamError):
    """State is damaged, missing, or locked by or made by another application."""

    default_code = "CS-700"


class IncompatibleStateError(StateError):
    """The topology changed since the checkpoint in a way its state cannot follow."""

    default_code = "CS-750"


@dataclass(frozen=True, slots=True)
class Location:
    """A line of code that made a node."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_location() -> Location | None:
    """File and line of the innermost call from outside the package; None without one.

    >>> user_location().line
    1
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return None if frame is None else Location(frame.f_code.co_filename, frame.f_lineno)


def caller_location(operator: str | None = None) -> dict[str, str | None]:
    """The ``where`` of an error about the caller's code: operator and line."""
    line = user_location()
    return {"operator": operator, "line": None if line is None else str(line)}


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file == "<string>":  # a method that dataclasses wrote, or `python -c`
        return str(frame.f_globals.get("__name__")).partition(".")[0] == "crossstream"
    return file.startswith(_PACKAGE)
