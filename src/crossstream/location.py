"""The line of the caller: the innermost frame on the stack outside the package."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FrameType

_PACKAGE = os.path.dirname(__file__) + os.sep


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


def here(operator: str | None = None) -> dict[str, str | None]:
    """The ``where`` of an error about the caller's code: operator and line."""
    line = user_location()
    return {"operator": operator, "line": None if line is None else str(line)}


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file == "<string>":  # a method that dataclasses wrote, or `python -c`
        return str(frame.f_globals.get("__name__")).partition(".")[0] == "crossstream"
    return file.startswith(_PACKAGE)
