"""One store in the committed batches of a state folder, state partition by state partition, for readers that share it.

What says where the rows are is plain data, so one process plans and others read. Of the run files only those are
opened whose rows may be wanted, and each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec import structs

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, StateError
from crossstream.planning.plan import StoreDef
from crossstream.query.files import check_same, commit_of, definition_of
from crossstream.serdes import Serde
from crossstream.storage.bucket import AWAY
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Commit
from crossstream.storage.manifest import Manifest, SegmentRef, read_version
from crossstream.storage.root import Place, root_of, state_partition
from crossstream.storage.sorted_run import Run
from crossstream.storage.store import Version, version_of

Wanted: TypeAlias = Callable[[SegmentRef], bool]
"""Whether rows of a segment may be wanted."""


@dataclass(frozen=True, slots=True)
class PartAt:
    """A state partition after a batch. ``manifest``: None: nothing has come there yet."""

    batch: int
    partition: int
    manifest: str | None


@dataclass(frozen=True, slots=True)
class CommittedStore:
    """A queryable store of a state folder. ``address``: of the folder. ``fingerprint``: see `_Committed`."""

    store: StoreDef
    address: str
    fingerprint: str

    @classmethod
    def open(
        cls,
        state_dir: Place,
        name: str,
        serdes: Mapping[str, Serde] | None = None,
        registry: Any = None,
    ) -> CommittedStore:
        """Raises as `open_store`."""
        root = root_of(state_dir)
        store, fingerprint = definition_of(root, name, serdes, registry)
        return cls(store, root.address, fingerprint)

    @property
    def log(self) -> BatchLog:
        return BatchLog(root_of(self.address))

    def commit(self, batch: int | None) -> Commit:
        """The commit of a batch; None: the newest one. Raises `StateError`: CS-713 not kept, CS-710 another store."""
        log = self.log
        check_same(log.root, self.store, self.fingerprint, batch)
        with kept(log, () if batch is None else (batch,)):
            return commit_of(log, batch)

    def parts(self, commit: Commit) -> list[PartAt]:
        """Its state partitions after a batch."""
        names = commit.versions.get(self.store.name, {})
        return [PartAt(commit.id, pid, names.get(pid)) for pid in range(commit.partitions)]


@dataclass(slots=True)
class OpenPartition:
    """One state partition of a store with its files open. One thread uses it."""

    committed: CommittedStore
    partition: int
    runs: dict[str, Run] = field(default_factory=dict)

    def manifest(self, part: PartAt) -> Manifest | None:
        """Raises `StateError`: CS-701 if it is damaged, CS-713 if its batch was retired meanwhile."""
        if part.manifest is None:
            return None
        store, log = self.committed.store, self.committed.log
        with kept(log, (part.batch,)), state_partition(log.root, store.name, self.partition) as storage:
            return read_version(storage, part.manifest, store.layout.kind)

    def version(self, part: PartAt, manifest: Manifest | None, wanted: Wanted | None = None) -> Version:
        """The version of a manifest; of its segments only those that are ``wanted``."""
        store, log = self.committed.store, self.committed.log
        if manifest is None:
            return Version(store.layout)
        if wanted is not None:
            levels = tuple(
                structs.replace(level, segments=tuple(filter(wanted, level.segments)))
                for level in manifest.levels
            )
            manifest = structs.replace(manifest, levels=levels)
        with kept(log, (part.batch,)), state_partition(log.root, store.name, self.partition) as storage:
            return version_of(storage, store.layout, manifest, self.runs)


@contextmanager
def kept(log: BatchLog, batches: Sequence[int]) -> Iterator[None]:
    """Makes of a file that is missing, because its batch was retired while it was read, the error that says so."""
    try:
        yield
    except (StateError, FileNotFoundError) as error:
        if isinstance(error, StateError) and error.code in (AWAY, "CS-713"):
            raise
        there = log.commits()
        gone = [batch for batch in batches if batch not in there]
        if gone:
            raise retired(log, gone[0], there) from None
        raise


def retired(log: BatchLog, batch: int, there: Sequence[int]) -> CrossStreamError:
    """CS-713: the state after a batch is not kept any more."""
    found = f"batches {there[0]} to {there[-1]}" if there else "no batch yet"
    step = (
        f"kept: {found}. Load the table again; begin a stream with a new checkpoint, whose first rows are those there "
        "are; a larger retain_batches of the application keeps more"
    )
    return refuse("CS-713", f"batch {batch} is not kept any more", step, folder=str(log.root))
