"""Random text as Arrow columns, a whole column at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Lengths = npt.NDArray[np.int64]

SHORTEST = 3
"""Letters of the shortest word."""
SPECIAL = 1 / 13
"""The share of a word's characters that are the special one."""


def letters(rng: np.random.Generator, lengths: Lengths) -> pl.Series:
    """Text of a to z with these lengths."""
    return _column(_letters(rng, int(lengths.sum())), lengths)


def words(rng: np.random.Generator, size: int, longest: int, special: str = " ") -> pl.Series:
    """Text of 3 to ``longest`` - 1 letters, one of 13 of them ``special``; no spaces at its ends."""
    lengths = rng.integers(SHORTEST, longest, size)
    characters = _letters(rng, int(lengths.sum()))
    characters[rng.random(len(characters)) < SPECIAL] = ord(special)
    return _column(characters, lengths).str.strip_chars()


def extra(rng: np.random.Generator, so_far: Lengths, average: int) -> pl.Series:
    """Fills rows of ``so_far`` bytes up to ``average``, give or take a fifth of what lacks."""
    lacking = np.maximum(average - so_far, 0)
    fifth = np.rint(lacking * 0.2).astype(np.int64)
    return letters(rng, lacking - fifth + rng.integers(0, np.maximum(2 * fifth, 1)))


def chosen(rng: np.random.Generator, size: int, of: tuple[str, ...]) -> pl.Series:
    """One of these texts for each row."""
    return pl.Series(of).gather(rng.integers(0, len(of), size))


def _letters(rng: np.random.Generator, size: int) -> npt.NDArray[np.uint8]:
    return rng.integers(ord("a"), ord("z") + 1, size, np.uint8)


def _column(characters: npt.NDArray[np.uint8], lengths: Lengths) -> pl.Series:
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    buffers = pa.py_buffer(ends), pa.py_buffer(characters)
    return pl.Series(pa.LargeStringArray.from_buffers(len(lengths), *buffers))
