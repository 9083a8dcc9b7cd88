"""Tables of a Postgres that a test starts, in a schema of each test."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

import crossstream as cs
from crossstream.databases.postgres import PostgresSink
from crossstream.dev import cdc
from crossstream.errors import SourceError
from tests.lakehouse.test_each_batch_once import Lives


@pytest.fixture(scope="session")
def server() -> Iterator[cdc.Postgres]:
    """A Postgres, once for all tests of a process."""
    try:
        cdc.find_postgres()
    except SourceError as error:
        pytest.skip(f"no Postgres can be started here: {error}")
    with cdc.started() as postgres:
        yield postgres


@dataclass(slots=True)
class Tables:
    """The tables of one schema, by the names that a test gives them."""

    dsn: str
    schema: str = field(default_factory=lambda: f"t{secrets.token_hex(6)}")
    form: str = "postgres"

    def sink(self, handle: cs.KStream | cs.KTable, table: str, **settings: Any) -> None:
        handle.to_postgres(self.dsn, f"{self.schema}.{table}", **settings)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Runs statements in which ``{}`` is the schema; the rows of the last one."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"SET search_path = {self.schema}")
            connection.execute("SET timezone = 'UTC'")
            cursor = connection.execute(sql.replace("{}", self.schema))
            return cursor.fetchall() if cursor.description else []

    def tuples(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(self.execute(f"SELECT {columns} FROM {table}"), key=repr)

    def types(self, table: str) -> dict[str, str]:
        """The columns, in their order."""
        found = self.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            f"WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        return dict(found)

    def marks(self) -> dict[tuple[str, str], int]:
        """The batch of each table, by sink and table."""
        return {
            (sink, table): batch
            for sink, table, batch in self.execute("SELECT sink, target::text, batch FROM crossstream_marks")
        }


@pytest.fixture
def tables(server: cdc.Postgres) -> Tables:
    return made(server)


def made(server: cdc.Postgres) -> Tables:
    """An empty schema."""
    found = Tables(server.dsn())
    with psycopg.connect(found.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {found.schema}".encode())
    return found


class PostgresLives(Lives):
    """An application that counts words into a table, and appends them to another one."""

    def __init__(self, root: Path, tables: Tables) -> None:
        super().__init__(root, "delta")
        self.lake: Any = tables
        self.writer = PostgresSink


@pytest.fixture
def lives(tmp_path: Path, tables: Tables) -> PostgresLives:
    return PostgresLives(tmp_path, tables)


def restart(server: cdc.Postgres) -> None:
    """Kills the server with all of its processes, and starts it again."""
    data = server.folder / "data"
    owner = data.stat()
    who: dict[str, Any] = {}
    if owner.st_uid != os.getuid():
        who = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    command = [str(server.binaries / "pg_ctl"), f"--pgdata={data}", "--mode=immediate", "--wait", "restart"]
    log = f"--log={server.folder / 'postgres.log'}"
    subprocess.run([*command, log], cwd=data.parent, stdout=subprocess.DEVNULL, check=True, **who)
