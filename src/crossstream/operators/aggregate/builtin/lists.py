"""Several values of a group, in order of their arrival, and lists as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.operators.aggregate.builtin.cells import from_cells, to_cells
from crossstream.operators.aggregate.builtin.parts import PartRows, State
from crossstream.storage.sorted_run import expand


@dataclass(frozen=True, slots=True)
class Collected:
    """All values, or all different ones, in order of their (first) arrival."""

    dtype: pl.DataType
    distinct: bool
    kinds: tuple[str, ...] = ("bytes",)

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        held = self.result(before)
        kept = np.flatnonzero(items.is_not_null().to_numpy())
        values, group, place = behind_held(held, items, kept, rows)
        if self.distinct:
            cells = values if not values.dtype.is_nested() else pl.Series(to_cells(values))
            new = pl.DataFrame({"g": group, "v": cells}).select(pl.struct("g", "v").is_first_distinct())
            chosen = np.flatnonzero(new.to_series().to_numpy())
            group, place, values = group[chosen], place[chosen], values.gather(chosen)
        first = np.searchsorted(group, np.arange(len(held)))
        made = lists_of(values, first[rows.group[rows.picked]], up_to(group, place, rows, rows.picked))
        last = (
            made
            if rows.picked is rows.ends
            else lists_of(values, first, up_to(group, place, rows, rows.ends))
        )
        return made, [to_cells(last)]

    def result(self, state: State) -> pl.Series:
        return from_cells(state[0], pl.List(self.dtype)).fill_null([])

    def merged(self, left: State, right: State) -> State:
        held = self.result(right)
        return self.run(*as_rows(items_of(held), held.list.len().to_numpy()), left)[1]


def gather_or_null(values: pl.Series, found: np.ndarray) -> pl.Series:
    """The values at these places; −1: null."""
    if not (found < 0).any():
        return values.gather(found)
    return values.gather(pl.Series(pa.array(found, mask=found < 0), dtype=pl.Int64))


def as_rows(items: pl.Series, lengths: np.ndarray) -> tuple[pl.Series, PartRows]:
    """The items of lists as rows, one group for each list; an empty one has a null."""
    lengths = lengths.astype(np.int64)
    count = np.maximum(lengths, 1)
    ends = np.cumsum(count)
    begins = np.zeros(int(count.sum()), bool)
    begins[ends - count] = True
    source = np.full(len(begins), -1)
    real = np.repeat(lengths > 0, count)
    source[real] = np.arange(len(items))
    return gather_or_null(items, source), PartRows.of(begins)


def items_of(lists: pl.Series) -> pl.Series:
    """The items of lists, one after the other; an empty list has none."""
    return lists.filter(lists.list.len() > 0).explode(empty_as_null=False)


def behind_held(
    held: pl.Series, items: pl.Series, kept: np.ndarray, rows: PartRows
) -> tuple[pl.Series, np.ndarray, np.ndarray]:
    """The values of each group's list, then those of its ``kept`` rows; their groups, ascending, and places.

    What was held has the place of the group's first row.
    """
    lengths = held.list.len().to_numpy().astype(np.int64)
    group = np.concatenate([np.repeat(np.arange(len(lengths)), lengths), rows.group[kept]])
    place = np.concatenate([rows.starts[group[: lengths.sum()]], kept])
    order = np.argsort(group, kind="stable")
    return pl.concat([items_of(held), items.gather(kept)]).gather(order), group[order], place[order]


def up_to(group: np.ndarray, place: np.ndarray, rows: PartRows, wanted: np.ndarray) -> np.ndarray:
    """How many values there are up to the end of these rows' places. ``group``, ``place``: of the values, sorted."""
    width = len(rows.begins) + 1
    return np.asarray(np.searchsorted(group * width + place, rows.group[wanted] * width + wanted, "right"))


def lists_of(values: pl.Series, first: np.ndarray, last: np.ndarray) -> pl.Series:
    """The values from ``first`` to before ``last``, as lists."""
    picked = expand(first, last)[1]
    ends = np.zeros(len(first) + 1, np.int64)
    np.cumsum(last - first, out=ends[1:])
    items = values.gather(picked)
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(ends), items.to_arrow())).cast(
        pl.List(values.dtype)
    )
