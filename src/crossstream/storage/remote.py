"""State on a remote file system: S3, Google Cloud Storage, Azure, HDFS, whatever `pyarrow.fs` takes a URI of.

A file is put as a whole, or moved into place where a put shows what is not complete yet. Runs and manifests are read
by way of copies on this machine (`cache`); what changes, or is listed, is read from the store. One application
at a time writes, by a lease (`lease`). Decision 0024.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa

from crossstream.errors import StateError
from crossstream.storage.cache import Cache, cache_directory
from crossstream.storage.files import UNFINISHED, Written, whole
from crossstream.storage.lease import Lease
from crossstream.storage.uris import Uri, refused

T = TypeVar("T")
U = TypeVar("U")

AWAY = "CS-707"
"""The code of the error for a store that does not answer, or refuses."""

THREADS = 16
"""Requests at a time."""

_OBJECT_STORES = ("s3", "gcs", "abfs")
"""Types of file systems where a file is there when it is complete, or is empty until then, and needs no folder."""

_log = logging.getLogger("crossstream.state")


class RemoteRoot:
    """State below a URI. Connected when it is first used; may be used by several threads."""

    def __init__(self, uri: str, *, cached: bool = True) -> None:
        self._uri = Uri(uri)
        self._here = cache_directory() / "state" / self._uri.key
        self._cache = Cache(self._here) if cached else None
        self._connected: tuple[Any, str] | None = None
        self._putting = Threads("crossstream puts", THREADS)
        self._discarding = Threads("crossstream discards", 1)

    def __str__(self) -> str:
        return str(self._uri)

    def __repr__(self) -> str:
        return f"RemoteRoot({str(self._uri)!r})"

    @property
    def here(self) -> Path:
        return self._here

    @property
    def address(self) -> str:
        return self._uri.whole

    @property
    def is_remote(self) -> bool:
        return True

    def lock(self, owner: str, rights: int | None = None) -> Lease:
        """``rights`` are for the store to give.

        Raises `StateError`: CS-720 if there is another writer, CS-723 if the place cannot be opened."""
        try:
            self.make()
            return Lease.acquired(self, owner)
        except StateError as error:
            if error.code == AWAY:
                raise refused(self._uri, error.what) from error
            raise

    def storage(self, folder: str) -> RemoteFolder:
        return RemoteFolder(self, folder, self._cache)

    def settled(self) -> None:
        self._putting.finish()

    def put(self, name: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Writes in the background, many files at a time: `settled` tells when they are there."""
        self._putting.begin(self.write, name, data)

    def read(self, name: str) -> bytes:
        return bytes(self.fetch(name))

    def fetch(self, name: str) -> pa.Buffer:
        """A file from the store; `FileNotFoundError` if it is not there."""
        with self._told(f"{name} cannot be read"):
            system, path = self._system()
            data = _content(system, f"{path}/{name}")
        if data is None:
            raise FileNotFoundError(name)
        return data

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, forced: bool = False) -> None:
        """A put that has returned is durable, ``forced`` or not."""
        with self._told(f"{name} cannot be written"):
            system, path = self._system()
            target = f"{path}/{name}"
            if system.type_name in _OBJECT_STORES:
                _put(system, target, data)
            else:
                beside = f"{target}.{uuid.uuid4().hex[:8]}{UNFINISHED}"
                _put(system, beside, data)
                _move(system, beside, target)

    def delete(self, name: str) -> None:
        with self._told(f"{name} cannot be deleted"):
            system, path = self._system()
            with suppress(FileNotFoundError):
                system.delete_file(f"{path}/{name}")
        if self._cache is not None:
            self._cache.drop(name)

    def discard(self, first: Sequence[str], then: Sequence[str]) -> None:
        """In the background, for no batch need wait for it; the next call waits for the last one."""
        self._discarding.finish()
        self._discarding.begin(self._discard, tuple(first), tuple(then))

    def names(self, folder: str) -> list[str]:
        """Those of files that are complete."""
        return sorted(info.base_name for info in self._listed(folder, recursive=False))

    def tree(self, folder: str) -> dict[str, list[str]]:
        _, path = self._system()
        found: dict[str, list[str]] = {}
        for info in self._listed(folder, recursive=True):
            place = info.path.removeprefix(f"{path}/").rpartition("/")[0]
            found.setdefault(place, []).append(info.base_name)
        return {place: sorted(names) for place, names in found.items()}

    def prune(self, folder: str) -> None:
        """Folders are not things of their own here."""

    def tidy(self, names: Collection[str], listed: float) -> None:
        if self._cache is not None:
            self._cache.keep(frozenset(names), listed)

    def each(self, work: Callable[[T], U], items: Iterable[T]) -> list[U]:
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(work, items))

    def to_force(self, names: Iterable[str]) -> Iterable[Path]:
        """A put that has returned is durable."""
        return ()

    def close(self) -> None:
        """What was written and nobody waited for, for its batch failed, is nobody's."""
        self._discarding.close()
        self._putting.close()

    def tidy_sometimes(self) -> None:
        """On a machine whose files others delete: drops the copies of those, every now and then."""
        if self._cache is None or not self._cache.is_due():
            return
        listed = time.time()
        try:
            tree = self.tree("stores")
        except StateError as error:
            _log.warning("copies of deleted files stay on this machine: %s", error.what)
        else:
            self.tidy([f"{place}/{name}" for place, names in tree.items() for name in names], listed)

    def _system(self) -> tuple[Any, str]:
        if self._connected is None:
            self._connected = self._uri.connect()
        return self._connected

    def make(self) -> None:
        """Makes the folder, where folders are made. A bucket must be there: its settings are not ours to choose."""
        with self._told("it does not answer"):
            system, path = self._system()
            if system.type_name not in _OBJECT_STORES:
                system.create_dir(path, recursive=True)
                return
            from pyarrow import fs

            bucket = path.partition("/")[0]
            if system.get_file_info(bucket).type == fs.FileType.NotFound:
                raise refused(self._uri, f"there is no bucket or container {bucket}")

    def _listed(self, folder: str, *, recursive: bool) -> Iterator[Any]:
        from pyarrow import fs

        with self._told(f"{folder} cannot be listed"):
            system, path = self._system()
            infos = system.get_file_info(
                fs.FileSelector(f"{path}/{folder}", allow_not_found=True, recursive=recursive)
            )
        return (info for info in infos if info.type == fs.FileType.File and info.size)

    def _discard(self, first: Sequence[str], then: Sequence[str]) -> None:
        try:
            for names in (first, then):
                self.each(self.delete, names)
        except StateError as error:
            _log.warning("files that nobody needs are left to the next start: %s", error.what)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Makes one error of all that a file system may raise."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise StateError(
                f"the store of the state does not answer, or refuses: {what}: {self._uri.hidden(error)}",
                code=AWAY,
                where={"folder": str(self._uri)},
                next="check the store and the rights on it, then start the application again: it repeats the batch",
            ) from None


