"""The batch log: what was to be done, written ahead, and what has been done.

    application.json     whose state this is: application id, partitions, fingerprints of the stores
    batches/N.json       the input ranges of batch N, written before it runs; of one with rows of DataFrames
                         also its results, written before they are published; of the change of an
                         application whose state it is with the commit, and whose it was (decision 0050)
    commits/N.json       after batch N: positions in the topics, and the manifest of every state partition

A batch without a commit is run again with the same ranges from the same state, and gives the same bytes. Rows of
DataFrames may come in other partitions then: once their results are being published, that is only brought to its end.
Every file is written beside its place and renamed into it, and holds ``{"checksum": …, "content": …}``: the
xxh3_64 of the bytes of its content, in hexadecimal.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

import msgspec
import xxhash

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.storage.door import MOST_BATCHES
from crossstream.storage.files import (
    UNFINISHED,
    Disk,
    disk_refuses,
)
from crossstream.storage.lease import SAFE_SECONDS
from crossstream.storage.log_entries import FORMAT, Application, BatchEntry, Commit, Publication
from crossstream.storage.manifest import OfFormat
from crossstream.storage.root import Lock, Place, root_of


class Sealed(msgspec.Struct, frozen=True):
    """What a file of the log holds."""

    checksum: str
    content: msgspec.Raw


STAGED = "staged"
"""The folder of what waits to be published."""

_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Sealed, OfFormat, Application, BatchEntry, Commit)
}
"""Made here, as in `manifest`."""

_ENTRY = re.compile(r"[0-9]{12}\.json")
"""Names of entries; other files are not of the log."""
_NOTED = re.compile(rf"application\.json\.\w+{re.escape(UNFINISHED)}")
"""Names of ``application.json`` while it is written; other files beside it may be the user's."""

D = TypeVar("D")
E = TypeVar("E", BatchEntry, Commit)


