"""The order of rows that one record makes, where a stream branches and the branches merge again.

An operator passes one row to all operators below it before it makes the next row (semantics 1.2). So when a stream
branches, each row is tagged with (row number, branch). When branches merge, rows of one record are sorted by these
tags, those of forks further up first. Only row-wise operators lie in between, and they keep the tags.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.order import by_arrival

_PREFIX = "branch order "
"""Of the extra columns, before the name of the flow that branches."""

CameFrom = Callable[[Collection[str], np.ndarray], np.ndarray]
"""Which rows, by their time positions (`minor`), come from records of these sources."""

_BRANCH_BITS = 16
"""Lower bits of a tag: the number of the branch."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A flow from which several branches lead to one merge.

    ``ranks``: the order of the merge's inputs, where one branch leads to each; None: rows are sorted by their tags.
    ``sources``: the sources whose records reach the flow.
    """

    flow: str
    ranks: Mapping[str, int] | None = None
    sources: frozenset[str] = frozenset()

    def renamed(self, names: Mapping[str, str]) -> Fork:
        """The fork with other names for the inputs of the merge."""
        if self.ranks is None:
            return self
        return replace(self, ranks={names.get(end, end): rank for end, rank in self.ranks.items()})


class BranchTags:
    """Tags the rows at the start of a branch. ``branches``: a flow that forks, and the number of this branch."""

    def __init__(self, branches: Iterable[tuple[str, int]]) -> None:
        self._branches = dict(branches)
        self._rows = dict.fromkeys(self._branches, 0)

    def added(self, flow: str, changes: Changes) -> Changes:
        """The next rows of a flow, with tags if it forks."""
        if flow not in self._branches:
            return changes
        first = self._rows[flow]
        self._rows[flow] += changes.rows
        tags = (np.arange(first, self._rows[flow]) << _BRANCH_BITS) + self._branches[flow]
        return replace(changes, extra={**changes.extra, _PREFIX + flow: tags})


def without_tags(changes: Changes) -> Changes:
    """The rows as operators take them that are not row-wise."""
    if not changes.extra:
        return changes
    extra = {name: column for name, column in changes.extra.items() if not name.startswith(_PREFIX)}
    return changes if len(extra) == len(changes.extra) else replace(changes, extra=extra)


def in_branch_order(
    parts: Sequence[tuple[str, Changes]], forks: Sequence[Fork], came_from: CameFrom
) -> Changes:
    """Merges rows: by arrival, then by the ``forks``, those further up first, then by the order of ``parts``.

    Each part comes with the name of its input.
    """
    names = dict.fromkeys(name for _, part in parts for name in part.extra)
    merged = concat_changes([_with_all(part, names) for _, part in parts])
    if not forks:
        return by_arrival(merged)
    keys = [merged.major, merged.minor]
    for fork in forks:
        if fork.ranks is not None:
            ranks = [np.full(part.rows, fork.ranks.get(end, 0)) for end, part in parts]
            keys.append(np.where(came_from(fork.sources, merged.minor), np.concatenate(ranks), 0))
        elif _PREFIX + fork.flow in merged.extra:
            keys.append(np.asarray(merged.extra[_PREFIX + fork.flow]))
    return merged.take(np.lexsort(keys[::-1]))


def _with_all(changes: Changes, names: Mapping[str, None]) -> Changes:
    """The rows with a column of each name; 0 in columns of forks that the rows did not pass."""
    zeros = np.zeros(changes.rows, np.int64)
    return replace(changes, extra={name: changes.extra.get(name, zeros) for name in names})
