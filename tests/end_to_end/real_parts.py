"""A real Postgres, Debezium in Kafka Connect, a registry and a broker, once for all tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from crossstream.dev import broker, cdc, servers
from crossstream.dev.background import Server, find_java
from crossstream.dev.cdc import Parts, find_postgres
from crossstream.errors import SourceError
from tests.faults.lives import kill
from tests.kafka.fixtures import quick_java

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def parts() -> Iterator[Parts]:
    try:
        find_postgres()
        find_java()
        broker.fetch_kafka_jars()
        servers.REGISTRY_JARS.fetch()
        servers.CONNECT_JARS.fetch()
    except SourceError as error:
        pytest.skip(f"no Postgres with Debezium can be started here: {error}")
    with quick_java(), cdc.parts() as started:
        yield started


def await_saved(parts: Parts, connector: str) -> None:
    """Returns when Connect has saved that a connector follows the changes."""
    deadline = time.monotonic() + 60
    while "messageType" not in str(servers.request(f"{parts.connect.url}/connectors/{connector}/offsets")):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@contextmanager
def running(script: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """``crossstream run`` in a process group of its own; its state, its log and what it prints are in ``folder``."""
    command = [sys.executable, "-m", "crossstream", "run", str(ROOT / "tests" / "end_to_end" / script)]
    with (folder / "log").open("ab") as log, (folder / "batches").open("ab") as batches:
        process = subprocess.Popen(
            [*command, "--state-dir", str(folder / "state")],
            stdin=subprocess.DEVNULL,
            stdout=batches,
            stderr=log,
            start_new_session=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        )
    try:
        yield process
    finally:
        kill(process)


def kill_server(server: Server) -> None:
    """Kills a server, and returns when it is gone."""
    os.kill(server.pid, signal.SIGKILL)
    while server.alive:
        time.sleep(0.01)


def restart_failed(parts: Parts, connector: str) -> None:
    """A connector fails for good if its servers are away for long. Who runs Connect restarts it."""
    if (reason := parts.failure(connector)) is not None:
        print("a connector failed and is restarted:", reason[:1000])
        url = f"{parts.connect.url}/connectors/{connector}/restart?includeTasks=true&onlyFailed=true"
        servers.request(url, "POST")
        time.sleep(2)


def restarted(parts: Parts) -> Parts:
    """The servers; those that were killed run again."""
    info = broker.start(parts.broker.port, parts.broker.directory)
    registry = servers.start_registry(info, parts.registry.port)
    connect = servers.start_connect(info, parts.connect.port, registry)
    return replace(parts, broker=info, registry=registry, connect=connect)
