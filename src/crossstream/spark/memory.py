"""Giving memory back to the system.

glibc keeps what was freed, for the next batch; after a big batch a worker would go on holding what only that
batch needed, and with it the next worker's share.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache

GROWTH = 192 << 20
"""Resident bytes by which a process may grow before it looks for something to give back."""


def give_back(low: int) -> int:
    """Returns freed memory to the system if this process has grown by `GROWTH` since it held ``low`` bytes.

    Returns the resident bytes to compare with next time. Does nothing where the system has no such call.
    """
    now = resident()
    if now - low > GROWTH and (trim := _trim()) is not None:
        trim(0)
        return resident()
    return min(low, now) if low else now


def resident() -> int:
    """Resident bytes of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def _trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``; None where there is none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
