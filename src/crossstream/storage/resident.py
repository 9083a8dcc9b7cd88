"""Pages of mapped files, given back before they make a worker large (decision 0014).

Stores, and blocks on their way, are mapped files. What a worker has read of them counts as its resident memory until
it is given back, also for programs that set limits to processes. That costs next to nothing: the pages stay in the
cache of the system.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

RESIDENT = 1 << 30
"""Resident bytes above which pages are given back where others count them; elsewhere at least so many stay."""
BESIDE_OTHERS = 3 << 28
"""The same for a process of the user, which has other work in it."""

_YARN = "CONTAINER_ID"
"""A variable that YARN sets in its containers."""
_CONTAINER = Path("/sys/fs/cgroup/memory.max")

_PAGE = mmap.PAGESIZE
_DONTNEED = 4  # MADV_DONTNEED


def give_back(folders: Sequence[str], most: int | None = None) -> None:
    """If this process holds more than ``most`` bytes (`share`), gives back the pages of mapped files.

    Of files with one of ``folders`` in their path. Does nothing where the system has no /proc.
    """
    if resident() > (share() if most is None else most) and (advise := _madvise()) is not None:
        for start, size in mapped(folders):
            advise(start, size, _DONTNEED)


@cache
def share() -> int:
    """Bytes that a worker may hold: half of what the machine, or its container, has for each core.

    These pages are in the cache of the system anyway; mapping them once more costs a batch over 100 million rows as
    much as all that it computes (decision 0054). YARN counts them, and ends what has too many: there `RESIDENT`.
    """
    if _YARN in os.environ:
        return RESIDENT
    memory = os.sysconf("SC_PHYS_PAGES") * _PAGE
    with suppress(OSError, ValueError):  # none, or "max"
        memory = min(memory, int(_CONTAINER.read_text()))
    return max(RESIDENT, memory // 2 // (os.cpu_count() or 1))


def resident() -> int:
    """Resident bytes of this process; 0 where the system does not report it."""
    file = _statm(os.getpid())
    return 0 if file is None else int(os.pread(file, 128, 0).split()[1]) * _PAGE


def mapped(folders: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Start and size of each mapping that can only be read, of files with one of ``folders`` in their path."""
    with open("/proc/self/maps") as file:
        for line in file:
            span, rights, _, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            if path and rights.startswith("r-") and any(folder in path[0] for folder in folders):
                start, end = (int(address, 16) for address in span.split("-"))
                yield start, end - start


@cache
def _statm(process: int) -> int | None:
    """Kept open, for it is read often; of this process, whatever it was forked from."""
    try:
        return os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


@cache
def _madvise() -> Callable[[int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
