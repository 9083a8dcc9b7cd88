"""Statements of Flink SQL as one job in a JVM of its own.

with FlinkPeer([*tables, "INSERT INTO results SELECT …"], backend="rocksdb") as peer:  # runs from here on
    peer.cpu_seconds()
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, final

from benchmarks.peers.java import JavaProgram, java
from benchmarks.peers.jvm import Jvm, PeerError

__all__ = ["SIDES", "Backend", "FlinkPeer", "PeerError", "available", "side", "version"]

HERE = Path(__file__).resolve().parent
PROGRAM = JavaProgram(HERE, "flink")
JVM_OPTIONS = (
    "-XX:+UseParallelGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "time")),
)

Backend = Literal["heap", "rocksdb"]
BACKENDS: Mapping[Backend, Mapping[str, str]] = {
    "heap": {"state.backend.type": "hashmap", "taskmanager.memory.managed.size": "64m"},
    "rocksdb": {"state.backend.type": "rocksdb", "taskmanager.memory.managed.size": "1g"},
}
SETTINGS = {
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.incremental": "true",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "500 ms",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.local-time-zone": "UTC",
}
"""What Flink is fastest with here."""
PLAIN = "-plain"
"""Ends the name of a side that takes one row after the other, without mini-batches."""
WIDE = "-wide"
"""Ends the name of a side with four of each operator, one for each partition, instead of two."""
SIDES: Mapping[str, Backend] = {"flink-heap": "heap", "flink-rocksdb": "rocksdb"}


@final
class FlinkPeer(Jvm):
    """One run of a job, from an empty folder.

    ``statements``: as `benchmarks.peers.flink.sql` makes them; the INSERTs are one job, what stands before them is
    executed at once. ``parallelism``: of each operator. ``heap``: of the JVM; RocksDB has a gigabyte beside it.
    ``settings``: any others of Flink. ``patience``: seconds to start or stop in.
    """

    program = PROGRAM
    name = "Flink"

    def __init__(
        self,
        statements: Sequence[str],
        *,
        backend: Backend = "heap",
        parallelism: int = 2,
        heap: str = "2g",
        settings: Mapping[str, str] | None = None,
        patience: float = 300,
    ) -> None:
        super().__init__(patience)
        self.statements = statements
        self.heap = heap
        self.settings = {
            **SETTINGS,
            **BACKENDS[backend],
            "parallelism.default": str(parallelism),
            **(settings or {}),
        }

    def command(self) -> list[str]:
        script = self._folder / "script.sql"
        script.write_text("\n;\n".join(self.statements))
        state = {
            "io.tmp.dirs": str(self._folder),
            "execution.checkpointing.dir": (self._folder / "checkpoints").as_uri(),
        }
        settings = [f"{name}={value}" for name, value in {**state, **self.settings}.items()]
        memory = (f"-Xms{self.heap}", f"-Xmx{self.heap}")
        return [java(), *memory, *JVM_OPTIONS, "-jar", str(PROGRAM.made), str(script), *settings]

    def ask_to_stop(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.close()


def side(name: str, statements: Sequence[str]) -> FlinkPeer:
    """A side of a benchmark: of `SIDES`, with `PLAIN` or `WIDE` behind it."""
    settings = {"table.exec.mini-batch.enabled": "false"} if PLAIN in name else {}
    backend = SIDES[name.replace(PLAIN, "").replace(WIDE, "")]
    return FlinkPeer(statements, backend=backend, parallelism=4 if WIDE in name else 2, settings=settings)


def available() -> str | None:
    """Why there can be no peer on this machine; None if there can. Downloads are not tried."""
    return PROGRAM.missing()


def version() -> str:
    """The version of Flink it runs with."""
    found = re.search(r"<flink\.version>(.+)</flink\.version>", (HERE / "pom.xml").read_text())
    assert found is not None
    return found.group(1)
