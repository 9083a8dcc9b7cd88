"""Copies of state, also while its application runs: a backup, its way back, and a fork for a second application.

Runs and manifests never change, so a copy of those of one commit is what was there after its batch. On one file system
a hard link is enough: each folder deletes its own names only. Else files are copied, forced to the disk, and checked.

The application may delete files of the commit meanwhile, when later batches need them no more. Then the next attempt
takes a newer commit, for which most files are there already. The commit is the last file that is written: a copy that
was interrupted has none, and no application takes it for a new folder.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from crossstream.error_codes import refuse
from crossstream.errors import StateError
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.door import MOST_RUN, check_plain, inside
from crossstream.storage.files import (
    REFRESHED,
    UNFINISHED,
    in_threads,
    make_folder,
    partition_folder,
    rights_in,
)
from crossstream.storage.log_entries import Application, Commit
from crossstream.storage.manifest import SegmentRef, checked_run, lost, read_manifest
from crossstream.storage.root import Place, StateRoot, root_of, state_partition

ATTEMPTS = 100
"""How often a newer commit is tried. Each attempt copies only what the one before has not."""
_BY_PEOPLE = ("lock", "spark.log", "lost+found")
"""Files that may be in a folder that counts as empty."""


@dataclass(slots=True)
class Copied:
    """What was copied. ``files``, ``size``: of its runs; ``linked``: how many of them are hard links."""

    application: Application
    commit: Commit
    files: int = 0
    size: int = 0
    linked: int = 0


def copy_state(source: Place, target: Place, *, links: bool, owner: str = "") -> Copied:
    """Copies the newest commit of the state in ``source`` to an empty ``target``.

    ``links``: makes hard links where it can. ``owner``: another application that the copy belongs to, as other state
    with an id of its own. Raises `StateError`: CS-713 nothing is committed, CS-720 or CS-723 for a target in use or
    not empty, CS-701 damaged.
    """
    here, there = root_of(source, cached=False), root_of(target, cached=False)
    found = _checked(here)
    _refuse_used(there)
    log = BatchLog(there, durable=True)
    log.lock(f"a copy of {here}", None if here.is_remote else rights_in(here.here))
    try:
        _refuse_used(there)
        state_id = uuid.uuid4().hex if owner else found.state_id

        def owned(found: Application) -> Application:
            name = owner or found.application_id
            return replace(found, application_id=name, state_id=state_id, committed=True, changing=-1)

        log.write_application(owned(found))
        return _Copy(here, there, log, links, owned).run()
    finally:
        log.unlock()


def _checked(root: StateRoot) -> Application:
    log = BatchLog(root)
    found = log.application()
    if found is None or log.last_commit() is None:
        raise refuse("CS-713", "there is no committed batch here to copy", folder=str(root))
    if found.frames:
        what = "the state has the checkpoint of DataFrame sources, which Spark writes by itself"
        step = "stop the application and copy the whole folder, for instance with cp -a"
        raise refuse("CS-723", what, step, folder=str(root))
    return found


def _refuse_used(root: StateRoot) -> None:
    names = (
        root.names("")
        if not root.is_remote
        else sorted(name for _, all_ in root.tree("").items() for name in all_)
    )
    used = [name for name in names if name not in (*_BY_PEOPLE, "lease.json")]
    if used:
        what = f"the target of the copy is not empty: it has {used[0]}"
        step = "name a folder that does not exist yet, or an empty one"
        raise refuse("CS-723", what, step, folder=str(root))


@dataclass(slots=True)
class _Copy:
    """``owned``: what the copy notes of the application that the state belongs to."""

    source: StateRoot
    target: StateRoot
    log: BatchLog
    links: bool
    owned: Callable[[Application], Application]
    _done: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def run(self) -> Copied:
        read = BatchLog(self.source)
        for _ in range(ATTEMPTS):
            commit = read.newest()
            try:
                versions = [
                    (store, *one) for store, names in commit.versions.items() for one in names.items()
                ]
                used = set(in_threads(lambda one: self._version(*one), versions))
            except (StateError, FileNotFoundError) as error:
                if read.newest().id != commit.id:
                    continue  # retired while it was copied
                if isinstance(error, StateError):
                    raise
                raise lost(f"a file of batch {commit.id} is missing", folder=str(self.source)) from error
            found = read.application_at(commit.id)  # a change may have made it another one meanwhile
            assert found is not None
            return self._committed(self.owned(found), commit, frozenset().union(*used))
        what = (
            f"the application deletes its files faster than they can be copied: {ATTEMPTS} batches were tried"
        )
        step = "set a larger retain_batches, or stop the application meanwhile"
        raise refuse("CS-713", what, step, folder=str(self.source))

    def _committed(self, application: Application, commit: Commit, used: frozenset[str]) -> Copied:
        self.target.delete(*sorted(self._done.keys() - used))
        self._tables()
        self.log.settle(used)
        self.log.write_application(application)
        self.log.write_commit(commit)
        copied = [self._done[name] for name in used if name.endswith(".arrow")]
        return Copied(
            application, commit, len(copied), sum(size for size, _ in copied), sum(one for _, one in copied)
        )

    def _tables(self) -> None:
        """Copies what was read of tables that are read again: all of it, for later batches read on.

        A file that is gone was folded into a newer one meanwhile.
        """
        done: set[str] = set()
        while left := self._read_again() - done:
            done |= left
            for name in sorted(left):
                folder, _, file = name.rpartition("/")
                with suppress(FileNotFoundError):
                    data = bytes(self.source.storage(folder).read(file))
                    self.target.write(name, data, forced=True)

    def _read_again(self) -> set[str]:
        found = self.source.tree(REFRESHED).items()
        return {
            f"{folder}/{name}" for folder, names in found for name in names if not name.endswith(UNFINISHED)
        }

    def _version(self, store: str, partition: int, manifest: str) -> frozenset[str]:
        """Copies a manifest and its runs; their names below the root."""
        folder = partition_folder(store, partition)
        with state_partition(self.source, store, partition) as storage:
            found = read_manifest(storage, manifest)
            segments = {ref.file: ref for ref in found.segments()}
            for ref in segments.values():
                self._file(folder, ref.file, ref)
            self._file(folder, manifest, None)
        return frozenset(f"{folder}/{name}" for name in (*segments, manifest))

    def _file(self, folder: str, name: str, ref: SegmentRef | None) -> None:
        path = f"{folder}/{name}"
        if path in self._done:
            return
        storage, target = self.source.storage(folder), self.target.storage(folder)
        size = 0 if ref is None else ref.size
        if self.links and link_file(self.source, path, self.target, path):
            self._done[path] = (size, True)
            return
        target.write(name, storage.read(name) if ref is None else checked_run(storage, ref))
        self.target.settled()
        if ref is None:
            read_manifest(target, name)
        else:
            checked_run(target, ref)
        self._done[path] = (size, False)


def link_file(source: StateRoot, old: str, target: StateRoot, new: str) -> bool:
    """Makes a hard link to a file of state, if both are on one file system; raises `FileNotFoundError`."""
    if source.is_remote or target.is_remote:
        return False
    try:
        there, here = inside(source.here, old), inside(target.here, new)
        check_plain(there, MOST_RUN)
        make_folder(here.parent, rights_in(target.here) or 0o600)
        os.link(there, here, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    return True
