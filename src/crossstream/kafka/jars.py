"""Java, and Kafka's jars: found or fetched once, by the Ivy that PySpark carries.

The jars lie in ``$CROSSSTREAM_CACHE`` (default: ``crossstream`` in ``$XDG_CACHE_HOME`` or ``~/.cache``), one
folder per Kafka version, complete or not there. ``$CROSSSTREAM_IVY_SETTINGS`` may name an Ivy settings file,
to fetch from a mirror of Maven Central.

Errors are `SourceError` CS-620: no Java, Java too old, no PySpark with Ivy, jars not fetched, another operating system.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from crossstream.errors import SourceError
from crossstream.java import INSTALL, JAVA_VERSION, java_command, no_java
from crossstream.storage.files import cache_directory

KAFKA_VERSION = "4.3.1"
"""The broker's version. (Of 4.4.0, Maven Central lacks a module that it needs.)"""
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
    version = _java_version(java)
    if version is not None and version < JAVA_VERSION:
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
    with locked(cache_directory() / "jars.lock"):
        if not folder.is_dir():
            for abandoned in folder.parent.glob(".fetching-*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            _fetch_into(folder)
    return folder


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Holds a lock against other processes, and leaves no file; a process that dies releases it."""
    try:
        import fcntl
    except ModuleNotFoundError as windows:
        raise SourceError(
            "the development broker runs on Linux and macOS only",
            code="CS-620",
            next="run it in WSL, or pass the bootstrap_servers of another broker",
        ) from windows
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with file.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not _is_same(held, file):
                continue  # the process that held it before has removed it
            try:
                yield
            finally:
                file.unlink(missing_ok=True)
            return


def _is_same(held: IO[str], file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held.fileno()), file.stat())
    except FileNotFoundError:
        return False


def _jars_folder() -> Path:
    return cache_directory() / f"kafka-{KAFKA_VERSION}"


def _fetch_into(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch:
        work = Path(scratch)
        (work / "ivy.xml").write_text(MODULE, encoding="utf-8")
        command = [find_java(), "-jar", str(_find_ivy()), "-cache", str(work / "ivy")]
        command += ["-ivy", str(work / "ivy.xml"), *_ivy_settings()]
        command += ["-retrieve", str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
        except subprocess.TimeoutExpired as expired:
            raise _not_fetched(f"not done after {FETCH_SECONDS} s") from expired
        if done.returncode != 0 or not (work / "jars" / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file():
            raise _not_fetched(_problems(done.stdout + done.stderr))
        (work / "jars").rename(folder)


def _ivy_settings() -> list[str]:
    settings = os.environ.get("CROSSSTREAM_IVY_SETTINGS")
    return ["-settings", settings] if settings else []


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


def _java_version(java: str) -> int | None:
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    number = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(number[1]) if number else None


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
