"""A state folder, from any process: its stores after a committed batch, and what each takes. No server is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from crossstream.error_codes import refuse
from crossstream.errors import StateError
from crossstream.planning.layouts import layout_of
from crossstream.planning.plan import Plan, StoreDef
from crossstream.query.as_of import batch_at
from crossstream.query.store import StoreReader, reader_of, store_named
from crossstream.serdes import Serde
from crossstream.serdes.described import made, names_in
from crossstream.serdes.own import known
from crossstream.serdes.registry.client import RegistrySettings
from crossstream.storage.bucket import AWAY
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Application, Commit, Readable
from crossstream.storage.manifest import Manifest, read_manifest
from crossstream.storage.root import Place, StateRoot, root_of, state_partition
from crossstream.storage.store import Version
from crossstream.task.stores import FolderStores

T = TypeVar("T")


def describe_readers(plan: Plan) -> dict[str, Readable]:
    """What the state folder notes about each queryable store, so that any process can read it."""
    return {
        store.public: Readable(
            store.name,
            store.layout.kind,
            store.key.described(),
            store.value.described(),
            store.history,
            store.window_size,
        )
        for store in plan.stores.values()
        if store.public is not None
    }


def open_store(
    state_dir: Place,
    name: str,
    as_of: int | str | None = None,
    serdes: Mapping[str, Serde] | None = None,
    registry: Any = None,
) -> StoreReader:
    """The queryable store ``name`` of a state folder, while its application runs or after.

    ``state_dir``: as in `StreamsConfig`. Without ``as_of`` every call reads the newest committed batch; with it, the
    state after that batch (one of the last ``retain_batches``). Where tables have ``transactions``, "lsn:0/16B3748" is
    the last batch kept that stands at that place in the log of their database, or before it. ``serdes``: those to read
    it with, for "key", for "value", or by the name of a serde; only a serde of your own is needed. Without its class,
    JSON is plain values. ``registry``: the schema registry to ask, as in `serdes.confluent_avro`; the one that the
    folder names never is.
    Raises `StateError`: CS-703 a serde is needed, or is not the store's, CS-710 no such store, CS-713 no state
    here, or that batch is not kept; of a URI also CS-707 if the store does not answer, CS-723 if it is not valid.
    Source: semantics 3.7. Examples of reading: docs/queries.md.

    >>> open_store("no/such/folder", "promotions")
    Traceback (most recent call last):
    ...
    crossstream.errors.StateError: [CS-713] there is no state here
      where: folder no/such/folder
      next:  give the state_dir of an application that has run
    """
    root = root_of(state_dir)
    log = BatchLog(root)
    batch = batch_at(log, as_of)
    store, fingerprint = definition_of(root, name, serdes, registry, batch)
    committed = _Committed(log, store, fingerprint, batch)
    committed()
    return reader_of(store, committed)


def definition_of(
    root: StateRoot,
    name: str,
    serdes: Mapping[str, Serde] | None = None,
    registry: Any = None,
    batch: int | None = None,
) -> tuple[StoreDef, str]:
    """How a queryable store is read, and its fingerprint, after a batch. Raises as `open_store`."""
    application = application_of(root, batch)
    _check_there(application, name, root)
    asked = None if registry is None else RegistrySettings.of(registry)
    store = _definition(application, name, serdes or {}, asked, root)
    return store, application.stores[store.name]


def open_own(state_dir: Place, plan: Plan, name: str, as_of: int | None = None) -> StoreReader:
    """`open_store` for the application itself, whose serdes are at hand, if the state is of this plan."""
    application = application_of(state_dir, as_of)
    own = store_named(plan, name)
    if own is None or application.stores.get(own.name) != plan.fingerprint()[own.name]:
        return open_store(state_dir, name, as_of)
    return open_store(state_dir, name, as_of, {"key": own.key, "value": own.value})


def application_of(state_dir: Place, batch: int | None = None) -> Application:
    """Whose state a folder holds, or held after a batch, for a change may have made it another one.

    Raises `StateError`: CS-713 if there is none, CS-701, CS-704 if it is damaged.
    """
    log = BatchLog(state_dir)
    application = log.application_at(batch) if isinstance(batch, int) else log.application()
    if application is None:
        raise refuse("CS-713", "there is no state here", folder=str(log.root))
    return application


def store_names(state_dir: Place) -> list[str]:
    """The queryable stores of a state folder."""
    application = BatchLog(state_dir).application()
    return [] if application is None else sorted(application.readers)


def _definition(
    application: Application,
    name: str,
    given: Mapping[str, Serde],
    registry: RegistrySettings | None,
    root: StateRoot,
) -> StoreDef:
    readable = application.readers[name]
    place = {"store": name, "folder": str(root)}
    layout = layout_of(readable.kind)
    if layout is None or not layout.is_known:
        what = f"the store is of a kind that this version does not read: {readable.kind!r}"
        raise refuse("CS-704", what, "run the version of crossstream that wrote it", **place)
    if readable.history is not None and not layout.versioned:
        what = f"the state says that a store of the kind {readable.kind!r} keeps old values, as versioned ones alone do"
        raise refuse("CS-704", what, **place)
    names = {"key", "value", *names_in(readable.key), *names_in(readable.value)}
    if unknown := [one for one in given if one not in names]:
        what = f"a serde is passed for {unknown[0]!r}, and the store has none of that name"
        raise refuse("CS-703", what, f"pass it for one of: {', '.join(sorted(names))}", **place)
    try:
        key = known(given["key"]) if "key" in given else made(readable.key, given, registry)
        value = known(given["value"]) if "value" in given else made(readable.value, given, registry)
    except StateError as error:
        raise error.at(**place) from error.__cause__
    return StoreDef(
        name=readable.store,
        layout=layout,
        round=0,
        key=key,
        value=value,
        public=name,
        history=readable.history,
        anywhere=readable.store in application.anywhere,
        window_size=readable.window_size,
    )


def _check_there(application: Application, name: str, root: StateRoot) -> None:
    if name not in application.readers:
        step = f"its queryable stores are: {', '.join(sorted(application.readers)) or 'none'}"
        raise refuse("CS-710", f"there is no store named {name!r}", step, folder=str(root))


def commit_of(log: BatchLog, as_of: int | None) -> Commit:
    """The commit of a batch; None: the newest one. Raises `StateError` CS-713 if there is none."""
    if as_of is not None:
        check_kept(log, as_of)
        return log.commit(as_of)
    newest = log.last_commit()
    return Commit(-1, application_of(log.root).partitions) if newest is None else newest


def check_kept(log: BatchLog, batch: int) -> None:
    """Raises `StateError` CS-713 for a batch whose state is not there."""
    kept = log.commits()
    if isinstance(batch, bool) or batch not in kept:
        step = f"kept are batches {kept[0]} to {kept[-1]}" if kept else "no batch has been committed yet"
        raise refuse("CS-713", f"batch {batch!r} is not kept", step, folder=str(log.root)) from None


def of_newest(log: BatchLog, read: Callable[[Commit], T]) -> T:
    """What ``read`` makes of the newest commit, which may be retired meanwhile: then a newer one is there."""
    while True:
        commit = commit_of(log, None)
        try:
            return read(commit)
        except (StateError, FileNotFoundError) as error:
            is_away = isinstance(error, StateError) and error.code == AWAY
            if is_away or commit_of(log, None).id == commit.id:
                raise


class _Committed:
    """Gives the versions of a store after the newest commit, or after one that was asked for.

    ``fingerprint``: what was to be the same of the store for its state to be usable, when it was opened.
    """

    def __init__(self, log: BatchLog, store: StoreDef, fingerprint: str, as_of: int | None) -> None:
        self._log = log
        self._store = store
        self._fingerprint = fingerprint
        self._as_of = as_of
        self._stores = FolderStores(log.root)
        self._last: tuple[tuple[int, dict[int, str]], Sequence[Version]] | None = None

    def __call__(self) -> Sequence[Version]:
        as_of = self._as_of
        if as_of is None:
            return of_newest(self._log, self._read)
        try:
            return self._read(commit_of(self._log, as_of))
        except (StateError, FileNotFoundError) as error:
            if not (isinstance(error, StateError) and error.code == AWAY):
                check_kept(self._log, as_of)
            raise

    def _read(self, commit: Commit) -> Sequence[Version]:
        names = commit.versions.get(self._store.name, {})
        # Manifests have names that are never used again; batches of state that begins again have their old numbers.
        wanted, last = (commit.partitions, names), self._last
        if last is not None and last[0] == wanted:
            return last[1]
        check_same(self._log.root, self._store, self._fingerprint, self._as_of)
        versions = [self._stores.open(self._store, pid, names.get(pid)) for pid in range(commit.partitions)]
        self._last = wanted, versions  # at once: other threads may read, too
        return versions


def check_same(root: StateRoot, store: StoreDef, fingerprint: str, batch: int | None = None) -> None:
    """The state may have been removed, and another application have begun in its place, or changed it."""
    name = store.public or ""
    application = application_of(root, batch)
    _check_there(application, name, root)
    if application.stores.get(store.name) != fingerprint:
        what = f"the store {name!r} is not what it was when it was opened"
        raise refuse("CS-710", what, "open it again", folder=str(root))


@dataclass(frozen=True, slots=True)
class FolderState:
    """``commit``: the newest one. ``batches``: those that can be asked for.

    ``stores``: the manifest of each state partition, those that nothing is known of left out.
    """

    application: Application
    commit: Commit
    batches: list[int]
    stores: dict[str, dict[int, Manifest]]


def inspect_state(state_dir: Place) -> FolderState:
    """What a state folder holds after its newest batch, by the manifests; the run files are not opened.

    Raises `StateError`: CS-713 no state here, CS-701 and CS-704 for files that cannot be read.
    """
    root = root_of(state_dir)
    log, application = BatchLog(root), application_of(root)

    def state(commit: Commit) -> FolderState:
        stores = {name: _manifests(root, name, commit) for name in sorted(application.stores)}
        return FolderState(application, commit, log.commits(), stores)

    return of_newest(log, state)


def _manifests(root: StateRoot, store: str, commit: Commit) -> dict[int, Manifest]:
    found = {}
    for partition, name in sorted(commit.versions.get(store, {}).items()):
        with state_partition(root, store, partition) as storage:
            found[partition] = read_manifest(storage, name)
    return found
