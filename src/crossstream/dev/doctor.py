"""`crossstream doctor`: what is there, what is wrong, and how to fix it."""

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
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from crossstream.cli.console import show_table
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.machine import INSTALL, JAVA_VERSION, java_command, java_version, no_java
from crossstream.storage.bucket import shown
from crossstream.storage.remote import RemoteRoot
from crossstream.storage.root import root_of
from crossstream.topics import is_internal

Result = Literal["ok", "note", "problem"]
STYLES: Mapping[str, str] = {"ok": "green", "note": "cyan", "problem": "bold red"}
REQUIRED: Mapping[str, tuple[str, str | None]] = {
    "pyspark": ("4.0", "5"),
    "pyarrow": ("19.0.1", None),
    "polars": ("1.44.1", "3"),
    "pandas": ("2.2", "3"),
    "numpy": ("1.26", None),
    "obstore": ("0.10", None),
    "msgspec": ("0.19", None),
    "xxhash": ("3.4", None),
    "cloudpickle": ("3", None),
    "grpcio": ("1.67", None),
    "grpcio-status": ("1.67", None),
    "protobuf": ("5.28", None),
    "confluent-kafka": ("2.8", None),
    "rich": ("13.7", None),
}
"""Packages: the oldest version that works, and the first that does not."""
MODULES: Mapping[str, str] = {
    "confluent-kafka": "confluent_kafka",
    "grpcio": "grpc",
    "grpcio-status": "grpc_status",
    "protobuf": "google.protobuf",
}
"""Modules whose name differs from their package."""
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
    """What was checked, what was found, and how to fix a problem."""

    subject: str
    result: Result
    found: str
    fix: str = ""


def main(arguments: Namespace) -> int:
    """Prints a table of all checks; 1 if there is a problem."""
    checks = list(all_checks(arguments))
    if arguments.full:
        checks.append(_join_on_spark(debug=arguments.debug))
    rows = [(check.subject, check.result, check.found) for check in checks]
    show_table(("what", "result", "found"), rows, styles=STYLES)
    problems = [check for check in checks if check.result == "problem"]
    for check in problems:
        print(f"\n{check.subject}: {check.found}\n  fix: {check.fix}")
    if not problems:
        hint = "" if arguments.full else "; crossstream doctor --full runs a join on Spark"
        print(f"\nno problems found{hint}")
    return 1 if problems else 0


def all_checks(arguments: Namespace) -> Iterator[Check]:
    yield Check("Python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield java()
    yield from packages()
    yield native_part()
    yield spark_home()
    yield worker_python()
    yield host_name()
    yield from state(arguments.state_dir)
    temporary = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]
    yield folder("temporary folder", Path(temporary))
    yield kafka_jars()
    yield broker(arguments.bootstrap_servers)


