"""Writing a batch once: a mark that says which one it is, in the same transaction as what it writes.

A batch may come twice: a process can end after the function for it returned and before the batch is committed. Batch
numbers of an application with new state begin again, so the mark names the state, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias

from crossstream.errors import ProcessingError


@dataclass(frozen=True, slots=True)
class BatchMark:
    """Which batch it is: of which application, which of its sinks, which state, and its number.

    ``state``: an id that is the same as long as the state is, and another one when an application begins with an empty
    state folder. Two marks are equal if they are of the same batch; one that is repeated has the same mark.

    >>> BatchMark("shop", "orders.for_each_batch", "5f0c", 7).writer
    'shop/orders.for_each_batch'
    """

    application: str
    sink: str
    state: str
    batch: int

    @property
    def writer(self) -> str:
        """Application and sink: what one mark is kept for."""
        return f"{self.application}/{self.sink}"


Connect: TypeAlias = Callable[[], Any]
"""Opens a connection of a database, as ``sqlite3.connect`` or ``psycopg.connect`` returns it (DB-API, PEP 249)."""
Write: TypeAlias = Callable[[Any, Any], object]
"""``(Spark DataFrame, connection) → anything``."""


def once_in(
    connect: Connect, *, table: str = "crossstream_batches"
) -> Callable[[Write], Callable[[Any, int, BatchMark], None]]:
    """Makes a function for ``for_each_batch`` write each batch once into a database, in one transaction.

    ``connect()`` opens a connection for each batch. ``table`` has one row for each sink with the batch that was written
    last; it is created if it is missing. The decorated function takes ``(frame, connection)``, and neither commits nor
    rolls back. A batch that is repeated, and is in the database, is skipped. Raises `ProcessingError` CS-591 for a
    connection that commits each statement by itself.

    >>> import sqlite3
    >>> @once_in(lambda: sqlite3.connect("results.db"))
    ... def write(frame, connection):
    ...     rows = [(row.key, row.value.price) for row in frame.collect()]
    ...     connection.executemany("INSERT INTO prices VALUES (?, ?)", rows)
    """

    def decorated(write: Write) -> Callable[[Any, int, BatchMark], None]:
        @wraps(write)
        def for_batch(frame: Any, batch_id: int, mark: BatchMark) -> None:
            connection = connect()
            try:
                if _marked(connection, table, mark):
                    write(frame, connection)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
            finally:
                connection.close()

        del for_batch.__wrapped__  # its parameters are others
        return for_batch

    return decorated


def _marked(connection: Any, table: str, mark: BatchMark) -> bool:
    """Marks the batch, in the transaction that this begins; False: it is marked.

    The row is locked until the transaction ends, so an application that was thought dead waits, and then skips.
    """
    if getattr(connection, "autocommit", False) is True:
        raise _commits_alone()
    cursor = connection.cursor()
    columns = "writer VARCHAR(400) PRIMARY KEY, state VARCHAR(64) NOT NULL, batch BIGINT NOT NULL"
    cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
    sign = _placeholder(connection)
    known = f"state = {sign} AND batch >= {sign}"
    update = f"UPDATE {table} SET state = {sign}, batch = {sign} WHERE writer = {sign} AND NOT ({known})"
    cursor.execute(update, (mark.state, mark.batch, mark.writer, mark.state, mark.batch))
    if cursor.rowcount == 0:
        cursor.execute(f"SELECT 1 FROM {table} WHERE writer = {sign}", (mark.writer,))
        if cursor.fetchone() is not None:
            return False
        insert = f"INSERT INTO {table} (writer, state, batch) VALUES ({sign}, {sign}, {sign})"
        cursor.execute(insert, (mark.writer, mark.state, mark.batch))
    if getattr(connection, "in_transaction", True) is False:  # of sqlite3, with isolation_level=None
        raise _commits_alone()
    return True


def _placeholder(connection: Any) -> str:
    """How the module of a connection writes a parameter."""
    for kind in type(connection).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        style = getattr(module, "paramstyle", None)
        if style is not None:
            return "%s" if style in ("format", "pyformat") else "?"
    return "?"


def _commits_alone() -> ProcessingError:
    return ProcessingError(
        "the connection commits each statement by itself, so a batch and its mark are not one transaction",
        code="CS-591",
        next="open the connection with autocommit=False; of sqlite3, leave isolation_level out",
    )
