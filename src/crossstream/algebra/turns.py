"""Turns: the order of the rows that one input record makes, where they part and meet again.

An operator hands one row to all that is below it before it makes the next (semantics 1.2). So where rows part, each way
notes which row it took, and which way it is; where the ways meet again, rows with the same place in time go by these
turns, those of partings further up first. In between there are row-wise operators only, which keep them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossstream.algebra.change import Changes, concat_changes
from crossstream.algebra.order import by_arrival

_PREFIX = "turn "
"""Of the extra columns, before the name of the flow that parts."""

_WAY_BITS = 16
"""Lower bits of a turn: which way a row goes."""


@dataclass(frozen=True, slots=True)
class Parting:
    """A flow that several ways lead from to a merge.

    ``ranks``: the order of the merged flows, where one way leads to each, and there are no turns; else None.
    """

    flow: str
    ranks: Mapping[str, int] | None = None


def with_turns(changes: Changes, flow: str, first: int, way: int) -> Changes:
    """Rows of a flow that parts, on one of the ways; the number of the first one is ``first``."""
    turns = (np.arange(first, first + changes.rows) << _WAY_BITS) + way
    return replace(changes, extra={**changes.extra, _PREFIX + flow: turns})


def without_turns(changes: Changes) -> Changes:
    """The rows as others than row-wise operators take them."""
    if not changes.extra:
        return changes
    extra = {name: column for name, column in changes.extra.items() if not name.startswith(_PREFIX)}
    return changes if len(extra) == len(changes.extra) else replace(changes, extra=extra)


def in_turn(parts: Sequence[tuple[str, Changes]], partings: Sequence[Parting]) -> Changes:
    """Rows of several flows, each part with the name of its flow, in order of arrival and then of turn.

    ``partings``: those further up come first. What is left goes in the order of the parts.
    """
    names = dict.fromkeys(name for _, part in parts for name in part.extra)
    merged = concat_changes([_with_all(part, names) for _, part in parts])
    if not partings:
        return by_arrival(merged)
    keys = [merged.major, merged.minor]
    for parting in partings:
        if parting.ranks is not None:
            keys.append(
                np.concatenate([np.full(part.rows, parting.ranks.get(flow, 0)) for flow, part in parts])
            )
        elif _PREFIX + parting.flow in merged.extra:
            keys.append(np.asarray(merged.extra[_PREFIX + parting.flow]))
    return merged.take(np.lexsort(keys[::-1]))


def _with_all(changes: Changes, names: Mapping[str, None]) -> Changes:
    """With columns of these names: 0 where it has none, for no row of it came that way."""
    none = np.zeros(changes.rows, np.int64)
    return replace(changes, extra={name: changes.extra.get(name, none) for name in names})