def java() -> Check:
    """The Java that Spark will use, from ``JAVA_HOME`` or ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    command = java_command()
    if command is None:
        fix = f"correct or unset JAVA_HOME, or {INSTALL}" if home else INSTALL
        return Check("Java", "problem", no_java(), fix)
    version = java_version(command)
    found = f"{version or 'unknown version'}, {command}{f' (JAVA_HOME={home})' if home else ''}"
    if version is None or int(version.split(".")[0]) < JAVA_VERSION:
        return Check("Java", "problem", found, f"{INSTALL}; then set JAVA_HOME to it")
    return Check("Java", "ok", found)


def packages() -> Iterator[Check]:
    """The versions of all packages, and whether a new process can import them."""
    versions = {name: _version(name) for name in REQUIRED}
    modules = {name: MODULES.get(name, name) for name, version in versions.items() if version is not None}
    failures = _imported(list(modules.values()))
    for name, version in versions.items():
        yield _package(name, version, failures.get(modules.get(name, "")))


def native_part() -> Check:
    """Whether records pass to Kafka without a Python object for each."""
    version = _version("crossstream-native")
    if version is None:
        return Check("crossstream-native", "note", "not installed: reading and writing topics takes longer")
    from crossstream.kafka.native.library import library
    from crossstream.serdes.native_part import SWITCH, is_off

    if library() is not None:
        return Check("crossstream-native", "ok", version)
    return Check("crossstream-native", "note", f"{SWITCH}=off" if is_off() else f"{version} does not fit")


def _package(name: str, version: str | None, failure: str | None) -> Check:
    oldest, first_not = REQUIRED[name]
    wanted = f"{name}>={oldest}" + (f",<{first_not}" if first_not else "")
    install = f'pip install "{wanted}"'
    if version is None:
        return Check(name, "problem", "not installed", install)
    if not fits(version, oldest, first_not):
        return Check(name, "problem", f"{version}, wanted {wanted}", install)
    if failure is not None:
        found = f"{version} cannot be imported: {failure}"
        return Check(name, "problem", found, f"pip install --force-reinstall {name}")
    return Check(name, "ok", version)


def fits(version: str, oldest: str, first_not: str | None) -> bool:
    """Whether ``oldest <= version < first_not``.

    >>> fits("4.1.0.dev3", "4.0", "5"), fits("5.0", "4.0", "5"), fits("1.9", "1.30", None)
    (True, False, False)
    """
    number = _numbers(version)
    return _numbers(oldest) <= number and (first_not is None or number < _numbers(first_not))


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _imported(modules: list[str]) -> dict[str, str | None]:
    """What goes wrong when a new process imports each module."""
    output = _output([sys.executable, "-c", _IMPORT, *modules])
    try:
        return dict(json.loads(output.splitlines()[-1]))
    except (IndexError, ValueError):
        return dict.fromkeys(modules, f"Python ended: {output.strip()[-200:] or 'without a word'}")


def _output(command: list[str]) -> str:
    """What a program prints; nothing if it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def spark_home() -> Check:
    """Whether ``SPARK_HOME`` makes PySpark use another version of Spark."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return Check("SPARK_HOME", "ok", "not set: PySpark's own Spark is used")
    version_file = Path(home, "python", "pyspark", "version.py")
    try:
        match = re.search(r'__version__.*"([^"]+)"', version_file.read_text(encoding="utf-8"))
    except OSError:
        match = None
    version, own = match[1] if match else None, _version("pyspark")
    if version is not None and version == own:
        return Check("SPARK_HOME", "ok", f"{home}, Spark {version}")
    found = f"{home} has Spark {version or 'of unknown version'}, PySpark is {own}"
    fix = "unset SPARK_HOME, or install the PySpark of the same version"
    return Check("SPARK_HOME", "problem", found, fix)


def worker_python() -> Check:
    """The interpreter of Spark's workers: it must have the same minor version as this one."""
    subject, chosen = "workers' Python", os.environ.get("PYSPARK_PYTHON")
    if not chosen:
        return Check(subject, "ok", "the same as this one")
    version = _output([chosen, "-c", "import platform; print(platform.python_version())"]).strip()
    if version.split(".")[:2] == platform.python_version().split(".")[:2]:
        return Check(subject, "ok", f"{version}, PYSPARK_PYTHON={chosen}")
    found = f"PYSPARK_PYTHON={chosen} is {version or 'not a Python'}"
    return Check(subject, "problem", found, f"unset PYSPARK_PYTHON, or set it to {sys.executable}")


def host_name() -> Check:
    """Whether this machine's name has an address; a local Spark needs it to start."""
    name, address = socket.gethostname(), os.environ.get("SPARK_LOCAL_IP")
    if address:
        return Check("host name", "ok", f"SPARK_LOCAL_IP={address}")
    try:
        return Check("host name", "ok", f"{name}, {socket.gethostbyname(name)}")
    except OSError as error:
        fix = f"add {name} to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1"
        return Check("host name", "problem", f"{name} has no address: {error}", fix)


