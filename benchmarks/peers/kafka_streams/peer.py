"""The joins of the benchmarks as a Kafka Streams application in a JVM of its own.

with KafkaStreamsPeer("localhost:9092", "peer-1", Topics.of("run1")) as peer:  # runs from here on
    peer.cpu_seconds()
peer.summary  # {"processed": …, "dropped": …}
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, final

import psutil  # type: ignore[import-untyped]

from benchmarks.data import FOREIGN_KEY
from benchmarks.generate import Topics
from benchmarks.peers.java import JavaProgram, java

HERE = Path(__file__).resolve().parent
PROGRAM = JavaProgram(HERE, "peer")
JVM_OPTIONS = ("-Xms2g", "-Xmx2g", "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

MODES: Mapping[str, tuple[str, ...]] = {
    "fk": ("inner", "left"),
    "fk-avro": ("inner",),
    "fk-chain": ("inner",),
    "table-table": ("inner", "left", "outer"),
    "stream-stream": ("inner", "left", "outer"),
    "stream-table": ("inner", "left"),
    "stream-global": ("inner", "left"),
    **{
        f"aggregate-{name}": ("inner",)
        for name in ("count", "tumbling", "hopping", "session", "table", "reduce")
    },
}


class PeerError(RuntimeError):
    """The application did not start, or died."""


@final
class KafkaStreamsPeer:
    """One run of the application, from an empty state folder.

    Orders are the left side, customers the right one. The result of every mode is
    ``{"item", "amount"}`` of the order and ``{"customer", "city"}``, name and city, of the customer.

    ``warm_up``: topics of a second, equal join of the application, to warm it up with.
    ``foreign_key``: field of an order (fk, stream-global). ``window_ms``, ``grace_ms``: stream-stream.
    ``settings``: any others of Kafka Streams, such as ``commit.interval.ms``. ``state_dir``: kept if given.
    ``arguments``: what a mode needs besides, in the words of the program: fk-chain has several right tables, fk-avro
    the ``registry`` of its schemas.
    ``patience``: seconds to start or stop in.
    """

    def __init__(
        self,
        bootstrap: str,
        application_id: str,
        topics: Topics,
        *,
        mode: str = "fk",
        type: str = "inner",
        warm_up: Topics | None = None,
        foreign_key: str = FOREIGN_KEY,
        window_ms: int = 10_000,
        grace_ms: int = 0,
        threads: int = 2,
        settings: Mapping[str, object] | None = None,
        arguments: Mapping[str, str] | None = None,
        state_dir: Path | None = None,
        patience: float = 60,
    ) -> None:
        if type not in MODES[mode]:
            raise ValueError(f"no {type} join in mode {mode}")
        self.arguments = {
            "bootstrap": bootstrap,
            "application-id": application_id,
            "left": topics.orders,
            "right": topics.customers,
            "output": topics.results,
            "mode": mode,
            "type": type,
            "foreign-key": foreign_key,
            "window-ms": str(window_ms),
            "grace-ms": str(grace_ms),
            "threads": str(threads),
            "until": "stdin-ends",
        }
        if warm_up is not None:
            warm = {"left": warm_up.orders, "right": warm_up.customers, "output": warm_up.results}
            self.arguments |= {f"warm-{name}": topic for name, topic in warm.items()}
        self.arguments |= arguments or {}
        self.settings = dict(settings or {})
        self.state_dir = state_dir
        self.patience = patience
        self.summary: dict[str, Any] = {}
        self.seconds_to_run = 0.0
        """From the start of the JVM until the application ran."""
        self._events: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def __enter__(self) -> KafkaStreamsPeer:
        PROGRAM.build()
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-streams-peer-"))
        self._log = self._folder / "peer.log"
        began = time.monotonic()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._await("state", state="RUNNING")
        except PeerError:
            self._kill()
            raise
        self.seconds_to_run = time.monotonic() - began
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._process.send_signal(signal.SIGTERM)
            self.summary = self._await("stopped")
        finally:
            self._kill()

    def command(self) -> list[str]:
        words = [java(), *JVM_OPTIONS, "-jar", str(PROGRAM.jar)]
        state = self.state_dir or self._folder / "state"
        for name, value in {**self.arguments, "state-dir": str(state)}.items():
            words += [f"--{name}", value]
        for name, setting in self.settings.items():
            words += ["--set", f"{name}={setting}"]
        return words

    @property
    def seconds_to_restore(self) -> float:
        """From the start of Kafka Streams, in a JVM that is up, until it ran: state is restored in that time."""
        with self._changed:
            states = [event for event in self._events if event["event"] == "state"]
        running = next(event["ms"] for event in states if event["state"] == "RUNNING")
        return float(running - states[0]["ms"]) / 1000

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """User and system time of the JVM so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def processes(self) -> list[psutil.Process]:
        """The JVM."""
        return [psutil.Process(self.pid)]

    def cpu_parts(self) -> dict[str, float]:
        """The same, as all there is."""
        return {"jvm": self.cpu_seconds()}

    def check(self) -> None:
        """Raises `PeerError` if the application has died."""
        with self._changed:
            if self._process.poll() is not None or any(e["event"] == "error" for e in self._events):
                raise self._failure("died")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _await(self, event: str, **details: str) -> dict[str, Any]:
        """The first such event; waits for it up to the patience."""
        wanted = {"event": event, **details}
        until = time.monotonic() + self.patience
        with self._changed:
            while True:
                for found in self._events:
                    if wanted.items() <= found.items():
                        return found
                if not self._reader.is_alive() or any(e["event"] == "error" for e in self._events):
                    raise self._failure(f"ended before {wanted}")
                if not self._changed.wait(until - time.monotonic()):
                    raise self._failure(f"not {wanted} after {self.patience} s")

    def _failure(self, what: str) -> PeerError:
        return PeerError(f"Kafka Streams: {what}: {self._events} {self._log.read_text()[-2000:]}")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def available() -> str | None:
    """Why there can be no peer on this machine; None if there can. Downloads are not tried."""
    return PROGRAM.missing()


def version() -> str:
    """The version of Kafka Streams it runs with."""
    found = re.search(r"<kafka\.version>(.+)</kafka\.version>", (HERE / "pom.xml").read_text())
    assert found is not None
    return found.group(1)
