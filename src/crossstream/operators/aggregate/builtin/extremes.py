"""One of the values of a group: the largest, the smallest, the first or the last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from crossstream.operators.aggregate.builtin.cells import from_cells, to_cells
from crossstream.operators.aggregate.builtin.lists import gather_or_null
from crossstream.operators.aggregate.builtin.parts import PartRows, State


@dataclass(frozen=True, slots=True)
class Extreme:
    """The largest or the smallest value. Rows that are taken away are passed over: see `lost`."""

    dtype: pl.DataType
    largest: bool
    kinds: tuple[str, ...] = ("bytes",)

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        values, _, best, of_rank, place = self._ranked(items, rows, before)
        return _at_picked(values, np.append(-1, of_rank)[best], place, rows)

    def lost(self, items: pl.Series, rows: PartRows, before: State) -> np.ndarray:
        """The groups that may have lost their extreme: a value was taken away that was no less extreme."""
        assert rows.signs is not None
        _, rank, best, _, place = self._ranked(items, rows, before)
        taken = (rows.signs < 0) & (rank[place] > 0) & (rank[place] >= best[place])
        return np.unique(rows.group[taken])

    def _ranked(
        self, items: pl.Series, rows: PartRows, before: State
    ) -> tuple[pl.Series, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The values with those of before, their ranks (0: null), the best rank so far, and a row for each rank."""
        values, place, begins = _after_state(from_cells(before[0], self.dtype), items, rows)
        ranks = values.rank("dense", descending=not self.largest).fill_null(0).cast(pl.Int64).to_numpy()
        counted = ranks
        if rows.signs is not None:
            counted = ranks.copy()
            counted[place[rows.signs < 0]] = 0
        count = int(ranks.max(initial=0))
        lift = (np.cumsum(begins) - 1) * (count + 1)
        best = np.maximum.accumulate(counted + lift) - lift
        of_rank = np.zeros(count + 1, np.int64)
        of_rank[ranks] = np.arange(len(ranks))
        return values, ranks, best, of_rank[1:], place

    def result(self, state: State) -> pl.Series:
        return from_cells(state[0], self.dtype)

    def merged(self, left: State, right: State) -> State:
        return _merged_values(self, left, right)


@dataclass(frozen=True, slots=True)
class Ending:
    """The first or the last value to arrive."""

    dtype: pl.DataType
    last: bool
    kinds: tuple[str, ...] = ("bytes",)

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        values, place, begins = _after_state(from_cells(before[0], self.dtype), items, rows)
        number = np.arange(len(values))
        there = values.is_not_null().to_numpy()
        starts = np.flatnonzero(begins)
        start_of = starts[np.cumsum(begins) - 1]
        if self.last:
            found = np.maximum.accumulate(np.where(there, number, -1))
            found = np.where(found >= start_of, found, -1)
        else:
            first = np.minimum.reduceat(np.where(there, number, len(number)), starts)[np.cumsum(begins) - 1]
            found = np.where(first <= number, first, -1)
        return _at_picked(values, found, place, rows)

    def result(self, state: State) -> pl.Series:
        return from_cells(state[0], self.dtype)

    def merged(self, left: State, right: State) -> State:
        return _merged_values(self, left, right)


def _after_state(
    state: pl.Series, items: pl.Series, rows: PartRows
) -> tuple[pl.Series, np.ndarray, np.ndarray]:
    """The rows with a row for what each group had before; the places of the rows among them, where groups begin."""
    groups = len(rows.starts)
    place = np.arange(len(items)) + rows.group + 1
    heads = rows.starts + np.arange(groups)
    source = np.empty(len(items) + groups, np.int64)
    source[place] = np.arange(len(items)) + groups
    source[heads] = np.arange(groups)
    begins = np.zeros(len(source), bool)
    begins[heads] = True
    return pl.concat([state, items]).gather(source), place, begins


def _at_picked(
    values: pl.Series, found: np.ndarray, place: np.ndarray, rows: PartRows
) -> tuple[pl.Series, State]:
    """The results after the picked rows, and the states; ``found``: for each value the one that counts, −1: none."""
    made = gather_or_null(values, found[place[rows.picked]])
    last = made if rows.picked is rows.ends else gather_or_null(values, found[place[rows.ends]])
    return made, [to_cells(last)]


def _merged_values(part: Extreme | Ending, left: State, right: State) -> State:
    """A state of one value is a row like any other."""
    return part.run(from_cells(right[0], part.dtype), PartRows.of(np.ones(len(right[0]), bool)), left)[1]
