"""Sums of floats and Decimals without rounding: numbers with digits of 32 bits, wide enough for every float.

    law    in whatever order floats are added and taken away, the sum has the same bits; read as a float it is the exact
           sum, rounded once

A float is a whole number of 53 bits times a power of two, so it touches three digits. Digits are added up as whole
numbers of 64 bits, one column for each digit that occurs, and carried afterwards. Most data touches few digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.operators.aggregate.builtin.parts import PartRows, State
from crossstream.serdes import arrays

_BITS = 32
_MASK = (1 << _BITS) - 1
_LEAST = -1152
"""The power of two of the first digit; the smallest float is 2**-1074, and its digits begin at 2**-1126."""


Digits = tuple[np.ndarray, list[np.ndarray]]
"""The number of each value's lowest digit, and its digits from there on, each with the sign."""


@dataclass(frozen=True, slots=True)
class ExactSum:
    """The exact sum of floats or Decimals. Raises `OverflowError` for more than 38 decimal digits."""

    dtype: pl.DataType
    kinds: tuple[str, ...] = ("bytes",)

    def run(self, items: pl.Series | None, rows: PartRows, before: State) -> tuple[pl.Series, State]:
        assert items is not None
        place, parts = self._digits(items.fill_null(0))
        if rows.signs is not None:
            parts = [part * rows.signs for part in parts]
        first, digits = total_so_far((place, parts), before[0], rows.group, rows.starts, rows.picked)
        last = digits if rows.picked is rows.ends else digits[np.searchsorted(rows.picked, rows.ends)]
        return self._series(first, digits), [pack(first, last)]

    def _digits(self, items: pl.Series) -> Digits:
        if self.dtype.is_decimal():
            return digits_of_decimals(items)
        return digits_of_floats(items.cast(pl.Float64).to_numpy())

    def _series(self, first: int, digits: np.ndarray) -> pl.Series:
        if isinstance(self.dtype, pl.Decimal):
            return as_decimals(first, digits, self.dtype.scale)
        return pl.Series(rounded(first, digits))

    def result(self, state: State) -> pl.Series:
        return self._series(*unpack(state[0]))

    def merged(self, left: State, right: State) -> State:
        return [added(left[0], right[0])]


def total_so_far(
    values: Digits, before: pa.LargeBinaryArray, group: np.ndarray, starts: np.ndarray, picked: np.ndarray
) -> tuple[int, np.ndarray]:
    """The sum of each group after the ``picked`` rows, as (number of the first digit, matrix of digits).

    ``values``: sorted by group; ``before``: the sum of each group before; ``starts``: where groups begin.
    """
    place, parts = values
    used = place[np.logical_or.reduce([part != 0 for part in parts])]
    first, known = unpack(before)
    ranges = [(int(used.min()), int(used.max()) + len(parts))] if len(used) else []
    ranges += [(first, first + known.shape[1])] if known.shape[1] else []
    if not ranges:
        return 0, np.zeros((len(picked), 1), np.int64)
    low, high = min(one for one, _ in ranges), max(one for _, one in ranges) - 1
    digits = np.zeros((len(picked), high - low + 2), np.int64)
    if known.shape[1]:
        digits[:, first - low : first - low + known.shape[1]] = known[group[picked]]
    for number in range(low, high + 1):
        added = np.sum([np.where(place == number - nth, part, 0) for nth, part in enumerate(parts)], axis=0)
        so_far = np.cumsum(added)
        digits[:, number - low] += so_far[picked] - (so_far[starts] - added[starts])[group[picked]]
    _carry(digits)
    return low, digits


