"""Deleting state that no batch needs any more, after the commit that made it unneeded."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from crossstream.errors import StateError
from crossstream.storage.commit_log import BatchLog, entries
from crossstream.storage.files import file_names, partition_folder
from crossstream.storage.log_entries import Commit
from crossstream.storage.manifest import read_manifest
from crossstream.storage.root import Place, root_of

Files = dict[str, set[str]]
"""Names of files by place, which is ``store/partition``."""


class Vacuum:
    """Keeps the last ``retain`` batches readable and deletes the files that only older ones used.

    ``staged``: where records wait to be published; by default in the state folder.
    """

    def __init__(self, root: Place, log: BatchLog, retain: int, staged: Path | None = None) -> None:
        self.root = root_of(root)
        self.log = log
        self.retain = retain
        self._staged = self.root.here / "staged" if staged is None else staged
        self._waiting: deque[tuple[int, dict[str, list[str]]]] = deque()

    def add(self, batch: int, retired: dict[str, list[str]]) -> None:
        """After the commit of ``batch``: what it replaced is kept for a while, what is due is deleted."""
        self._waiting.append((batch, retired))
        due: list[str] = []
        while self._waiting and self._waiting[0][0] <= batch - self.retain:
            due += file_names(self._waiting.popleft()[1])
        past = batch - self.retain - 1
        self.root.discard(entries(past) if past >= 0 else (), due)

    def sweep(self, next_batch: int) -> None:
        """At a start: deletes what crashed attempts left behind, and what kept commits do not use."""
        known = {*self.log.commits(), *self.log.batches()}
        self.root.each(self.log.forget, sorted(id_ for id_ in known if id_ < next_batch - 1 - self.retain))
        self.root.delete(*self.log.unfinished())
        shutil.rmtree(self._staged, ignore_errors=True)
        kept = self._kept()
        for (_, older), (id_, newer) in pairwise(kept):
            gone = {place: sorted(files - newer.get(place, set())) for place, files in older.items()}
            self._waiting.append((id_, gone))
        self._clear(kept)

    def _clear(self, kept: Sequence[tuple[int, Files]]) -> None:
        listed = time.time()
        used = {name for _, files in kept for name in file_names(files)}
        tree = self.root.tree("stores")
        there = {f"{folder}/{name}" for folder, names in tree.items() for name in names}
        self.root.delete(*sorted(there - used))
        self.root.tidy(used, listed)
        in_use = {name.rpartition("/")[0] for name in used}
        for folder in tree:
            if folder.count("/") == 2 and folder not in in_use:
                self.root.prune(folder)  # of a number of partitions that is past

    def _kept(self) -> list[tuple[int, Files]]:
        """The kept commits in order, each with the files that it needs."""
        commits = self.root.each(self.log.commit, self.log.commits())
        named: dict[tuple[str, int, str], int] = {}
        for commit in commits:
            for store, names in commit.versions.items():
                for partition, name in names.items():
                    named.setdefault((store, partition, name), commit.id)
        found = self.root.each(lambda item: self._files(*item[0], item[1]), named.items())
        opened = dict(zip(named, found, strict=True))
        return [(commit.id, _needed(commit, opened)) for commit in commits]

    def _files(self, store: str, partition: int, manifest: str, batch: int) -> set[str]:
        """The files of a version: its manifest, and the runs that this names."""
        storage = self.root.storage(partition_folder(store, partition))
        try:
            return {manifest, *read_manifest(storage, manifest).files()}
        except StateError as error:
            raise error.at(store=store, partition=partition, batch=batch) from None


def _needed(commit: Commit, opened: dict[tuple[str, int, str], set[str]]) -> Files:
    return {
        f"{store}/{partition}": opened[store, partition, name]
        for store, names in commit.versions.items()
        for partition, name in names.items()
    }
