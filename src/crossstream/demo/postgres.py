"""A Postgres for demos and tests: on this machine only, with logical decoding, in a temporary folder."""

from __future__ import annotations

import csv
import io
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossstream.errors import SourceError
from crossstream.kafka.background import HOST, free_port

USER = "postgres"
"""The superuser of the database, and the system's user that runs it if this process is root's."""
NULL = "\\N"
SETTINGS = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20", "fsync": "off"}


@dataclass(frozen=True, slots=True)
class Postgres:
    """A database server that runs; `started` makes it."""

    binaries: Path
    folder: Path
    port: int
    password: str

    def execute(self, sql: str, database: str = USER) -> str:
        """Runs statements, each in its own transaction unless they say BEGIN; the output of psql.

        Raises `SourceError` CS-620 with Postgres' message.
        """
        return self._psql(sql, database, "--quiet", "--tuples-only", "--no-align")

    def select(self, sql: str, database: str = USER) -> list[dict[str, str | None]]:
        """The rows of a query, each value in the text that Postgres shows for it."""
        text = self._psql(sql, database, "--quiet", "--csv", "--pset", f"null={NULL}")
        return [
            {name: None if value == NULL else value for name, value in row.items()}
            for row in csv.DictReader(io.StringIO(text, newline=""))
        ]

    def connector(self, prefix: str, database: str = USER, **more: str) -> dict[str, str]:
        """Settings for Debezium's connector: topics ``prefix.schema.table``. Dots in names of ``more`` are ``__``."""
        slot = "".join(letter if letter.isalnum() else "_" for letter in prefix.lower())
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": HOST,
            "database.port": str(self.port),
            "database.user": USER,
            "database.password": self.password,
            "database.dbname": database,
            "topic.prefix": prefix,
            "slot.name": slot,
            "publication.name": slot,
            # Connect makes the topics, since the development broker does not.
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
            **{name.replace("__", "."): value for name, value in more.items()},
        }

    def _psql(self, sql: str, database: str, *options: str) -> str:
        command = [str(self.binaries / "psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", *options]
        command += [f"--host={HOST}", f"--port={self.port}", f"--username={USER}", f"--dbname={database}"]
        done = subprocess.run(
            command,
            input=sql,
            env={**os.environ, "PGPASSWORD": self.password, "PGTZ": "UTC", "PGCLIENTENCODING": "UTF8"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode != 0:
            raise SourceError(
                f"Postgres refuses the statement: {done.stderr.strip()}",
                code="CS-620",
                next="correct the statement",
            )
        return done.stdout


def find_postgres() -> Path:
    """The folder of Postgres' programs: the newest of Debian's, else that of ``postgres`` on the path.

    Raises `SourceError` CS-620 without Postgres.
    """
    found = list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if found:
        return max(found, key=lambda program: int(program.parts[-3])).parent
    program = shutil.which("postgres")
    if program is None:
        raise SourceError(
            "there is no Postgres on this machine",
            code="CS-620",
            next="install it: apt-get install postgresql, or brew install postgresql",
        )
    return Path(program).resolve().parent


@contextmanager
def started() -> Iterator[Postgres]:
    """A Postgres on a free port; it ends with the block, and its data go. `SourceError` CS-620."""
    binaries = find_postgres()
    folder = Path(tempfile.mkdtemp(prefix="crossstream-postgres-"))
    who: dict[str, Any] = {}
    try:
        if os.getuid() == 0:  # Postgres refuses to run as root
            try:
                account = pwd.getpwnam(USER)
            except KeyError:
                raise SourceError(
                    f"Postgres does not run as root, and there is no user {USER}",
                    code="CS-620",
                    next="run this as another user",
                ) from None
            os.chown(folder, account.pw_uid, account.pw_gid)
            who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        server = Postgres(binaries, folder, free_port(), secrets.token_hex(16))
        word = folder / "password"
        word.write_text(server.password, encoding="utf-8")
        word.chmod(0o644)  # the folder is closed to others
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        options += f" -c listen_addresses={HOST} -p {server.port} -k {folder}"
        data, control = f"--pgdata={folder}/data", str(binaries / "pg_ctl")
        initdb = [
            str(binaries / "initdb"),
            data,
            f"--username={USER}",
            f"--pwfile={word}",
            "--auth=scram-sha-256",
        ]
        _run([*initdb, "--encoding=UTF8", "--locale=C", "--no-sync"], folder, who)
        _run([control, data, "--wait", f"--log={folder}/postgres.log", "-o", options, "start"], folder, who)
        try:
            yield server
        finally:
            _run([control, data, "--wait", "--mode=immediate", "stop"], folder, who)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], folder: Path, who: dict[str, Any]) -> None:
    with (folder / "setup.log").open("wb+") as log:  # a pipe would stay open in the server
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, **who
        )
        log.seek(0)
        said = log.read().decode("utf-8", "replace").strip()
    if done.returncode != 0:
        log_file = folder / "postgres.log"
        more = log_file.read_text(encoding="utf-8", errors="replace") if log_file.exists() else ""
        raise SourceError(
            "\n    ".join(
                [f"Postgres did not start ({Path(command[0]).name})", *f"{said}\n{more}".splitlines()[-5:]]
            ),
            code="CS-620",
            next="look at these last lines of its log",
        )
