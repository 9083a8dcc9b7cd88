"""The versions of an Iceberg table, by PyIceberg: no JVM, no jars. A version is a snapshot of the main branch.

A commit that appends is the files that it added. Any other one is the difference of the files before and after it, but
for `replace`, which changes no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ResolveError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.iceberg_catalog import open_catalog, open_table
from crossstream.lakehouse.iceberg_changes import Difference, appended, live
from crossstream.lakehouse.iceberg_columns import check_columns, chosen
from crossstream.lakehouse.iceberg_files import DataFiles, Part, bounds_of, dealt
from crossstream.lakehouse.iceberg_history import History, Step, total_of
from crossstream.lakehouse.versions import Commit, Piece, expired

T = TypeVar("T")


@dataclass(slots=True)
class IcebergVersions:
    """`LakeVersions` of an Iceberg table."""

    table: LakeTable
    _catalog: Catalog | None = field(default=None)
    _table: Table | None = field(default=None)
    _history: History | None = field(default=None)
    _live: dict[int, list[Part]] = field(default_factory=dict)
    _changed: dict[int, Difference] = field(default_factory=dict)

    def table_id(self) -> str:
        return str(self._opened.metadata.table_uuid)

    def newest(self) -> int:
        """Asks the catalog."""
        self._load()
        return self._known.newest

    def schema(self, version: int | None) -> pa.Schema:
        """With the ids of the columns. Of the newest version it is the table's schema, which may be newer."""
        snapshot = None if version is None else self._at(version)
        if snapshot is None or snapshot == self._known.metadata.current_snapshot():
            return self._opened.schema().as_arrow()
        return self._known.schema_of(snapshot).as_arrow()

    def commits(self, start: int, end: int) -> Sequence[Commit]:
        """Raises `SourceError` CS-603 after a rollback, CS-613 for expired ones, CS-617 for columns that changed."""
        if end - 1 > self._known.newest:
            self._load()
        return [self._commit(step) for step in self._known.since(start, end)]

    def snapshot_commit(self, version: int) -> Commit:
        snapshot = self._at(version)
        if snapshot is None:
            return Commit(version, self._opened.metadata.last_updated_ms, 0, True, False)
        rows = total_of(snapshot)
        if rows is None:
            with self._reading(version):
                rows = sum(part.file.record_count for part in live(self._files, snapshot))
        return Commit(version, snapshot.timestamp_ms, rows, True, bool(rows))

    def snapshot(
        self, version: int, columns: Sequence[str], share: int, shares: int
    ) -> Iterator[pa.RecordBatch]:
        snapshot = self._at(version)
        if snapshot is not None:
            with self._reading(version):
                parts = self._parts(version, snapshot)
                yield from self._rows(snapshot, dealt(parts, share, shares), columns)

    def pieces(self, version: int, numbers: Sequence[str]) -> Sequence[Piece]:
        snapshot = self._at(version)
        if snapshot is None:
            return []
        with self._reading(version):
            parts = self._parts(version, snapshot)
            wanted = chosen(self.table, self._known.schema_of(snapshot), numbers)
            return [Piece(part, part.file.record_count, *bounds_of(part, wanted)) for part in parts]

    def finer(self, version: int, piece: Piece, numbers: Sequence[str]) -> Sequence[Piece]:
        return [piece]

    def rows_of(self, version: int, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        snapshot = self._at(version)
        assert snapshot is not None
        with self._reading(version):
            yield from self._rows(snapshot, [piece.place], columns)

    def removed(self, version: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        step = self._step(version)
        if step is not None and not (step.appends or step.replaces):
            with self._reading(version):
                yield from self._rows(step.last, self._difference(step).removed(), columns)

    def added(
        self, version: int, columns: Sequence[str], share: int = 0, shares: int = 1
    ) -> Iterator[pa.RecordBatch]:
        step = self._step(version)
        if step is not None and not step.replaces:
            with self._reading(version):
                parts = appended(self._files, step) if step.appends else self._difference(step).added()
                yield from self._rows(step.last, dealt(parts, share, shares), columns)

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = self._table = self._history = None
        self._live.clear()
        self._changed.clear()

    # -- the catalog

    def _load(self) -> None:
        if self._catalog is None:
            self._catalog = open_catalog(self.table)
        self._table = open_table(self.table, self._catalog)
        self._history = History(self.table, self._table.metadata)

    @property
    def _opened(self) -> Table:
        if self._table is None:
            self._load()
        assert self._table is not None
        return self._table

    @property
    def _known(self) -> History:
        if self._history is None:
            self._load()
        assert self._history is not None
        return self._history

    @property
    def _files(self) -> DataFiles:
        return DataFiles(self.table, self._opened.metadata, self._opened.io)

    def _at(self, version: int) -> Snapshot | None:
        """The snapshot of a version, which may be newer than what is known."""
        if version > self._known.newest:
            self._load()
        return self._known.at(version)

    def _step(self, version: int) -> Step | None:
        self._at(version)
        return self._known.step(version)

    # -- commits

    def _commit(self, step: Step) -> Commit:
        schema, parent = self._known.schema_of(step.last), self._known.parent(step)
        before = None if parent is None else self._known.schema_of(parent)
        check_columns(self.table, before, schema, step.number)
        is_new = before is None or before.schema_id != schema.schema_id
        rows = 0 if step.replaces else self._changed_rows(step)
        if rows and not step.appends:
            self._known.before(step)  # it must be there
        return Commit(
            step.number,
            step.last.timestamp_ms,
            rows,
            step.appends or step.replaces,
            bool(rows),
            schema.as_arrow() if is_new else None,
        )

    def _changed_rows(self, step: Step) -> int:
        """How many rows a commit added and removed, about."""
        if step.rows is not None:
            return step.rows
        with self._reading(step.number):
            manifests = [one for part in step.snapshots for one in part.manifests(self._opened.io)]
        new = {one.manifest_path: one for one in manifests if one.added_snapshot_id in step.ids}
        return sum((one.added_rows_count or 0) + (one.deleted_rows_count or 0) for one in new.values())

    # -- rows

    def _parts(self, version: int, snapshot: Snapshot) -> list[Part]:
        return _kept(self._live, version, lambda: live(self._files, snapshot))

    def _difference(self, step: Step) -> Difference:
        before = self._known.before(step)
        return _kept(self._changed, step.number, lambda: Difference.between(self._files, before, step.last))

    def _rows(
        self, snapshot: Snapshot, parts: Sequence[Part], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Of all parts by the schema of one snapshot, so that old and new rows compare."""
        wanted = chosen(self.table, self._known.schema_of(snapshot), columns)
        yield from self._files.rows(parts, wanted)

    @contextmanager
    def _reading(self, version: int) -> Iterator[None]:
        """Names the version in errors of files."""
        try:
            yield
        except CrossStreamError:
            raise
        except FileNotFoundError as error:
            what = f"a file of version {version} is gone: {error}"
            raise expired(self.table, version, what) from error
        except (OSError, ValueError, ResolveError, pa.ArrowException) as error:
            what = f"the table {self.table.table}: version {version} cannot be read: {type_and_text(error)}"
            step = "check the storage; read the version with another reader of Iceberg"
            raise refuse("CS-606", what, step, topic=self.table.topic, version=version) from error


def _kept(kept: dict[int, T], version: int, make: Callable[[], T]) -> T:
    """What was made for the version that was asked for last: its shares are read one after the other."""
    if version not in kept:
        made = make()
        kept.clear()
        kept[version] = made
    return kept[version]
