"""Where runs and manifests are kept: a folder of immutable files.

Bytes in many buffers are written one after the other, and not copied together first (decision 0026).

Who may read the files: the user alone, unless the application says otherwise. The lock file has the mode that all
others are made with, and folders the right to enter besides. So all processes that write agree: the driver, its
workers, `crossstream state rescale`. Existing files keep theirs.

What a process has written is in the memory of the system for some seconds. `Disk` forces it out. A file system writes
its journal once for all that wait for it, so many files at a time take hardly longer than one (decision 0015).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from threading import BoundedSemaphore, Lock
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.storage.door import inside, map_plain

T = TypeVar("T")
U = TypeVar("U")

UNFINISHED = ".tmp"
"""How the names of files end while they are written, and of those that a crash has left so."""


REFRESHED = "refreshed"
"""The folder of the state with what was read of tables that are read again."""

EVOLVING = "evolving"
"""The folder of the state in which a changed application computes what its stores are to hold."""


def partition_folder(store: str, partition: int | str) -> str:
    """The folder of a store partition below the root of the state; any name of a store is possible."""
    return f"stores/{_quoted(store)}/{partition}"


@lru_cache(1_024)
def _quoted(store: str) -> str:
    return quote(store, safe="")


def file_names(files: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Names below the root of the state; ``files``: by ``store/partition``."""
    for place, names in files.items():
        store, _, partition = place.rpartition("/")
        folder = partition_folder(store, partition)
        yield from (f"{folder}/{name}" for name in names)


class Storage(Protocol):
    """A flat folder of immutable files."""

    def write(self, name: str, data: Written) -> None: ...

    def read(self, name: str, *, original: bool = False) -> pa.Buffer:
        """The whole file, memory-mapped where possible; `FileNotFoundError` if it is missing.

        ``original``: from where it was written to, and no copy of it.
        """


@dataclass(frozen=True, slots=True)
class Folder:
    """Files in a local or shared folder. ``root``: that of the state, whose lock file says who may read them."""

    path: Path
    root: Path | None = None

    def write(self, name: str, data: Written, *, forced: bool = False) -> None:
        """As `put`. Raises `StateError` CS-706 if the disk refuses."""
        try:
            self.put(name, data, forced)
        except OSError as error:
            raise disk_refuses(self.path, error) from error

    def put(self, name: str, data: Written, forced: bool) -> None:
        """Puts a file in place; ``forced``: after a crash of the machine it is complete, or not there."""
        target = inside(self.path, name)
        beside = f"{target}.{token_hex(4)}{UNFINISHED}"
        rights = rights_in(self.root or self.path) or PRIVATE
        make = opener(rights)
        try:
            handle = open(beside, "xb", buffering=0, opener=make)  # noqa: SIM115 - closed below
        except FileNotFoundError:
            make_folder(target.parent, rights)
            handle = open(beside, "xb", buffering=0, opener=make)  # noqa: SIM115 - closed below
        with handle:
            for rest in buffers_of(data):
                while len(rest):
                    rest = rest[handle.write(rest) :]
            if forced:
                os.fsync(handle.fileno())
        os.replace(beside, target)

    def read(self, name: str, *, original: bool = False) -> pa.Buffer:
        return map_plain(inside(self.path, name))


def disk_refuses(folder: object, error: OSError) -> CrossStreamError:
    """What a batch has written does not reach the disk."""
    return refuse("CS-706", f"the disk refuses what a batch has written: {error}", folder=str(folder))


class BufferList:
    """What a writer of Arrow's gives, as it gives it: a file to write to, and afterwards bytes to write on.

    The buffers are those of the columns, which must not change meanwhile. Pickled it is plain bytes.
    """

    __slots__ = ("_parts", "closed", "size")

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self._parts.append(data)
        self.size += count
        return count

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """The writer is done; what it wrote stays."""

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[memoryview]:
        return map(memoryview, self._parts)

    def __bytes__(self) -> bytes:
        return b"".join(self)

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


FEW = 512
"""Rows up to which copying buffers together is cheaper than handling them one by one."""

Written: TypeAlias = Any
"""Bytes to be written: `bytes`, a `memoryview`, a `pyarrow.Buffer`, or `BufferList`."""


