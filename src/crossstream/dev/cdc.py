"""Changes in a real Postgres, as records in Kafka: Postgres, Debezium in Kafka Connect, a schema registry, a broker.

`parts` starts all of them on free ports of this machine, with their files in temporary folders.
`crossstream demo --postgres` shows them at work.
"""

from __future__ import annotations

import csv
import io
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossstream.dev import broker, servers
from crossstream.dev.background import HOST, free_port
from crossstream.dev.broker import BrokerInfo
from crossstream.dev.servers import ConnectInfo, RegistryInfo
from crossstream.error_codes import refuse
from crossstream.errors import SourceError
from crossstream.kafka import KafkaConnection

CAPTURE_SECONDS = 120.0
SERVERS = (broker.JARS, servers.REGISTRY_JARS, servers.CONNECT_JARS)
"""What the first start loads."""
USER = "postgres"
"""The superuser of the database, and the system's user that runs it if this process is root's."""
NULL = "\\N"
SETTINGS = {"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "20", "fsync": "off"}


@dataclass(frozen=True, slots=True)
class Parts:
    """All servers between a row in Postgres and a record in a topic."""

    postgres: Postgres
    broker: BrokerInfo
    registry: RegistryInfo
    connect: ConnectInfo

    def capture(
        self, prefix: str, database: str = "postgres", settings: Mapping[str, str] | None = None
    ) -> None:
        """Starts a connector, and returns when it has read the tables and follows their changes."""
        config = {**self.postgres.connector(prefix, database), "poll.interval.ms": "50", **(settings or {})}
        servers.request(f"{self.connect.url}/connectors/{prefix}/config", "PUT", config)
        self.await_streaming(prefix, config["slot.name"])

    def await_streaming(self, connector: str, slot: str) -> None:
        """Returns when the connector follows the changes. `SourceError` CS-620 with its trace if it fails."""
        query = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}' AND active"
        deadline = time.monotonic() + CAPTURE_SECONDS
        while True:
            if failure := self.failure(connector):
                what = f"the connector {connector} failed: {failure[:2000]}"
                raise refuse("CS-620", what, "correct its settings, or the table")
            if self.postgres.select(query):
                return
            if time.monotonic() > deadline:
                raise refuse(
                    "CS-620",
                    f"the connector {connector} does not follow the changes after {CAPTURE_SECONDS:g} s",
                    f"look into {self.connect.log_file}",
                )
            time.sleep(0.1)

    def await_topics(self, *topics: str) -> None:
        """Returns when Connect has made the topics: it does with the first record of each."""
        with closing(KafkaConnection(self.broker.bootstrap_servers).log()) as log:
            deadline = time.monotonic() + CAPTURE_SECONDS
            while missing := set(topics) - set(log.topics()):
                if time.monotonic() > deadline:
                    what = f"Connect has not made {', '.join(sorted(missing))} after {CAPTURE_SECONDS:g} s"
                    step = f"put a row into each table, and look into {self.connect.log_file}"
                    raise refuse("CS-620", what, step)
                time.sleep(0.1)

    def failure(self, connector: str) -> str | None:
        """Why a connector failed."""
        try:
            status = servers.request(f"{self.connect.url}/connectors/{connector}/status")
        except SourceError:  # it was just made
            return None
        failed = (part for part in (status["connector"], *status["tasks"]) if part["state"] == "FAILED")
        return next((str(part.get("trace")) for part in failed), None)


@contextmanager
def parts() -> Iterator[Parts]:
    """Starts all parts on free ports, in a temporary folder; they end with the block. `SourceError` CS-620."""
    with ExitStack() as stack:
        postgres = stack.enter_context(started())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="crossstream-cdc-"))
        info = broker.start(broker.free_port(), folder)
        stack.callback(broker.stop, info.port)
        stack.callback(servers.stop_companions, info.port)
        registry = servers.start_registry(info, broker.free_port())
        yield Parts(postgres, info, registry, servers.start_connect(info, broker.free_port(), registry))


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

    def dsn(self, database: str = USER) -> str:
        """What a program connects with as the superuser."""
        return f"host={HOST} port={self.port} user={USER} password={self.password} dbname={database}"

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
            what = f"Postgres refuses the statement: {done.stderr.strip()}"
            raise refuse("CS-620", what, "correct the statement")
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
        what = "there is no Postgres on this machine"
        raise refuse("CS-620", what, "install it: apt-get install postgresql, or brew install postgresql")
    return Path(program).resolve().parent


@contextmanager
def started(**settings: str) -> Iterator[Postgres]:
    """A Postgres on a free port; it ends with the block, and its data go. `SourceError` CS-620.

    ``settings``: those of the server that differ from `SETTINGS`.
    """
    binaries = find_postgres()
    folder = Path(tempfile.mkdtemp(prefix="crossstream-postgres-"))
    who: dict[str, Any] = {}
    try:
        if os.getuid() == 0:  # Postgres refuses to run as root
            try:
                account = pwd.getpwnam(USER)
            except KeyError:
                what = f"Postgres does not run as root, and there is no user {USER}"
                raise refuse("CS-620", what, "run this as another user") from None
            os.chown(folder, account.pw_uid, account.pw_gid)
            who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        server = Postgres(binaries, folder, free_port(), secrets.token_hex(16))
        word = folder / "password"
        word.write_text(server.password, encoding="utf-8")
        word.chmod(0o644)  # the folder is closed to others
        options = " ".join(f"-c {name}={value}" for name, value in {**SETTINGS, **settings}.items())
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
        what = "\n    ".join(
            [f"Postgres did not start ({Path(command[0]).name})", *f"{said}\n{more}".splitlines()[-5:]]
        )
        raise refuse("CS-620", what, "look at these last lines of its log")