class BatchLog:
    """The log in a state folder. One application writes it at a time; anyone may read.

    ``durable``: what is committed survives a crash of the machine (decision 0015).
    """

    def __init__(self, root: Place, durable: bool = False) -> None:
        self.root = root_of(root)
        self.durable = durable
        self._lock: Lock | None = None
        self._disk = Disk()
        self._is_noted = False
        self._owner = ""
        self._written = ("", "")  # the entry that this process wrote last, and the tag of that version

    def lock(self, application_id: str, rights: int | None = None) -> None:
        """Makes this process the only writer; `StateError` CS-720 if another one is. ``rights``: of what it writes."""
        owner = f"{application_id}, process {os.getpid()} on {socket.gethostname()}"
        self._lock = self.root.lock(owner, rights)
        self._owner = self._lock.token

    def unlock(self) -> None:
        try:
            self._disk.close()
            self.root.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def assure(self, within: float = SAFE_SECONDS) -> None:
        """Returns if this process is the only writer, or was ``within`` seconds ago.

        Raises `StateError` CS-720 if it is not: a lease can be lost, the lock of a file cannot.
        """
        if self._lock is not None:
            self._lock.assure(within)

    def application(self) -> Application | None:
        """Whose state this is; None for a new folder. Raises `StateError` CS-701 if it is missing from another."""
        found = self._known()
        if found is None and (self.commits() or self.batches()):
            found = self._known()  # it is written before them, perhaps by now
            if found is None:
                raise self._missing("application.json")
        return found

    def application_at(self, batch: int) -> Application | None:
        """Whose state it was after a batch that is kept: a later one may have changed that (decision 0050)."""
        for number in self.commits():
            if number > batch:
                with suppress(FileNotFoundError):  # retired meanwhile
                    if (was := self.batch(number).was) is not None:
                        return was
        return self.application()

    def _known(self) -> Application | None:
        """What is noted; after a change that is committed, and not noted yet, what the state has become."""
        found = self._application()
        if found is None or found.changing < 0:
            return found
        with suppress(FileNotFoundError):
            self.commit(found.changing)
            return self.batch(found.changing).becomes or found
        return found

    def _application(self) -> Application | None:
        try:
            content = self._content("application.json")
        except FileNotFoundError:
            return None
        found = self._decode("application.json", content, OfFormat)
        if found.format != FORMAT:
            what = f"the state folder has format {found.format}, this version reads {FORMAT}"
            raise refuse("CS-704", what, folder=str(self.root))
        application = self._decode("application.json", content, Application)
        unknown = [one.store for one in application.readers.values() if one.store not in application.stores]
        if unknown:
            raise self._unreadable(
                "application.json", f"it has no store {unknown[0]!r}, and says how to read it"
            )
        return application

    def write_application(self, application: Application) -> None:
        self._write("application.json", application)

    def write_batch(self, entry: BatchEntry) -> None:
        self.settled()  # a batch that outlives the commit before it would make the state unreadable
        self.assure()
        name, (last, tag) = batch_file(entry.id), self._written
        found = tag if name == last else None
        while not self._put(entry, found):
            # There is one of an attempt that is not repeated, or of an application that took over.
            found = self.root.tag(name)
            self.assure(0.0)

    def write_publication(self, entry: BatchEntry, publication: Publication) -> None:
        """From here on the batch is not run again; returns when that, and what it rests on, is settled."""
        self.settled()
        self.assure(0.0)
        self.write_batch(msgspec.structs.replace(entry, publication=publication))
        self.settled()

    def repeat_batch(self, entry: BatchEntry) -> None:
        """Instead of `write_batch`, where the entry is there."""
        self.settle([batch_file(entry.id)])

    def write_commit(self, commit: Commit) -> None:
        """Writes the commit, when all that was to be settled is.

        Raises `StateError`: CS-706 if the disk refuses, CS-720 if this process is not the only writer any more.
        """
        self.settled()
        self.assure(0.0)
        try:
            self._write(commit_file(commit.id), commit, new=True)
        except FileExistsError:
            what = f"another application has committed batch {commit.id}"
            step = "stop one of the two applications, then start the other one again"
            raise refuse("CS-720", what, step, folder=str(self.root)) from None
        if not self._is_noted:  # a log without any commit has lost them from now on
            found = self._application()
            if found is not None and not found.committed:
                self.write_application(msgspec.structs.replace(found, committed=True))
            self._is_noted = True

    def settle(self, names: Iterable[str]) -> None:
        """Begins to force files to the disk that what follows rests on, if the log is durable."""
        if self.durable and not self.root.is_remote:
            self._disk.force(self.root.here / name for name in names)

    def settled(self) -> None:
        """Returns when everything `settle` got has reached the disk, and everything written the object store.

        Raises `StateError`: CS-706 and CS-707 if they refuse.
        """
        try:
            self._disk.finish()
        except OSError as error:
            raise disk_refuses(self.root, error) from error
        self.root.settled()

    def begun(self, after: Commit) -> BatchEntry | None:
        """The batch after the last commit, if it was begun.

        Raises `StateError` CS-701 if a later one was: it had a commit before it, which is missing.
        """
        last = self.last_batch()
        if last is None or last.id <= after.id:
            return None
        if last.id > after.id + 1:
            raise self._missing(commit_file(last.id - 1))
        return last

    def take_over(self, after: Commit) -> BatchEntry | None:
        """As `begun`, at a start. An earlier owner, which may only stand still, cannot replace the entry any more."""
        while (entry := self.begun(after)) is not None and self.root.is_remote:
            tag = self.root.tag(batch_file(entry.id))
            self.assure(0.0)
            if self.begun(after) == entry and self._put(entry, tag):
                break
        return entry

    def last_batch(self) -> BatchEntry | None:
        ids = self.batches()
        return self.batch(ids[-1]) if ids else None

    def batches(self) -> list[int]:
        """Ids of the batches that were begun and are kept, ascending."""
        return self._ids("batches")

    def batch(self, number: int) -> BatchEntry:
        return self._numbered(batch_file(number), number, BatchEntry)

    def commits(self) -> list[int]:
        """Ids of the commits that are kept, ascending."""
        return self._ids("commits")

    def last_commit(self) -> Commit | None:
        """The newest commit; None before the first. Raises `StateError` CS-701 if there were some, and none is left."""
        while ids := self.commits():
            try:
                return self._complete(self.commit(ids[-1]))
            except FileNotFoundError:
                continue  # retired between listing and reading: a newer one is there
        begun = self.batches()
        if not (begun[-1] if begun else self._was_committed()):
            return None
        if not self.commits():
            raise self._missing(commit_file(begun[-1] - 1) if begun else "commits")
        return self.last_commit()  # the first ones were written meanwhile

    def _complete(self, commit: Commit) -> Commit:
        """A commit, if it names only state partitions that there are."""
        last = max(chain.from_iterable(commit.versions.values()), default=0)
        if last < commit.partitions:
            return commit
        raise self._unreadable(
            commit_file(commit.id), f"it names state partition {last}, and there are {commit.partitions} only"
        )

    def _was_committed(self) -> bool:
        found = self._application()
        return found is not None and found.committed

    def newest(self) -> Commit:
        """The newest commit; before the first one, what it would follow on. The application must be known."""
        commit = self.last_commit()
        if commit is not None:
            return commit
        application = self.application()
        assert application is not None
        return Commit(-1, application.partitions)

    def commit(self, number: int) -> Commit:
        return self._numbered(commit_file(number), number, Commit)

    def forget(self, number: int) -> None:
        """Removes the entry of a batch that was begun, and is not to be repeated."""
        self.root.delete(batch_file(number))

    def unfinished(self) -> list[str]:
        """Files that a crash left while they were written; of the only writer, which writes none now."""
        log = [
            f"{folder}/{name}"
            for folder in ("batches", "commits")
            for name in self.root.names(folder)
            if name.endswith(UNFINISHED)
        ]
        noted = [name for name in self.root.names("") if _NOTED.fullmatch(name)]
        return noted + log

    def _ids(self, folder: str) -> list[int]:
        found = sorted(int(name[:12]) for name in self.root.names(folder) if _ENTRY.fullmatch(name))
        if found and found[-1] > MOST_BATCHES:
            raise self._unreadable(
                f"{folder}/{found[-1]:012d}.json", f"no batch has a number above {MOST_BATCHES}"
            )
        return found

    def _write(self, name: str, value: Any, *, new: bool = False) -> None:
        write = self.root.create if new else self.root.write
        write(name, _sealed(value), forced=self.durable)
        self.settle([name])

    def _put(self, entry: BatchEntry, tag: str | None) -> bool:
        """Writes an entry in the place of the version with this tag, or of none; False: there is another one."""
        name, data = batch_file(entry.id), _sealed(msgspec.structs.replace(entry, owner=self._owner))
        try:
            if tag is None:
                new = self.root.create(name, data, forced=self.durable)
            else:
                new = self.root.replace(name, data, tag, forced=self.durable)
        except FileExistsError:
            return False
        self._written = name, new
        self.settle([name])
        return True

    def _missing(self, name: str) -> CrossStreamError:
        return refuse("CS-701", f"{name} is missing in the batch log", file=f"{self.root}/{name}")

    def _numbered(self, name: str, number: int, kind: type[E]) -> E:
        """An entry of the log; one that was copied to the name of another is refused."""
        found = self._decode(name, self._content(name), kind)
        if found.id != number:
            raise self._unreadable(name, f"it is that of batch {found.id}")
        return found

    def _content(self, name: str) -> bytes:
        """The content of a file, if it is byte for byte what was written."""
        try:
            data = self.root.read(name)
            sealed: Sealed = _DECODERS[Sealed].decode(data)
        except FileNotFoundError:
            raise
        except (msgspec.MsgspecError, ValueError, OSError, RecursionError) as error:
            raise self._unreadable(name, error) from error
        content = bytes(sealed.content)
        if xxhash.xxh3_64_hexdigest(content) != sealed.checksum:
            raise self._unreadable(name, "its checksum does not match")
        if msgspec.json.encode(sealed) != data:
            raise self._unreadable(name, "there is more in it than was written")
        return content

    def _decode(self, name: str, content: bytes, kind: type[D]) -> D:
        try:
            return _DECODERS[kind].decode(content)  # type: ignore[no-any-return]
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, why: object) -> CrossStreamError:
        what = f"{name.rpartition('/')[2]} in the batch log cannot be read: {why}"
        return refuse("CS-701", what, file=f"{self.root}/{name}")


def _sealed(value: Any) -> bytes:
    content = msgspec.json.encode(value)
    return msgspec.json.encode(Sealed(xxhash.xxh3_64_hexdigest(content), msgspec.Raw(content)))


def batch_file(number: int) -> str:
    return f"batches/{number:012d}.json"


def commit_file(number: int) -> str:
    return f"commits/{number:012d}.json"


def entries(number: int) -> tuple[str, str]:
    """The files of a batch in the log; the commit first, for it is what the batch counts by."""
    return (commit_file(number), batch_file(number))
