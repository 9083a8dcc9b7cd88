"""A connection to Postgres: what its DSN says, and what is set for each session. A password is in no text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import psycopg
from psycopg import conninfo, pq

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_SETTINGS = {
    "connect_timeout": "10",
    "tcp_user_timeout": "30000",  # milliseconds: a server that is gone is noticed, one that waits for a lock is not
    "application_name": "crossstream",
}
"""What a DSN may say otherwise."""


class UnusableDsn(Exception):
    """A DSN that libpq does not take; the text says why, and repeats nothing of it that may be a password."""


@dataclass(slots=True)
class Session:
    """A connection that the tables of one database share. One that broke is replaced when a table is opened again."""

    dsn: str
    _connection: Connection | None = field(default=None)

    @property
    def connection(self) -> Connection:
        """The connection as it was opened: in a transaction it is not replaced."""
        assert self._connection is not None
        return self._connection

    def reopened(self) -> Connection:
        """The connection, a new one if it is closed. Raises `psycopg.Error`."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.dsn)
        return self._connection

    def transaction(self) -> AbstractContextManager[object]:
        """A transaction, or the one that is open."""
        idle = self.connection.info.transaction_status is pq.TransactionStatus.IDLE
        return self.connection.transaction() if idle else nullcontext()

    def run(self, statement: str, *values: Any) -> None:
        """Runs a statement, with ``$1`` and so on for the values."""
        self.connection.execute(statement.encode(), values or None)

    def fetched(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        """Runs a query; its first row."""
        return self.connection.execute(statement.encode(), values or None).fetchone()

    def put(self, statement: str, parts: Iterable[bytes]) -> None:
        """Runs COPY FROM STDIN."""
        with self.connection.cursor().copy(statement.encode()) as copy:
            for part in parts:
                copy.write(part)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


def parts_of(dsn: str) -> Mapping[str, str]:
    """The parts of a DSN: a URI, or pairs such as ``host=db dbname=shop``. Raises `UnusableDsn`."""
    try:
        parts = {name: str(value) for name, value in conninfo.conninfo_to_dict(dsn).items()}
    except psycopg.Error:  # whose text has the part that is wrong, which may be the password
        raise UnusableDsn("libpq does not read it") from None
    ports = parts.get("port", "").replace(",", "")
    if "@" in parts.get("host", "") or not (ports.isdecimal() or not ports):
        # Else libpq would name, as a host or a port that it does not find, the rest of such a password.
        raise UnusableDsn("its host or its port has a letter of the password: percent-encode it")
    return parts


def connect(dsn: str) -> Connection:
    """Opens a connection on which each statement is a transaction, unless it begins one. Raises `psycopg.Error`.

    What the DSN leaves out comes from the environment, as with all programs of Postgres: ``PGHOST``, ``PGPASSWORD``,
    ``PGSERVICE``, the file of passwords.
    """
    settings: dict[str, Any] = {**_SETTINGS, **parts_of(dsn), "client_encoding": "UTF8"}
    connection: Connection = psycopg.connect(
        **settings,
        autocommit=True,
        cursor_factory=psycopg.RawCursor,  # its parameters are $1, $2: a % in a name means nothing
        prepare_threshold=None,  # poolers give each transaction another session
    )
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection
