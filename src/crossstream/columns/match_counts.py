"""Counts of the rows of a join that looked for a partner in a batch, and of those that found one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossstream.columns.values import Values
from crossstream.serdes import Serde
from crossstream.storage.snapshot import Snapshot

_LOOKED_AT = 1024
"""Rows of a sorted run that are searched for a key."""


@dataclass(slots=True)
class Asked:
    """Counts of rows that looked for a partner; a kernel adds to them."""

    matched: int = 0
    unmatched: int = 0

    def count(self, asking: np.ndarray, found: np.ndarray) -> None:
        """``asking``: the rows that look for a partner; ``found``: those of them that find one."""
        matched = int(np.count_nonzero(found))
        self.matched += matched
        self.unmatched += int(np.count_nonzero(asking)) - matched


def some_key(view: Snapshot, serde: Serde | None) -> Values | None:
    """The key of a row that a store has or had a short time ago; None for an empty store."""
    for run in view.segments() if view.rows else ():
        if run.rows:
            gone = run["gone"]
            row = int(gone[:_LOOKED_AT].argmin()) if gone[0] else 0
            if not gone[row]:
                return Values(serde, wire=run["key"].slice(row, 1))
    return None


def some_given(keys: Values) -> Values | None:
    """One of the keys that is not null."""
    there = np.flatnonzero(~keys.missing())
    return keys.take(there[:1]) if len(there) else None
