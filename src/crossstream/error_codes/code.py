"""What stands behind a code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crossstream.errors import CrossStreamError

_NAMES = re.compile(r"`([^`]*)`")


@dataclass(frozen=True, slots=True)
class Code:
    """A row of the table. ``causes``: at most three; ``next``: also that of an error which does not know better.

    Both are Markdown; ``next`` has no links.
    """

    kind: type[CrossStreamError]
    causes: tuple[str, ...]
    next: str

    @property
    def step(self) -> str:
        """``next`` for a terminal: only commands are in backticks."""
        return _NAMES.sub(lambda name: name[0] if name[1].startswith("crossstream ") else name[1], self.next)


def code(kind: type[CrossStreamError], *causes: str, next: str) -> Code:
    return Code(kind, causes, next)
