"""A Kafka broker for development and tests: one node, on this machine, in the background.

Its jars are fetched once, by the Ivy that PySpark carries. They lie in ``$CROSSSTREAM_CACHE`` (default: ``crossstream``
in ``$XDG_CACHE_HOME`` or ``~/.cache``), one folder for each Kafka version, complete or not there.
``$CROSSSTREAM_IVY_SETTINGS`` may name an Ivy settings file, to fetch from a mirror of Maven Central.

Every error is `SourceError` CS-620.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from crossstream.errors import SourceError
from crossstream.java import INSTALL, JAVA_VERSION, java_command, java_version, no_java
from crossstream.storage.cache import cache_directory
from crossstream.storage.files import locked

KAFKA_VERSION = "4.3.1"
"""The broker's version. (Of 4.4.0, Maven Central lacks a module that it needs.)"""
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
    def fifo(self) -> Path:
        """Its process holds the reading end of it."""
        return _home() / f"{self.port}.fifo"

    @property
    def alive(self) -> bool:
        """Whether its process runs: it holds the reading end of a FIFO, without which none can write."""
        try:
            os.close(os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True


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
        if running is not None and directory is not None and Path(running.directory) != home:
            raise SourceError(
                f"a broker runs at port {port} already, with the directory {running.directory}",
                code="CS-620",
                where={"port": port},
                next=f"stop it first (crossstream broker stop --port {port}), or choose another port",
            )
        if running is not None:
            try:
                _await_answer(running)
                return running
            except SourceError:
                if running.alive:  # else it was just ending
                    raise
        return _start(port, home, properties or {})


def stop(port: int = 9092) -> bool:
    """Ends the broker that `start` started at ``port`` and waits for its end; whether there was one.

    Its topics stay in its directory. Raises `SourceError` CS-620 if it does not end.
    """
    with locked(_home() / f"{port}.lock"):
        running = status(port)
        if running is not None and not _end(running):
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
    started = replace(info, pid=_start_detached([*kafka, "kafka.Kafka", str(info.properties_file)], info))
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
    while True:
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                return probe.bind((HOST, port))
        except OSError as taken:
            if time.monotonic() >= deadline:
                other = "a Kafka broker that was not started here" if answers(port) else "another program"
                raise SourceError(
                    f"port {port} is taken by {other}",
                    code="CS-620",
                    where={"port": port},
                    next=f"choose another port, such as {port + 1}, or use what listens there",
                ) from taken
        time.sleep(0.05)


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
    home = cache_directory() / "broker"
    home.mkdir(parents=True, exist_ok=True)
    return home


def _record_file(port: int) -> Path:
    return _home() / f"{port}.json"


def _start_detached(command: Sequence[str], info: BrokerInfo) -> int:
    """Starts a process that outlives this one and writes to the log; its id."""
    info.fifo.unlink(missing_ok=True)
    os.mkfifo(info.fifo)
    held = os.open(info.fifo, os.O_RDONLY | os.O_NONBLOCK)
    script = 'nohup "$@" >>"$0" 2>&1 </dev/null & echo $!'
    try:
        started = subprocess.run(
            ["/bin/sh", "-c", script, str(info.log_file), *command],
            cwd=info.directory,
            start_new_session=True,
            pass_fds=(held,),
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        os.close(held)
    return int(started.stdout)


def _end(info: BrokerInfo) -> bool:
    """Asks the process to end, and kills it if it does not; whether it is gone."""
    for request, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, CLOSE_SECONDS)):
        with suppress(ProcessLookupError):
            os.kill(info.pid, request)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not info.alive:
                return True
            time.sleep(0.05)
    return False


SLF4J_VERSION = "1.7.36"
FETCH_SECONDS = 600

MODULE = f"""<ivy-module version="2.0">
  <info organisation="crossstream" module="broker"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="{SLF4J_VERSION}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def find_java() -> str:
    """The path of a ``java`` that can run the broker: of ``$JAVA_HOME``, else of ``$PATH``.

    Raises `SourceError` CS-620: there is no Java, or it is too old.
    """
    java = java_command()
    if java is None:
        raise SourceError(no_java(), code="CS-620", next=INSTALL)
    version = java_version(java)
    if version is not None and int(version.split(".")[0]) < JAVA_VERSION:
        raise SourceError(
            f"{java} is Java {version}; Kafka's broker needs {JAVA_VERSION} or later",
            code="CS-620",
            next=f"install Java {JAVA_VERSION} and let JAVA_HOME point to it",
        )
    return java


def find_kafka_jars() -> Path | None:
    """The folder of the broker's jars, if they were fetched already."""
    folder = _jars_folder()
    return folder if folder.is_dir() else None


def fetch_kafka_jars() -> Path:
    """The folder of the broker's jars; fetches them (about 45 MB) if they are not there yet.

    Safe to be called by several processes at once: one fetches, the others wait for it.
    Raises `SourceError`: CS-620.
    """
    folder = _jars_folder()
    if folder.is_dir():
        return folder
    with locked(_home() / "jars.lock"):
        if not folder.is_dir():
            for abandoned in folder.parent.glob(".fetching-*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            _fetch_into(folder)
    return folder


def _jars_folder() -> Path:
    return cache_directory() / f"kafka-{KAFKA_VERSION}"


def _fetch_into(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch:
        work = Path(scratch)
        (work / "ivy.xml").write_text(MODULE, encoding="utf-8")
        command = [find_java(), "-jar", str(_find_ivy()), "-cache", str(work / "ivy")]
        command += ["-ivy", str(work / "ivy.xml")]
        if settings := os.environ.get("CROSSSTREAM_IVY_SETTINGS"):
            command += ["-settings", settings]
        command += ["-retrieve", str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired as expired:
            raise _not_fetched(f"not done after {FETCH_SECONDS} s") from expired
        if done.returncode != 0 or not (work / "jars" / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file():
            raise _not_fetched(_problems(done.stdout + done.stderr))
        (work / "jars").rename(folder)


def _find_ivy() -> Path:
    """PySpark's Ivy, without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    folders = list(found.submodule_search_locations or ()) if found else []
    jars = [jar for folder in folders for jar in sorted(Path(folder, "jars").glob("ivy-*.jar"))]
    if not jars:
        raise SourceError(
            "PySpark has no Ivy in its jars folder, with which Kafka's jars are fetched",
            code="CS-620",
            next="pip install pyspark (not pyspark-client, which has no jars)",
        )
    return jars[-1]


def _problems(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    signs = [
        line for line in lines if re.search(r"not found|UNRESOLVED|refused|timed out|Exception|ERROR", line)
    ]
    return "; ".join((signs or lines)[-3:])


def _not_fetched(reason: str) -> SourceError:
    return SourceError(
        f"the jars of Kafka {KAFKA_VERSION} could not be fetched: {reason}",
        code="CS-620",
        where={"cache": str(cache_directory())},
        next="check that https://repo1.maven.org can be reached (through a proxy: "
        "JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…), or name an Ivy settings file with your mirror in "
        "CROSSSTREAM_IVY_SETTINGS",
    )
