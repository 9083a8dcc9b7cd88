"""Where a batch that was run again gives something else than it did: rows of stores, records of topics, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from crossstream.planning.plan import StoreDef

MOST = 1_000
"""Rows or records that differ, which are shown of a state partition or of a topic's, at most."""


class Name(NamedTuple):
    """A store by the name that people know, a topic, or a table by the name of its sink."""

    kind: Literal["store", "topic", "table"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Parting:
    """A row or record that is not what it was. ``place``: where it is; ``partition``: of it, -1 if it is not known.

    ``theirs``: the value that was committed; ``ours``: what came now; None: there is none. Where the values are the
    same, it is these with what is not.
    """

    place: Name
    partition: int
    key: Any
    theirs: Any
    ours: Any


@dataclass(frozen=True, slots=True)
class Found:
    """What was compared. ``rows``: that the batch wrote to each store, and sent to each topic, as they came now.

    ``different``: how many are not what they were. ``partings``: the first of them. ``notes``: what was not compared,
    and why.
    """

    rows: Mapping[Name, int] = field(default_factory=dict)
    different: Mapping[Name, int] = field(default_factory=dict)
    partings: tuple[Parting, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        return not self.different


def name_of(store: StoreDef) -> Name:
    """What people call a store."""
    return Name("store", store.public or store.name)


def sides(theirs: dict[str, Any] | None, ours: dict[str, Any] | None) -> tuple[Any, Any]:
    """Both values alone, if that is what differs; else with the columns beside them, such as their times."""
    both = (theirs, ours)
    values = [None if one is None or "deleted" in one else one.get("value") for one in both]
    return (values[0], values[1]) if values[0] != values[1] else both


def together(one: Found, other: Found) -> Found:
    """What was compared in two places."""
    return replace(
        one,
        rows={**one.rows, **other.rows},
        different={**one.different, **other.different},
        partings=(*one.partings, *other.partings),
        notes=(*one.notes, *other.notes),
    )
