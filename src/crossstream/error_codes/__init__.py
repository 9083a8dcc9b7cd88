"""The table of error codes: the class, the causes and the next step of each; docs/errors.md is written from it.

A code stands for what a user can do about an error. `refuse` makes the error of a code.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from crossstream.error_codes.building import BUILDING, COMMANDS, SETTINGS
from crossstream.error_codes.code import Code
from crossstream.error_codes.state import STATE
from crossstream.error_codes.topics import READING, WRITING
from crossstream.error_codes.values import FUNCTIONS, VALUES
from crossstream.errors import CrossStreamError

SECTIONS: Mapping[str, Mapping[str, Code]] = MappingProxyType(
    {
        "The command line: CS-0xx": COMMANDS,
        "Building a topology: CS-1xx": BUILDING,
        "Settings: CS-2xx": SETTINGS,
        "Values and bytes: CS-4xx": VALUES,
        "Functions and processing: CS-5xx": FUNCTIONS,
        "Reading topics: CS-600 to CS-649": READING,
        "Writing results: CS-650 to CS-699": WRITING,
        "State: CS-7xx": STATE,
    }
)
"""The headings of the page, and the codes under each."""

CODES: Mapping[str, Code] = MappingProxyType(
    {name: row for section in SECTIONS.values() for name, row in section.items()}
)


def refuse(code: str, what: str, next: str | None = None, /, **where: Any) -> CrossStreamError:
    """Makes an error of the class that the table has for its code, with the table's next step if none is given.

    >>> raise refuse("CS-706", "a file cannot be written: no space left", folder="/state")
    Traceback (most recent call last):
    crossstream.errors.StateError: [CS-706] a file cannot be written: no space left
      where: folder /state
      next:  check the disk and its free space, then start the application again: it repeats the batch
    """
    row = CODES[code]
    return row.kind(what, code=code, where=where, next=next or row.step)