def buffers_of(data: Written) -> Iterator[memoryview]:
    """The bytes, piece by piece."""
    return iter(data) if isinstance(data, BufferList) else iter([memoryview(data).cast("B")])


def whole(data: Written) -> Any:
    """The bytes in one piece."""
    return bytes(data) if isinstance(data, BufferList) else data


LOCK = "lock"

PRIVATE = 0o600
RIGHTS = MappingProxyType({"private": PRIVATE, "group": 0o660, "shared": 0o644})
"""Rights of files by the setting ``state_mode``."""

_OTHERS = 0o077
_RIGHTS = 0o666


def rights_in(root: Path) -> int | None:
    """The rights of the files of the state in a folder; None if there is no state."""
    try:
        mode = os.lstat(root / LOCK).st_mode
    except OSError:
        return None
    return mode & _RIGHTS | PRIVATE if stat.S_ISREG(mode) else None


def opener(rights: int) -> Callable[[str, int], int]:
    """For `open`: makes files with these rights, whatever the umask is; no link is followed, no pipe waited for."""

    def opened(path: str, flags: int) -> int:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, rights)
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


THREADS = 16

MANY = 512
"""So many files at once are forced, and deleted, in another way than a few (decision 0056)."""

_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""Of Linux. Since its version 5.8 it raises what was not written."""


def in_threads(work: Callable[[T], U], items: Iterable[T], threads: int | None = THREADS) -> list[U]:
    """The results of reading or writing something of each item, many at a time: files are waited for."""
    found = list(items)
    size = 1 + len(found) // (64 * THREADS)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(
            lambda start: list(map(work, found[start : start + size])), range(0, len(found), size)
        )
        return [one for part in parts for one in part]


class Background:
    """Work in the background, which any thread may begin. Threads are made when there is work."""

    def __init__(self, name: str, threads: int = THREADS) -> None:
        self._name = name
        self._count = threads
        self._pool: ThreadPoolExecutor | None = None
        self._begun: list[Future[Any]] = []
        self._turn = Lock()
        self._room = BoundedSemaphore(4 * threads)

    def begin(self, work: Callable[..., object], *arguments: Any) -> None:
        """Waits first if much is waiting already, because that is held in memory."""
        self._room.acquire()
        with self._turn:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._count, self._name)
            begun = self._pool.submit(work, *arguments)
            self._begun.append(begun)
        begun.add_done_callback(lambda _: self._room.release())

    def finish(self) -> None:
        """Returns when all that was begun is done; raises the first error, and drops the others."""
        with self._turn:
            begun, self._begun = self._begun, []
        wait(begun)
        for one in begun:
            one.result()

    def close(self) -> None:
        """Returns when all that was begun is done, or has failed."""
        with self._turn:
            pool, self._pool, self._begun = self._pool, None, []
        if pool is not None:
            pool.shutdown()


class Disk(Background):
    """Forces files to the disk in the background. Belongs to one thread."""

    def __init__(self) -> None:
        super().__init__("crossstream disk")
        self._known: set[Path] = set()

    def force(self, files: Iterable[Path]) -> None:
        """Begins to force files that are complete, and their names; `finish` raises `OSError` if the disk refuses.

        Of many all that their file system has not written yet, in one call, where it has one for that.
        """
        paths = set(files)
        folders = {path.parent for path in paths}
        if len(paths) >= MANY and _syncfs is not None:
            for folder in {folder.stat().st_dev: folder for folder in folders}.values():
                self.begin(force_all, folder)
            return
        for path in paths | folders | self._above(folders):
            self.begin(force, path)

    def _above(self, folders: set[Path]) -> set[Path]:
        """The folders above those not met before, as far as we may look: for all we know their names are new."""
        met, self._known = self._known, self._known | folders
        above = {parent for folder in folders - met for parent in folder.parents}
        return {folder for folder in above if os.access(folder, os.R_OK)}


def force(path: Path) -> None:
    """Returns when the content of a file, or the names in a folder, have reached the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def force_all(folder: Path) -> None:
    """Returns when all that was written to the file system of a folder has reached the disk."""
    assert _syncfs is not None
    file = os.open(folder, os.O_RDONLY)
    try:
        if _syncfs(file) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(file)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file ``path``, waiting for the process that has it; a crash releases it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
