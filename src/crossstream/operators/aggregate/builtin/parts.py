"""The parts that built-in aggregates are made of: each has columns of state, and takes the rows of a batch at once.

Rows are sorted by group, then by arrival. A part gives its result after each *picked* row, and its state after the last
row of each group. Values that are null change nothing. Two states of one group, of rows before and of rows after, are
merged to one.

`counts.py`: numbers of rows, sums of whole numbers. `exact.py`: other sums. `extremes.py`: one of the values.
`lists.py`: several values, in order of their arrival. `ranked.py`: those with the largest or smallest of something.
`sketch.py`: about how many different ones there are. `cells.py`: values as the bytes that a store keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from crossstream.serdes import arrays
from crossstream.storage.columns import Column

State = Sequence[Column]
"""The columns of a part's state, one row for each group."""


@dataclass(frozen=True, slots=True)
class PartRows:
    """The rows of a batch: where groups begin, the rows with a wanted result, and for tables 1 or −1 for each row.

    ``group``: the number of each row's group; ``starts``, ``ends``: its first and last row.
    """

    begins: np.ndarray
    picked: np.ndarray
    signs: np.ndarray | None
    group: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(
        cls, begins: np.ndarray, picked: np.ndarray | None = None, signs: np.ndarray | None = None
    ) -> PartRows:
        """``picked`` None: the last row of each group."""
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(begins)) - 1
        return cls(begins, ends if picked is None else picked, signs, np.cumsum(begins) - 1, starts, ends)

    def so_far(self, numbers: np.ndarray, before: np.ndarray) -> np.ndarray:
        """The sum up to each row of its group, modulo 2**64; ``before``: of each group before the batch."""
        total = np.cumsum(numbers)
        return np.asarray(total + (before - total[self.starts] + numbers[self.starts])[self.group])


class AggregatePart(Protocol):
    """``kinds``: the columns of its state, as in a `Layout`."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
        """The result after each picked row, and the state after each group."""

    def result(self, state: State) -> pl.Series:
        """The result of states."""

    def merged(self, left: State, right: State) -> State:
        """The states of both; the rows of ``left`` came first."""


def empty_state(part: AggregatePart, groups: int) -> State:
    """The state of groups without rows."""
    return [
        np.zeros(groups, np.int64) if kind == "int64" else arrays.null_rows(groups) for kind in part.kinds
    ]
