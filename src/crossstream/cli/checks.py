"""What has to be there for crossstream to run, checked one by one."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from crossstream.errors import CrossStreamError
from crossstream.java import JAVA_VERSION as JAVA
from crossstream.java import java_command
from crossstream.storage.remote import RemoteRoot
from crossstream.storage.root import root_of
from crossstream.storage.uris import shown
from crossstream.topics import is_internal

Result = Literal["ok", "note", "problem"]

PYTHON = (3, 10)
REQUIRED: Mapping[str, tuple[str, str | None]] = {
    "pyspark": ("4.0", "5"),
    "pyarrow": ("18", None),
    "polars": ("1.31", "3"),
    "pandas": ("2.2", "3"),
    "numpy": ("1.26", None),
    "obstore": ("0.10", None),
    "msgspec": ("0.19", None),
    "xxhash": ("3.4", None),
    "cloudpickle": ("3", None),
    "grpcio": ("1.67", None),
    "grpcio-status": ("1.67", None),
    "protobuf": ("5.28", None),
    "confluent-kafka": ("2.6", None),
    "rich": ("13.7", None),
}
"""Packages, the oldest version that will do and the first that will not."""
MODULES: Mapping[str, str] = {
    "confluent-kafka": "confluent_kafka",
    "grpcio": "grpc",
    "grpcio-status": "grpc_status",
    "protobuf": "google.protobuf",
}
"""What is imported, where it is called otherwise."""
FREE_BYTES = 1 << 30
PROBE_SECONDS = 60
_IMPORT = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        found[name] = None
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and what to do about it (for a problem)."""

    subject: str
    result: Result
    found: str
    fix: str = ""


def all_checks(arguments: Namespace) -> Iterator[Check]:
    """Every check, in the order they are shown."""
    yield python()
    yield java()
    yield from packages()
    yield spark_home()
    yield worker_python()
    yield host_name()
    yield from state(arguments.state_dir)
    yield folder(
        "temporary folder", Path(os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0])
    )
    yield kafka_jars()
    yield broker(arguments.bootstrap_servers)


def python() -> Check:
    """The interpreter that runs this."""
    found = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info >= PYTHON:
        return Check("Python", "ok", found)
    return Check("Python", "problem", found, f"install Python {'.'.join(map(str, PYTHON))} or later")


def java() -> Check:
    """The Java that Spark will use: of ``JAVA_HOME``, else of ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    command = java_command()
    debian, mac = f"apt-get install openjdk-{JAVA}-jre-headless", f"brew install openjdk@{JAVA}"
    how = f"install Java {JAVA} or later ({debian}; {mac})"
    if command is None and home:
        return Check(
            "Java", "problem", f"no java in JAVA_HOME={home}", f"correct or unset JAVA_HOME, or {how}"
        )
    if command is None:
        return Check("Java", "problem", "not found", how)
    version = java_version(_output([command, "-version"]))
    found = f"{version or 'unknown version'}, {command}{f' (JAVA_HOME={home})' if home else ''}"
    if version is None or int(version.split(".")[0]) < JAVA:
        return Check("Java", "problem", found, f"{how}, and let JAVA_HOME point to it")
    return Check("Java", "ok", found)


def java_version(output: str) -> str | None:
    """The version that ``java -version`` printed, as ``17.0.15``; 1.8 is 8.

    >>> java_version('openjdk version "17.0.15" 2025-04-15')
    '17.0.15'
    """
    found = re.search(r'version "(?:1\.(?=[0-8]\b))?([0-9][0-9.]*)', output)
    return found[1] if found else None


def packages() -> Iterator[Check]:
    """Versions of all packages, and whether they can be imported (in a process of its own)."""
    versions = {name: _version(name) for name in REQUIRED}
    modules = {name: MODULES.get(name, name) for name, version in versions.items() if version is not None}
    failures = _imported(list(modules.values()))
    for name, version in versions.items():
        yield _package(name, version, failures.get(modules.get(name, "")))


def spark_home() -> Check:
    """Whether ``SPARK_HOME`` sends PySpark to another Spark than its own."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return Check("SPARK_HOME", "ok", "not set: PySpark's own Spark is used")
    version_file = Path(home, "python", "pyspark", "version.py")
    try:
        found = re.search(r'__version__.*"([^"]+)"', version_file.read_text(encoding="utf-8"))
    except OSError:
        found = None
    version = found[1] if found else None
    if version is not None and version == _version("pyspark"):
        return Check("SPARK_HOME", "ok", f"{home}, Spark {version}")
    what = f"{home} has Spark {version or 'of unknown version'}, PySpark is {_version('pyspark')}"
    return Check(
        "SPARK_HOME", "problem", what, "unset SPARK_HOME, or install the PySpark of the same version"
    )


def worker_python() -> Check:
    """The interpreter of Spark's workers, which must be of the same minor version as this one."""
    chosen = os.environ.get("PYSPARK_PYTHON")
    if not chosen:
        return Check("workers' Python", "ok", "the same as this one")
    version = _output([chosen, "-c", "import platform; print(platform.python_version())"]).strip()
    if version.split(".")[:2] == platform.python_version().split(".")[:2]:
        return Check("workers' Python", "ok", f"{version}, PYSPARK_PYTHON={chosen}")
    return Check(
        "workers' Python",
        "problem",
        f"PYSPARK_PYTHON={chosen} is {version or 'not a Python'}",
        f"unset PYSPARK_PYTHON, or let it name {sys.executable}",
    )


