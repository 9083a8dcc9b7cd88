"""An Iceberg table, by PyIceberg: no JVM, no jars. The mark is a setting of the table, set in the commit of the batch.

The newest snapshot would lose it when snapshots expire. Each snapshot of a batch has it in its summary as well, for
readers that go back in time. Changes by key are one snapshot: the data files that have rows of these keys are written
again without them (copy on write), because PyIceberg writes no delete files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _dataframe_to_data_files,
    _determine_partitions,
    schema_to_pyarrow,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction

from crossstream.columns.flat import DELETED, keys_of, with_columns
from crossstream.errors import type_and_text
from crossstream.graph.nodes import TableSink
from crossstream.lakehouse.iceberg_catalog import catalog_of
from crossstream.once import BatchMark, mark_as_text, mark_of_text, stands_as_text
from crossstream.operators.sink.table_rows import other_type

KEY = "crossstream.key"
"""The table's setting that has the columns of its key."""
FEW_KEYS = 200
"""As many values of a column PyIceberg compares with the bounds of a file."""
LONG_TEXT = 60
"""Bytes of a text that is surely short enough for a folder, though each may become three, such as %20."""
_TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_UNBOUNDED = (pa.types.is_boolean, pa.types.is_binary, pa.types.is_floating)
"""Keys that are looked for in all files: no file has bounds that say where NaN is."""


@dataclass(slots=True)
class IcebergSink:
    """Writes one Iceberg table. The table is opened again where another writer may have committed."""

    node: TableSink
    _catalog: Catalog | None = field(default=None)
    _table: Table | None = field(default=None)

    conflicts: tuple[type[Exception], ...] = (CommitFailedException, ValidationException)
    together: None = None

    def open(self) -> bool:
        """Opens the newest version; False: there is no table."""
        try:
            if self._table is None:
                self._table = self._known.load_table(self.node.table)
            else:
                self._table.refresh()
        except NoSuchTableError:
            self._table = None
        return self._table is not None

    def create(self, schema: pa.Schema, keys: tuple[str, ...]) -> None:
        namespace = self.node.table.rpartition(".")[0]
        if namespace:
            self._known.create_namespace_if_not_exists(namespace)
        properties = {KEY: "\n".join(keys)} if keys else {}
        self._table = self._known.create_table_if_not_exists(self.node.table, schema, properties=properties)

    @property
    def schema(self) -> pa.Schema:
        return self._opened.schema().as_arrow()

    def differs(self, field: pa.Field) -> str | None:
        return other_type("iceberg", self.schema.field(field.name), field)

    @property
    def key(self) -> tuple[str, ...] | None:
        text = self._opened.properties.get(KEY)
        return tuple(text.split("\n")) if text else None

    @property
    def partitions(self) -> tuple[str, ...]:
        return ()  # they hold every value

    @property
    def demands(self) -> list[str]:
        return list(_unwritten_partitions(self._opened))

    @property
    def version(self) -> object:
        return self._opened.metadata_location

    def add_columns(self, fields: list[pa.Field]) -> None:
        with self._opened.update_schema() as update:
            update.union_by_name(pa.schema(fields))
        self.open()

    def newest(self, mark: BatchMark) -> int | None:
        """The newest batch of the mark's writer and state that the table has."""
        text = self._opened.properties.get(_setting(mark))
        found = mark_of_text(text or "", mark.application, mark.sink)
        return found.batch if found is not None and found.state == mark.state else None

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def write(self, rows: pa.Table, mark: BatchMark) -> None:
        table, summary = (
            self._opened,
            {
                f"{_setting(mark)}.batch": str(mark.batch),
                "crossstream.state": mark.state,
                **stands_as_text(mark),
            },
        )
        added, deleted = rows, None
        if DELETED in rows.column_names:
            added = rows.filter(pc.invert(rows[DELETED])).drop_columns([DELETED])
            deleted = rows.select(keys_of(rows))
        touched = [] if deleted is None else list(_rewritten(table, deleted))
        # In memory alone: PyIceberg would try again by itself, without a look at the mark.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        _name_no_folders(table, [added, *(kept for _, kept in touched)])
        with table.transaction() as transaction:
            transaction.set_properties(_noted(mark))
            if touched:
                _overwrite(transaction, table, added, touched, summary)
            elif added.num_rows:
                # A column that must not be null there: PyIceberg would refuse, and print, one that may be.
                there = table.schema().as_arrow()
                fields = [one.with_nullable(there.field(one.name).nullable) for one in added.schema]
                rows = pa.table(added.columns, schema=pa.schema(fields))
                transaction.append(rows, snapshot_properties=summary)

    def reset(self, mark: BatchMark) -> None:
        with self._opened.transaction() as transaction:
            transaction.set_properties(_noted(mark))

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = self._table = None

    @property
    def _known(self) -> Catalog:
        if self._catalog is None:
            self._catalog = catalog_of(self.node.options)
        return self._catalog

    @property
    def _opened(self) -> Table:
        assert self._table is not None
        return self._table


