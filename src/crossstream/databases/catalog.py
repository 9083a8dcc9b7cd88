"""What a table of Postgres is, and the statements that make one. All names are in quotes: capital letters count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from crossstream.databases.connection import Connection
from crossstream.databases.types import sql_type

MARKS = "crossstream_marks"
"""The table that says which batch each sink has written last. It is in the schema of the tables."""

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
_FOUND = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, row_security_active(c.oid),
    current_setting('server_encoding'), to_regclass(format('%I.%I', n.nspname, $2::text)) IS NOT NULL,
    (SELECT coalesce(json_agg(json_build_array(attname, format_type(atttypid, atttypmod), attnotnull,
            atthasdef OR attidentity <> '', attgenerated <> '' OR attidentity = 'a') ORDER BY attnum), '[]')
        FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
    (SELECT coalesce(json_agg(names ORDER BY is_primary DESC), '[]') FROM (
        SELECT json_agg(attname ORDER BY attnum) AS names, bool_or(indisprimary) AS is_primary
        FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY ((indkey::int2[])[0:indnkeyatts - 1])
        WHERE indrelid = c.oid AND indisunique AND indisvalid AND indimmediate
            AND indpred IS NULL AND indexprs IS NULL
        GROUP BY indexrelid) AS indexes)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1::text)
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. ``type`` as Postgres writes it; ``is_given``: it has a default, so rows may leave it out."""

    name: str
    type: str
    not_null: bool
    is_given: bool
    is_computed: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A table that is there. ``keys``: the columns of each unique index, those of the primary key first."""

    oid: int
    schema: str
    table: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...]
    refused: tuple[str, ...]
    has_marks: bool

    @property
    def name(self) -> str:
        """The name in statements."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def marks(self) -> str:
        """The table of marks, in statements."""
        return f"{quoted(self.schema)}.{quoted(MARKS)}"


def find(connection: Connection, table: str) -> Found | None:
    """What the table is; None: there is none."""
    row = connection.execute(_FOUND.encode(), (named(table), MARKS)).fetchone()
    if row is None:
        return None
    oid, schema, name, kind, persistence, is_filtered, encoding, has_marks, columns, keys = row
    refused = _refused(kind, persistence, encoding, is_filtered=is_filtered)
    return Found(
        oid,
        schema,
        name,
        tuple(Column(*column) for column in columns),
        tuple(tuple(key) for key in keys),
        tuple(refused),
        has_marks,
    )


def _refused(kind: str, persistence: str, encoding: str, *, is_filtered: bool) -> Iterator[str]:
    """What rows could be lost by."""
    if kind in _KINDS:
        yield f"it is {_KINDS[kind]}, not a table"
    elif persistence == "u":
        yield "it is unlogged: after a crash of the server it is empty"
    if is_filtered:
        yield "this role does not see all rows of it (row level security)"
    if encoding != "UTF8":
        yield f"its database has the encoding {encoding}, which does not have all letters; UTF8 has"


def table_of(table: str, schema: pa.Schema, keys: Sequence[str]) -> Iterator[str]:
    """The statements that make a table, and its schema where that is missing."""
    parts = [f"{quoted(field.name)} {sql_type(field.type)}" for field in schema]
    if keys:
        parts.append(f"PRIMARY KEY ({listed(keys)})")
    yield f"CREATE TABLE IF NOT EXISTS {named(table)} ({', '.join(parts)})"


def marks_of(found: Found) -> str:
    """The statement that makes the table of marks.

    ``target`` is a regclass: a table that replaces another one of its name has no marks, and a copy of the database
    (pg_dump) has them.
    """
    return (
        f"CREATE TABLE IF NOT EXISTS {found.marks} (application text, sink text, target regclass, "
        "state text NOT NULL, batch bigint NOT NULL, written_at timestamptz NOT NULL, "
        "PRIMARY KEY (application, sink, target))"
    )


def quoted(name: str) -> str:
    """A name, as given: capital letters, spaces and quotes count."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Sequence[str]) -> str:
    """Names, one after the other."""
    return ", ".join(map(quoted, names))


def named(table: str) -> str:
    """A table in statements: ``orders``, which the search path finds, or ``shop.orders``."""
    return ".".join(map(quoted, table.split(".")))
