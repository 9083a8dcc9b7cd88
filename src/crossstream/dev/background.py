"""Servers for development on this machine: processes in the background, and their jars from Maven.

The Ivy that PySpark carries fetches jars once. They lie in ``$CROSSSTREAM_CACHE`` (default: ``crossstream`` in
``$XDG_CACHE_HOME`` or ``~/.cache``), one folder for each version, complete or not there. ``$CROSSSTREAM_IVY_SETTINGS``
may name an Ivy settings file, to fetch from a mirror of Maven Central.

Every error is `SourceError` CS-620.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.machine import INSTALL, JAVA_VERSION, cache_directory, java_command, java_version, no_java
from crossstream.storage.files import locked

HOST = "127.0.0.1"
STOP_SECONDS = 30.0
CLOSE_SECONDS = 5.0
FETCH_SECONDS = 600

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
class Server(ABC):
    """A server in the background."""

    port: int
    pid: int
    directory: str

    NAME: ClassVar[str]
    """In names of files."""
    TITLE: ClassVar[str]
    """In messages."""
    START_SECONDS: ClassVar[float]

    @property
    @abstractmethod
    def answers(self) -> bool:
        """Whether it is ready for clients."""

    @property
    def record(self) -> str:
        """The name of its files in the cache."""
        return str(self.port)

    @property
    def log_file(self) -> Path:
        """Where it writes its log."""
        return Path(self.directory) / f"{self.NAME}.log"

    @property
    def properties_file(self) -> Path:
        """Its settings, written at each start."""
        return Path(self.directory) / f"{self.NAME}.properties"

    @property
    def fifo(self) -> Path:
        """Its process holds the reading end of it."""
        return records_folder() / f"{self.record}.fifo"

    @property
    def alive(self) -> bool:
        """Whether its process runs: it holds the reading end of a FIFO, without which none can write."""
        try:
            os.close(os.open(self.fifo, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def await_answer(self) -> None:
        """Returns when it answers; CS-620 with the end of its log if it ends or takes longer."""
        deadline = time.monotonic() + self.START_SECONDS
        while not self.answers:
            if not self.alive:
                raise not_started(self, "its process ended")
            if time.monotonic() > deadline:
                raise not_started(self, f"it does not answer after {self.START_SECONDS:g} s")
            time.sleep(0.05)


S = TypeVar("S", bound=Server)


def known(record: str, kind: type[S]) -> S | None:
    """The server that was saved under this name, if it still runs."""
    try:
        server = kind(**json.loads(record_file(record).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return server if server.alive else None


def records_folder() -> Path:
    """The folder of the records, locks and FIFOs of servers."""
    home = cache_directory() / "broker"
    home.mkdir(parents=True, exist_ok=True)
    return home


def record_file(record: str) -> Path:
    return records_folder() / f"{record}.json"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def server_error(what: str, step: str, **where: object) -> CrossStreamError:
    return refuse("CS-620", what, step, **where)


def check_free(server: Server, other: Callable[[], str], step: str) -> None:
    """Raises CS-620 if a program listens at the port. A server that was just killed still does for a moment."""
    deadline = time.monotonic() + (CLOSE_SECONDS if record_file(server.record).exists() else 0.0)
    while True:
        try:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                return probe.bind((HOST, server.port))
        except OSError as taken:
            if time.monotonic() >= deadline:
                what = f"port {server.port} is taken by {other()}"
                raise server_error(what, step, port=server.port) from taken
        time.sleep(0.05)


def prepare(server: Server, settings: Mapping[str, str]) -> None:
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    try:
        Path(server.directory).mkdir(parents=True, exist_ok=True)
        server.properties_file.write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"the folder of {server.TITLE} cannot be made or written: {error.strerror}"
        raise server_error(what, "choose another one with --dir", folder=server.directory) from error


def start_detached(command: Sequence[str], server: Server) -> int:
    """Starts a process that outlives this one and writes to the log; its id."""
    server.fifo.unlink(missing_ok=True)
    os.mkfifo(server.fifo)
    held = os.open(server.fifo, os.O_RDONLY | os.O_NONBLOCK)
    script = 'nohup "$@" >>"$0" 2>&1 </dev/null & echo $!'
    try:
        started = subprocess.run(
            ["/bin/sh", "-c", script, str(server.log_file), *command],
            cwd=server.directory,
            start_new_session=True,
            pass_fds=(held,),
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        os.close(held)
    return int(started.stdout)


def started(server: S, command: Sequence[str]) -> S:
    """The server, started and noted for `known`, when it answers."""
    server = replace(server, pid=start_detached(command, server))
    record_file(server.record).write_text(json.dumps(asdict(server)), encoding="utf-8")
    server.await_answer()
    return server


def stop_server(server: Server) -> None:
    """Ends the process and waits for its end, then forgets it. It is killed if it does not end by itself."""
    if not end(server):
        step = f"look into {server.log_file}, or end the process {server.pid} yourself"
        raise server_error(f"{server.TITLE} at port {server.port} does not end", step, pid=server.pid)
    record_file(server.record).unlink(missing_ok=True)


def end(server: Server) -> bool:
    """Asks the process to end, and kills it if it does not; whether it is gone."""
    for request, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, CLOSE_SECONDS)):
        with suppress(ProcessLookupError):
            os.kill(server.pid, request)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not server.alive:
                return True
            time.sleep(0.05)
    return False


def not_started(server: Server, reason: str) -> CrossStreamError:
    try:
        last = server.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    except OSError:
        last = []
    what = "\n    ".join([f"{server.TITLE} did not start: {reason}", *last])
    return server_error(what, f"look into {server.log_file}", port=server.port, directory=server.directory)


def find_java() -> str:
    """The path of a ``java`` that can run the servers: of ``$JAVA_HOME``, else of ``$PATH``.

    Raises `SourceError` CS-620: there is no Java, or it is too old.
    """
    java = java_command()
    if java is None:
        raise server_error(no_java(), INSTALL)
    version = java_version(java)
    if version is not None and int(version.split(".")[0]) < JAVA_VERSION:
        what = f"{java} is Java {version}; Kafka's broker needs {JAVA_VERSION} or later"
        raise server_error(what, f"install Java {JAVA_VERSION} and let JAVA_HOME point to it")
    return java


@dataclass(frozen=True, slots=True)
class Jars:
    """Jars that are fetched together into one folder of the cache."""

    folder: str
    title: str
    """What errors call them, such as Kafka 4.3.1."""
    dependencies: tuple[tuple[str, str, str], ...]
    """Group, artifact, version; fetched with what they need."""
    archive: bool = False
    """Whether it is one ``tar.gz`` of classifier ``all``, which is unpacked."""

    def find(self) -> Path | None:
        """The folder, if they were fetched already."""
        folder = cache_directory() / self.folder
        return folder if folder.is_dir() else None

    def fetch(self) -> Path:
        """The folder; fetches them if they are not there yet.

        Safe to be called by several processes at once: one fetches, the others wait for it.
        """
        folder = cache_directory() / self.folder
        if not folder.is_dir():
            with locked(records_folder() / "jars.lock"):
                if not folder.is_dir():
                    for abandoned in folder.parent.glob(".fetching-*"):
                        shutil.rmtree(abandoned, ignore_errors=True)
                    self._fetch_into(folder)
        return folder

    def _fetch_into(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch:
            work = Path(scratch)
            (work / "ivy.xml").write_text(self._module(), encoding="utf-8")
            command = [find_java(), "-jar", str(_find_ivy()), "-cache", str(work / "ivy")]
            command += ["-ivy", str(work / "ivy.xml")]
            if settings := os.environ.get("CROSSSTREAM_IVY_SETTINGS"):
                command += ["-settings", settings]
            command += ["-retrieve", str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
                )
            except subprocess.TimeoutExpired as expired:
                raise self._not_fetched(f"not done after {FETCH_SECONDS} s") from expired
            jars = work / "jars"
            _, name, version = self.dependencies[0]
            if done.returncode != 0 or not any(jars.glob(f"{name}-{version}*")):
                raise self._not_fetched(_problems(done.stdout + done.stderr))
            if self.archive:
                (packed,) = jars.iterdir()
                (work / "unpacked").mkdir()
                shutil.unpack_archive(packed, work / "unpacked", "gztar")
                jars = work / "unpacked"
            jars.rename(folder)

    def _module(self) -> str:
        whole = '<artifact name="{}" type="tar.gz" ext="tar.gz" m:classifier="all"/>'
        lines = [
            f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->default"'
            f' transitive="{str(not self.archive).lower()}">{whole.format(name) if self.archive else ""}</dependency>'
            for group, name, version in self.dependencies
        ]
        return (
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
            f'<info organisation="crossstream" module="{self.folder}"/>'
            '<configurations><conf name="default"/></configurations>'
            f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
        )

    def _not_fetched(self, reason: str) -> CrossStreamError:
        return server_error(
            f"the jars of {self.title} could not be fetched: {reason}",
            "check that https://repo1.maven.org can be reached (through a proxy: "
            "JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…), or name an Ivy settings file with your mirror in "
            "CROSSSTREAM_IVY_SETTINGS",
            cache=str(cache_directory()),
        )


def _find_ivy() -> Path:
    """PySpark's Ivy, without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    folders = list(found.submodule_search_locations or ()) if found else []
    jars = [jar for folder in folders for jar in sorted(Path(folder, "jars").glob("ivy-*.jar"))]
    if not jars:
        raise server_error(
            "PySpark has no Ivy in its jars folder, with which jars are fetched",
            "pip install pyspark (not pyspark-client, which has no jars)",
        )
    return jars[-1]


def _problems(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    signs = [
        line for line in lines if re.search(r"not found|UNRESOLVED|refused|timed out|Exception|ERROR", line)
    ]
    return "; ".join((signs or lines)[-3:])
