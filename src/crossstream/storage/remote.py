"""State on an object store: a `StateRoot` below an S3 URI.

A file is put as a whole. Runs and manifests are read by way of copies on this machine (`cache.py`); files that change,
and lists of files, come from the store. One application at a time writes (`lease.py`). Decision 0024.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa

from crossstream.errors import StateError
from crossstream.storage.bucket import AWAY, Bucket
from crossstream.storage.cache import Cache, cache_directory
from crossstream.storage.files import Written, whole
from crossstream.storage.lease import Lease
from crossstream.storage.uris import Uri, refused

T = TypeVar("T")
U = TypeVar("U")

THREADS = 16
"""Requests at a time."""

_log = logging.getLogger("crossstream.state")


class RemoteRoot:
    """State below a URI. Connects at the first use; several threads may use it."""

    def __init__(self, uri: str, *, cached: bool = True) -> None:
        self._uri = Uri(uri)
        self._bucket = Bucket(self._uri)
        self._here = cache_directory() / "state" / self._uri.key
        self._cache = Cache(self._here) if cached else None
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
        """See `StateRoot.lock`; the store decides about ``rights``."""
        try:
            self.check()
            return Lease.acquired(self._bucket, owner)
        except StateError as error:
            if error.code == AWAY:
                raise refused(self._uri, error.what) from error
            raise

    def check(self) -> None:
        """Raises `StateError`: CS-723 if there is no such bucket, CS-707 if the store does not answer."""
        self._bucket.check()

    def storage(self, folder: str) -> RemoteFolder:
        return RemoteFolder(self, folder, self._cache)

    def settled(self) -> None:
        self._putting.finish()

    def put(self, name: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Writes in the background, many files at a time; `settled` waits for them."""
        self._putting.begin(self._bucket.put, name, data)

    def read(self, name: str) -> bytes:
        return bytes(self.fetch(name))

    def fetch(self, name: str) -> pa.Buffer:
        """A file from the store; `FileNotFoundError` if it is not there."""
        return self._bucket.get(name)

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, forced: bool = False) -> None:
        self._bucket.put(name, data)

    def create(self, name: str, data: bytes, *, forced: bool = False) -> None:
        try:
            self._bucket.create(name, data)
        except FileExistsError:
            if self.read(name) != data:  # else it was put, and the answer was lost
                raise

    def delete(self, *names: str) -> None:
        self._bucket.delete(names)
        if self._cache is not None:
            for name in names:
                self._cache.drop(name)

    def discard(self, first: Sequence[str], then: Sequence[str]) -> None:
        """In the background, because no batch waits for it; the next call waits for the last one."""
        self._discarding.finish()
        self._discarding.begin(self._discard, tuple(first), tuple(then))

    def names(self, folder: str) -> list[str]:
        return self._bucket.names(folder)

    def tree(self, folder: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self._bucket.below(folder):
            parent, _, name = path.rpartition("/")
            found.setdefault(parent, []).append(name)
        return {parent: sorted(names) for parent, names in found.items()}

    def prune(self, folder: str) -> None:
        """There are no folders."""

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
        self._discarding.close()
        self._putting.close()

    def tidy_sometimes(self) -> None:
        """Drops the copies of files that other machines deleted, every ten minutes."""
        if self._cache is None or not self._cache.is_due():
            return
        listed = time.time()
        try:
            tree = self.tree("stores")
        except StateError as error:
            _log.warning("copies of deleted files stay on this machine: %s", error.what)
        else:
            self.tidy([f"{folder}/{name}" for folder, names in tree.items() for name in names], listed)

    def _discard(self, first: Sequence[str], then: Sequence[str]) -> None:
        try:
            self.delete(*first)
            self.delete(*then)
        except StateError as error:
            _log.warning("the next start deletes files that no batch needs: %s", error.what)


class Threads:
    """Work in the background, which any thread may begin. Threads are made when there is work."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._pool: ThreadPoolExecutor | None = None
        self._begun: list[Future[Any]] = []
        self._turn = Lock()

    def begin(self, work: Callable[..., object], *arguments: Any) -> None:
        """Waits first if much is waiting already, because that is held in memory."""
        with self._turn:
            crowded = len(self._begun) >= 4 * self._count
        if crowded:
            self.finish()
        with self._turn:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._count, self._name)
            self._begun.append(self._pool.submit(work, *arguments))

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


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """`Storage` in a folder below a remote root."""

    root: RemoteRoot
    folder: str
    cache: Cache | None

    def write(self, name: str, data: Written) -> None:
        """Keeps a copy, because its writer most likely reads it next, and puts the file in the background."""
        path, data = f"{self.folder}/{name}", whole(data)
        if self.cache is not None and self.cache.put(path, data):
            self.root.put(path, data)
            self.root.tidy_sometimes()
        else:
            self.root.write(path, data)

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
        """From the store. Its copy, if one can be kept, because other processes share that."""
        self.root.settled()
        path = f"{self.folder}/{name}"
        data = self.root.fetch(path)
        if self.cache is None:
            return data
        self.cache.put(path, data)
        self.root.tidy_sometimes()
        copy = self.cache.get(path)
        return data if copy is None or copy.size != data.size else copy
