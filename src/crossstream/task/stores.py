"""Versions of store partitions kept open between the batches of a process, and global tables read-only.

Every attempt of a task writes files of its own; the commit names those that count (decision 0003). All tasks of a
machine share the files of a global table (decision 0020).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError
from crossstream.graph.nodes import GlobalJoin
from crossstream.planning.plan import Plan, StoreDef, ViewDef
from crossstream.serdes import calls, errors
from crossstream.serdes.calls import find_invalid
from crossstream.storage.columns import cut, cut_all, take
from crossstream.storage.commit_log import STAGED
from crossstream.storage.compaction import Segment
from crossstream.storage.files import Storage, Written, in_threads, partition_folder
from crossstream.storage.log_entries import SENT
from crossstream.storage.manifest import Manifest, SegmentRef, read_manifest, read_run, staged_name, write_run
from crossstream.storage.overlay import Overlay
from crossstream.storage.root import Place, root_of, state_partition
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import Run
from crossstream.storage.store import (
    StoreUpdate,
    Version,
    advance,
    load_version,
    saver,
    store_version,
    unique_name,
)
from crossstream.tables.global_tables import Changed, GlobalTable, History, WholeTable
from crossstream.tables.view import View
from crossstream.task.batch import Batch


def measure(
    root: Place,
    versions: Mapping[str, Mapping[int, str]],
    timers: Collection[str] = (),
    expiring: Collection[str] = (),
) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """(rows, bytes) of each store partition, and when the next timer of ``timers`` fires (ms; 0: there is none).

    Both by ``store/partition``; ``versions``: names of their manifests. Of the stores ``expiring`` rows may be due now:
    their ttl may be another one than that of the manifest.
    """
    state = root_of(root)
    places = [
        (store, partition, name)
        for store, names in versions.items()
        for partition, name in names.items()
        if not store.startswith(SENT)
    ]

    def manifest_of(place: tuple[str, int, str]) -> Manifest:
        store, partition, name = place
        return read_manifest(state.storage(partition_folder(store, partition)), name)

    sizes: dict[str, tuple[int, int]] = {}
    due: dict[str, int] = {}
    for (store, partition, _), manifest in zip(places, in_threads(manifest_of, places), strict=True):
        sizes[f"{store}/{partition}"] = manifest.rows, manifest.size
        if store in timers:
            due[f"{store}/{partition}"] = 1 if store in expiring and manifest.rows else manifest.clock
    return sizes, due


def grow(
    stores: MemoryStores | FolderStores,
    store: StoreDef,
    partition: int,
    version: Version,
    update: StoreUpdate,
) -> Version:
    """The version after a batch, saved; the same object if nothing changed, and it has been saved already."""
    save = stores.saver(store, partition, update.batch)
    history = store.history if store.layout.versioned else None
    after = advance(version, update, save, history=history, remembered=store.remembered)
    if after is version:
        if not version.unsaved:
            return version
        after = replace(version, batch=update.batch, unsaved=False)
    return stores.save(store, partition, after)


@dataclass(slots=True)
class MemoryStores:
    """Versions in memory, for the test driver."""

    versions: dict[tuple[str, int], Version] = field(default_factory=dict)
    recorded: dict[str, Run] = field(default_factory=dict)

    def open(self, store: StoreDef, partition: int, name: str | None) -> Version:
        return self.versions.get((store.name, partition)) or Version(store.layout)

    def saver(self, store: StoreDef, partition: int, batch: int) -> Callable[[Run], Segment]:
        return lambda run: Segment(Run(dict(run.columns), run.rows))

    def save(self, store: StoreDef, partition: int, version: Version) -> Version:
        self.versions[store.name, partition] = version
        return version

    def record(self, store: StoreDef, partition: int, batch: int, run: Run) -> SegmentRef:
        """Keeps a run that belongs to no version; the last one of each partition."""
        name = f"{store.name}/{partition}"
        self.recorded[name] = run
        return SegmentRef(name, 0, run.rows, 0, 0, 0, "")

    def recall(self, store: StoreDef, partition: int, ref: SegmentRef) -> Run:
        """A run that was kept by `record`."""
        return self.recorded[ref.file]

    def stage(self, prefix: str, data: Written) -> str | None:
        """Keeps nothing: there is no executor to read it."""
        return None


class FolderStores:
    """Versions in the state folder. The last one of each partition stays open. Several threads may `open` them.

    ``over``: where what is written stays, by folder and name, over a state folder that is only read; None: it is
    written to the folder.
    """

    __slots__ = ("files", "held", "over", "root")

    def __init__(self, root: Place, over: dict[str, dict[str, pa.Buffer]] | None = None) -> None:
        self.root = root_of(root)
        self.over = over
        self.held: dict[tuple[str, int], Version] = {}
        self.files: dict[tuple[str, int], dict[str, Run]] = {}

    def beside(self) -> FolderStores:
        """Others of the same folder, which keep versions of their own open."""
        return FolderStores(self.root, self.over)

    def storage(self, store: StoreDef, partition: int) -> Storage:
        """The files of a state partition."""
        folder = partition_folder(store.name, partition)
        storage = self.root.storage(folder)
        return storage if self.over is None else Overlay(storage, self.over.setdefault(folder, {}))

    def open(self, store: StoreDef, partition: int, name: str | None) -> Version:
        if name is None:
            return Version(store.layout)
        held = self.held.get((store.name, partition))
        if held is not None and held.name == name:
            return held
        files = self.files.setdefault((store.name, partition), {})
        with state_partition(self.root, store.name, partition):
            version = load_version(self.storage(store, partition), store.layout, name, files)
        self._hold(store, partition, version)
        return version

    def _hold(self, store: StoreDef, partition: int, version: Version) -> None:
        """Keeps a version open, and no file that it does not need: an open file keeps its place on the disk."""
        files = self.files.setdefault((store.name, partition), {})
        for gone in files.keys() - version.files():
            files.pop(gone, None)  # another thread that reads may have been here
        self.held[store.name, partition] = version

    def close_superseded(self, batch: int, versions: Mapping[str, Mapping[int, str]]) -> None:
        """Closes what other processes moved on: older versions than ``batch`` that are not in ``versions``."""
        for store, partition in list(self.held):
            held = self.held[store, partition]
            if held.batch < batch and held.name != versions.get(store, {}).get(partition):
                del self.held[store, partition], self.files[store, partition]

    def saver(self, store: StoreDef, partition: int, batch: int) -> Callable[[Run], Segment]:
        return saver(self.storage(store, partition), unique_name(batch))

    def record(self, store: StoreDef, partition: int, batch: int, run: Run) -> SegmentRef:
        """Writes a run that belongs to no version."""
        return write_run(self.storage(store, partition), f"{unique_name(batch)}.history", run)

    def recall(self, store: StoreDef, partition: int, ref: SegmentRef) -> Run:
        """A run that was written by `record`; `StateError` if it is not what was written."""
        with state_partition(self.root, store.name, partition):
            return read_run(self.storage(store, partition), ref)

    def stage(self, prefix: str, data: Written) -> str | None:
        """Writes a file that other processes read until the batch is committed; returns its name.

        It is there when this returns, and no copy of it stays on this machine. Over a folder that is only read: None.
        """
        if self.over is not None:
            return None
        name = staged_name(prefix, data)
        root_of(self.root, cached=False).storage(STAGED).write(name, data)
        return name

    def save(self, store: StoreDef, partition: int, version: Version) -> Version:
        name = f"{unique_name(version.batch)}.manifest"
        saved = store_version(version, self.storage(store, partition), name)
        self._hold(store, partition, saved)
        return saved


@dataclass(slots=True)
class GlobalTables:
    """The global tables of a batch, opened when they are first looked up.

    ``stores``: none that anything is written through, so that versions before the batch stay open in it.
    """

    plan: Plan
    batch: Batch
    stores: MemoryStores | FolderStores
    _opened: dict[str, GlobalTable] = field(default_factory=dict)
    _changes: dict[tuple[str, bool], Changed] = field(default_factory=dict)

    def open(self, name: str) -> GlobalTable:
        """A table as it was before the batch, with the changes that the batch makes to it; or a view over tables."""
        if name not in self._opened:
            self._opened[name] = (
                self._view(self.plan.views[name]) if name in self.plan.views else self._whole(name)
            )
        return self._opened[name]

    def _view(self, view: ViewDef) -> View:
        left, right = self.open(view.left), self.open(view.right)
        node = self.plan.topology[view.node]
        assert isinstance(node, GlobalJoin)
        return View(node, left, right, view.value, self.batch.bits)

    def _whole(self, name: str) -> WholeTable:
        store, places = self.plan.stores[name], range(self.batch.partitions)
        manifests, histories = self.batch.versions.get(name, {}), self.batch.histories.get(name, {})
        return WholeTable(
            [self.stores.open(store, place, manifests.get(place)).snapshot() for place in places],
            [self._history(store, place, histories.get(place)) for place in places],
            store.key,
            store.value,
        )

    def opened(self) -> Iterator[tuple[StoreDef, Snapshot]]:
        """The state partitions of the tables that have been looked up, as they were before the batch."""
        for name, table in self._opened.items():
            if isinstance(table, WholeTable):
                yield from ((self.plan.stores[name], view) for view in table.views)

    def changes(self, name: str, every: bool = False) -> Changed:
        """What the batch changes in a table: see `GlobalTable.changes`."""
        if (name, every) not in self._changes:
            self._changes[name, every] = self.open(name).changes(every)
        return self._changes[name, every]

    def _history(self, store: StoreDef, place: int, ref: SegmentRef | None) -> History | None:
        return None if ref is None else History.from_run(self.stores.recall(store, place, ref))


_CHUNK = 16_384
"""Rows decoded at once."""


def unreadable_row(
    stores: Iterable[tuple[StoreDef, Snapshot]], serde: object, **where: object
) -> CrossStreamError | None:
    """The error of the first row in the stores whose value cannot be read; None if there is none.

    ``serde``: the name of the one that refused bytes.
    """
    for store, view in stores:
        if serde not in (None, store.value.name) or "value" not in store.layout.names:
            continue
        for run in view.segments():
            for start in range(0, run.rows, _CHUNK):
                values = cut(run["value"], start, min(start + _CHUNK, run.rows))
                found: Sequence[tuple[int, str]] = ()
                with suppress(SerdeError):  # not a matter of single rows
                    found = find_invalid(store.value, values)
                for row, reason in found:
                    if _is_live(view, run, start + row):
                        key = _key(store, run, start + row)
                        return errors.unreadable_row(reason, store.name, **where, key=key)
    return None


def _is_live(view: Snapshot, run: Run, row: int) -> bool:
    """Whether no newer run replaces the row; of those with several rows under a key each is taken for live."""
    if view.layout.sort is not None:
        return True
    one = cut_all(run.columns, row, row + 1)
    match = view.lookup(one["h"], one["key"])
    return bool(match.found[0]) and match.segments[int(match.segment[0])] is run


def _key(store: StoreDef, run: Run, row: int) -> Any:
    """The key of a row; its bytes, where they are no key of the store."""
    if store.layout.second_key:
        return run["key2"][row].as_py()
    data = take(run["key"], np.array([row]))
    try:
        return calls.decode_objects(store.key, data)[0]
    except SerdeError:
        return data[0].as_py()
