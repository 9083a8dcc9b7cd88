"""Chains of rows, each of which leads to a later one, followed for all keys together."""

from __future__ import annotations

import numpy as np


def reached(starts: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Row by row, whether a chain comes there. ``starts``: where chains begin, as a mask or as row numbers.

    ``following``: from each row to the next of its chain, a later one; the number of rows at the end of a chain. It
    takes as many steps as the length of the longest chain has bits.

    >>> reached(np.array([0]), np.array([2, 2, 3, 4])).tolist()
    [True, False, True, True]
    """
    count = len(following)
    found = np.zeros(count, bool)
    found[starts] = True
    jump = np.append(following, count)
    while True:
        targets = jump[np.flatnonzero(found)]
        targets = targets[targets < count]
        if not len(targets):
            return found
        found[targets] = True
        jump = jump[jump]
