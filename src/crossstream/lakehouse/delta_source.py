"""The versions of a Delta table, by delta-rs: no JVM, no jars.

delta-rs says which files a version has. What one commit did is in its own file of the log: the files that it added and
removed, or, where the table has a change feed, the files with the rows that it changed. Sources: the Delta protocol,
"Change Data Files" and "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from crossstream.errors import CrossStreamError
from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.delta_log import Action, DeltaCommit, read_commit
from crossstream.lakehouse.delta_pieces import file_pieces, group_pieces
from crossstream.lakehouse.versions import Commit, Piece, expired, no_table, unreadable

ROWS = 1 << 16
"""Rows of a batch that is read of a file."""
FEWEST = 1 << 12
"""Rows of a row group below which it is not cut."""
_CHANGE = "_change_type"
_OLD, _NEW = ("delete", "update_preimage"), ("insert", "update_postimage")
_KEPT = 16
"""Commits that are kept as they were read."""
_KEPT_ROWS = 1 << 18
"""Of the change feed of a commit, about, which are kept until the next commit is read."""


@dataclass(slots=True)
class DeltaVersions:
    """`LakeVersions` of a Delta table."""

    table: LakeTable
    _files: pa.fs.FileSystem = field(init=False)
    _newest: int = -1
    _seen: tuple[int, int] | None = None
    _commits: dict[int, DeltaCommit] = field(default_factory=dict)
    _snapshot: tuple[int, list[Action]] | None = None
    _kept: tuple[int, DeltaTable] | None = None
    _known: dict[int, Commit] = field(default_factory=dict)
    _fed: tuple[int, tuple[str, ...], list[pa.RecordBatch]] | None = None

    def __post_init__(self) -> None:
        self._files = _files_of(self.table)

    def table_id(self) -> str:
        return str(self._opened().metadata().id)

    def newest(self) -> int:
        """Looks for the files of the log that follow; opens the table where the last one is another one now."""
        if self._seen is None or self._seen != self._stamp(self._newest):
            self._newest = int(self._opened().version())
        while (found := self._stamp(self._newest + 1)) is not None:
            self._newest += 1
            self._seen = found
        if self._seen is None:
            self._seen = self._stamp(self._newest)
        return self._newest

    def schema(self, version: int | None) -> pa.Schema:
        return pa.schema(self._opened(version).schema())

    def commits(self, start: int, end: int) -> Sequence[Commit]:
        return [self._commit(number) for number in range(start, end)]

    def snapshot_commit(self, version: int) -> Commit:
        files = self._snapshot_files(version)
        try:
            time = self._commit(version).time
        except CrossStreamError:
            time = max((file.modified for file in files), default=0)  # the log has a checkpoint alone
        return Commit(version, time, sum(file.rows for file in files), True, bool(files))

    def snapshot(
        self, version: int, columns: Sequence[str], share: int, shares: int
    ) -> Iterator[pa.RecordBatch]:
        yield from self._read(version, self._snapshot_files(version), columns, share, shares)

    def removed(self, version: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        commit = self._parsed(version)
        if commit.changes:
            yield from self._changed(version, commit.changes, columns, _OLD)
        elif commit.removed:
            yield from self._read(version, self._with_partitions(version, commit.removed), columns)

    def added(
        self, version: int, columns: Sequence[str], share: int = 0, shares: int = 1
    ) -> Iterator[pa.RecordBatch]:
        commit = self._parsed(version)
        if commit.changes:
            batches = self._changed(version, commit.changes, columns, _NEW)
            yield from (batch for number, batch in enumerate(batches) if number % shares == share)
        else:
            yield from self._read(version, commit.added, columns, share, shares)

    def pieces(self, version: int, numbers: Sequence[str]) -> Sequence[Piece]:
        files = self._snapshot_files(version)
        if not files:
            return []
        return file_pieces(pa.table(self._opened(version).get_add_actions(flatten=False)), files, numbers)

    def finer(self, version: int, piece: Piece, numbers: Sequence[str]) -> Sequence[Piece]:
        with self._opened_file(version, piece.place[0]) as parquet:
            return list(group_pieces(parquet, piece, numbers))

    def rows_of(self, version: int, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        file, group = piece.place
        with self._opened_file(version, file) as parquet:
            groups = range(parquet.num_row_groups) if group is None else [group]
            for number in groups:
                yield from self._rows(parquet, file, columns, Part.whole(parquet, number))

    def close(self) -> None:
        """No file is held open between reads."""
        self._kept = None

    # -- the log

    def _opened(self, version: int | None = None) -> DeltaTable:
        options = dict(self.table.options)
        if self._kept is not None and self._kept[0] == version:
            return self._kept[1]
        try:
            found = DeltaTable(self.table.table, version=version, storage_options=options)
        except TableNotFoundError as error:
            raise no_table(self.table, error) from error
        except (DeltaError, OSError, ValueError) as error:
            if version is not None and self._is_there(error):
                raise expired(self.table, version, f"version {version} is not in its log any more") from error
            raise unreadable(self.table, error) from error
        _check_readable(self.table, found)
        if version is not None:
            self._kept = version, found
        return found

    def _is_there(self, error: Exception) -> bool:
        """Whether the table can be opened though one of its versions cannot."""
        try:
            DeltaTable(self.table.table, storage_options=dict(self.table.options))
        except (DeltaError, OSError, ValueError):
            return False
        return True

    def _stamp(self, version: int) -> tuple[int, int] | None:
        """Time and size of a file of the log; None: there is none."""
        info = self._files.get_file_info(_log_file(version))
        return None if info.type == pa.fs.FileType.NotFound else (info.mtime_ns or 0, info.size or 0)

    def _commit(self, version: int) -> Commit:
        if version not in self._known:
            self._known[version] = self._parsed(version).summary()
        return self._known[version]

    def _parsed(self, version: int) -> DeltaCommit:
        found = self._commits.get(version)
        if found is None:
            found = read_commit(self.table, version, self._log_text(version))
            while len(self._commits) >= _KEPT:
                del self._commits[next(iter(self._commits))]
            self._commits[version] = found
        return found

    def _log_text(self, version: int) -> bytes:
        try:
            with self._files.open_input_file(_log_file(version)) as file:
                return bytes(file.read())
        except FileNotFoundError as error:
            what = f"commit {version} is not in its log any more"
            raise expired(self.table, version, what) from error

    def _snapshot_files(self, version: int) -> list[Action]:
        """The files of a version, in order of their paths."""
        if self._snapshot is None or self._snapshot[0] != version:
            self._snapshot = version, self._found_files(version)
        return self._snapshot[1]

    def _found_files(self, version: int) -> list[Action]:
        opened = self._opened(version)
        if _has_deletion_vectors(self.table, opened):
            raise unreadable(self.table, "rows of it are deleted by deletion vectors")
        if not opened.file_uris():
            return []  # early releases of deltalake fail to list none
        found = pa.table(opened.get_add_actions(flatten=False))
        partitions = found["partition"].to_pylist() if "partition" in found.column_names else None
        rows, sizes = found["num_records"].to_pylist(), found["size_bytes"].to_pylist()
        times = found["modification_time"].to_pylist()
        files = [
            Action.of(path, {} if partitions is None else partitions[number], rows[number], sizes[number], at)
            for number, (path, at) in enumerate(zip(found["path"].to_pylist(), times, strict=True))
        ]
        return sorted(files, key=lambda file: file.path)

    def _with_partitions(self, version: int, files: Sequence[Action]) -> Sequence[Action]:
        """Removed files, with the values of their partitions from the version before where the log lacks them."""
        if all(file.is_complete for file in files):
            return files
        before = {file.path: file for file in self._snapshot_files(version - 1)}
        return [before.get(file.path, file) for file in files]

    # -- rows

    def _read(
        self, version: int, files: Sequence[Action], columns: Sequence[str], share: int = 0, shares: int = 1
    ) -> Iterator[pa.RecordBatch]:
        """The rows of files, or of a share: files are dealt where they are many, else parts of their row groups."""
        if shares == 1 or len(files) >= 2 * shares:
            for file in files[share::shares]:
                with self._opened_file(version, file) as parquet:
                    for group in range(parquet.num_row_groups):
                        yield from self._rows(parquet, file, columns, Part.whole(parquet, group))
            return
        with ExitStack() as stack:
            opened = [stack.enter_context(self._opened_file(version, file)) for file in files]
            parts = [(number, part) for number, one in enumerate(opened) for part in cut(one, opened, shares)]
            for number, part in parts[share::shares]:
                yield from self._rows(opened[number], files[number], columns, part)

    def _rows(
        self, parquet: pq.ParquetFile, file: Action, columns: Sequence[str], part: Part
    ) -> Iterator[pa.RecordBatch]:
        there = [
            name for name in columns if name not in file.partitions and name in parquet.schema_arrow.names
        ]
        fixed = {name: value for name, value in file.partitions.items() if name in columns}
        passed = 0
        for whole in parquet.iter_batches(ROWS, row_groups=[part.group], columns=there):
            first = min(whole.num_rows, max(0, part.start - passed))
            batch = whole.slice(first, part.end - passed - first)
            passed += whole.num_rows
            if batch.num_rows:
                rows = pa.RecordBatch.from_arrays([plain(batch.column(name)) for name in there], names=there)
                for name, value in fixed.items():
                    constant = pa.repeat(partition_value(value, self._type_of(name)), batch.num_rows)
                    rows = rows.append_column(name, constant)
                yield rows if rows.num_columns else _of_rows(batch.num_rows)
            if passed >= part.end:
                return

    def _type_of(self, name: str) -> pa.DataType:
        return self.table.schema.field(name).type

    def _changed(
        self, version: int, files: Sequence[Action], columns: Sequence[str], kinds: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the change feed of these kinds."""
        for batch in self._feed(version, files, (*columns, _CHANGE)):
            place = batch.schema.get_field_index(_CHANGE)
            chosen = pc.is_in(batch.column(place), value_set=pa.array(kinds))
            yield batch.filter(chosen).drop_columns([_CHANGE])

    def _feed(
        self, version: int, files: Sequence[Action], columns: tuple[str, ...]
    ) -> Iterable[pa.RecordBatch]:
        """The rows of the change feed. Those of a small commit are kept: old and new rows are asked for in turn."""
        if self._fed is not None and self._fed[:2] == (version, columns):
            return self._fed[2]
        self._fed = None
        if sum(file.rows for file in files) > _KEPT_ROWS:
            return self._fed_rows(version, files, columns)
        self._fed = version, columns, list(self._fed_rows(version, files, columns))
        return self._fed[2]

    def _fed_rows(
        self, version: int, files: Sequence[Action], columns: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        for file in files:
            with self._opened_file(version, file) as parquet:
                parts = (Part.whole(parquet, group) for group in range(parquet.num_row_groups))
                yield from chain.from_iterable(self._rows(parquet, file, columns, part) for part in parts)

    def _opened_file(self, version: int, file: Action) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._files.open_input_file(unquote(file.path)))
        except FileNotFoundError as error:
            what = f"a file of version {version} is gone: {file.path}"
            raise expired(self.table, version, what) from error


