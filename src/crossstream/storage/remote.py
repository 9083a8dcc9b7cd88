"""State on an object store: a `StateRoot` below an S3 URI, with copies on the disk of each machine that uses them.

A file is put as a whole. Runs and manifests are read by way of the copies; files that change, and lists of files, come
from the store. One application at a time writes (`lease.py`). Decision 0024.

    <cache>/state/<location>/stores/…     a copy has the name that its file has below the state folder
    <cache>/state/<location>/swept        its time: when copies of deleted files were last removed

The processes of a machine share the copies. Names are never used twice, so a copy is never out of date. A copy is never
needed either: one that is missing or damaged is fetched again, and where nothing can be written there are none.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crossstream.errors import StateError
from crossstream.machine import cache_directory
from crossstream.storage.bucket import AWAY, Bucket, Uri, refused
from crossstream.storage.door import MOST_JSON, inside, map_plain
from crossstream.storage.files import PRIVATE, Background, Written, make_folder, opener, whole
from crossstream.storage.lease import Lease

SWEEP_SECONDS = 600.0
"""How often a machine removes copies of files that were deleted elsewhere."""

_YOUNG = 60.0
"""Seconds in which a copy may be there before its file is."""

_log = logging.getLogger("crossstream.state")


class RemoteRoot:
    """State below a URI. Connects at the first use; several threads may use it."""

    def __init__(self, uri: str, *, cached: bool = True) -> None:
        self._uri = Uri(uri)
        self.bucket = Bucket(self._uri)
        self.here = cache_directory() / "state" / self._uri.key
        self.cache = Cache(self.here) if cached else None
        self._putting = Background("crossstream puts")
        self._discarding = Background("crossstream discards", 1)

    def __str__(self) -> str:
        return str(self._uri)

    def __repr__(self) -> str:
        return f"RemoteRoot({str(self._uri)!r})"

    @property
    def address(self) -> str:
        return self._uri.whole

    @property
    def is_remote(self) -> bool:
        return True

    def lock(self, owner: str, rights: int | None = None) -> Lease:
        """See `StateRoot.lock`; the store decides about ``rights``."""
        try:
            self.bucket.check()
            return Lease.acquired(self.bucket, owner)
        except StateError as error:
            if error.code == AWAY:
                raise refused(self._uri, error.what) from error
            raise

    def storage(self, folder: str) -> RemoteFolder:
        return RemoteFolder(self, folder)

    def settled(self) -> None:
        self._putting.finish()

    def put(self, name: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Writes in the background, many files at a time; `settled` waits for them."""
        self._putting.begin(self.bucket.put, name, data)

    def read(self, name: str) -> bytes:
        return bytes(self.bucket.get(name, MOST_JSON))

    def write(self, name: str, data: bytes | memoryview | pa.Buffer, *, forced: bool = False) -> None:
        self.bucket.put(name, data)

    def create(self, name: str, data: bytes, *, forced: bool = False) -> str:
        try:
            return self.bucket.create(name, data)
        except FileExistsError:
            found, tag = self.bucket.tagged(name)
            if bytes(found) != data:  # else it was put, and the answer was lost
                raise
            return tag

    def replace(self, name: str, data: bytes, tag: str, *, forced: bool = False) -> str:
        try:
            return self.bucket.replace(name, data, tag)
        except FileNotFoundError:
            raise FileExistsError(name) from None

    def tag(self, name: str) -> str | None:
        try:
            return self.bucket.tagged(name)[1]
        except FileNotFoundError:
            return None

    def delete(self, *names: str) -> None:
        self.bucket.delete(names)
        if self.cache is not None:
            for name in names:
                self.cache.drop(name)

    def discard(self, first: Sequence[str], then: Sequence[str]) -> None:
        """In the background, because no batch waits for it; the next call waits for the last one."""
        self._discarding.finish()
        self._discarding.begin(self._discard, tuple(first), tuple(then))

    def names(self, folder: str) -> list[str]:
        return self.bucket.names(folder)

    def tree(self, folder: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in sorted(self.bucket.below(folder)):
            parent, _, name = path.rpartition("/")
            found.setdefault(parent, []).append(name)
        return found

    def close(self) -> None:
        self._discarding.close()
        self._putting.close()

    def tidy(self) -> None:
        """Drops the copies of files that other machines deleted, every ten minutes."""
        if self.cache is None or not self.cache.is_due():
            return
        listed = time.time()
        try:
            self.cache.keep(frozenset(self.bucket.below("stores")), listed)
        except StateError as error:
            _log.warning("copies of deleted files stay on this machine: %s", error.what)

    def _discard(self, first: Sequence[str], then: Sequence[str]) -> None:
        try:
            self.delete(*first)
            self.delete(*then)
        except StateError as error:
            _log.warning("the next start deletes files that no batch needs: %s", error.what)


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """`Storage` in a folder below a remote root."""

    root: RemoteRoot
    folder: str

    def write(self, name: str, data: Written) -> None:
        """Keeps a copy, because its writer most likely reads it next, and puts the file in the background."""
        path, data, cache = f"{self.folder}/{name}", whole(data), self.root.cache
        if cache is not None and cache.put(path, data):
            self.root.put(path, data)
            self.root.tidy()
        else:
            self.root.write(path, data)

    def read(self, name: str, *, original: bool = False) -> pa.Buffer:
        """A copy, if there is one or can be made, because other processes share that."""
        path, cache = f"{self.folder}/{name}", self.root.cache
        if not original and cache is not None and (found := cache.get(path)) is not None:
            return found
        self.root.settled()
        data = self.root.bucket.get(path)
        if cache is None:
            return data
        cache.put(path, data)
        self.root.tidy()
        copy = cache.get(path)
        return data if copy is None or copy.size != data.size else copy


@dataclass(slots=True)
class Cache:
    """The copies of one location. ``folder``: made when the first copy is."""

    folder: Path
    _warned: bool = False

    def get(self, name: str) -> pa.Buffer | None:
        """A copy, memory-mapped; None if there is none."""
        try:
            data = map_plain(inside(self.folder, name))
        except (OSError, pa.ArrowException):
            return None
        return data if data.size else None

    def put(self, name: str, data: bytes | memoryview | pa.Buffer) -> bool:
        """Keeps a copy, if the disk takes it: then True."""
        try:
            target = inside(self.folder, name)
            beside = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.tmp")
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
        with suppress(OSError):
            inside(self.folder, name).unlink()

    def keep(self, names: Container[str], listed: float) -> None:
        """Removes all copies but those of ``names``, which were all there were at the time ``listed``."""
        for path in (self.folder / "stores").rglob("*"):
            with suppress(OSError):  # another process removed it
                name = path.relative_to(self.folder).as_posix()
                if name not in names and not path.is_dir() and path.stat().st_mtime < listed - _YOUNG:
                    path.unlink()

    def is_due(self) -> bool:
        """Whether this process is to remove copies of files that were deleted elsewhere: one of a machine does."""
        mark = self.folder / "swept"
        try:
            new = not mark.exists()
            due = not new and time.time() - mark.stat().st_mtime >= SWEEP_SECONDS
            if new or due:
                mark.touch(PRIVATE)
        except OSError:
            return False
        return due
