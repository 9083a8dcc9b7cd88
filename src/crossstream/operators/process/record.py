"""A record as a processor gets it."""

from __future__ import annotations

from typing import Any, NamedTuple

from crossstream.records import Header


class Record(NamedTuple):
    """A record in a processor; it cannot be changed. ``timestamp``: ms since the epoch; ``headers``: (name, bytes).

    ``topic``, ``partition``, ``offset``: of the record that was read from a topic and led to this one; None where
    there is none.

    >>> Record("ada", 7, 1000).headers
    ()
    """

    key: Any
    value: Any
    timestamp: int
    headers: tuple[Header, ...] = ()
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
