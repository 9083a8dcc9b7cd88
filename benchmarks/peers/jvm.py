"""Peers that are a JVM of their own: started, watched by the JSON lines of its standard output, and ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.peers.java import JavaProgram


class PeerError(RuntimeError):
    """The program did not start, or died."""


class Jvm:
    """One run of a program, from an empty folder: ``with`` starts it and waits until it runs.

    Each line of its standard output is an event: ``{"event": "state", "state": "RUNNING"}`` when it runs,
    ``{"event": "error", …}`` when it fails, ``{"event": "stopped", …}`` last. `program`, `name`, `command` and
    `ask_to_stop` are what kinds of peers differ in. ``patience``: seconds to start or stop in.
    """

    program: JavaProgram
    name: str

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.summary: dict[str, Any] = {}
        self.seconds_to_run = 0.0
        """From the start of the JVM until the application ran."""
        self._events: list[dict[str, Any]] = []
        self._changed = threading.Condition()

    def command(self) -> Sequence[str]:
        """What is started; may write into ``self._folder``."""
        raise NotImplementedError

    def ask_to_stop(self, process: subprocess.Popen[str]) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        self.program.build()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self.name.lower().replace(' ', '-')}-peer-"))
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
            self.ask_to_stop(self._process)
            self.summary = self._await("stopped")
        finally:
            self._kill()

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
        return PeerError(f"{self.name}: {what}: {self._events} {self._log.read_text()[-2000:]}")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)