def state(text: str) -> Iterator[Check]:
    """The state folder; or a URI, and the local folder for copies of its files."""
    subject = "state folder"
    try:
        root = root_of(text)
        if not isinstance(root, RemoteRoot):
            yield folder(subject, root.here)
            return
        text = str(root)
        root.bucket.check()
        found = len(root.names("commits"))
    except CrossStreamError as error:
        yield Check(subject, "problem", f"{shown(text)}: {error.what}", error.next or "")
        return
    yield Check(subject, "ok", f"{root}, {f'{found} batches kept' if found else 'no state yet'}")
    yield folder("copies of state", root.here)


def folder(subject: str, path: Path) -> Check:
    """Whether a folder, or the first parent that exists, is writable and has room."""
    there = path.expanduser().absolute()
    while not there.exists():
        there = there.parent
    named = str(path) if there == path.expanduser().absolute() else f"{path} (will be made in {there})"
    if not there.is_dir():
        return Check(subject, "problem", f"{there} is a file, not a folder", "choose another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(subject, "problem", f"{named}: not writable", f"allow this user to write in {there}")
    free = shutil.disk_usage(there).free
    found = f"{named}, {free / 2**30:,.1f} GiB free"
    if free < FREE_BYTES:
        return Check(subject, "problem", found, "free at least 1 GiB there")
    return Check(subject, "ok", found)


def kafka_jars() -> Check:
    """Whether the development broker can start without the network."""
    from crossstream.dev.broker import KAFKA_VERSION, find_kafka_jars

    jars = find_kafka_jars()
    if jars is not None:
        return Check("Kafka's jars", "ok", f"{KAFKA_VERSION}, {jars}")
    return Check("Kafka's jars", "note", "missing: `crossstream broker start` fetches them once (45 MB)")


def broker(servers: str | None, patience: float = 10.0) -> Check:
    """Whether the named Kafka answers; by default the development broker, whose absence is no problem."""
    from crossstream.dev import broker as development
    from crossstream.kafka import KafkaConnection

    if servers is None:
        if development.answers(9092):
            return Check("Kafka", "ok", "127.0.0.1:9092 answers")
        return Check("Kafka", "note", "none at 127.0.0.1:9092; `crossstream broker start` starts one")
    try:
        with closing(KafkaConnection(servers, patience_seconds=patience).log()) as log:
            topics = [name for name in log.topics() if not is_internal(name)]
    except CrossStreamError as error:
        return Check("Kafka", "problem", f"{servers}: {error.what}", error.next or "")
    return Check("Kafka", "ok", f"{servers} answers, {len(topics)} topics")


def _join_on_spark(*, debug: bool) -> Check:
    """Runs the first step of the demo in a temporary folder."""
    from crossstream.dev.demo import DemoFolder, running_market
    from crossstream.dev.market import STEPS

    with tempfile.TemporaryDirectory(prefix="crossstream-doctor-") as name:
        home = DemoFolder(Path(name))
        home.empty()
        home.write_application()
        try:
            with running_market(home, print if debug else lambda _: None, debug=debug) as market:
                outcome = market.apply(STEPS[0].changes)
        except Exception as error:
            if debug:
                raise
            what = type_and_text(error)
            if isinstance(error, CrossStreamError):
                what = f"[{error.code}] {error.what}"
            return Check("a join on Spark", "problem", what, _fix(error, home.log))
    found = f"{outcome.records} records in, {len(outcome.after)} rows out, {outcome.seconds:.1f} s"
    return Check("a join on Spark", "ok" if len(outcome.after) == 4 else "problem", found, "report this")


def _fix(error: Exception, log: Path) -> str:
    """The error's own advice, and the end of Spark's log."""
    last = log.read_text(encoding="utf-8").splitlines()[-5:] if log.is_file() else []
    advice = getattr(error, "next", None) or "run crossstream doctor --full --debug to see all Spark prints"
    return "\n       ".join([advice, *last])
