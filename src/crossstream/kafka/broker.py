"""A Kafka broker for development and tests: one node, on this machine, in the background."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from crossstream.errors import SourceError
from crossstream.kafka.jars import KAFKA_VERSION, fetch_kafka_jars, find_java, locked
from crossstream.storage.files import cache_directory

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 30.0
CLOSE_SECONDS = 5.0

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

JVM = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker that was started by `start`."""

    port: int
    pid: int
    directory: str
    version: str = KAFKA_VERSION

    @property
    def bootstrap_servers(self) -> str:
        """What clients connect to."""
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """Where the broker writes its log."""
        return Path(self.directory) / "broker.log"

    @property
    def properties_file(self) -> Path:
        """The broker's settings, written at each start."""
        return Path(self.directory) / "server.properties"

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return is_running(self.pid, str(self.properties_file))


def start(
    port: int = 9092, directory: str | Path | None = None, properties: Mapping[str, str] | None = None
) -> BrokerInfo:
    """Starts a broker at ``port`` of 127.0.0.1 and returns when it answers; one that runs already is kept.

    ``directory`` holds topics, settings and log; default: a folder per port in the cache. Topics that
    lie there from an earlier start are there again. ``properties`` override the broker's settings.
    Raises `SourceError`: CS-620.
    """
    home = Path(directory).expanduser().absolute() if directory is not None else _home() / str(port)
    with locked(_home() / f"{port}.lock"):
        running = status(port)
        if running is None:
            return _start(port, home, properties or {})
        if directory is not None and Path(running.directory) != home:
            raise SourceError(
                f"a broker runs at port {port} already, with the directory {running.directory}",
                code="CS-620",
                where={"port": port},
                next=f"stop it first (crossstream broker stop --port {port}), or choose another port",
            )
        try:
            _await_answer(running)
        except SourceError:
            if running.alive:
                raise
            return _start(port, home, properties or {})  # it was just ending
        return running


def stop(port: int = 9092) -> bool:
    """Ends the broker that `start` started at ``port`` and waits for its end; whether there was one.

    Its topics stay in its directory. Raises `SourceError` CS-620 if it does not end.
    """
    with locked(_home() / f"{port}.lock"):
        running = status(port)
        if running is not None and not end(running.pid, str(running.properties_file), STOP_SECONDS):
            raise SourceError(
                f"the broker at port {port} does not end",
                code="CS-620",
                where={"pid": running.pid},
                next=f"look into {running.log_file}, or end the process {running.pid} yourself",
            )
        _record_file(port).unlink(missing_ok=True)
        return running is not None