@dataclass(frozen=True, slots=True)
class Part:
    """Rows ``start`` to ``end`` of a row group."""

    group: int
    start: int
    end: int

    @classmethod
    def whole(cls, parquet: pq.ParquetFile, group: int) -> Part:
        return cls(group, 0, parquet.metadata.row_group(group).num_rows)


def cut(parquet: pq.ParquetFile, files: Sequence[pq.ParquetFile], shares: int) -> Iterator[Part]:
    """The row groups of a file, in parts where there are fewer than shares; delta-rs makes them of a million rows."""
    few = -(-shares // max(1, sum(file.num_row_groups for file in files)))
    for group in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        parts = min(few, max(1, rows // FEWEST))
        for part in range(parts):
            yield Part(group, rows * part // parts, rows * (part + 1) // parts)


def _files_of(table: LakeTable) -> pa.fs.FileSystem:
    """The folder of a table as a file system."""
    if "://" not in table.table:
        return pa.fs.SubTreeFileSystem(table.table, pa.fs.LocalFileSystem())
    return pa.fs.PyFileSystem(DeltaStorageHandler(table.table, dict(table.options)))


def _log_file(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _of_rows(rows: int) -> pa.RecordBatch:
    """Rows without columns."""
    empty = pa.struct([])
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(empty, rows, [None]))


def plain(column: pa.Array) -> pa.Array:
    """A column without a dictionary or views, in which delta-rs writes texts of the change feed."""
    if pa.types.is_dictionary(column.type):
        return plain(column.dictionary).take(column.indices)
    if pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(column.type) else column


def partition_value(value: object, kind: pa.DataType) -> pa.Scalar:
    """The value of a partition as the log has it, a text, in the type of its column; an empty text is a null."""
    if value is None or (value == "" and not pa.types.is_string(kind)):
        return pa.scalar(None, kind)
    if not isinstance(value, str):
        return pa.scalar(value).cast(kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.scalar(value.encode(), kind)
    if pa.types.is_timestamp(kind):
        moment = value.replace(" ", "T")
        zoned = moment.endswith("Z") or kind.tz is None
        return pa.scalar(moment if zoned else f"{moment}Z").cast(pa.timestamp("us", kind.tz)).cast(kind)
    return pa.scalar(value).cast(kind)


_READABLE = frozenset(
    {
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "deletionVectors",
        "typeWidening",
        "typeWidening-preview",
        "columnMapping",
    }
)
"""Features of readers; of the last one the mode decides, of deletion vectors whether files have some."""


def _has_deletion_vectors(table: LakeTable, opened: DeltaTable) -> bool:
    """Whether files of a version have rows that are deleted by a vector; early releases of deltalake do not say it."""
    if "deletionVectors" not in (opened.protocol().reader_features or ()):
        return False
    if not hasattr(opened, "deletion_vectors"):
        raise unreadable(
            table, f"deltalake {deltalake.__version__} does not show deletion vectors: install a newer one"
        )
    return bool(pa.table(opened.deletion_vectors()).num_rows)


def _check_readable(table: LakeTable, opened: DeltaTable) -> None:
    protocol = opened.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - _READABLE)
    if unknown:
        raise unreadable(table, f"it needs readers with {', '.join(unknown)}")
    mode = opened.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise unreadable(table, f"it needs readers with column mapping (mode {mode!r})")
