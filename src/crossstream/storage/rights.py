"""Who may read the files of the state: its user alone, unless the application says otherwise.

The lock file has the rights that all others are made with, and folders with the right to enter besides. So all
processes that write agree: the driver, its workers, `crossstream state rescale`. Files that are there keep theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

LOCK = "lock"

PRIVATE = 0o600
RIGHTS = MappingProxyType({"private": PRIVATE, "group": 0o660, "shared": 0o644})
"""Rights of files by the setting ``state_mode``."""

_OTHERS = 0o077
_RIGHTS = 0o666


def rights_in(root: Path) -> int | None:
    """The rights of the files of the state in a folder; None if there is no state."""
    try:
        return os.stat(root / LOCK).st_mode & _RIGHTS | PRIVATE
    except OSError:
        return None


def opener(rights: int) -> Callable[[str, int], int]:
    """For `open`: makes files with these rights, whatever the umask is."""

    def opened(path: str, flags: int) -> int:
        file = os.open(path, flags, rights)
        if rights & _OTHERS:
            give(file, rights)
        return file

    return opened


def make_folder(path: Path, rights: int) -> None:
    """Makes a folder for files with these rights, and those above it that are missing."""
    mode = rights | (rights & 0o444) >> 2
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        make_folder(path.parent, rights)
        make_folder(path, rights)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        if rights & _OTHERS:
            give(path, mode)


def give(file: int | Path, mode: int) -> None:
    """Changes the rights of a file, if it is the user's."""
    with suppress(PermissionError):
        os.chmod(file, mode)
