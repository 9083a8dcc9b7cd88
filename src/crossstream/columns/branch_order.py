"""Turns: the order of the rows that one input record makes, where they part and meet again.

An operator hands one row to all that is below it before it makes the next (semantics 1.2). So where rows part, each way
notes which row it took, and which way it is; where the ways meet again, rows with the same place in time go by these
turns, those of partings further up first. In between there are row-wise operators only, which keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.order import by_arrival

_PREFIX = "turn "
"""Of the extra columns, before the name of the flow that parts."""

CameFrom = Callable[[Collection[str], np.ndarray], np.ndarray]
"""Tells which rows, by their places in time (`minor`), records of these sources made."""

_WAY_BITS = 16
"""Lower bits of a turn: which way a row goes."""


@dataclass(frozen=True, slots=True)
class Parting:
    """A flow that several ways lead from, and meet again.

    ``ranks``: the order of the ends, where one way leads to each, and there are no turns; else None.
    ``sources``: whose records come to the flow.
    """

    flow: str
    ranks: Mapping[str, int] | None = None
    sources: frozenset[str] = frozenset()

    def renamed(self, names: Mapping[str, str]) -> Parting:
        """With other names of ends."""
        if self.ranks is None:
            return self
        return replace(self, ranks={names.get(end, end): rank for end, rank in self.ranks.items()})


class Turns:
    """Gives rows their turns. ``ways``: flows that part, and which of the ways from each begins here."""

    def __init__(self, ways: Iterable[tuple[str, int]]) -> None:
        self._ways = dict(ways)
        self._taken = dict.fromkeys(self._ways, 0)

    def given(self, flow: str, changes: Changes) -> Changes:
        """The rows of a flow that come next."""
        if flow not in self._ways:
            return changes
        first = self._taken[flow]
        self._taken[flow] += changes.rows
        turns = (np.arange(first, self._taken[flow]) << _WAY_BITS) + self._ways[flow]
        return replace(changes, extra={**changes.extra, _PREFIX + flow: turns})


def without_turns(changes: Changes) -> Changes:
    """The rows as others than row-wise operators take them."""
    if not changes.extra:
        return changes
    extra = {name: column for name, column in changes.extra.items() if not name.startswith(_PREFIX)}
    return changes if len(extra) == len(changes.extra) else replace(changes, extra=extra)


def in_turn(
    parts: Sequence[tuple[str, Changes]], partings: Sequence[Parting], came_from: CameFrom
) -> Changes:
    """Rows that come on several ways, each part with its end, in order of arrival and then of turn.

    ``partings``: those further up come first. What is left goes in the order of the parts.
    """
    names = dict.fromkeys(name for _, part in parts for name in part.extra)
    merged = concat_changes([_with_all(part, names) for _, part in parts])
    if not partings:
        return by_arrival(merged)
    keys = [merged.major, merged.minor]
    for parting in partings:
        if parting.ranks is not None:
            ranks = [np.full(part.rows, parting.ranks.get(end, 0)) for end, part in parts]
            keys.append(np.where(came_from(parting.sources, merged.minor), np.concatenate(ranks), 0))
        elif _PREFIX + parting.flow in merged.extra:
            keys.append(np.asarray(merged.extra[_PREFIX + parting.flow]))
    return merged.take(np.lexsort(keys[::-1]))


def _with_all(changes: Changes, names: Mapping[str, None]) -> Changes:
    """With columns of these names: 0 where it has none, for no row of it came that way."""
    none = np.zeros(changes.rows, np.int64)
    return replace(changes, extra={name: changes.extra.get(name, none) for name in names})
