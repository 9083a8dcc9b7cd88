"""Deleting state that no batch needs any more, after the commit that made it unneeded."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from crossstream.engine.log import BatchLog
from crossstream.engine.stores import store_folder
from crossstream.errors import StateError
from crossstream.state.manifest import read_manifest
from crossstream.state.storage import Folder

Files = dict[str, set[str]]
"""Names of files by place, which is ``store/partition``."""


@dataclass(slots=True)
class Retirement:
    """Keeps the last ``retain`` batches readable and deletes the files that only older ones used."""

    root: Path
    log: BatchLog
    retain: int
    _waiting: deque[tuple[int, dict[str, list[str]]]] = field(default_factory=deque)

    def add(self, batch: int, retired: dict[str, list[str]]) -> None:
        """After the commit of ``batch``: what it replaced is kept for a while, what is due is deleted."""
        self.log.forget(batch - self.retain - 1)
        self._waiting.append((batch, retired))
        while self._waiting and self._waiting[0][0] <= batch - self.retain:
            _, due = self._waiting.popleft()
            for place, files in due.items():
                store, _, partition = place.rpartition("/")
                folder = Folder(store_folder(self.root, store) / partition)
                for name in files:
                    folder.delete(name)

    def sweep(self, next_batch: int) -> None:
        """At a start: deletes what crashed attempts left behind, and what kept commits do not use."""
        for id_ in self.log.commits():
            if id_ < next_batch - 1 - self.retain:
                self.log.forget(id_)
        shutil.rmtree(self.root / "staged", ignore_errors=True)
        kept = self._kept()
        for (_, older), (id_, newer) in pairwise(kept):
            gone = {place: sorted(files - newer.get(place, set())) for place, files in older.items()}
            self._waiting.append((id_, gone))
        self._clear(kept)

    def _clear(self, kept: Sequence[tuple[int, Files]]) -> None:
        stores = self.root / "stores"
        for store in stores.iterdir() if stores.is_dir() else ():
            for partition in list(store.iterdir()):
                place = f"{unquote(store.name)}/{partition.name}"
                used = set().union(*(files.get(place, set()) for _, files in kept))
                folder = Folder(partition)
                for name in folder.names():
                    if name not in used:
                        folder.delete(name)
                if not used:
                    partition.rmdir()  # of a number of partitions that is past

    def _kept(self) -> list[tuple[int, Files]]:
        """The kept commits in order, each with the files that it needs."""
        opened: dict[tuple[str, str], set[str]] = {}
        return [(id_, self._needed(id_, opened)) for id_ in self.log.commits()]

    def _needed(self, id_: int, opened: dict[tuple[str, str], set[str]]) -> Files:
        needed: Files = {}
        for store, names in self.log.commit(id_).versions.items():
            for partition, name in names.items():
                place = f"{store}/{partition}"
                if (place, name) not in opened:
                    folder = Folder(store_folder(self.root, store) / str(partition))
                    try:
                        opened[place, name] = {name, *read_manifest(folder, name).files()}
                    except StateError as error:
                        raise error.at(store=store, partition=partition, batch=id_) from None
                needed[place] = opened[place, name]
        return needed
