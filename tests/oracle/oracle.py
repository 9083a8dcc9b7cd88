"""Kafka Streams' own test driver, as a function from a case to its results.

    with Oracle() as oracle:
        oracle.run(case)  # {"expected": [[{"key", "value", "ts"}, …] per input], "table": […], "dropped": 3}

A *case* is a dict in the format of `tests/conformance/vectors/README.md`; only ``operator``, ``type``,
``params``, ``joins``, ``graph`` and ``inputs`` are looked at. Every case runs in a driver of its own: record caches
off, emit throttles off, one partition. One JVM answers all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, final

from benchmarks.peers.java import JavaProgram, java

HERE = Path(__file__).resolve().parent
PROGRAM = JavaProgram(HERE, "oracle")
FIELDS = ("operator", "type", "params", "joins", "graph", "inputs")
# A small heap, no waiting for the optimising compiler: a session is seconds long.
JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)


class OracleError(RuntimeError):
    """A case that Kafka Streams could not build or run, or a process that ended."""


@final
class Oracle:
    """A running test driver. Built with Maven on first use; entering raises `Unavailable`."""

    kafka_version: str
    """Known once it runs."""

    def __enter__(self) -> Oracle:
        PROGRAM.build()
        self._messages = tempfile.TemporaryFile("w+")
        self._states = tempfile.TemporaryDirectory(
            prefix="oracle", dir=state_root(), ignore_cleanup_errors=True
        )
        self._process = subprocess.Popen(
            [java(), *JVM_OPTIONS, "-jar", str(PROGRAM.made), self._states.name],
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


def state_root() -> str:
    """Where the stores go: memory, if there is such a place."""
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) else tempfile.gettempdir()
