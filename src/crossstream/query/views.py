"""Queries of views over global tables: nothing is kept, so each call resolves them over one committed batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.evaluate import Failure, Raised
from crossstream.columns.hashing import hash_keys
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.graph.names import inner
from crossstream.graph.nodes import GlobalJoin
from crossstream.planning.plan import Plan
from crossstream.query.files import application_of, of_newest
from crossstream.query.store import StoreReader
from crossstream.storage.columns import EMPTY_BYTES, concat_all, take, take_all
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Commit
from crossstream.storage.root import Place
from crossstream.storage.sorted_run import stable_order
from crossstream.tables.global_tables import Looked, WholeTable
from crossstream.tables.view import View
from crossstream.task.batch import Batch
from crossstream.task.stores import FolderStores, GlobalTables


@dataclass(frozen=True, slots=True)
class ViewReader(StoreReader):
    """A view, read like a key-value store. ``opened``: gives it after the newest committed batch.

    Its functions run in each call. One that raises raises `ProcessingError` CS-501.
    """

    opened: Callable[[], View] | None = None

    def approximate_count(self) -> int:
        """An upper bound of the number of rows: that of the left table."""
        return _rows(self._view())

    def _view(self) -> View:
        assert self.opened is not None
        return self.opened()

    def _values(self, keys: list[bytes], as_of_time: int | datetime | None) -> list[Any]:
        if as_of_time is not None:
            raise self._unfit("is a view, which keeps no versions", "leave as_of_time out")
        view, wire = self._view(), pa.array(keys, pa.large_binary())
        hashes = hash_keys(wire, view.bits)
        order = stable_order(hashes)
        looked = _checked(view, view.before(hashes[order], take(wire, order)))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return looked.rows.values.take(back).objects()

    def _live(self) -> dict[str, Any]:
        """Key, value and ts of all rows, ordered by key bytes."""
        view = self._view()
        parts: list[dict[str, Any]] = []
        for hashes, keys, _ in view.left.scan():
            rows = _checked(view, view.before(hashes, keys)).rows
            there = np.flatnonzero(rows.present)
            value = rows.values.take(there).wire(view.value) if len(there) else EMPTY_BYTES
            parts.append({"key": take(keys, there), "value": value, "ts": rows.ts[there]})
        if not parts:
            return {"key": EMPTY_BYTES, "value": EMPTY_BYTES, "ts": np.empty(0, np.int64)}
        columns = concat_all(parts)
        order = pl.Series(pl.from_arrow(columns["key"])).arg_sort().to_numpy()
        return take_all(columns, order.astype(np.int64))


def _rows(table: Any) -> int:
    return sum(one.rows for one in table.views) if isinstance(table, WholeTable) else _rows(table.left)


def _checked(view: View, looked: Looked) -> Looked:
    """What was looked up; raises the error of a function that failed."""
    for failure in looked.failures:
        raise _error(view.node, failure)
    return looked


def _error(node: GlobalJoin, failure: Failure) -> CrossStreamError:
    error = failure.error
    if isinstance(error, CrossStreamError):
        return error.at(**node.where)
    cause = error.error if isinstance(error, Raised) else error
    made = refuse(
        "CS-501",
        f"the {failure.role} raised {type_and_text(cause)}",
        "fix the function, or query the tables of the view",
        **node.where,
    )
    made.__cause__ = cause
    return made


def view_of(plan: Plan, name: str, opened: Callable[[], GlobalTables]) -> ViewReader | None:
    """The reader of the view that an operator is; None if there is no view of this name."""
    view = plan.views.get(inner(name, "view"))
    if view is None:
        return None

    def resolved() -> View:
        found = opened().open(inner(name, "view"))
        assert isinstance(found, View)
        return found

    key = plan.topology[name].key
    assert key is not None
    return ViewReader(name, key, view.value, lambda: (), opened=resolved)


def view_of_folder(state_dir: Place, plan: Plan, name: str) -> ViewReader | None:
    """As `view_of`, over the state of an application. Raises `StateError` CS-713 if there is none."""
    log, stores = BatchLog(state_dir), FolderStores(state_dir)

    def opened(commit: Commit) -> GlobalTables:
        tables = GlobalTables(plan, Batch(commit.id, (), commit.partitions, commit.versions), stores)
        tables.open(inner(name, "view"))
        return tables

    found = view_of(plan, name, lambda: of_newest(log, opened))
    if found is not None:
        application_of(state_dir)
    return found