def host_name() -> Check:
    """Whether this machine knows its own name; a local Spark does not start otherwise."""
    name = socket.gethostname()
    if os.environ.get("SPARK_LOCAL_IP"):
        return Check("host name", "ok", f"SPARK_LOCAL_IP={os.environ['SPARK_LOCAL_IP']}")
    try:
        return Check("host name", "ok", f"{name}, {socket.gethostbyname(name)}")
    except OSError as error:
        fix = f"add {name} to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1"
        return Check("host name", "problem", f"{name} has no address: {error}", fix)


def state(place: str) -> Iterator[Check]:
    """The folder of the state; or a URI, and the folder where this machine keeps copies of files behind it."""
    subject = "state folder"
    try:
        root = root_of(place)
    except CrossStreamError as error:
        yield Check(subject, "problem", f"{shown(place)}: {error.what}", error.next or "")
        return
    if not isinstance(root, RemoteRoot):
        yield folder(subject, root.here)
        return
    try:
        root.check()
        found = len(root.names("commits"))
    except CrossStreamError as error:
        yield Check(subject, "problem", f"{root}: {error.what}", error.next or "")
    else:
        yield Check(subject, "ok", f"{root}, {f'{found} batches kept' if found else 'no state yet'}")
    yield folder("copies of state", root.here)


def folder(subject: str, path: Path) -> Check:
    """Whether a folder, or the nearest one above that exists, can be written to and has room."""
    there = path.expanduser().absolute()
    while not there.exists():
        there = there.parent
    named = str(path) if there == path.expanduser().absolute() else f"{path} (will be made in {there})"
    if not there.is_dir():
        return Check(subject, "problem", f"{there}: a file is there, and no folder", "choose another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(
            subject, "problem", f"{named}: not writable", f"give yourself the right to write in {there}"
        )
    free = shutil.disk_usage(there).free
    found = f"{named}, {free / 2**30:,.1f} GiB free"
    if free < FREE_BYTES:
        return Check(subject, "problem", found, "free at least 1 GiB there")
    return Check(subject, "ok", found)


def kafka_jars() -> Check:
    """Whether the development broker can start without the network."""
    from crossstream.kafka.jars import KAFKA_VERSION, find_kafka_jars

    jars = find_kafka_jars()
    if jars is not None:
        return Check("Kafka's jars", "ok", f"{KAFKA_VERSION}, {jars}")
    return Check("Kafka's jars", "note", "not there: `crossstream broker start` fetches them once (45 MB)")


def broker(servers: str | None, patience: float = 10.0) -> Check:
    """Whether a Kafka answers: the one that was named, else the development broker."""
    from crossstream.kafka import KafkaConnection
    from crossstream.kafka import broker as development

    if servers is None:
        answers = development.answers(9092)
        what = (
            "127.0.0.1:9092 answers"
            if answers
            else "none at 127.0.0.1:9092; `crossstream broker start` starts one"
        )
        return Check("Kafka", "ok" if answers else "note", what)
    try:
        log = KafkaConnection(servers, patience_seconds=patience).log()
        topics = [name for name in log.topics() if not is_internal(name)]
        log.close()
    except CrossStreamError as error:
        return Check("Kafka", "problem", f"{servers}: {error.what}", error.next or "")
    return Check("Kafka", "ok", f"{servers} answers, {len(topics)} topics")


def _package(name: str, version: str | None, failure: str | None) -> Check:
    oldest, first_not = REQUIRED[name]
    wanted = f"{name}>={oldest}" + (f",<{first_not}" if first_not else "")
    if version is None:
        return Check(name, "problem", "not installed", f'pip install "{wanted}"')
    if not fits(version, oldest, first_not):
        return Check(name, "problem", f"{version}, wanted {wanted}", f'pip install "{wanted}"')
    if failure is not None:
        return Check(
            name,
            "problem",
            f"{version} cannot be imported: {failure}",
            f"pip install --force-reinstall {name}",
        )
    return Check(name, "ok", version)


def fits(version: str, oldest: str, first_not: str | None) -> bool:
    """Whether ``oldest <= version < first_not``.

    >>> fits("4.1.0.dev3", "4.0", "5"), fits("5.0", "4.0", "5"), fits("1.9", "1.30", None)
    (True, False, False)
    """
    return _numbers(oldest) <= _numbers(version) and (
        first_not is None or _numbers(version) < _numbers(first_not)
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _imported(modules: list[str]) -> dict[str, str | None]:
    """For each module what went wrong importing it, in a process of its own."""
    told = _output([sys.executable, "-c", _IMPORT, *modules])
    try:
        return dict(json.loads(told.splitlines()[-1]))
    except (IndexError, ValueError):
        return dict.fromkeys(modules, f"Python ended: {told.strip()[-200:] or 'without a word'}")


def _output(command: list[str]) -> str:
    """What a program prints; nothing if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout
