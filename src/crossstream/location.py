"""The user's own line: the first frame on the stack that is not crossstream's."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import FrameType

_PACKAGE = os.path.dirname(__file__) + os.sep


@dataclass(frozen=True, slots=True)
class Location:
    """The user's line that made a node."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_location() -> Location | None:
    """File and line of the innermost call from outside the package; None if there is none.

    >>> user_location().line
    1
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return None if frame is None else Location(frame.f_code.co_filename, frame.f_lineno)


def here(operator: str | None = None) -> dict[str, str | None]:
    """The ``where`` of an error that is raised while the user's line runs: operator and line."""
    line = user_location()
    return {"operator": operator, "line": None if line is None else str(line)}


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file == "<string>":  # a method that dataclasses wrote; or the user's own `python -c`
        return str(frame.f_globals.get("__name__")).partition(".")[0] == "crossstream"
    return file.startswith(_PACKAGE)
