"""Where the state of an application lies: a local folder, or a place on a remote file system (`remote`).

All access to state is through a `StateRoot`. Names are relative to it and have slashes:
``stores/offers/0/000000000007-1f2e3d4c.manifest``.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias

from crossstream.error_codes import refuse
from crossstream.errors import StateError
from crossstream.storage.bucket import LOCAL, is_uri, local_path, scheme_of, unknown, unopened
from crossstream.storage.door import inside, read_plain
from crossstream.storage.files import (
    LOCK,
    MANY,
    PRIVATE,
    Background,
    Folder,
    Storage,
    give,
    in_threads,
    make_folder,
    opener,
    partition_folder,
    rights_in,
)
from crossstream.storage.lease import Lease
from crossstream.storage.remote import RemoteRoot

_log = logging.getLogger("crossstream.storage")


@dataclass(frozen=True, slots=True)
class LocalRoot:
    """State in a local or shared folder."""

    path: Path
    _discarding: Background = field(
        default_factory=lambda: Background("crossstream discards", 1), compare=False, repr=False
    )

    def __str__(self) -> str:
        return str(self.path)

    @property
    def here(self) -> Path:
        """A folder on this machine: the state itself, or the copies of its files."""
        return self.path

    @property
    def address(self) -> str:
        """What `root_of` makes the same root of, in any process; not to be shown."""
        return str(self.path)

    @property
    def is_remote(self) -> bool:
        return False

    def lock(self, owner: str, rights: int | None = None) -> FileLock:
        """Makes ``owner`` the only writer, for which the folder is made.

        ``rights``: of the files that it writes; None: those that the state has. Raises `StateError` CS-720 if there is
        another writer, CS-723 if the folder cannot be made or written.
        """
        try:
            if not self.path.parent.exists():  # made as the umask says: others may live there, too
                self.path.parent.mkdir(parents=True, exist_ok=True)
            make_folder(self.path, rights or PRIVATE)
            with ExitStack() as opened:
                file = open(self.path / LOCK, "a+b", buffering=0, opener=opener(PRIVATE))  # noqa: SIM115
                handle = opened.enter_context(file)
                self._take(handle)
                if rights not in (None, rights_in(self.path)):
                    give(handle.fileno(), rights or PRIVATE)
                handle.truncate(0)
                handle.write(f"{owner}\n".encode())
                opened.pop_all()
        except OSError as error:
            why = "a file is there, and no folder" if self.path.is_file() else error.strerror
            raise unopened(str(self.path), why, "give a state_dir that can be made and written") from error
        return FileLock(handle)

    def _take(self, handle: IO[bytes]) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            what = "another application runs on this state folder"
            raise refuse(
                "CS-720",
                what,
                folder=str(self.path),
                owner=handle.read().decode(errors="replace").strip() or "another process",
            ) from None

    def storage(self, folder: str) -> Folder:
        """Immutable files in a folder. Raises `StateError` CS-701 for one that is not in the state."""
        return Folder(self._inside(folder, folder=True), self.path)

    def settled(self) -> None:
        """Returns when all that was written to a `storage` by this process is there; raises what went wrong."""

    def read(self, name: str) -> bytes:
        """The present content of a small file; `FileNotFoundError` if it does not exist."""
        try:
            return read_plain(self._inside(name))
        except NotADirectoryError as error:
            raise FileNotFoundError(name) from error

    def write(self, name: str, data: bytes, *, forced: bool = False) -> None:
        """Puts a small file in place, or another one in its place; ``forced``: it survives a crash of the machine."""
        self._inside(name)
        Folder(self.path, self.path).write(name, data, forced=forced)

    def create(self, name: str, data: bytes, *, forced: bool = False) -> str:
        """As `write`; of an object store the tag of this version, and `FileExistsError` if there is another file."""
        self.write(name, data, forced=forced)
        return ""

    def replace(self, name: str, data: bytes, tag: str, *, forced: bool = False) -> str:
        """As `create`; of an object store `FileExistsError` if the file there has not this tag."""
        return self.create(name, data, forced=forced)

    def tag(self, name: str) -> str | None:
        """The tag of a file, of an object store; None: there is no such file."""
        return ""

    def delete(self, *names: str) -> None:
        """Removes files, of which some may not be there."""
        for name in names:
            with suppress(FileNotFoundError, NotADirectoryError):
                self._inside(name).unlink()

    def discard(self, first: Sequence[str], then: Sequence[str]) -> None:
        """Removes files that no batch needs: all of ``first`` before any of ``then``; many in the background.

        What a failure leaves behind is removed by the next start.
        """
        if len(then) < MANY:
            self.delete(*first, *then)
        else:
            self._discarding.finish()
            self._discarding.begin(self._discard, tuple(first), tuple(then))

    def _discard(self, first: Sequence[str], then: Sequence[str]) -> None:
        try:
            self.delete(*first)
            in_threads(self.delete, then)
        except (OSError, StateError) as error:
            _log.warning("the next start deletes files that no batch needs: %s", error)

    def names(self, folder: str) -> list[str]:
        """Names in a folder; none if it is not there."""
        try:
            return sorted(os.listdir(self._inside(folder, folder=True) if folder else self.path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def tree(self, folder: str) -> dict[str, list[str]]:
        """All files below a folder, by folder. Folders without any may be among them."""
        found = os.walk(self._inside(folder, folder=True))
        return {Path(path).relative_to(self.path).as_posix(): sorted(files) for path, _, files in found}

    def close(self) -> None:
        """Returns when the work in the background has ended."""
        self._discarding.close()

    def _inside(self, name: str, *, folder: bool = False) -> Path:
        try:
            return inside(self.path, name, folder=folder)
        except OSError as error:
            what = f"{name} is no place for files of the state: {error.strerror}"
            step = "restore the state folder from a copy; to keep it elsewhere, make state_dir itself a link"
            raise refuse("CS-701", what, step, folder=str(self.path)) from error


@dataclass(frozen=True, slots=True)
class FileLock:
    """A lock of the system on an open file: it ends with the process, whatever happens to that."""

    file: IO[bytes]
    token: str = ""

    def assure(self, within: float = 0.0) -> None:
        """Returns if this process has the right, or had it ``within`` seconds ago: this lock cannot be lost."""

    def release(self) -> None:
        self.file.close()


StateRoot: TypeAlias = LocalRoot | RemoteRoot
"""Where state lies; as text, the place for messages."""


@contextmanager
def state_partition(root: StateRoot, store: str, partition: int) -> Iterator[Storage]:
    """The files of a state partition; `StateError` inside names it."""
    try:
        yield root.storage(partition_folder(store, partition))
    except StateError as error:
        raise error.at(store=store, partition=partition, folder=str(root)) from None


Lock: TypeAlias = FileLock | Lease
"""The right to write."""

Place: TypeAlias = str | os.PathLike[str] | StateRoot
"""A folder, a URI, or what `root_of` made of one."""


def root_of(place: Place, *, cached: bool = True) -> StateRoot:
    """The root of the state in a folder, or at a URI; ``cached``: with copies on this machine, if it is remote.

    Nothing is opened yet. Raises `StateError` CS-723 for a URI of another kind, and for what is neither
    a path nor a URI.
    """
    if isinstance(place, LocalRoot | RemoteRoot):
        return place if cached or isinstance(place, LocalRoot) else RemoteRoot(place.address, cached=False)
    try:
        path = Path(place)
    except TypeError:
        step = "name a folder to which you have the rights, as a path or URI"
        raise unopened(repr(place), "it is neither a path nor a URI", step) from None
    text, scheme = str(place), scheme_of(place)
    if scheme is None:
        return LocalRoot(path)
    if not is_uri(place):
        raise unknown(text, "give it as text, for a path has lost a slash of it")
    return LocalRoot(Path(local_path(text))) if scheme == LOCAL else RemoteRoot(text, cached=cached)
