"""Deleting state that no batch needs any more, after the commit that made it unneeded."""

from __future__ import annotations

import shutil
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from crossstream.engine.log import BatchLog
from crossstream.engine.stores import store_folder
from crossstream.errors import StateError
from crossstream.state.manifest import read_manifest
from crossstream.state.storage import Folder


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
        kept = self._in_use()
        stores = self.root / "stores"
        for store in stores.iterdir() if stores.is_dir() else ():
            for partition in store.iterdir():
                used = kept.get((unquote(store.name), partition.name), set())
                folder = Folder(partition)
                for name in folder.names():
                    if name not in used:
                        folder.delete(name)

    def _in_use(self) -> dict[tuple[str, str], set[str]]:
        kept: dict[tuple[str, str], set[str]] = {}
        for id_ in self.log.commits():
            for store, names in self.log.commit(id_).versions.items():
                for partition, name in names.items():
                    used = kept.setdefault((store, str(partition)), set())
                    if name not in used:
                        used.add(name)
                        folder = Folder(store_folder(self.root, store) / str(partition))
                        try:
                            used |= read_manifest(folder, name).files()
                        except StateError as error:
                            raise error.at(store=store, partition=partition, batch=id_) from None
        return kept
