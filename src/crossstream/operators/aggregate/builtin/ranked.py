"""The values with the largest, or the smallest, of something.

    law    after each record, a group lists the first n of all its values, sorted by what decides, then by arrival

A chain of n cells gives the lists after all rows at once. A value that comes to a cell stays there if it is better than
what the cell has, and the worse of the two passes to the next cell. So each cell has a running minimum of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from crossstream.columns.aggregates import BY, VALUE
from crossstream.operators.aggregate.builtin.cells import from_cells, to_cells
from crossstream.operators.aggregate.builtin.lists import as_rows, behind_held, items_of, lists_of, up_to
from crossstream.operators.aggregate.builtin.parts import PartRows, State
from crossstream.storage.sorted_run import begins_of, places_of


@dataclass(frozen=True, slots=True)
class Ranked:
    """``dtype``: the struct of what decides and what is listed; ``limit``: the length of the lists."""

    dtype: pl.Struct
    limit: int
    largest: bool
    kinds: tuple[str, ...] = ("bytes",)

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        held = self._held(before)
        kept = np.flatnonzero(items.struct.field(BY).is_not_null().to_numpy())
        values, group, place = behind_held(held, items, kept, rows)
        best, of_rank = self._best(values.struct.field(BY), group)
        first = np.searchsorted(group, np.arange(len(held)))

        def lists(wanted: np.ndarray) -> pl.Series:
            """The lists after these rows."""
            start = first[rows.group[wanted]]
            count = up_to(group, place, rows, wanted) - start
            there = np.minimum(count, self.limit)
            ranks = best[start + np.maximum(count, 1) - 1][np.arange(best.shape[1]) < there[:, None]]
            ends = np.cumsum(there)
            return lists_of(values.gather(of_rank[ranks]), ends - there, ends)

        made = lists(rows.picked)
        last = made if rows.picked is rows.ends else lists(rows.ends)
        return _listed(made), [to_cells(last)]

    def _best(self, by: pl.Series, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ranks in the cells after each value, and the value of each rank. ``group``: ascending."""
        number = np.arange(len(by))
        order = np.lexsort((number, by.rank("dense", descending=self.largest).to_numpy()))
        # Ranks of later groups are below those of earlier ones, so one running minimum serves all groups.
        lift = group * (len(by) + 1)
        begins = begins_of(group)
        coming = places_of(order, len(by)) - lift
        best = np.zeros(
            (len(by) + 1, min(self.limit, len(by))), np.int64
        )  # a row more, for groups without values
        for cell in range(best.shape[1]):
            held = np.minimum.accumulate(coming)
            best[:-1, cell] = held + lift
            coming = np.maximum(coming, np.where(begins, len(by) - lift, np.roll(held, 1)))
        return best, order

    def _held(self, state: State) -> pl.Series:
        return from_cells(state[0], pl.List(self.dtype)).fill_null([])

    def result(self, state: State) -> pl.Series:
        return _listed(self._held(state))

    def merged(self, left: State, right: State) -> State:
        held = self._held(right)
        return self.run(*as_rows(items_of(held), held.list.len().to_numpy()), left)[1]


def _listed(lists: pl.Series) -> pl.Series:
    """What is listed, without what decides."""
    return lists.list.eval(pl.element().struct.field(VALUE))
