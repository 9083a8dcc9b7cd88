"""How many rows of a join asked for a partner in a batch, and how many of them found one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossstream.columns.values import Values
from crossstream.serdes import Serde
from crossstream.storage.snapshot import View

_LOOKED_AT = 1024
"""Rows of a run that are looked at for a key."""


@dataclass(slots=True)
class Asked:
    """Counts of rows that asked. A kernel counts into it what it finds."""

    matched: int = 0
    unmatched: int = 0

    def count(self, asking: np.ndarray, found: np.ndarray) -> None:
        """``asking``: which rows asked; ``found``: which rows did, and found a partner."""
        matched = int(np.count_nonzero(found))
        self.matched += matched
        self.unmatched += int(np.count_nonzero(asking)) - matched


def some_key(view: View, serde: Serde | None) -> Values | None:
    """The key of a row that a store has, or had a short time ago; None if there is none."""
    for run in view.pieces() if view.rows else ():
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
