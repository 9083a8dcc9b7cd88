"""Stores of a state folder, from any process: committed batches only, no server asked."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from typing import Any

from crossstream.engine.log import Application, BatchLog, Commit
from crossstream.engine.stores import FolderStores
from crossstream.errors import StateError
from crossstream.query.store import StoreReader
from crossstream.serdes.shipping import dumps
from crossstream.state.remote import AWAY
from crossstream.state.root import Place, StateRoot, root_of
from crossstream.state.store import Version
from crossstream.topology.plan import WINDOW, Plan, StoreDef


def describe_readers(plan: Plan) -> dict[str, dict[str, str]]:
    """What the state folder notes about each queryable store, so that any process can read it."""
    return {
        store.public: {"store": base64.b64encode(dumps(store)).decode()}
        for store in plan.stores.values()
        if store.public is not None
    }


def open_store(state_dir: Place, name: str, as_of: int | None = None) -> StoreReader:
    """The queryable store ``name`` of a state folder, while its application runs or after.

    ``state_dir``: as in `StreamsConfig`. Without ``as_of`` every call reads the newest committed batch; with it, the
    state after that batch (one of the last ``retain_batches``). Raises `StateError`: CS-710 no such store, CS-713 no
    state here, CS-714 that batch is not kept; of a URI also CS-707 and CS-724 if the store does not answer, CS-723 if
    there is no file system for it. Source: semantics 3.7. Examples of reading: docs/queries.md.

    >>> open_store("no/such/folder", "promotions")
    Traceback (most recent call last):
    ...
    crossstream.errors.StateError: [CS-713] there is no state here
      where: folder no/such/folder
      next:  give the state_dir of an application that has run
    """
    root = root_of(state_dir)
    application = application_of(root)
    store = _definition(application, name, root)
    committed = _Committed(BatchLog(root), store, application.stores[store.name], as_of)
    committed()
    return StoreReader(
        name, store.key, store.value, committed, store.history, windowed=store.layout.kind == WINDOW.kind
    )


def application_of(state_dir: Place) -> Application:
    """Whose state a folder holds. Raises `StateError`: CS-713 if there is none, CS-701 and CS-704 if it is no use."""
    root = root_of(state_dir)
    application = BatchLog(root).application()
    if application is None:
        raise StateError(
            "there is no state here",
            code="CS-713",
            where={"folder": str(root)},
            next="give the state_dir of an application that has run",
        )
    return application


def store_names(state_dir: Place) -> list[str]:
    """The queryable stores of a state folder."""
    application = BatchLog(state_dir).application()
    return [] if application is None else sorted(application.readers)


def _definition(application: Application, name: str, root: StateRoot) -> StoreDef:
    _check_there(application, name, root)
    definition: Any = pickle.loads(base64.b64decode(application.readers[name]["store"]))
    assert isinstance(definition, StoreDef)
    return definition


def _check_there(application: Application, name: str, root: StateRoot) -> None:
    if name not in application.readers:
        raise StateError(
            f"there is no store named {name!r}",
            code="CS-710",
            where={"folder": str(root)},
            next=f"its queryable stores are: {', '.join(sorted(application.readers)) or 'none'}",
        )


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
        for attempt in range(5):
            try:
                return self._read()
            except (StateError, FileNotFoundError) as error:
                # The batch may have been retired while it was being read: a newer one is there.
                if isinstance(error, StateError) and error.code == AWAY:
                    raise
                if self._as_of is not None:
                    self._check_kept(self._as_of)
                if self._as_of is not None or attempt == 4:
                    raise
        raise AssertionError("unreachable")

    def _read(self) -> Sequence[Version]:
        commit = self._commit()
        names = commit.versions.get(self._store.name, {})
        # Manifests have names that are never used again; batches of state that begins anew have their old numbers.
        wanted, last = (commit.partitions, names), self._last
        if last is not None and last[0] == wanted:
            return last[1]
        self._check_same()
        versions = [self._stores.open(self._store, pid, names.get(pid)) for pid in range(commit.partitions)]
        self._last = wanted, versions  # at once: other threads may read, too
        return versions

    def _commit(self) -> Commit:
        if self._as_of is not None:
            self._check_kept(self._as_of)
            return self._log.commit(self._as_of)
        newest = self._log.last_commit()
        return Commit(-1, application_of(self._log.root).partitions) if newest is None else newest

    def _check_kept(self, batch: int) -> None:
        kept = self._log.commits()
        if isinstance(batch, bool) or batch not in kept:
            raise StateError(
                f"batch {batch!r} is not kept",
                code="CS-714",
                where={"folder": str(self._log.root)},
                next=f"kept are batches {kept[0]} to {kept[-1]}"
                if kept
                else "no batch has been committed yet",
            ) from None

    def _check_same(self) -> None:
        """The state may have been removed, and another application have begun in its place."""
        root, name = self._log.root, self._store.public or ""
        application = application_of(root)
        _check_there(application, name, root)
        if application.stores.get(self._store.name) != self._fingerprint:
            raise StateError(
                f"the store {name!r} is not what it was when it was opened",
                code="CS-718",
                where={"folder": str(root)},
                next="open it again",
            )