class Threads:
    """Work in the background, begun by any thread; no thread is made before there is some."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._pool: ThreadPoolExecutor | None = None
        self._begun: list[Future[None]] = []
        self._turn = Lock()

    def begin(self, work: Callable[..., None], *arguments: Any) -> None:
        """Waits first if there is much to do already: what waits is held in memory."""
        with self._turn:
            crowded = len(self._begun) >= 4 * self._count
        if crowded:
            self.finish()
        with self._turn:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._count, self._name)
            self._begun.append(self._pool.submit(work, *arguments))

    def finish(self) -> None:
        """Returns when all that was begun is done; raises the first error, and forgets the others."""
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


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """`Storage` in a folder below a remote root."""

    root: RemoteRoot
    folder: str
    cache: Cache | None

    def write(self, name: str, data: Written) -> None:
        """Keeps a copy, for who writes a file will most likely read it; then it is put in the background."""
        place, data = f"{self.folder}/{name}", whole(data)
        if self.cache is not None and self.cache.put(place, data):
            self.root.put(place, data)
            self.root.tidy_sometimes()
        else:
            self.root.write(place, data)

    def read(self, name: str) -> pa.Buffer:
        found = None if self.cache is None else self.cache.get(f"{self.folder}/{name}")
        return self._fetched(name) if found is None else found

    def reread(self, name: str) -> pa.Buffer | None:
        return None if self.cache is None else self._fetched(name)

    def names(self) -> list[str]:
        self.root.settled()
        return self.root.names(self.folder)

    def delete(self, name: str) -> None:
        self.root.settled()
        self.root.delete(f"{self.folder}/{name}")

    def _fetched(self, name: str) -> pa.Buffer:
        """From the store; its copy, if one can be kept, for that is shared with other processes."""
        self.root.settled()
        place = f"{self.folder}/{name}"
        data = self.root.fetch(place)
        if self.cache is None:
            return data
        self.cache.put(place, data)
        self.root.tidy_sometimes()
        copy = self.cache.get(place)
        return data if copy is None or copy.size != data.size else copy


def _content(system: Any, path: str) -> pa.Buffer | None:
    """The bytes of a file; None if it is not there, or is empty: then it is being written, for none of ours is."""
    try:
        with system.open_input_file(path) as file:
            data = file.read_buffer()
    except FileNotFoundError:
        return None
    return data if data.size else None


def _put(system: Any, path: str, data: bytes | memoryview | pa.Buffer) -> None:
    try:
        stream = system.open_output_stream(path, compression=None)
    except FileNotFoundError:
        system.create_dir(path.rpartition("/")[0], recursive=True)
        stream = system.open_output_stream(path, compression=None)
    with stream:
        stream.write(data)


def _move(system: Any, beside: str, target: str) -> None:
    try:
        system.move(beside, target)
    except OSError:  # HDFS does not replace a file
        system.delete_file(target)
        system.move(beside, target)
