"""What is left on a disk when the machine loses power: what was forced there, and the worst of the rest.

Every `fsync` of this process is noted: of a file its content, of a folder the names in it. From that, the disk as it
may be found afterwards can be made for each of these moments, in two ways that file systems are known for:

    strict         names that were not forced are not there
    names ahead    every name is there, and what was not forced of a file's content is missing
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from crossstream.storage import files

Loss = Literal["strict", "names ahead"]
Names = dict[int, dict[str, int]]
"""For each folder the names in it; files and folders by their inodes."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk, and the names of everything, right after an `fsync`."""

    contents: dict[int, bytes]
    forced: Names
    current: Names

    def restore(self, root: Path, loss: Loss, target: Path) -> None:
        """Makes ``target`` what is left of ``root``."""
        self._fill(target, root.stat().st_ino, self.forced if loss == "strict" else self.current)

    def _fill(self, target: Path, inode: int, names: Names) -> None:
        target.mkdir()
        for name, child in names.get(inode, {}).items():
            if child in self.current or child in self.forced:
                self._fill(target / name, child, names)
            else:
                (target / name).write_bytes(self.contents.get(child, b""))


@dataclass(slots=True)
class Machine:
    """Notes what is forced below ``root``; what is there at the start is on the disk.

    ``whole``: how often all of its file system was forced.
    """

    root: Path
    whole: int = 0
    moments: list[Moment] = field(default_factory=list)
    _contents: dict[int, bytes] = field(default_factory=dict)
    _forced: Names = field(default_factory=dict)
    _kept: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for folder, _, names in os.walk(self.root):
            for path in (Path(folder), *(Path(folder) / name for name in names)):
                self._note(os.open(path, os.O_RDONLY))

    def force(self, file: int) -> None:
        """Instead of `os.fsync`."""
        with self._lock:
            self._note(os.dup(file))
            self._add_moment()

    def force_all(self, folder: Path) -> None:
        """Instead of `crossstream.storage.files.force_all`: all that there is."""
        assert folder.is_relative_to(self.root)
        with self._lock:
            self.whole += 1
            for path in (self.root, *self.root.rglob("*")):
                with suppress(FileNotFoundError):  # another thread removed it meanwhile
                    self._note(os.open(path, os.O_RDONLY))
            self._add_moment()

    def _add_moment(self) -> None:
        forced = {inode: dict(names) for inode, names in self._forced.items()}
        self.moments.append(Moment(dict(self._contents), forced, self._current()))

    def _note(self, file: int) -> None:
        """``file`` is kept open: as long as it is, no other file gets its inode."""
        self._kept.append(file)
        status, path = os.fstat(file), f"/proc/self/fd/{file}"
        if stat.S_ISDIR(status.st_mode):
            self._forced[status.st_ino] = names_in(Path(path))
        else:
            self._contents[status.st_ino] = Path(path).read_bytes()

    def _current(self) -> Names:
        while True:
            found: Names = {}
            try:
                note_names(self.root, found)
            except FileNotFoundError:  # another thread removed a folder meanwhile: look again
                continue
            return found

    def close(self) -> None:
        for file in self._kept:
            os.close(file)


def note_names(folder: Path, found: Names) -> None:
    """Adds ``folder`` and all folders below it."""
    with os.scandir(folder) as scanned:
        entries = list(scanned)
    found[folder.stat().st_ino] = {entry.name: entry.inode() for entry in entries}
    for entry in entries:
        if entry.is_dir():
            note_names(Path(entry.path), found)


def names_in(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


@contextmanager
def machine(root: Path) -> Iterator[Machine]:
    """Notes what is forced to the disk by what runs inside, in this process."""
    made = Machine(root)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", made.force)
            patch.setattr(files, "force_all", made.force_all)
            yield made
    finally:
        made.close()
