"""The parts that built-in aggregates are made of: each has columns of state, and takes the rows of a batch at once.

Rows are sorted by group, then by arrival. A part gives its result after each *picked* row, and its state after the last
row of each group. Values that are null change nothing. Two states of one group, of rows before and of rows after, are
merged to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream import serdes
from crossstream.serdes import arrays
from crossstream.serdes import serde as calls
from crossstream.storage.columns import Column
from crossstream.storage.sorted_run import expand

State = Sequence[Column]
"""The columns of a part's state, one row for each group."""

_HALF = 32
_LOW = (1 << _HALF) - 1


@dataclass(frozen=True, slots=True)
class Rows:
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
    ) -> Rows:
        """``picked`` None: the last row of each group."""
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(begins)) - 1
        return cls(begins, ends if picked is None else picked, signs, np.cumsum(begins) - 1, starts, ends)

    def so_far(self, numbers: np.ndarray, before: np.ndarray) -> np.ndarray:
        """The sum up to each row of its group, modulo 2**64; ``before``: of each group before the batch."""
        total = np.cumsum(numbers)
        return np.asarray(total + (before - total[self.starts] + numbers[self.starts])[self.group])


class Part(Protocol):
    """``kinds``: the columns of its state, as in a `Layout`."""

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def run(self, items: pl.Series | None, rows: Rows, before: State) -> tuple[pl.Series, State]:
        """The result after each picked row, and the state after each group."""

    def result(self, state: State) -> pl.Series:
        """The result of states."""

    def merged(self, left: State, right: State) -> State:
        """The states of both; the rows of ``left`` came first."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of rows, or of values that are not null."""

    kinds: tuple[str, ...] = ("int64",)

    def run(self, items: pl.Series | None, rows: Rows, before: State) -> tuple[pl.Series, State]:
        counts = np.ones(len(rows.begins), np.int64) if rows.signs is None else rows.signs
        if items is not None and items.null_count():
            counts = np.where(items.is_not_null().to_numpy(), counts, 0)
        total = rows.so_far(counts, before[0])
        return pl.Series(total[rows.picked]), [total[rows.ends]]

    def result(self, state: State) -> pl.Series:
        return pl.Series(state[0])

    def merged(self, left: State, right: State) -> State:
        return [left[0] + right[0]]


@dataclass(frozen=True, slots=True)
class WholeSum:
    """The sum of whole numbers, of 64 bits with a sign or without one; `beyond` finds where it leaves them.

    The state has the bits of the sum, whether they have a sign or not.
    """

    signed: bool = True
    kinds: tuple[str, ...] = ("int64",)

    def run(self, items: pl.Series | None, rows: Rows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        numbers = self.numbers(items).view(np.int64)
        total = rows.so_far(numbers * (1 if rows.signs is None else rows.signs), before[0])
        return self.result([total[rows.picked]]), [total[rows.ends]]

    def beyond(self, items: pl.Series, rows: Rows, before: State) -> np.ndarray:
        """The rows after which the sum of a group is first beyond 64 bits."""
        numbers, held = self.numbers(items), self.of_bits(before[0])
        limits = np.iinfo(numbers.dtype)
        if _reach(held) + _reach(numbers) * len(numbers) <= limits.max:
            return np.empty(0, np.int64)
        signs = 1 if rows.signs is None else rows.signs
        low = rows.so_far(_low(numbers) * signs, _low(held))
        high = rows.so_far(_high(numbers) * signs, _high(held)) + (low >> _HALF)
        wrong = np.flatnonzero((high > limits.max >> _HALF) | (high < limits.min >> _HALF))
        return wrong[np.unique(rows.group[wrong], return_index=True)[1]]

    def result(self, state: State) -> pl.Series:
        return pl.Series(self.of_bits(state[0]))

    def merged(self, left: State, right: State) -> State:
        total = left[0] + right[0]
        if self.signed:
            wrapped = ((left[0] ^ total) & (right[0] ^ total)) < 0
        else:
            wrapped = self.of_bits(total) < self.of_bits(left[0])
        if wrapped.any():
            raise OverflowError("a sum is beyond 64 bits")
        return [total]

    def numbers(self, items: pl.Series) -> np.ndarray:
        """What is added; null is 0."""
        return items.cast(pl.Int64() if self.signed else pl.UInt64()).fill_null(0).to_numpy()

    def of_bits(self, state: Column) -> np.ndarray:
        """The sums of a state column."""
        bits = np.asarray(state)
        return bits if self.signed else bits.view(np.uint64)


def _reach(numbers: np.ndarray) -> int:
    """The largest distance from 0."""
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))