def added(left: pa.LargeBinaryArray, right: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The sums of two columns of sums."""
    (a, one), (b, other) = unpack(left), unpack(right)
    low = min(a, b)
    width = max(a + one.shape[1], b + other.shape[1]) - low
    digits = np.zeros((len(left), width + 1), np.int64)
    digits[:, a - low : a - low + one.shape[1]] += one
    digits[:, b - low : b - low + other.shape[1]] += other
    _carry(digits)
    return pack(low, digits)


def rounded(first: int, digits: np.ndarray) -> np.ndarray:
    """The float nearest to each sum, of two the even one; infinite beyond their range."""
    negative = digits[:, -1] < 0
    size = np.where(negative[:, None], -digits, digits)
    _carry(size)
    size = np.concatenate([np.zeros((len(size), 3), np.int64), size], axis=1)
    there = size != 0
    rows = np.arange(len(size))
    top = np.maximum(size.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1), 3)
    head, middle, low = (size[rows, top - nth].astype(np.uint64) for nth in range(3))
    below = np.logical_or.accumulate(there, axis=1)[rows, top - 3]
    # The 64 upper bits, the last of them set if any bit below is: such a number rounds as the exact one does.
    bits = np.frexp(head.astype(np.float64))[1].astype(np.uint64)
    width = np.uint64(_BITS)
    upper = (head << (width + width - bits)) | (middle << (width - bits)) | (low >> bits)
    upper |= (((low & ((np.uint64(1) << bits) - np.uint64(1))) != 0) | below).astype(np.uint64)
    exponent = bits.astype(np.int64) + _BITS * (first + top - 5) + _LEAST
    with np.errstate(over="ignore"):
        found = np.ldexp(upper.astype(np.float64), exponent)
    return np.asarray(np.where(negative, -found, found))


def pack(first: int, digits: np.ndarray) -> pa.LargeBinaryArray:
    """Sums as bytes: the number of the first digit, then the digits, the last with the sign; four bytes each."""
    while digits.shape[1] > 1 and (digits[:, -1] == -(digits[:, -2] >> (_BITS - 1))).all():
        digits = digits[:, :-1].copy()
        digits[:, -1] = digits[:, -1].astype(np.uint32).view(np.int32)
    words = np.empty((len(digits), digits.shape[1] + 1), np.uint32)
    words[:, 0] = first
    words[:, 1:] = digits & _MASK
    return arrays.from_fixed_rows(words.view(np.uint8).ravel(), 4 * words.shape[1], None)


def unpack(column: pa.LargeBinaryArray) -> tuple[int, np.ndarray]:
    """The number of the first digit, and the digits of all sums; null is 0."""
    positions, content = arrays.offsets(column), arrays.content(column)
    begin, width = positions[:-1], np.diff(positions)
    there = arrays.validity(column)
    if there is not None:
        width = np.where(there, width, 0)
    parts = []
    for size in np.unique(width[width > 0]).tolist():
        rows = np.flatnonzero(width == size)
        words = np.ascontiguousarray(content[begin[rows][:, None] + np.arange(size)]).view(np.uint32)
        for first in np.unique(words[:, 0]).tolist():
            same = words[:, 0] == first
            found = words[same, 1:].astype(np.int64)
            found[:, -1] = found[:, -1].astype(np.uint32).view(np.int32)
            parts.append((rows[same], first, found))
    if not parts:
        return 0, np.zeros((len(column), 0), np.int64)
    low = min(first for _, first, _ in parts)
    high = max(first + found.shape[1] for _, first, found in parts)
    digits = np.zeros((len(column), high - low + 1), np.int64)
    for rows, first, found in parts:
        digits[rows, first - low : first - low + found.shape[1]] = found
    _carry(digits)
    return low, digits


def digits_of_decimals(values: pl.Series) -> Digits:
    """The digits of Decimals without their point; no value is null."""
    column = values.to_arrow()
    words = np.frombuffer(column.buffers()[1], np.uint32)[4 * column.offset :][: 4 * len(column)].reshape(
        -1, 4
    )
    parts = [words[:, nth].astype(np.int64) for nth in range(3)]
    return np.zeros(len(column), np.int64), [*parts, words[:, 3].view(np.int32).astype(np.int64)]


def as_decimals(first: int, digits: np.ndarray, scale: int) -> pl.Series:
    """The sums of Decimals with this scale. Raises `OverflowError` for more than 38 digits."""
    whole = np.zeros((len(digits), max(first + digits.shape[1], 4) + 1), np.int64)
    whole[:, first : first + digits.shape[1]] = digits
    _carry(whole)
    words = whole[:, :4].astype(np.uint32)
    sign = -(whole[:, 3:4] >> (_BITS - 1))
    if (whole[:, 4:-1] != sign & _MASK).any() or (whole[:, -1:] != sign).any():
        raise OverflowError
    column = pa.Array.from_buffers(
        pa.decimal128(38, scale), len(words), [None, pa.py_buffer(words.tobytes())]
    )
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise OverflowError from None
    return pl.Series(column)


def digits_of_floats(values: np.ndarray) -> Digits:
    """The three digits of each float; all are finite."""
    fraction, exponent = np.frexp(values)
    whole = np.ldexp(fraction, 53).astype(np.int64)
    power = exponent.astype(np.int64) - 53 - _LEAST
    place, shift = power >> 5, (power & 31).astype(np.uint64)
    sign, size = np.sign(whole), np.abs(whole).astype(np.uint64)
    mask = np.uint64(_MASK)
    rest = size >> (np.uint64(_BITS) - shift)
    parts = ((size << shift) & mask, rest & mask, rest >> np.uint64(_BITS))
    return place, [part.astype(np.int64) * sign for part in parts]


def _carry(digits: np.ndarray) -> None:
    """Brings all digits but the last into 32 bits without sign, in place."""
    for column in range(digits.shape[1] - 1):
        digits[:, column + 1] += digits[:, column] >> _BITS
        digits[:, column] &= _MASK