def _unwritten_partitions(table: Table) -> Iterator[str]:
    """What PyIceberg raises at the first row that has a value, of partitions that it does not write."""
    schema, spec = table.schema(), table.spec()
    columns = schema_to_pyarrow(schema) if spec.fields else []
    row = pa.table({column.name: _some(column.type) for column in columns})
    for part in spec.fields:
        try:
            for found in _determine_partitions(PartitionSpec(part), schema, row):
                found.partition_key.to_path()
        except Exception as error:
            name, kind = schema.find_column_name(part.source_id), schema.find_type(part.source_id)
            yield (
                f"PyIceberg does not write the partition {part.name!r}, "
                f"{part.transform} of {name!r} ({kind}): {type_and_text(error)}"
            )


def _some(kind: pa.DataType) -> pa.Array:
    """A value of a type that may be partitioned by, alone or in a struct; null of other types."""
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_some(field.type) for field in kind], fields=list(kind))
    if kind in _TEXTS:
        return pa.array([b""]).cast(kind)
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind):
        zeros = pa.py_buffer(bytes(max(kind.bit_width // 8, 1)))
        return pa.Array.from_buffers(kind, 1, [None, zeros])
    return pa.nulls(1, kind)


def _name_no_folders(table: Table, written: list[pa.Table]) -> None:
    """Lets files be in folders without the values of their partitions, where a text is too long for a name."""
    names = {table.schema().find_column_name(part.source_id) for part in table.spec().fields}
    lengths = [
        pc.max(pc.binary_length(rows[name])).as_py() or 0
        for rows in written
        for name in names.intersection(rows.column_names)
        if rows[name].type in _TEXTS
    ]
    if max(lengths, default=0) > LONG_TEXT:
        # In memory alone, as above.
        table.metadata.properties[TableProperties.OBJECT_STORE_ENABLED] = "true"
        table.metadata.properties[TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS] = "false"


Rewritten = tuple[FileScanTask, pa.Table]
"""A data file, and the rows of it that stay."""


def _rewritten(table: Table, gone: pa.Table) -> Iterator[Rewritten]:
    """The data files that have rows of these keys."""
    if table.current_snapshot() is None:
        return
    keys = gone.column_names
    wanted = pl.DataFrame(gone)
    for task in table.scan(row_filter=_near(gone)).plan_files():
        there = _read(table, task, keys).select(keys).cast(gone.schema)
        numbered = pl.DataFrame(there).with_row_index("")  # no column of a table is without a name
        kept = numbered.join(wanted, on=keys, how="anti", nulls_equal=True)[""]
        if len(kept) < there.num_rows:
            rows = _read(table, task, table.schema().as_arrow().names)
            yield task, rows.take(kept.sort().to_arrow())


def _near(gone: pa.Table) -> BooleanExpression:
    """What is true of all rows of these keys, and may be of others: it leaves out files."""
    found: BooleanExpression = AlwaysTrue()
    for name in gone.column_names:
        column = gone[name]
        if column.null_count or any(of_type(column.type) for of_type in _UNBOUNDED):
            continue
        values = pc.unique(column)
        if len(values) <= FEW_KEYS:
            found = And(found, In(name, values.to_pylist()))  # type: ignore[call-arg]
        else:
            bounds = pc.min_max(column)
            least, most = bounds["min"].as_py(), bounds["max"].as_py()
            found = And(found, GreaterThanOrEqual(name, least))  # type: ignore[call-arg]
            found = And(found, LessThanOrEqual(name, most))  # type: ignore[call-arg]
    return found


def _read(table: Table, task: FileScanTask, columns: list[str]) -> pa.Table:
    """All rows of a data file, in their order."""
    schema = table.schema().select(*columns)
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task])


def _overwrite(
    transaction: Transaction, table: Table, added: pa.Table, touched: list[Rewritten], summary: dict[str, str]
) -> None:
    """One snapshot: data files without what is gone, and the rows that are new."""
    whole = table.schema().as_arrow()
    parts = [with_columns(rows, whole) for rows in (added, *(kept for _, kept in touched)) if rows.num_rows]
    with transaction.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
        snapshot.commit_uuid = uuid.uuid4()
        snapshot.delete_by_predicate(AlwaysTrue())
        for task, _ in touched:
            snapshot.delete_data_file(task.file)
        if parts:
            rows = pa.concat_tables(parts)
            metadata = transaction.table_metadata
            for file in _dataframe_to_data_files(metadata, rows, table.io, write_uuid=snapshot.commit_uuid):
                snapshot.append_data_file(file)


def _noted(mark: BatchMark) -> dict[str, str]:
    return {_setting(mark): mark_as_text(mark)}


def _setting(mark: BatchMark) -> str:
    return f"crossstream.{mark.application}.{mark.sink}"
