"""A bank in a real Postgres: 16 writers whose transactions keep sums at zero, a connector, and what SQL shows when.

`bank.sql` has the tables and the transactions.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from crossstream.dev import servers
from crossstream.dev.background import HOST
from crossstream.dev.cdc import USER, Parts, Postgres

WRITERS = 16
TABLES = ("branches", "accounts", "transfers", "entries")
SCRIPT = Path(__file__).with_name("bank.sql")
LOCK = "SELECT pg_advisory_lock(1)"
"""Waits for every transaction of a writer, and lets none begin."""
UNLOCK = "SELECT pg_advisory_unlock(1)"
MARK = "SELECT pg_current_wal_insert_lsn() - '0/0', pg_export_snapshot()"


@dataclass(frozen=True, slots=True)
class Sample:
    """What SQL shows when exactly the transactions up to a place in the log are visible."""

    lsn: int
    accounts: Mapping[int, int]
    branches: Mapping[int, int]
    """Cents by id."""


@dataclass(frozen=True, slots=True)
class Bank:
    """The database ``name``; its topics are ``name.public.<table>`` and ``name.transaction``."""

    postgres: Postgres
    name: str

    def make(self, transactions: int) -> None:
        """The tables, with what so many transactions left in them."""
        self.postgres.execute(f"CREATE DATABASE {self.name}")
        self.postgres.execute(SCRIPT.read_text(encoding="utf-8"), self.name)
        self.postgres.execute(f"CALL work(99, {transactions}, 0)", self.name)

    def capture(self, parts: Parts, partitions: int) -> None:
        """Starts the connector while writers write, with events of transactions."""
        settings = {
            **servers.JSON,
            "provide.transaction.metadata": "true",
            "publication.autocreate.mode": "filtered",
            "table.include.list": ",".join(f"public.{table}" for table in TABLES),
            "topic.creation.default.partitions": str(partitions),
            "topic.creation.groups": "transactions",
            "topic.creation.transactions.include": rf"{self.name}\.transaction",
            "topic.creation.transactions.partitions": "1",
        }
        parts.capture(self.name, self.name, settings)
        parts.await_topics(f"{self.name}.transaction", *(f"{self.name}.public.{table}" for table in TABLES))

    @contextmanager
    def written(self, transactions: int, pause: float) -> Iterator[list[subprocess.Popen[str]]]:
        """Each writer makes so many transactions, and sleeps for ``pause`` seconds between them on average."""
        writers = [
            _psql(self.postgres, self.name, "--command", f"CALL work({writer}, {transactions}, {pause})")
            for writer in range(WRITERS)
        ]
        try:
            yield writers
            for writer in writers:
                _, errors = writer.communicate()
                assert writer.returncode == 0, errors
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()

    def close(self) -> None:
        """Lets the writers end after their transaction."""
        self.postgres.execute("INSERT INTO closing DEFAULT VALUES", self.name)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """The writers make no transactions inside."""
        self.postgres.execute("INSERT INTO resting DEFAULT VALUES", self.name)
        try:
            yield
        finally:
            self.postgres.execute("DELETE FROM resting", self.name)

    def sample(self) -> Sample:
        """Stops the writers for a moment; what they wrote until then is read while they go on."""
        with session(self.postgres, self.name) as holder, session(self.postgres, self.name) as reader:
            holder.ask(LOCK)
            holder.ask("BEGIN ISOLATION LEVEL REPEATABLE READ")
            ((lsn, snapshot),) = holder.ask(MARK)
            reader.ask("BEGIN ISOLATION LEVEL REPEATABLE READ")
            reader.ask(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            reader.ask("SELECT 1")
            holder.ask("COMMIT")
            holder.ask(UNLOCK)
            accounts, branches = (reader.ask(f"SELECT id, cents FROM {t}") for t in ("accounts", "branches"))
        return Sample(int(lsn), _numbers(accounts), _numbers(branches))

    def audit(self) -> pl.DataFrame:
        """What each transaction added: ``xid``, ``account_id``, ``branch_id``, ``cents``."""
        csv = self.postgres.execute("COPY audit TO STDOUT (FORMAT csv, HEADER)", self.name)
        return pl.read_csv(csv.encode(), schema_overrides=[pl.Int64] * 4)


@dataclass(frozen=True, slots=True)
class Session:
    """A connection to Postgres, with its transaction."""

    requests: IO[str]
    answers: IO[str]
    errors: IO[str]

    def ask(self, sql: str) -> list[list[str]]:
        """Runs a statement; its rows."""
        self.requests.write(f"{sql};\n\\echo .\n")
        self.requests.flush()
        lines = []
        while (line := self.answers.readline()) != ".\n":
            assert line, f"Postgres refuses {sql}"
            lines.append(line.rstrip("\n").split("|"))
        return lines


@contextmanager
def session(postgres: Postgres, database: str) -> Iterator[Session]:
    process = _psql(postgres, database)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield Session(process.stdin, process.stdout, process.stderr)
    finally:
        process.communicate()


def _psql(postgres: Postgres, database: str, *options: str) -> subprocess.Popen[str]:
    command = [str(postgres.binaries / "psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--quiet"]
    command += ["--tuples-only", "--no-align", f"--host={HOST}", f"--port={postgres.port}"]
    return subprocess.Popen(
        [*command, f"--username={USER}", f"--dbname={database}", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PGPASSWORD": postgres.password},
        text=True,
    )


def _numbers(rows: list[list[str]]) -> dict[int, int]:
    return {int(id): int(cents) for id, cents in rows}
