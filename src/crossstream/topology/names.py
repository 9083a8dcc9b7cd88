"""Names of stores, flows and functions inside a plan."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossstream.topology.plan import Partitioner


def unique(name: str, taken: Container[str]) -> str:
    """``name``, or the first of ``name-2``, ``name-3``, … that is not taken."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def inner(name: str, part: str) -> str:
    """The name of a flow inside an operator, or of what is kept under ``name``.

    The blank keeps it apart from the flows that operators give: no topic and no operator has one in its name.
    """
    return f"{name} {part}"


def name_of(partitioner: Partitioner) -> str:
    return f"{getattr(partitioner, '__qualname__', type(partitioner).__qualname__)} {id(partitioner):x}"
