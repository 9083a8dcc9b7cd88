"""What makes the tasks of a Python worker of Spark cheap.

A Python worker calls `importlib.invalidate_caches()` for every task. On Python 3.11 and earlier that makes each
`zipimporter` read the directory of its archive again, in pure Python: 0.25 s a task for `pyspark.zip`. Here it reads
only archives that have changed. And it collects garbage after every task: with all modules loaded that takes 50 ms of
core time, unless what is here by now is put aside for good (decision 0010).
"""

from __future__ import annotations

import gc
import os
import zipimport
from typing import Any

_MARK = "_crossstream_seen"


def settle() -> None:
    """Does both, once in a process; for a worker that Spark has forked from a daemon of its own."""
    if not getattr(zipimport.zipimporter.invalidate_caches, _MARK, False):
        keep_unchanged_archives()
        gc.collect()
        gc.freeze()


def keep_unchanged_archives() -> None:
    """Makes `zipimporter.invalidate_caches` skip archives whose size and time have not changed."""
    original = zipimport.zipimporter.invalidate_caches
    if getattr(original, _MARK, False):
        return
    seen: dict[str, tuple[int, int]] = {}

    def invalidate_caches(self: Any) -> None:
        try:
            status = os.stat(self.archive)
        except OSError:
            return original(self)
        state = (status.st_size, status.st_mtime_ns)
        if seen.get(self.archive) == state:
            return None
        result = original(self)
        seen[self.archive] = state
        return result

    setattr(invalidate_caches, _MARK, True)
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]
