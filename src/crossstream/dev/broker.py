"""A Kafka broker for development and tests: one node, on this machine, in the background.

Every error is `SourceError` CS-620.
"""

from __future__ import annotations

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from crossstream.dev.background import (
    HOST,
    JVM,
    Jars,
    Server,
    check_free,
    find_java,
    free_port,
    known,
    not_started,
    prepare,
    record_file,
    records_folder,
    server_error,
    started,
    stop_server,
)
from crossstream.errors import SourceError
from crossstream.storage.files import locked

__all__ = [
    "HOST",
    "BrokerInfo",
    "answers",
    "fetch_kafka_jars",
    "find_java",
    "find_kafka_jars",
    "free_port",
    "start",
    "status",
    "stop",
]

KAFKA_VERSION = "4.3.1"
"""The broker's version. (Of 4.4.0, Maven Central lacks a module that it needs.)"""
SLF4J_VERSION = "1.7.36"
JARS = Jars(
    f"kafka-{KAFKA_VERSION}",
    f"Kafka {KAFKA_VERSION}",
    (("org.apache.kafka", "kafka_2.13", KAFKA_VERSION), ("org.slf4j", "slf4j-simple", SLF4J_VERSION)),
)

PROPERTIES: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # Event times of tests and demos lie anywhere in the past: nothing is deleted for its age.
    "log.retention.ms": "-1",
    # One node: one copy of everything, and one partition of what Kafka keeps for itself.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # A small heap: the default takes 128 MiB of it for compaction alone.
    "log.cleaner.dedupe.buffer.size": "8388608",
}


@dataclass(frozen=True, slots=True)
class BrokerInfo(Server):
    """A broker that was started by `start`."""

    version: str = KAFKA_VERSION

    NAME: ClassVar[str] = "broker"
    TITLE: ClassVar[str] = "the broker"
    START_SECONDS: ClassVar[float] = 60.0

    @property
    def answers(self) -> bool:
        return answers(self.port)

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"


def start(
    port: int = 9092, directory: str | Path | None = None, properties: Mapping[str, str] | None = None
) -> BrokerInfo:
    """Starts a broker at ``port`` of 127.0.0.1 and returns when it answers; one that runs already is kept.

    ``directory`` holds topics, settings and log; default: a folder per port in the cache. Topics that
    lie there from an earlier start are there again. ``properties`` override the broker's settings.
    Raises `SourceError`: CS-620.
    """
    home = Path(directory).expanduser().absolute() if directory is not None else records_folder() / str(port)
    with locked(records_folder() / f"{port}.lock"):
        running = status(port)
        if running is not None and directory is not None and Path(running.directory) != home:
            raise server_error(
                f"a broker runs at port {port} already, with the directory {running.directory}",
                f"stop it first (crossstream broker stop --port {port}), or choose another port",
                port=port,
            )
        if running is not None:
            try:
                running.await_answer()
                return running
            except SourceError:
                if running.alive:  # else it was just ending
                    raise
        return _start(port, home, properties or {})


def stop(port: int = 9092) -> bool:
    """Ends the broker that `start` started at ``port`` and waits for its end; whether there was one.

    Its topics stay in its directory. Raises `SourceError` CS-620 if it does not end.
    """
    with locked(records_folder() / f"{port}.lock"):
        running = status(port)
        if running is not None:
            stop_server(running)
        record_file(str(port)).unlink(missing_ok=True)
        return running is not None


def status(port: int = 9092) -> BrokerInfo | None:
    """The broker that `start` started at ``port``, if it still runs."""
    return known(str(port), BrokerInfo)


def ports() -> list[int]:
    """The ports of the brokers that `start` started and that still run."""
    noted = [int(path.stem) for path in records_folder().glob("*.json") if path.stem.isdecimal()]
    return sorted(port for port in noted if status(port) is not None)


def answers(port: int = 9092, timeout: float = 1.0) -> bool:
    """Whether a Kafka broker that is ready for clients answers at ``port`` of this machine."""
    request = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0)  # Metadata, version 1, of no topic
    try:
        with socket.create_connection((HOST, port), timeout=timeout) as connection:
            connection.settimeout(timeout)
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    if len(head) < 12:
        return False
    _, correlation, brokers = struct.unpack(">iii", head)
    return bool(correlation == 1 and brokers == 1)


def _start(port: int, home: Path, properties: Mapping[str, str]) -> BrokerInfo:
    info = BrokerInfo(port=port, pid=0, directory=str(home))
    check_free(
        info,
        lambda: "a Kafka broker that was not started here" if info.answers else "another program",
        f"choose another port, such as {port + 1}, or use what listens there",
    )
    java, jars = find_java(), fetch_kafka_jars()
    prepare(info, _settings(port, home, properties))
    kafka = [java, *JVM, "-cp", str(jars / "*")]
    if not (home / "data" / "meta.properties").exists():
        _format(kafka, info)
    return started(info, [*kafka, "kafka.Kafka", str(info.properties_file)])


def _settings(port: int, home: Path, properties: Mapping[str, str]) -> dict[str, str]:
    controller = free_port()
    listener = f"PLAINTEXT://{HOST}:{port}"
    return {
        **PROPERTIES,
        "listeners": f"{listener},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listener,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "log.dirs": str(home / "data"),
        **properties,
    }


def _format(kafka: list[str], info: BrokerInfo) -> None:
    """Makes the data directory, as Kafka wants it done once."""
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = [*kafka, "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format"]
    tool.append(f"--cluster-id={cluster}")  # in one word: it may begin with a dash
    tool += ["--config", str(info.properties_file)]
    with info.log_file.open("ab") as log:
        done = subprocess.run(tool, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise not_started(info, "its directory could not be formatted")


def find_kafka_jars() -> Path | None:
    """The folder of the broker's jars, if they were fetched already."""
    return JARS.find()


def fetch_kafka_jars() -> Path:
    """The folder of the broker's jars; fetches them (about 45 MB) if they are not there yet."""
    return JARS.fetch()