def status(port: int = 9092) -> BrokerInfo | None:
    """The broker that `start` started at ``port``, if it still runs."""
    try:
        known = BrokerInfo(**json.loads(_record_file(port).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return known if known.alive else None


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


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _start(port: int, home: Path, properties: Mapping[str, str]) -> BrokerInfo:
    _check_free(port)
    java, jars = find_java(), fetch_kafka_jars()
    info = BrokerInfo(port=port, pid=0, directory=str(home))
    try:
        home.mkdir(parents=True, exist_ok=True)
        info.properties_file.write_text(_settings(port, home, properties), encoding="utf-8")
    except OSError as error:
        raise SourceError(
            f"the folder of the broker cannot be made or written: {error.strerror}",
            code="CS-620",
            where={"folder": str(home)},
            next="choose another one with --dir",
        ) from error
    kafka = [java, *JVM, "-cp", str(jars / "*")]
    if not (home / "data" / "meta.properties").exists():
        _format(kafka, info)
    command = [*kafka, "kafka.Kafka", str(info.properties_file)]
    pid = start_detached(command, info.log_file, home)
    started = BrokerInfo(port=port, pid=pid, directory=str(home))
    _record_file(port).write_text(json.dumps(asdict(started)), encoding="utf-8")
    _await_answer(started)
    return started


def _settings(port: int, home: Path, properties: Mapping[str, str]) -> str:
    controller = free_port()
    listener = f"PLAINTEXT://{HOST}:{port}"
    settings = {
        **PROPERTIES,
        "listeners": f"{listener},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listener,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "log.dirs": str(home / "data"),
        **properties,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _format(kafka: list[str], info: BrokerInfo) -> None:
    """Makes the data directory, as Kafka wants it done once."""
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = [*kafka, "-XX:TieredStopAtLevel=1", "kafka.tools.StorageTool", "format"]
    tool.append(f"--cluster-id={cluster}")  # in one word: it may begin with a dash
    tool += ["--config", str(info.properties_file)]
    with info.log_file.open("ab") as log:
        done = subprocess.run(tool, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise _not_started(info, "its directory could not be formatted")


def _await_answer(info: BrokerInfo) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not answers(info.port):
        if not info.alive:
            raise _not_started(info, "its process ended")
        if time.monotonic() > deadline:
            raise _not_started(info, f"it does not answer after {START_SECONDS:g} s")
        time.sleep(0.05)


def _check_free(port: int) -> None:
    """Raises CS-620 if a program listens at the port. A broker of ours that was just killed still does for a moment."""
    deadline = time.monotonic() + (CLOSE_SECONDS if _record_file(port).exists() else 0.0)
    while (taken := _taken(port)) is not None:
        if time.monotonic() >= deadline:
            other = "a Kafka broker that was not started here" if answers(port) else "another program"
            raise SourceError(
                f"port {port} is taken by {other}",
                code="CS-620",
                where={"port": port},
                next=f"choose another port, such as {port + 1}, or use what listens there",
            ) from taken
        time.sleep(0.05)


def _taken(port: int) -> OSError | None:
    """Why no program can listen at the port; None if one can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as taken:
            return taken
    return None


def _not_started(info: BrokerInfo, reason: str) -> SourceError:
    try:
        last = info.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    except OSError:
        last = []
    return SourceError(
        "\n    ".join([f"the broker did not start: {reason}", *last]),
        code="CS-620",
        where={"port": info.port, "directory": info.directory},
        next=f"look into {info.log_file}",
    )


def _home() -> Path:
    return cache_directory() / "broker"


def _record_file(port: int) -> Path:
    return _home() / f"{port}.json"


EXEC_SECONDS = 1.0
"""How long a process may take to become another program."""


def start_detached(command: Sequence[str], log_file: Path, directory: Path) -> int:
    """Starts a process that outlives this one, writing to ``log_file``; its id."""
    script = 'nohup "$@" >>"$0" 2>&1 </dev/null & echo $!'
    shell = ["/bin/sh", "-c", script, str(log_file), *command]
    started = subprocess.run(
        shell, cwd=directory, start_new_session=True, capture_output=True, text=True, check=True
    )
    return int(started.stdout)


def is_running(pid: int, mark: str) -> bool:
    """Whether the process lives and has ``mark`` in its command line (ids are used again)."""
    if Path("/proc/self/stat").exists():
        return mark in _command_line(pid) and _state(pid) not in ("Z", "X", "")
    listed = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "stat=,command="], capture_output=True, text=True, check=False
    )
    return mark in listed.stdout and not listed.stdout.lstrip().startswith("Z")


def end(pid: int, mark: str, seconds: float) -> bool:
    """Asks the process to end, kills it after ``seconds``; whether it is gone."""
    for request, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        if not is_running(pid, mark):
            return True
        try:
            os.kill(pid, request)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        if _awaited(pid, mark, patience):
            return True
    return False


def _awaited(pid: int, mark: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not is_running(pid, mark):
            return True
        time.sleep(0.05)
    return False


def _command_line(pid: int) -> str:
    """What the process was started with; while it becomes another program it has none, for a moment."""
    deadline = time.monotonic() + EXEC_SECONDS
    while not (found := _proc(pid, "cmdline")) and _state(pid) not in ("Z", "X", ""):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return found.replace("\0", " ")


def _state(pid: int) -> str:
    return _proc(pid, "stat").rpartition(")")[2].strip()[:1]


def _proc(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
