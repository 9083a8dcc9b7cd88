"""What a state folder holds: its application, its batches, and the stores with what each takes."""

from __future__ import annotations

from dataclasses import dataclass

from crossstream.errors import StateError
from crossstream.planning.plan import read_as
from crossstream.query.files import application_of
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import partition_folder
from crossstream.storage.log_entries import Application, Commit
from crossstream.storage.manifest import read_manifest
from crossstream.storage.root import Place, StateRoot, root_of


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One state partition after the newest batch. ``rows``: in its ``runs``, replaced and deleted ones among them.

    ``size``: bytes of the run files. ``stream_time`` (ms): None if there is none. ``batch``: the last one that
    changed it.
    """

    partition: int
    rows: int
    size: int
    runs: int
    stream_time: int | None
    batch: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """A store and its state partitions, those that nothing is known of left out.

    ``key``, ``value``: names of the serdes. ``history``: of a versioned store, in ms. ``queryable``: by its name.
    ``placed``: rows are where a partitioner puts them, and not where the hash of their key does.
    """

    name: str
    kind: str
    key: str
    value: str
    history: int | None
    queryable: bool
    placed: bool
    partitions: tuple[PartitionState, ...]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.partitions)

    @property
    def size(self) -> int:
        return sum(one.size for one in self.partitions)

    @property
    def runs(self) -> int:
        return sum(one.runs for one in self.partitions)

    @property
    def stream_time(self) -> int | None:
        return max((one.stream_time for one in self.partitions if one.stream_time is not None), default=None)

    @property
    def batch(self) -> int | None:
        return max((one.batch for one in self.partitions), default=None)


@dataclass(frozen=True, slots=True)
class FolderState:
    """``batch``, ``time``: of the newest commit (−1 before the first one). ``batches``: those that can be asked for."""

    application_id: str
    partitions: int
    batch: int
    time: float
    batches: tuple[int, ...]
    stores: tuple[StoreState, ...]


def inspect_state(state_dir: Place) -> FolderState:
    """What a state folder holds after its newest batch, by the manifests; the run files are not opened.

    Raises `StateError`: CS-713 no state here, CS-701 and CS-704 for files that cannot be read.
    """
    root = root_of(state_dir)
    log, application = BatchLog(root), application_of(root)
    while True:
        commit = log.newest()
        try:
            stores = tuple(_store(root, application, commit, name) for name in sorted(application.stores))
        except StateError:
            if log.newest().id == commit.id:
                raise
            continue  # it was retired while it was read: a newer one is there
        return FolderState(
            application.application_id,
            commit.partitions,
            commit.id,
            commit.time,
            tuple(log.commits()),
            stores,
        )


def _store(root: StateRoot, application: Application, commit: Commit, name: str) -> StoreState:
    kind, *serdes, history = application.stores[name].split("/")
    return StoreState(
        name,
        read_as(kind),
        serdes[0],
        "/".join(serdes[1:]),
        None if history == "None" else int(history),
        name in application.readers,
        name in application.placed,
        tuple(
            _partition(root, name, partition, manifest)
            for partition, manifest in sorted(commit.versions.get(name, {}).items())
        ),
    )


def _partition(root: StateRoot, store: str, partition: int, name: str) -> PartitionState:
    try:
        manifest = read_manifest(root.storage(partition_folder(store, partition)), name)
    except StateError as error:
        raise error.at(store=store, partition=partition, folder=str(root)) from None
    return PartitionState(
        partition,
        manifest.rows,
        manifest.size,
        sum(1 for level in manifest.levels if level.segments),
        None if manifest.stream_time < 0 else manifest.stream_time,
        manifest.batch,
    )
