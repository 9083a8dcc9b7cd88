"""A row in a real Postgres becomes a record in Kafka: Debezium in Kafka Connect, a registry, the development broker."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossstream.dev import broker, servers
from crossstream.dev.cdc import Parts
from crossstream.dev.demo_postgres import CHANGES
from crossstream.errors import SourceError
from tests.cli.cases import ENVIRONMENT
from tests.data.debezium.record import read
from tests.data.debezium.recordings import Recorded
from tests.end_to_end.real_parts import await_saved, restarted

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]


def await_records(parts: Parts, topic: str, count: int, seconds: float = 30) -> list[Recorded]:
    """The records of a topic, once there are so many."""
    deadline = time.monotonic() + seconds
    while True:
        found = read(parts.broker.bootstrap_servers, topic)
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, (topic, len(found), parts.failure(topic.partition(".")[0]))
        time.sleep(0.2)


def parsed(text: bytes | None) -> Any:
    assert text is not None
    return json.loads(text)


def test_a_row_becomes_a_record(parts: Parts) -> None:
    """As JSON, and as Avro in the registry's frame."""
    parts.postgres.execute("CREATE DATABASE quick")
    parts.postgres.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'one')", "quick"
    )
    parts.capture("quickjson", "quick", servers.JSON)
    parts.capture("quickavro", "quick")
    parts.postgres.execute("INSERT INTO t VALUES (2, 'two')", "quick")

    first, second = await_records(parts, "quickjson.public.t", 2)
    assert parsed(first.value)["op"] == "r"
    assert parsed(second.key) == {"id": 2}
    assert parsed(second.value)["after"] == {"id": 2, "name": "two"}

    for record in await_records(parts, "quickavro.public.t", 2):
        assert record.value is not None
        assert record.value[0] == 0
        id = int.from_bytes(record.value[1:5], "big")
        answer = servers.request(f"{parts.registry.url}/schemas/ids/{id}")
        assert json.loads(answer["schema"])["name"] == "Envelope"
    subjects = servers.request(f"{parts.registry.url}/subjects")
    assert {"quickavro.public.t-key", "quickavro.public.t-value"} <= set(subjects)


PLAY = """
import pickle, sys
from pathlib import Path
from crossstream.dev.demo import DemoFolder, DemoView
from crossstream.dev.demo_postgres import play

parts = pickle.loads(Path(sys.argv[1]).read_bytes())
folder = DemoFolder(Path(sys.argv[2]))
folder.empty()
folder.write_shop()
play(parts, folder, DemoView(sys.stdout))
"""


@pytest.mark.spark
def test_the_demo_shows_each_change_in_sql_in_the_result(parts: Parts, tmp_path: Path) -> None:
    given = tmp_path / "parts"
    given.write_bytes(pickle.dumps(parts))
    done = subprocess.run(
        [sys.executable, "-c", PLAY, given, tmp_path / "demo"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    shown = done.stdout
    assert done.returncode == 0, (shown, done.stderr)
    for number, (title, _) in enumerate(CHANGES, 1):
        assert f"{number}. {title}" in shown
    for row in (
        "   ~     10  Ada       Paris   12.50  was London",
        "   ~     10  Grace     Arlington   12.50  was Ada, Paris",
        "   -     11  Ada       Paris    7.00  deleted",
        "   +    110  Ada       Paris    7.00  new",
    ):
        assert row in shown
    assert "not that of SQL" not in shown
    assert "The 4 rows of SQL are those of the topic." in shown


def test_a_connector_that_fails_shows_why(parts: Parts) -> None:
    with pytest.raises(SourceError, match="absent") as caught:
        parts.capture("absent", "absent")
    assert caught.value.code == "CS-620"


def test_servers_that_run_already_are_kept(parts: Parts) -> None:
    """Other tests may have killed those of the fixture."""
    parts = restarted(parts)
    assert servers.start_registry(parts.broker) == parts.registry
    assert servers.start_connect(parts.broker, parts.connect.port) == parts.connect
    assert servers.running_companions(parts.broker.port) == [parts.registry, parts.connect]
    with pytest.raises(SourceError, match="runs at port") as caught:
        servers.start_registry(parts.broker, broker.free_port())
    assert caught.value.code == "CS-620"
    with pytest.raises(SourceError, match="taken by another program"):
        servers.start_registry(replace(parts.broker, port=broker.free_port()), parts.connect.port)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_kills_lose_no_change(parts: Parts) -> None:
    """Connect, the registry and the broker are killed while 20,000 rows change; the newest records are the table."""
    parts.postgres.execute("CREATE DATABASE kills")
    rows = "INSERT INTO t SELECT n, 0, repeat('x', 20) FROM generate_series(1, 5000) n"
    parts.postgres.execute(f"CREATE TABLE t (id int PRIMARY KEY, n int, more text); {rows}", "kills")
    parts.capture("kills", "kills", servers.JSON)
    # A connector that is killed before Connect has saved the end of its snapshot takes another one. Rows that were
    # deleted before that one stay in the topic: Debezium does not know of them.
    parts.postgres.execute("INSERT INTO t VALUES (-1, 0, 'saved')", "kills")
    await_saved(parts, "kills")
    for turn in range(1, 5):
        parts.postgres.execute(f"UPDATE t SET n = {turn} WHERE id % 7 <> {turn}", "kills")
        if turn < 4:
            victim = (parts.connect, parts.broker, parts.registry)[turn - 1]
            os.kill(victim.pid, signal.SIGKILL)
        parts.postgres.execute(f"DELETE FROM t WHERE id % 100 = {turn}", "kills")
        info = broker.start(parts.broker.port, parts.broker.directory)
        registry = servers.start_registry(info, parts.registry.port)
        parts = replace(
            parts,
            broker=info,
            registry=registry,
            connect=servers.start_connect(info, parts.connect.port, registry),
        )
    parts.postgres.execute("INSERT INTO t VALUES (0, -1, 'end')", "kills")
    deadline = time.monotonic() + 300
    while True:
        newest = {
            parsed(r.key)["id"]: r.value for r in read(parts.broker.bootstrap_servers, "kills.public.t")
        }
        if 0 in newest:
            break
        assert time.monotonic() < deadline, parts.failure("kills")
        time.sleep(1)
    table = {id: parsed(value)["after"]["n"] for id, value in newest.items() if value is not None}
    assert table == {
        int(r["id"] or 0): int(r["n"] or 0) for r in parts.postgres.select("SELECT id, n FROM t", "kills")
    }
