"""`to_postgres` of streams and tables: what it checks."""

from __future__ import annotations

from crossstream.api.lakehouse import Key, SchemaMode, WrittenToTables, check_installed, wrong
from crossstream.api.options import Named
from crossstream.columns.flat import KEY
from crossstream.columns.in_postgres import LONGEST_NAME


class WrittenToDatabases(WrittenToTables):
    """The methods that write a stream or a table into tables: of Postgres, Delta and Iceberg."""

    __slots__ = ()

    def to_postgres(
        self,
        dsn: str,
        table: str,
        *,
        key: Key = KEY,
        timestamp: str | None = None,
        schema_mode: SchemaMode = None,
        named: Named | None = None,
    ) -> None:
        """Writes into a table of Postgres, each batch once and in one transaction: changes of a `KTable` by key, or
        records of a stream, as `to_delta`.

        ``dsn``: a URI or the pairs of libpq. What it leaves out, such as a password, is taken from the environment
        where the application runs (``PGPASSWORD``, ``PGSERVICE``), or from the file of passwords; ``""`` leaves out
        everything. ``table``: ``"orders"``, which the search path finds, or ``"shop.orders"``; capital letters
        count. It is created if it is missing, with ``key`` as its primary key. One that is there
        has a unique key of these columns, and columns that hold the types; it may have others that may be null or have
        a default, which keep their values. ``key``, ``timestamp`` and ``schema_mode`` are those of `to_delta`.

        The same transaction writes the number of the batch into ``crossstream_marks``, a table in the same schema. So a
        batch that comes again after a crash is skipped. A connection that is lost is opened again, and a deadlock is
        tried again, for 25 seconds. Types: docs/postgres.md.

        Needs ``crossstream[postgres]``. Raises CS-116 for values without a declared type, CS-101 for a DSN that cannot
        be read and for names that are not valid, `SerdeError` CS-404 for types and names of columns that Postgres does
        not have, `ConfigError` CS-201 without ``psycopg``. At the start `SinkError`: CS-657 for a table with other
        columns or without that key, CS-665 if the database does not answer or refuses.

        >>> import polars as pl
        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, order = StreamsBuilder(), serdes.json({"customer": pl.String, "amount": pl.Float64})
        >>> orders = builder.table("orders", Consumed(key=serdes.string(), value=order))
        >>> orders.to_postgres("host=db dbname=shop user=writer", "shop.orders", key="order_id")
        """
        check_installed("to_postgres", "postgres")
        _check_dsn(dsn)
        _check_table(table)
        self._to_table("postgres", table, {"dsn": dsn}, key, timestamp, schema_mode, named)


def _check_dsn(dsn: object) -> None:
    if not isinstance(dsn, str):
        raise wrong(
            "to_postgres", f"the DSN is a {type(dsn).__name__}, not text", 'write "host=db dbname=shop"'
        )
    from crossstream.databases.connection import UnusableDsn, parts_of

    try:
        parts_of(dsn)
    except UnusableDsn as error:
        step = 'write "postgresql://user@host/database" or "host=… dbname=…", with special letters percent-encoded'
        raise wrong("to_postgres", f"the DSN cannot be read: {error}", step) from None


def _check_table(table: object) -> None:
    names = table.split(".") if isinstance(table, str) else []
    if not 1 <= len(names) <= 2 or not all(names):
        step = 'write its name, or schema and name: to_postgres(dsn, "shop.orders")'
        raise wrong("to_postgres", f"{table!r} does not name a table", step)
    for name in names:
        if len(name.encode()) > LONGEST_NAME or "\0" in name:
            step = f"use a name of at most {LONGEST_NAME} bytes"
            raise wrong("to_postgres", f"Postgres has no table or schema of the name {name!r}", step)
