"""Kafka Streams' own test driver, as a function from a case to its results.

    with Oracle() as oracle:
        oracle.run(case)  # {"expected": [[{"key", "value", "ts"}, …] per input], "table": […], "dropped": 3}

A *case* is a dict in the format of `tests/conformance/vectors/README.md`; only ``operator``, ``type``,
``params``, ``joins`` and ``inputs`` are looked at. Every case runs in a driver of its own: record caches off,
emit throttles off, one partition. One JVM answers all of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, final

HERE = Path(__file__).resolve().parent
TARGET = HERE / "target"
JAR = TARGET / "oracle.jar"
FINGERPRINT = TARGET / "oracle.sources.sha256"
JAVA_VERSION = 17
FIELDS = ("operator", "type", "params", "joins", "inputs")
# A small heap, no waiting for the optimising compiler: a session is seconds long.
JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)


class OracleError(RuntimeError):
    """A case that Kafka Streams could not build or run, or a process that ended."""


class OracleUnavailable(RuntimeError):
    """The program cannot be built or started here."""


@final
class Oracle:
    """A running test driver. Built with Maven on first use; entering raises `OracleUnavailable`."""

    kafka_version: str
    """Known once it runs."""

    def __enter__(self) -> Oracle:
        build()
        self._messages = tempfile.TemporaryFile("w+")
        self._states = tempfile.TemporaryDirectory(
            prefix="oracle", dir=state_root(), ignore_cleanup_errors=True
        )
        self._process = subprocess.Popen(
            [java(), *JVM_OPTIONS, "-jar", str(JAR), self._states.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            encoding="utf-8",
        )
        self._requests, self._answers = pipe(self._process.stdin), pipe(self._process.stdout)
        self.kafka_version = self._answer()["kafka"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(BrokenPipeError):
            self._requests.close()  # the end of its input is its end
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._messages.close()
        self._states.cleanup()

    def run(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """What Kafka gives for a case.

        ``expected``: the outputs of each input; ``table``: the final rows in byte order of their keys, absent
        where the result is no table; ``dropped``: Kafka's dropped-records-total. Raises `OracleError`.
        """
        request = {field: case[field] for field in FIELDS if field in case}
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer()
        if "error" in answer:
            raise OracleError(f"{answer['error']} in case {case.get('id', request)}")
        return answer

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> OracleError:
        status = self._process.wait()
        self._messages.seek(0)
        return OracleError(f"the oracle ended with status {status}: {self._messages.read()[-2000:].strip()}")


def pipe(end: IO[str] | None) -> IO[str]:
    assert end is not None
    return end


def available() -> str | None:
    """Why there can be no oracle on this machine; None if there can. Downloads are not tried."""
    try:
        version = java_version()
    except OracleUnavailable as reason:
        return str(reason)
    if version < JAVA_VERSION:
        return f"Java {version} is too old: {JAVA_VERSION} or newer is needed"
    if shutil.which("mvn") is None and not built():
        return "no mvn on the path, and the oracle has not been built yet"
    return None


def build() -> None:
    """Build the program if its sources have changed since the last time: from Maven's cache, else online."""
    reason = available()
    if reason is not None:
        raise OracleUnavailable(reason)
    with one_builder():
        if built():
            return
        FINGERPRINT.unlink(missing_ok=True)
        if not (maven("-o") or maven()):
            raise OracleUnavailable(f"mvn could not build {HERE}: see {TARGET / 'build.log'}")
        FINGERPRINT.write_text(fingerprint())


def built() -> bool:
    return JAR.exists() and FINGERPRINT.exists() and FINGERPRINT.read_text() == fingerprint()


def fingerprint() -> str:
    digest = hashlib.sha256()
    for source in [HERE / "pom.xml", *sorted((HERE / "src").rglob("*.java"))]:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def maven(*options: str) -> bool:
    with (TARGET / "build.log").open("a") as log:
        command = ["mvn", "-B", "-q", *options, "package"]
        done = subprocess.run(
            command,
            check=False,
            cwd=HERE,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    return done.returncode == 0


@contextmanager
def one_builder() -> Iterator[None]:
    """Test processes that run side by side build once."""
    TARGET.mkdir(exist_ok=True)
    with (TARGET / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        raise OracleUnavailable("no java on the path" if home is None else f"no bin/java in JAVA_HOME {home}")
    return found


def java_version() -> int:
    """The feature release: 17, 21, …"""
    told = subprocess.run([java(), "-version"], check=False, capture_output=True, text=True).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None:
        raise OracleUnavailable(f"java does not tell its version: {told.strip()}")
    return int(version.group(1))


def state_root() -> str:
    """Where the stores go: memory, if there is such a place."""
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) else tempfile.gettempdir()
