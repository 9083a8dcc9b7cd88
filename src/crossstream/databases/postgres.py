"""A table of Postgres. A batch is one transaction, with the mark of the batch in it.

1. The mark's row is locked, so an application that was thought dead waits, and then finds the batch there.
2. The rows go by COPY into a temporary table; or into the table, where they are only added.
3. One statement deletes, one inserts and updates (``ON CONFLICT``), in the order of the key, as its index has them.
4. The mark is written.

Measured against UPDATE and INSERT apart, and MERGE: decision 0048.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import errors

from crossstream.columns.flat import DELETED, keys_of
from crossstream.databases import catalog
from crossstream.databases.catalog import Found, listed, quoted
from crossstream.databases.connection import Session
from crossstream.databases.copying import csv_of
from crossstream.databases.types import holds, sql_type
from crossstream.graph.nodes import TableSink
from crossstream.once import BatchMark
from crossstream.operators.sink.table_rows import layout

DSN = "dsn"
"""The option of a sink that has the DSN."""
_SETTINGS = """
SELECT set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
"""
"""Of a transaction: how times are read, and that a commit outlives the server, for the batch does not come again."""
FEW = 1_000
"""Rows up to which it is not asked whether the table is empty."""


def postgres_sink(node: TableSink, sessions: dict[str, Session]) -> PostgresSink:
    """The sink of a node. ``sessions``: by DSN, those that there are."""
    dsn = node.options[DSN]
    return PostgresSink(node, sessions.setdefault(dsn, Session(dsn)))


@dataclass(slots=True)
class PostgresSink:
    """Writes one table, by a session that it shares with the other tables of the database."""

    node: TableSink
    session: Session
    _table: Found | None = field(default=None)
    _is_filled: bool = False

    conflicts: tuple[type[Exception], ...] = (psycopg.OperationalError,)

    @property
    def together(self) -> str | None:
        return self.session.dsn

    def open(self) -> bool:
        """Finds the table, and makes the table of marks beside it; False: there is none."""
        self._table = catalog.find(self.session.reopened(), self.node.table)
        if self._table is not None and not self._table.has_marks and not self._table.refused:
            self._make(catalog.marks_of(self._table))
        return self._table is not None

    def create(self, schema: pa.Schema, keys: tuple[str, ...]) -> None:
        space = self.node.table.rpartition(".")[0]
        missing = "SELECT to_regnamespace($1) IS NULL"
        if space and self.session.fetched(missing, quoted(space)) == (True,):
            self._make(f"CREATE SCHEMA IF NOT EXISTS {quoted(space)}")
        for statement in catalog.table_of(self.node.table, schema, keys):
            self._make(statement)
        self.open()

    @property
    def schema(self) -> pa.Schema:
        """The columns by name, with what may be null; `differs` compares their types."""
        columns = self._opened.columns
        return pa.schema(
            [pa.field(one.name, pa.string(), not one.not_null or self._is_left_out(one)) for one in columns]
        )

    def differs(self, field: pa.Field) -> str | None:
        there = next(one.type for one in self._opened.columns if one.name == field.name)
        wanted = sql_type(field.type)
        return None if holds(there, wanted) else f"{field.name} is {there} there and {wanted} here"

    @property
    def key(self) -> tuple[str, ...] | None:
        """The key that the sink names, if it is unique; else the one that the table has."""
        wanted, known = layout(self.node).keys, self._opened.keys
        return next((key for key in known if set(key) == set(wanted)), known[0] if known else ())

    @property
    def partitions(self) -> tuple[str, ...]:
        return ()  # they hold every value

    @property
    def demands(self) -> list[str]:
        own = layout(self.node).schema.names
        computed = [one.name for one in self._opened.columns if one.is_computed and one.name in own]
        return [*self._opened.refused, *(f"the column {name!r} is generated" for name in computed)]

    @property
    def version(self) -> object:
        return self._opened.oid

    def add_columns(self, fields: list[pa.Field]) -> None:
        added = (f"ADD COLUMN IF NOT EXISTS {quoted(one.name)} {sql_type(one.type)}" for one in fields)
        self.session.run(f"ALTER TABLE {self._opened.name} {', '.join(added)}")
        self.open()

    def newest(self, mark: BatchMark) -> int | None:
        """The newest batch of the mark's writer and state that the table has."""
        return _batch(self._noted(mark), mark)

    def transaction(self) -> AbstractContextManager[object]:
        return self.session.transaction()

    def write(self, rows: pa.Table, mark: BatchMark) -> None:
        with self.session.transaction():
            newest = self._locked(mark)
            if newest is not None and newest >= mark.batch:
                return
            if DELETED in rows.column_names:
                self._change(rows)
            else:
                self._copy(rows, self._opened.name)
            self._note(mark)

    def reset(self, mark: BatchMark) -> None:
        with self.session.transaction():
            self._locked(mark)
            self._note(mark)

    def close(self) -> None:
        self._table = None
        self.session.close()

    # -- a batch

    def _change(self, rows: pa.Table) -> None:
        """Writes changes by key: all of their columns are in the rows, and `DELETED`."""
        if rows.num_rows > FEW and self._is_empty() and self._filled(rows):
            return
        staging = self._staging(rows.schema)
        self._copy(rows, staging)
        keys, table = keys_of(rows), self._opened.name
        gone = quoted(DELETED)
        if pc.any(rows[DELETED]).as_py():
            self.session.run(f"ANALYZE {staging}")  # without it a few deletes read the whole table
            same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
            self.session.run(f"DELETE FROM {table} t USING {staging} s WHERE s.{gone} AND {same}")
        columns = [name for name in rows.column_names if name != DELETED]
        others = [name for name in columns if name not in keys]
        changed = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        self.session.run(
            f"INSERT INTO {table} ({listed(columns)}) SELECT {listed(columns)} FROM {staging} WHERE NOT {gone} "
            f"ORDER BY {listed(keys)} ON CONFLICT ({listed(keys)}) DO "
            + (f"UPDATE SET {changed}" if others else "NOTHING")
        )

    def _is_empty(self) -> bool:
        """Whether the table has no rows. One that had some is not asked again."""
        if not self._is_filled:
            self._is_filled = self.session.fetched(f"SELECT EXISTS (SELECT FROM {self._opened.name})") == (
                True,
            )
        return not self._is_filled

    def _filled(self, rows: pa.Table) -> bool:
        """Fills an empty table, in the order of its key; False: another program was faster."""
        kept = rows.filter(pc.invert(rows[DELETED])).drop_columns([DELETED])
        ordered = kept.take(
            pl.DataFrame(kept.select(keys_of(rows))).with_row_index("").sort(keys_of(rows))[""].to_arrow()
        )
        with suppress(errors.UniqueViolation), self.session.connection.transaction():
            self._copy(ordered, self._opened.name)
            return True
        return False

    def _staging(self, schema: pa.Schema) -> str:
        """The temporary table for such rows. A session keeps it: one for each batch would fill the catalog."""
        columns = ", ".join(f"{quoted(one.name)} {sql_type(one.type)}" for one in schema)
        name = f"crossstream_{sha256(f'{self._opened.oid} {columns}'.encode()).hexdigest()[:16]}"
        self.session.run(f"CREATE TEMP TABLE IF NOT EXISTS {name} ({columns}) ON COMMIT DELETE ROWS")
        return f"pg_temp.{name}"

    def _copy(self, rows: pa.Table, into: str) -> None:
        statement = f"COPY {into} ({listed(rows.column_names)}) FROM STDIN (FORMAT csv)"
        self.session.put(statement, csv_of(rows))

    # -- marks

    def _locked(self, mark: BatchMark) -> int | None:
        """As `newest`, of a row that is there and locked until the transaction ends."""
        self.session.run(_SETTINGS)
        found = self._noted(mark, " FOR UPDATE")
        if found is None:
            none = "VALUES ($1, $2, $3::oid, '', -1, now()) ON CONFLICT DO NOTHING"
            self.session.run(f"INSERT INTO {self._opened.marks} {none}", *self._writer(mark))
            found = self._noted(mark, " FOR UPDATE")
        return _batch(found, mark)

    def _noted(self, mark: BatchMark, lock: str = "") -> tuple[Any, ...] | None:
        """State and batch."""
        return self.session.fetched(
            f"SELECT state, batch FROM {self._opened.marks} "
            f"WHERE application = $1 AND sink = $2 AND target = $3::oid{lock}",
            *self._writer(mark),
        )

    def _note(self, mark: BatchMark) -> None:
        self.session.run(
            f"UPDATE {self._opened.marks} SET state = $4, batch = $5, written_at = now() "
            "WHERE application = $1 AND sink = $2 AND target = $3::oid",
            *self._writer(mark),
            mark.state,
            mark.batch,
        )

    def _writer(self, mark: BatchMark) -> tuple[str, str, int]:
        return mark.application, mark.sink, self._opened.oid

    @property
    def _opened(self) -> Found:
        assert self._table is not None
        return self._table

    def _make(self, statement: str) -> None:
        """Runs CREATE … IF NOT EXISTS, which fails where two of them run at the same time."""
        with suppress(errors.UniqueViolation, errors.DuplicateTable, errors.DuplicateSchema):
            self.session.run(statement)

    def _is_left_out(self, column: catalog.Column) -> bool:
        return column.is_given and column.name not in layout(self.node).schema.names


def _batch(noted: tuple[Any, ...] | None, mark: BatchMark) -> int | None:
    """The batch that is noted, if it is of this state."""
    return noted[1] if noted is not None and noted[0] == mark.state else None
