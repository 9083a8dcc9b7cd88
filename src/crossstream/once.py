"""Writing a batch once: a mark that says which one it is, in the same transaction as what it writes.

A batch may come twice: a process can end after the function for it returned and before the batch is committed. Batch
numbers of an application with new state begin again, so the mark names the state, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError


@dataclass(frozen=True, slots=True)
class BatchMark:
    """Which batch it is: of which application, which of its sinks, which state, and its number.

    ``stands``: with tables whose batches end behind transactions, by transaction topic the transaction, its place in
    the log of the database, and its time in ms.

    ``state``: an id that is the same as long as the state is, and another one when an application begins with an empty
    state folder. Two marks are equal if they are of the same batch; one that is repeated has the same mark.

    >>> BatchMark("shop", "orders.for_each_batch", "5f0c", 7).writer
    'shop/orders.for_each_batch'
    """

    application: str
    sink: str
    state: str
    batch: int
    stands: Mapping[str, Mapping[str, str | int | None]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def writer(self) -> str:
        """Application and sink: what one mark is kept for."""
        return f"{self.application}/{self.sink}"


class _Noted(msgspec.Struct, frozen=True):
    """What is noted of a mark where one place belongs to one writer."""

    state: str
    batch: int


_DECODER = msgspec.json.Decoder(_Noted)


def mark_as_text(mark: BatchMark) -> str:
    """State and batch of a mark as JSON, for a place that belongs to its writer.

    >>> mark_as_text(BatchMark("shop", "orders", "5f0c", 7))
    '{"state":"5f0c","batch":7}'
    """
    return msgspec.json.encode(_Noted(mark.state, mark.batch)).decode()


def mark_of_text(text: str, application: str, sink: str) -> BatchMark | None:
    """The mark that a writer has noted as `mark_as_text`; None for any other text."""
    try:
        noted = _DECODER.decode(text)
    except msgspec.MsgspecError:
        return None
    return BatchMark(application, sink, noted.state, noted.batch)


def stands_as_text(mark: BatchMark) -> dict[str, str]:
    """Behind which transactions a batch ends, as a note of a commit; no note where it is not known.

    >>> stands = {"shop.transaction": {"transaction": "571", "lsn": "0/32BB438", "time": None}}
    >>> stands_as_text(BatchMark("shop", "orders", "5f0c", 7, stands))
    {'crossstream.stands': '{"shop.transaction":{"transaction":"571","lsn":"0/32BB438","time":null}}'}
    """
    return {"crossstream.stands": msgspec.json.encode(mark.stands).decode()} if mark.stands else {}


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
    connection that does not roll back what it wrote, and for a function that ends the transaction itself.

    >>> import sqlite3
    >>> @once_in(lambda: sqlite3.connect("results.db"))
    ... def write(frame, connection):
    ...     rows = [(row.key, row.value.price) for row in frame.collect()]
    ...     connection.executemany("INSERT INTO prices VALUES (?, ?)", rows)
    """
    marks = _Marks(table)

    def decorated(write: Write) -> Callable[[Any, int, BatchMark], None]:
        @wraps(write)
        def for_batch(frame: Any, batch_id: int, mark: BatchMark) -> None:
            connection = connect()
            try:
                marks.prepare(connection)
                with marks.writing(connection, mark) as wanted:
                    if wanted:
                        write(frame, connection)
                connection.commit()
            except BaseException:
                with suppress(Exception):  # what went wrong before is the error to see
                    connection.rollback()
                raise
            finally:
                with suppress(Exception):
                    connection.close()

        del for_batch.__wrapped__  # its parameters are others
        return for_batch

    return decorated


