"""Deletes what no kept batch needs: log entries, manifests and runs; at a start also what crashed attempts left."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Event

from crossstream.errors import StateError
from crossstream.storage.commit_log import STAGED, BatchLog, entries
from crossstream.storage.files import EVOLVING, MANY, Background, file_names, in_threads, partition_folder
from crossstream.storage.log_entries import SENT, Commit
from crossstream.storage.manifest import read_manifest
from crossstream.storage.root import Place, StateRoot, root_of

Files = dict[str, set[str]]
"""Names of files by place, which is ``store/partition``."""
Tree = dict[str, list[str]]
"""Names of files by folder."""


class _Closed(Exception):
    """The application ends before all was read."""


class Vacuum:
    """Keeps the last ``retain`` batches readable and deletes the files that only older ones used.

    ``staged``: where records wait to be published; by default in the state folder.
    """

    def __init__(self, root: Place, log: BatchLog, retain: int, staged: Path | None = None) -> None:
        self.root = root_of(root)
        self.log = log
        self.retain = retain
        self._staged = self.root.here / STAGED if staged is None else staged
        self._waiting: deque[tuple[int, dict[str, list[str]]]] = deque()
        self._attempt: list[str] = []
        self._past: list[int] = []
        self._looking = Background("crossstream vacuum", 1)
        self._has_looked = Event()
        self._has_looked.set()
        self._is_closed = False

    def add(self, batch: int, retired: dict[str, list[str]]) -> None:
        """After the commit of ``batch``: what it replaced is kept for a while, what is due is deleted."""
        self._waiting.append((batch, retired))
        self._past.append(batch - self.retain - 1)
        if not self._has_looked.is_set():
            return
        self._looking.finish()
        due: list[str] = []
        while self._waiting and self._waiting[0][0] <= batch - self.retain:
            due += file_names(self._waiting.popleft()[1])
        due, self._attempt = due + self._attempt, []
        past, self._past = self._past, []
        self.root.discard([name for id_ in past if id_ >= 0 for name in entries(id_)], due)

    def sweep(self, next_batch: int) -> None:
        """At a start: deletes what crashed attempts left behind, and what kept commits do not use.

        Where that is to be read in many manifests, batches begin meanwhile, and none deletes anything before.
        """
        known = {*self.log.commits(), *self.log.batches()}
        past = sorted(id_ for id_ in known if id_ < next_batch - 1 - self.retain)
        self.root.delete(*[name for id_ in past for name in entries(id_)], *self.log.unfinished())
        shutil.rmtree(self._staged, ignore_errors=True)
        self.root.storage(STAGED)  # refuses a link, through which records would be written elsewhere
        clear(self.root, EVOLVING)
        if self.root.is_remote:
            self.root.delete(*[f"{STAGED}/{name}" for name in self.root.names(STAGED)])
        commits, tree = in_threads(self.log.commit, self.log.commits()), self.root.tree("stores")
        if sum(len(names) for commit in commits for names in commit.versions.values()) < MANY:
            self._look(commits, tree, next_batch)
        else:
            self._has_looked.clear()
            self._looking.begin(self._look_meanwhile, commits, tree, next_batch)

    def await_look(self) -> None:
        """Returns when what kept commits use is known."""
        self._has_looked.wait()

    def close(self) -> None:
        """Ends what runs in the background. What it leaves behind is deleted by the next start."""
        self._is_closed = True
        self._looking.close()

    def _look_meanwhile(self, commits: Sequence[Commit], tree: Tree, next_batch: int) -> None:
        try:
            self._look(commits, tree, next_batch)
        except _Closed:
            pass
        finally:
            self._has_looked.set()

    def _look(self, commits: Sequence[Commit], tree: Tree, next_batch: int) -> None:
        """Finds what is to be deleted later, and deletes of the files in ``tree`` those that no commit uses."""
        kept, found = self._kept(commits), deque[tuple[int, dict[str, list[str]]]]()
        for (_, older), (id_, newer) in pairwise(kept):
            gone = {place: sorted(files - newer.get(place, set())) for place, files in older.items()}
            found.append((id_, gone))
        if kept and kept[-1][0] == next_batch - 1:  # what is of one commit only goes with the next one
            sent = {place: sorted(files) for place, files in kept[-1][1].items() if place.startswith(SENT)}
            found.append((next_batch, sent))
        self._waiting.extendleft(reversed(found))
        self._clear(kept, tree, next_batch)

    def _clear(self, kept: Sequence[tuple[int, Files]], tree: Tree, next_batch: int) -> None:
        """Deletes what no kept commit uses; on an object store files of the next batch when it is committed.

        There an earlier owner may stand still right before it puts that commit.
        """
        used = {name for _, files in kept for name in file_names(files)}
        there = {f"{folder}/{name}" for folder, names in tree.items() for name in names}
        unused = there - used
        if self.root.is_remote:
            self._attempt = sorted(name for name in unused if f"/{next_batch:012d}-" in name)
        self.root.delete(*sorted(unused.difference(self._attempt)))
        for folder in () if self.root.is_remote else tree:
            if folder.count("/") == 2:
                with suppress(OSError):  # only an empty one goes: of a number of partitions that is past
                    (self.root.here / folder).rmdir()

    def _kept(self, commits: Sequence[Commit]) -> list[tuple[int, Files]]:
        """The kept commits in order, each with the files that it needs."""
        named = {one: commit.id for commit in reversed(commits) for one in _manifests(commit)}
        found = in_threads(lambda item: self._files(*item[0], item[1]), named.items())
        opened = dict(zip(named, found, strict=True))
        return [(c.id, {f"{one[0]}/{one[1]}": opened[one] for one in _manifests(c)}) for c in commits]

    def _files(self, store: str, partition: int, manifest: str, batch: int) -> set[str]:
        """The files of a version: its manifest, and the runs that this names."""
        if self._is_closed:
            raise _Closed
        storage = self.root.storage(partition_folder(store, partition))
        try:
            return {manifest, *read_manifest(storage, manifest).files()}
        except StateError as error:
            raise error.at(store=store, partition=partition, batch=batch) from None


def clear(root: StateRoot, folder: str) -> None:
    """Removes a folder of the state with all that is in it; nothing happens if it is not there."""
    root.delete(*[f"{place}/{name}" for place, names in root.tree(folder).items() for name in names])
    if not root.is_remote:
        shutil.rmtree(root.here / folder, ignore_errors=True)


def _manifests(commit: Commit) -> Iterator[tuple[str, int, str]]:
    """Store, partition and name of each."""
    for store, names in commit.versions.items():
        yield from ((store, partition, name) for partition, name in names.items())
