"""Files that survive a crash of the machine, and not only of the process.

What a process has written lies in the memory of the system for some seconds. `Disk` forces it out. A file system
writes its journal once for all who wait for it, so many files at a time take hardly longer than one. Decision 0015.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

THREADS = 16


@dataclass(slots=True)
class Disk:
    """Forces files to the disk in the background. Belongs to one thread."""

    _pool: ThreadPoolExecutor | None = None
    _begun: list[Future[None]] = field(default_factory=list)
    _known: set[Path] = field(default_factory=set)

    def begin(self, files: Iterable[Path]) -> None:
        """Begins to force files that are complete, and their names."""
        paths = set(files)
        folders = {path.parent for path in paths}
        for path in paths | folders | self._above(folders):
            self._begun.append(self._threads().submit(force, path))

    def wait(self) -> None:
        """Returns when all that was begun has reached the disk; raises `OSError` if some of it cannot."""
        begun, self._begun = self._begun, []
        for one in begun:
            one.result()

    def close(self) -> None:
        """Ends the threads; what was begun is finished."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _above(self, folders: set[Path]) -> set[Path]:
        """The folders above those not met before, as far as we may look: for all we know their names are new."""
        met, self._known = self._known, self._known | folders
        above = {parent for folder in folders - met for parent in folder.parents}
        return {folder for folder in above if os.access(folder, os.R_OK)}

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "crossstream disk")
        return self._pool


def force(path: Path) -> None:
    """Returns when the content of a file, or the names in a folder, have reached the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