@dataclass(slots=True)
class _Marks:
    """The table of marks in a database. ``has_savepoints``: None until the first connection is there."""

    table: str
    has_savepoints: bool | None = None

    def prepare(self, connection: Any) -> None:
        """Creates the table, and finds out what connections to this database do. Raises `ProcessingError` CS-591.

        The row that it tries this with has a name of its own, so no mark is there if the connection is refused.
        """
        if self.has_savepoints is not None:
            return
        columns = "writer VARCHAR(400) PRIMARY KEY, state VARCHAR(64) NOT NULL, batch BIGINT NOT NULL"
        _run(connection, f"CREATE TABLE IF NOT EXISTS {self.table} ({columns})")
        trial = f"trial {uuid4().hex}"
        _begin(connection)
        self._insert(connection, trial, "", 0)
        found = _takes_savepoints(connection)
        with suppress(Exception):
            connection.rollback()
        if self._find(connection, trial) is not None:
            _run(connection, f"DELETE FROM {self.table} WHERE writer = {{}}", trial)
            raise _commits_alone()
        self.has_savepoints = found

    @contextmanager
    def writing(self, connection: Any, mark: BatchMark) -> Iterator[bool]:
        """Begins a transaction for the batch, and marks it at the end; False: it is marked already.

        The row is locked from the beginning on, so an application that was thought dead waits, and then skips. Until
        the end it has a token for the batch: where the function ended the transaction, no batch is marked that may
        lack rows.
        """
        _begin(connection)
        writer, token = mark.writer, uuid4().hex
        _run(connection, f"UPDATE {self.table} SET batch = batch WHERE writer = {{}}", writer)
        found = self._find(connection, writer)
        if found is not None and found[0] == mark.state and found[1] >= mark.batch:
            yield False
            return
        if found is None:
            self._insert(connection, writer, token, mark.batch)
        else:
            _run(connection, f"UPDATE {self.table} SET state = {{}} WHERE writer = {{}}", token, writer)
        if self.has_savepoints:
            _run(connection, f"SAVEPOINT {_SAVEPOINT}")
        yield True
        self._check_same_transaction(connection, writer, token)
        update = f"UPDATE {self.table} SET state = {{}}, batch = {{}} WHERE writer = {{}}"
        _run(connection, update, mark.state, mark.batch, writer)

    def _check_same_transaction(self, connection: Any, writer: str, token: str) -> None:
        if self.has_savepoints:
            try:
                _run(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
            except Exception as error:
                raise _ended_by_function() from error
        found = self._find(connection, writer)
        if found is None or found[0] != token:
            raise _ended_by_function()

    def _find(self, connection: Any, writer: str) -> tuple[str, int] | None:
        found = _run(connection, f"SELECT state, batch FROM {self.table} WHERE writer = {{}}", writer)
        row: tuple[str, int] | None = found.fetchone()
        return row

    def _insert(self, connection: Any, writer: str, state: str, batch: int) -> None:
        insert = f"INSERT INTO {self.table} (writer, state, batch) VALUES ({{}}, {{}}, {{}})"
        _run(connection, insert, writer, state, batch)


_SAVEPOINT = "crossstream_batch"


def _begin(connection: Any) -> None:
    """Begins a transaction where the driver does not by itself, as that of DuckDB does not."""
    connection.commit()
    if hasattr(connection, "begin"):
        connection.begin()


def _takes_savepoints(connection: Any) -> bool:
    try:
        _run(connection, f"SAVEPOINT {_SAVEPOINT}")
        _run(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
    except Exception:
        return False
    return True


def _run(connection: Any, text: str, *values: Any) -> Any:
    """Executes a statement, with a placeholder for each ``{}``; gives what its rows are fetched from.

    On the connection where it can be: a cursor of DuckDB is a connection with transactions of its own.
    """
    on = connection if hasattr(connection, "execute") else connection.cursor()
    text = text.replace("{}", _placeholder(connection))
    found = on.execute(text, values) if values else on.execute(text)
    return found if hasattr(found, "fetchone") else on


def _placeholder(connection: Any) -> str:
    """How the module of a connection writes a parameter."""
    for kind in type(connection).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        style = getattr(module, "paramstyle", None)
        if style is not None:
            return "%s" if style in ("format", "pyformat") else "?"
    return "?"


def _commits_alone() -> CrossStreamError:
    what = "the connection commits each statement by itself, so a batch and its mark are not one transaction"
    step = "open the connection with autocommit=False; of sqlite3, leave isolation_level out"
    return refuse("CS-591", what, step)


def _ended_by_function() -> CrossStreamError:
    return refuse(
        "CS-591",
        "the function ended the transaction, so its rows and the mark of the batch are not in one: "
        "it committed, rolled back, or went on after a statement that failed",
        "leave commit() and rollback() to once_in, and write without a `with` block of the connection",
    )
