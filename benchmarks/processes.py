"""The processes of a side of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil  # type: ignore[import-untyped]


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it; none if it has ended."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def core_seconds(processes: Iterable[psutil.Process]) -> float:
    """User and system time so far, that of their ended children included; of one that has ended meanwhile none."""
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
