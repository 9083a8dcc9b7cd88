"""Copies of immutable files of a remote file system, on the disk of each machine that uses them.

    <cache>/state/<place>/stores/…     a file has the name that it has below the state folder
    <cache>/state/<place>/swept        its time: when copies of deleted files were last removed

The processes of a machine share it. Names are never used twice, so a copy is never out of date. A copy is never
needed either: one that is missing or damaged is fetched again, and where nothing can be written there are none.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
import uuid
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crossstream.storage.files import PRIVATE, make_folder, opener

SWEEP_SECONDS = 600.0
"""How often a machine removes copies of files that were deleted elsewhere."""

_YOUNG = 60.0
"""Seconds in which a copy may be there before its file is."""

_log = logging.getLogger("crossstream.state")


def cache_directory() -> Path:
    """Where this machine keeps what can be fetched again: ``$CROSSSTREAM_CACHE``, else in the cache of the user."""
    chosen = os.environ.get("CROSSSTREAM_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    try:
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()).absolute() / f"crossstream-{os.getuid()}"
    return own.absolute() / "crossstream"


@dataclass(slots=True)
class Cache:
    """The copies of one place. ``folder``: made when the first copy is."""

    folder: Path
    _looked: float | None = None
    _warned: bool = False

    def get(self, name: str) -> pa.Buffer | None:
        """A copy, memory-mapped; None if there is none."""
        try:
            with pa.memory_map(str(self.folder / name)) as mapped:
                data = mapped.read_buffer()
        except (OSError, pa.ArrowException):
            return None
        return data if data.size else None

    def put(self, name: str, data: bytes | memoryview | pa.Buffer) -> bool:
        """Keeps a copy, if the disk takes it: then True."""
        target = self.folder / name
        beside = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            make_folder(target.parent, PRIVATE)
            try:
                with open(beside, "wb", opener=opener(PRIVATE)) as file:
                    file.write(memoryview(data))
                os.replace(beside, target)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning("no copies of state are kept on this machine, which makes it slow: %s", error)
            return False
        return True

    def drop(self, name: str) -> None:
        """Removes a copy, if there is one."""
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError:
            _log.debug("a copy of %s is left", name, exc_info=True)

    def keep(self, names: Container[str], listed: float) -> None:
        """Removes all copies but those of ``names``, which were all there were at the time ``listed``."""
        for path in (self.folder / "stores").rglob("*"):
            try:
                if not path.is_dir() and path.stat().st_mtime < listed - _YOUNG:
                    name = path.relative_to(self.folder).as_posix()
                    if name not in names:
                        path.unlink(missing_ok=True)
            except OSError:
                continue  # another process removed it

    def is_due(self) -> bool:
        """Whether this process is to remove copies of files that were deleted elsewhere: one of a machine does."""
        now = time.monotonic()
        if self._looked is not None and now - self._looked < SWEEP_SECONDS:
            return False
        self._looked = now
        mark = self.folder / "swept"
        try:
            new = not mark.exists()
            if not new and time.time() - mark.stat().st_mtime < SWEEP_SECONDS:
                return False
            mark.touch(PRIVATE)
        except OSError:
            return False
        return not new
