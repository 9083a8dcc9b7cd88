"""Names of topics, and of stores, flows and functions inside a plan."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import TYPE_CHECKING

from crossstream.topics import is_internal

if TYPE_CHECKING:
    from crossstream.topology.plan import Partitioner


def unique(name: str, taken: Container[str]) -> str:
    """``name``, or the first of ``name-2``, ``name-3``, … that is not taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def matches(pattern: re.Pattern[str] | None, topic: str) -> bool:
    """Whether a source with this pattern reads the topic; internal ones it passes over."""
    return pattern is not None and not is_internal(topic) and pattern.fullmatch(topic) is not None


def inner(name: str, part: str) -> str:
    """The name of a flow inside an operator, or of what is kept under ``name``.

    The blank keeps it apart from the flows that operators give: no topic and no operator has one in its name.
    """
    return f"{name} {part}"


def name_of(partitioner: Partitioner) -> str:
    return f"{getattr(partitioner, '__qualname__', type(partitioner).__qualname__)} {id(partitioner):x}"
