"""Numbers of rows and of values, and sums of whole numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from crossstream.operators.aggregate.builtin.parts import PartRows, State
from crossstream.storage.columns import Column

_HALF = 32


_LOW = (1 << _HALF) - 1


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of rows, or of values that are not null."""

    kinds: tuple[str, ...] = ("int64",)

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
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

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        numbers = self.numbers(items).view(np.int64)
        total = rows.so_far(numbers * (1 if rows.signs is None else rows.signs), before[0])
        return self.result([total[rows.picked]]), [total[rows.ends]]

    def beyond(self, items: pl.Series, rows: PartRows, before: State) -> np.ndarray:
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
