"""Which hashes a run may have, by a few bits for each row: most look-ups of keys that it has not end here.

Hashes are spread evenly, so their upper bits alone say which bit of the sieve is theirs: a Bloom filter of one
function, and the bits of sorted rows are in order. Made when it is first asked, and kept beside the open run: nothing
of it is stored (decision 0054).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_BITS = 8
"""Bits for each row, at least half and less than twice as many: 6 to 22 of 100 hashes that are not there pass."""


@dataclass(frozen=True, slots=True)
class Sieve:
    """``low``: the least hash. Those that differ in their last ``shift`` bits alone share a bit."""

    low: np.uint64
    shift: np.uint64
    bits: np.ndarray

    @classmethod
    def of(cls, h: np.ndarray) -> Sieve:
        """Of sorted hashes, of which there are some."""
        span = int(h[-1]) - int(h[0])
        shift = np.uint64(max(0, span.bit_length() - (_BITS * len(h)).bit_length()))
        there = np.zeros((span >> int(shift)) + 1, bool)
        there[((h - h[0]) >> shift).view(np.int64)] = True
        return cls(h[0], shift, np.packbits(there, bitorder="little"))

    def passing(self, hashes: np.ndarray) -> np.ndarray:
        """The places of the hashes that may be there; all of them are between the least and the largest one."""
        place = ((hashes - self.low) >> self.shift).view(np.int64)
        return np.flatnonzero(self.bits[place >> 3] >> (place & 7).astype(np.uint8) & 1)