def _low(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(numbers & numbers.dtype.type(_LOW)).astype(np.int64)


def _high(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(numbers >> numbers.dtype.type(_HALF)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Extreme:
    """The largest or the smallest value. Rows that are taken away are passed over: see `lost`."""

    dtype: pl.DataType
    largest: bool
    kinds: tuple[str, ...] = ("bytes",)

    def run(self, items: pl.Series | None, rows: Rows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        values, _, best, of_rank, place = self._ranked(items, rows, before)
        return _at_picked(values, np.append(-1, of_rank)[best], place, rows)

    def lost(self, items: pl.Series, rows: Rows, before: State) -> np.ndarray:
        """The groups that may have lost their extreme: a value was taken away that was no less extreme."""
        assert rows.signs is not None
        _, rank, best, _, place = self._ranked(items, rows, before)
        taken = (rows.signs < 0) & (rank[place] > 0) & (rank[place] >= best[place])
        return np.unique(rows.group[taken])

    def _ranked(
        self, items: pl.Series, rows: Rows, before: State
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

    def run(self, items: pl.Series | None, rows: Rows, before: State) -> tuple[pl.Series, State]:
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


@dataclass(frozen=True, slots=True)
class Collected:
    """All values, or all different ones, in order of their (first) arrival."""

    dtype: pl.DataType
    distinct: bool
    kinds: tuple[str, ...] = ("bytes",)

    def run(self, items: pl.Series | None, rows: Rows, before: State) -> tuple[pl.Series, State]:
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


def empty_state(part: Part, groups: int) -> State:
    """The state of groups without rows."""
    return [
        np.zeros(groups, np.int64) if kind == "int64" else arrays.null_rows(groups) for kind in part.kinds
    ]


def _after_state(state: pl.Series, items: pl.Series, rows: Rows) -> tuple[pl.Series, np.ndarray, np.ndarray]:
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
    values: pl.Series, found: np.ndarray, place: np.ndarray, rows: Rows
) -> tuple[pl.Series, State]:
    """The results after the picked rows, and the states; ``found``: for each value the one that counts, −1: none."""
    made = _gather(values, found[place[rows.picked]])
    last = made if rows.picked is rows.ends else _gather(values, found[place[rows.ends]])
    return made, [to_cells(last)]


def _gather(values: pl.Series, found: np.ndarray) -> pl.Series:
    if not (found < 0).any():
        return values.gather(found)
    return values.gather(pl.Series(pa.array(found, mask=found < 0), dtype=pl.Int64))


def _merged_values(part: Extreme | Ending, left: State, right: State) -> State:
    """A state of one value is a row like any other."""
    return part.run(from_cells(right[0], part.dtype), Rows.of(np.ones(len(right[0]), bool)), left)[1]


def as_rows(items: pl.Series, lengths: np.ndarray) -> tuple[pl.Series, Rows]:
    """The items of lists as rows, one group for each list; an empty one has a null."""
    lengths = lengths.astype(np.int64)
    count = np.maximum(lengths, 1)
    ends = np.cumsum(count)
    begins = np.zeros(int(count.sum()), bool)
    begins[ends - count] = True
    source = np.full(len(begins), -1)
    real = np.repeat(lengths > 0, count)
    source[real] = np.arange(len(items))
    return _gather(items, source), Rows.of(begins)


def items_of(lists: pl.Series) -> pl.Series:
    """The items of lists, one after the other; an empty list has none."""
    return lists.filter(lists.list.len() > 0).explode(empty_as_null=False)


def behind_held(
    held: pl.Series, items: pl.Series, kept: np.ndarray, rows: Rows
) -> tuple[pl.Series, np.ndarray, np.ndarray]:
    """The values of each group's list, then those of its ``kept`` rows; their groups, ascending, and places.

    What was held has the place of the group's first row.
    """
    lengths = held.list.len().to_numpy().astype(np.int64)
    group = np.concatenate([np.repeat(np.arange(len(lengths)), lengths), rows.group[kept]])
    place = np.concatenate([rows.starts[group[: lengths.sum()]], kept])
    order = np.argsort(group, kind="stable")
    return pl.concat([items_of(held), items.gather(kept)]).gather(order), group[order], place[order]


def up_to(group: np.ndarray, place: np.ndarray, rows: Rows, wanted: np.ndarray) -> np.ndarray:
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


_WIDTH = 8


def to_cells(values: pl.Series) -> pa.LargeBinaryArray:
    """Values as the bytes that a store keeps; no value is null bytes.

    Numbers and times have eight bytes, text is UTF-8, other values are JSON.
    """
    dtype = values.dtype
    if dtype == pl.String:
        return arrays.text_bytes(values)
    if dtype == pl.Binary:
        return values.to_arrow().cast(arrays.LARGE_BINARY)
    if not _is_fixed(dtype):
        inside = calls.encode_series(_nested(dtype), values.alias("v").to_frame().to_struct())
        return arrays.nulled(inside, values.is_null().to_numpy()) if values.null_count() else inside
    there = None if not values.null_count() else values.is_not_null().to_numpy()
    return arrays.from_fixed_rows(_numbers(values.drop_nulls()).view(np.uint8), _WIDTH, there)


def from_cells(column: pa.LargeBinaryArray, dtype: pl.DataType) -> pl.Series:
    """The values of cells."""
    if dtype == pl.String:
        return pl.Series(column.cast(pa.large_string()))
    if dtype == pl.Binary:
        return pl.Series(column)
    if not _is_fixed(dtype):
        return calls.decode_series(_nested(dtype), column).struct.field("v")
    there = arrays.validity(column)
    rows = arrays.fixed_rows(column, _WIDTH)
    assert rows is not None
    kind = np.float64 if dtype.is_float() else np.uint64 if dtype == pl.UInt64 else np.int64
    return arrays.numeric_series(rows.view(kind), there).cast(dtype)


def _is_fixed(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype.is_float() or dtype == pl.Boolean or dtype.is_temporal()


def _numbers(values: pl.Series) -> np.ndarray:
    """The numbers of a series without nulls, in eight bytes each."""
    if values.dtype.is_float():
        return values.cast(pl.Float64).to_numpy().copy()
    if values.dtype == pl.UInt64:
        return values.to_numpy().copy()
    return values.to_physical().cast(pl.Int64).to_numpy().copy()


def _nested(dtype: pl.DataType) -> serdes.Serde:
    return serdes.json(pl.Struct({"v": dtype}))
