"""A Delta table, by delta-rs: no JVM, no jars. The mark is the table's application transaction (``txn`` action)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Field,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from crossstream.columns.flat import DELETED, keys_of, with_columns
from crossstream.graph.nodes import TableSink
from crossstream.once import BatchMark, stands_as_text
from crossstream.operators.sink.table_rows import holds_any, other_type

_CONSTRAINT = "delta.constraints."
_WRITTEN = 5
"""Up to this version of the protocol delta-rs writes all tables, from the next on it depends on their features."""
KEY = "crossstream.key"
"""The table's setting that has the columns of its key."""
_RULES = {
    "delta.invariants": "has an invariant",
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
}
"""What a column's metadata says of its values; each row that breaks it would stop the writer."""
EXACT_DIGITS = 15
"""As many digits of a decimal delta-rs writes into the statistics of a file: it makes a float64 of them."""


@dataclass(slots=True)
class DeltaSink:
    """Writes one Delta table. The table is opened again where another writer may have committed."""

    node: TableSink
    _table: DeltaTable | None = field(default=None)
    _lacks: list[str] = field(default_factory=list)

    conflicts: tuple[type[Exception], ...] = (CommitFailedError,)
    together: None = None

    def open(self) -> bool:
        """Opens the newest version; False: there is no table."""
        with suppress(TableNotFoundError):
            if self._table is None:
                self._table = DeltaTable(self.node.table, storage_options=dict(self.node.options))
                self._lacks = list(_lacking(self._table))
            else:
                self._table.update_incremental()
            return True
        self._table = None
        return False

    def create(self, schema: pa.Schema, keys: tuple[str, ...]) -> None:
        with suppress(TypeError):
            self._table = DeltaTable.create(
                self.node.table,
                Schema.from_arrow(schema),
                mode="ignore",
                partition_by=list(self.node.partition_by) or None,
                storage_options=dict(self.node.options),
                configuration={KEY: "\n".join(keys)} if keys else None,
                raise_if_key_not_exists=False,
            )
        self._table = None
        self.open()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._opened.schema())

    def differs(self, field: pa.Field) -> str | None:
        return other_type("delta", self.schema.field(field.name), field)

    @property
    def key(self) -> tuple[str, ...] | None:
        text = self._opened.metadata().configuration.get(KEY)
        return tuple(text.split("\n")) if text else None

    @property
    def partitions(self) -> tuple[str, ...]:
        columns = self._opened.metadata().partition_columns
        return tuple(name for name in columns if not holds_any(self.schema.field(name).type))

    @property
    def demands(self) -> list[str]:
        settings = self._opened.metadata().configuration
        found = [
            f"the constraint {name.removeprefix(_CONSTRAINT)!r} ({rule})"
            for name, rule in settings.items()
            if name.startswith(_CONSTRAINT)
        ]
        for column in self._opened.schema().fields:
            found += [
                f"the column {column.name!r} {_RULES[name]}" for name in _RULES if name in column.metadata
            ]
        if self.node.upserts and settings.get("delta.appendOnly") == "true":
            found.append("rows are only appended (delta.appendOnly), and a table changes them")
        return found + self._lacks

    @property
    def version(self) -> object:
        return self._opened.version()

    def add_columns(self, fields: list[pa.Field]) -> None:
        self._opened.alter.add_columns([Field.from_arrow(field) for field in fields])
        self.open()

    def newest(self, mark: BatchMark) -> int | None:
        """The newest batch of the mark's writer and state that the table has."""
        return self._opened.transaction_version(_writer(mark))

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def write(self, rows: pa.Table, mark: BatchMark) -> None:
        table = self._opened
        noted = {
            "crossstream.writer": mark.writer,
            "crossstream.state": mark.state,
            "crossstream.batch": str(mark.batch),
            **stands_as_text(mark),
        }
        properties = CommitProperties(noted, app_transactions=[Transaction(_writer(mark), mark.batch)])
        if DELETED not in rows.column_names:
            write_deltalake(
                table,
                with_columns(rows, self.schema),
                mode="append",
                commit_properties=properties,
                **_without_wrong_statistics(self.schema),
            )
            return
        keys = keys_of(rows)
        # A field of a key may be null.
        same = {key: "IS NOT DISTINCT FROM" if rows[key].null_count else "=" for key in keys}
        columns = [name for name in rows.column_names if name != DELETED]
        values: dict[str, Any] = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
        values.update({_quoted(name): "NULL" for name in self.schema.names if name not in columns})
        merge = table.merge(
            rows,
            " AND ".join(f"(t.{_quoted(key)} {same[key]} s.{_quoted(key)})" for key in keys),
            source_alias="s",
            target_alias="t",
            # True: no file is left out by the statistics of its keys.
            streamed_exec=any(_has_wrong_statistics(rows.schema.field(key).type) for key in keys),
            commit_properties=properties,
            **_without_wrong_statistics(self.schema),
        )
        (
            merge.when_matched_delete(f"s.{DELETED}")
            .when_matched_update(values)
            .when_not_matched_insert(values, f"NOT s.{DELETED}")
            .execute()
        )
        if self.newest(mark) != mark.batch:  # a merge that changes no row commits nothing
            self.reset(mark)

    def reset(self, mark: BatchMark) -> None:
        self.write(self.schema.empty_table(), mark)
        self.open()

    def close(self) -> None:
        self._table = None

    @property
    def _opened(self) -> DeltaTable:
        assert self._table is not None
        return self._table


def _lacking(table: DeltaTable) -> Iterator[str]:
    """What delta-rs says at the first batch of a table with features that it does not write.

    A merge of no rows says it as well, and commits nothing.
    """
    if table.protocol().min_writer_version <= _WRITTEN:
        return
    none = pa.schema(table.schema()).empty_table()
    try:
        table.merge(none, "false", source_alias="s", target_alias="t").when_not_matched_insert_all().execute()
    except CommitFailedError as error:
        yield f"delta-rs does not write it: {error}"


def _without_wrong_statistics(schema: pa.Schema) -> dict[str, Any]:
    """Settings for files without statistics of decimals: readers would leave out files with rows they look for."""
    wrong = {field.name for field in schema if _has_long_decimals(field.type)}
    if not wrong:
        return {}
    # A column inside a struct cannot be named here, so none of them has statistics.
    flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
    properties = WriterProperties(
        compression="SNAPPY",  # as without these settings
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={
            name: ColumnProperties(statistics_enabled="PAGE") for name in flat if name not in wrong
        },
    )
    return {"writer_properties": properties}


def _has_wrong_statistics(kind: pa.DataType) -> bool:
    """Whether the least and the largest value that a file has in the log may leave out others: NaN is in neither."""
    return bool(pa.types.is_floating(kind)) or _has_long_decimals(kind)


def _has_long_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_long_decimals(field.type) for field in kind)
    return bool(pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS)


def _writer(mark: BatchMark) -> str:
    """The id of the application transaction: batches of other state are others."""
    return f"crossstream/{mark.writer}/{mark.state}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
