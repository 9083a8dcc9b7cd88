"""The numbers that batches count. Each field has the rule by which those of two tasks or batches become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


def add_up(sums: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Adds numbers to those of the same name.

    >>> rows = {"orders": 2}
    >>> add_up(rows, {"orders": 3, "customers": 1})
    >>> rows
    {'orders': 5, 'customers': 1}
    """
    for name, number in more.items():
        sums[name] = sums.get(name, 0) + number


def keep_largest(largest: dict[str, int], more: Mapping[str, int]) -> None:
    """Keeps of each name the largest number."""
    for name, number in more.items():
        largest[name] = max(number, largest.get(name, number))


SUM, LARGEST, LATEST = {"rule": add_up}, {"rule": keep_largest}, {"rule": dict.update}
"""Metadata of a field: what of two numbers of one name counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows by operator. A field here is one of `Report`, `Progress` and `Observation`: a new number begins here.

    ``matched``, ``unmatched``: by join, rows that found a partner, and that found none. ``fan_out``: by foreign-key
    join, the most left rows that one change of a right row met in a batch.
    """

    rows_in: dict[str, int] = field(default_factory=dict, metadata=SUM)
    rows_out: dict[str, int] = field(default_factory=dict, metadata=SUM)
    matched: dict[str, int] = field(default_factory=dict, metadata=SUM)
    unmatched: dict[str, int] = field(default_factory=dict, metadata=SUM)
    fan_out: dict[str, int] = field(default_factory=dict, metadata=LARGEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounts(Counts):
    """And what tasks count in a form of their own.

    ``dropped``: rows by ``operator: reason``; ``seconds``: by kind of task. ``newest``: the latest timestamp (ms) of
    the records that each source read, and that each sink wrote. ``state``: (rows, bytes) held, by ``store/partition``;
    ``due`` the same way: when the next timer on the clock fires (ms), 0 for no timer. ``waiting``: by
    ``operator/partition``, the rows that only other source partitions hold back (decision 0038).
    """

    dropped: dict[str, int] = field(default_factory=dict, metadata=SUM)
    seconds: dict[str, float] = field(default_factory=dict, metadata=SUM)
    newest: dict[str, int] = field(default_factory=dict, metadata=LARGEST)
    state: dict[str, tuple[int, int]] = field(default_factory=dict, metadata=LATEST)
    due: dict[str, int] = field(default_factory=dict, metadata=LATEST)
    waiting: dict[str, int] = field(default_factory=dict, metadata=LATEST)


def merge(counts: Counts, more: Counts) -> None:
    """Takes ``more`` into ``counts``, each field of ``counts`` that has a rule by its rule."""
    for one in fields(counts):
        if "rule" in one.metadata:
            one.metadata["rule"](getattr(counts, one.name), getattr(more, one.name))


_NAMES = tuple(one.name for one in fields(Counts))


def counts_of(counts: Counts) -> dict[str, Any]:
    """A copy of the numbers that have the same form everywhere, by their names."""
    return {name: dict(getattr(counts, name)) for name in _NAMES}


def by_operator(waiting: Mapping[str, int]) -> dict[str, int]:
    """The rows of all state partitions that wait, of the operators that have some."""
    found: dict[str, int] = {}
    for place, rows in waiting.items():
        if rows:
            operator = place.rpartition("/")[0]
            found[operator] = found.get(operator, 0) + rows
    return found
