"""The sides of the benchmark of lake tables: programs that take the commands of `benchmarks.lakes_app`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import polars as pl
import psutil  # type: ignore[import-untyped]

from benchmarks.generate import Topics
from benchmarks.lakes_app import OFFERS
from benchmarks.lakes_data import Lake, read
from benchmarks.lakes_memory import Peaks
from benchmarks.ours import ROOT
from benchmarks.peers import delta_spark
from benchmarks.processes import core_seconds, family

PROGRAM = Path(__file__).resolve().parent / "peers" / "spark_merge" / "program.py"
TUNED = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
}
"""Spark by hand, for two cores."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a side is: its program, for a broker, and whether it reads topics or Delta tables."""

    name: str
    command: Callable[[str | None], list[str]]
    environment: Callable[[], Mapping[str, str]]
    reads_topics: bool = False
    looks: bool = False
    """Whether it follows the tables without a command."""

    def sources(self, lake: Lake, prefix: str) -> dict[str, str]:
        if self.reads_topics:
            topics = Topics.of(prefix)
            return {"orders": topics.orders, "customers": topics.customers}
        return {table: lake.uri(table) for table in ("orders", "customers")}


def ours(source: str, *more: str) -> Callable[[str | None], list[str]]:
    def command(servers: str | None) -> list[str]:
        words = [sys.executable, "-m", "benchmarks.lakes_app", "--source", source, *more]
        return words if servers is None else [*words, "--bootstrap", servers]

    return command


def our_environment() -> Mapping[str, str]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYSPARK_PYTHON": sys.executable,
    }


def by_hand(_servers: str | None) -> list[str]:
    settings = {**delta_spark.settings(), **TUNED}
    return [
        str(delta_spark.python()),
        str(PROGRAM),
        *(f"--spark={name}={value}" for name, value in settings.items()),
    ]


MERGE = Kind("merge-by-hand", by_hand, delta_spark.environment, looks=True)
DELTA = Kind("crossstream-delta", ours("delta"), our_environment)
KAFKA = Kind("crossstream-kafka", ours("kafka"), our_environment, reads_topics=True)
DELTA_KEPT = Kind("crossstream-delta-kept", ours("delta", "--kept"), our_environment)
KAFKA_KEPT = Kind("crossstream-kafka-kept", ours("kafka", "--kept"), our_environment, reads_topics=True)
SIDES: Mapping[str, Kind] = {kind.name: kind for kind in (DELTA, KAFKA, DELTA_KEPT, KAFKA_KEPT, MERGE)}
"""``kept``: the result is a store and no Delta table besides."""


class Side:
    """One program that runs, from its start to its end."""

    def __init__(self, kind: Kind, servers: str | None, scratch: Path) -> None:
        self.kind, self.servers = kind, servers
        self.scratch = scratch / kind.name
        self.folder = self.scratch
        self.batches: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        return self.kind.name

    def __enter__(self) -> Side:
        self.scratch.mkdir(parents=True)
        self._log = self.scratch / "log"
        command = self.kind.command(self.servers)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.kind.environment(),
                cwd=ROOT,
            )
        self._await("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self._let(psutil.Process.resume)
        running = self.processes()
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for process in running:
            if process.is_running():
                process.kill()

    def open(self, name: str, sources: Mapping[str, str]) -> None:
        """Starts on these tables or topics, with nothing of before."""
        self.folder = self.scratch / name
        self.folder.mkdir()
        self._do(do="open", name=f"{self.name}-{name}-{time.time_ns()}", folder=str(self.folder), **sources)

    def go(self) -> float:
        """Lets it process what there is. Returns its seconds."""
        return float(self._do(do="go")["seconds"])

    def look(self) -> dict[str, float]:
        """The memory of the driver, as `benchmarks.lakes_memory.Peaks`."""
        said = self._do(do="look")
        return {name: said[name] for name in Peaks.__dataclass_fields__}

    def close(self) -> None:
        if self.process.poll() is None:
            self._do(do="close")

    def rows(self) -> pl.DataFrame:
        """The result, when the side has been closed."""
        plain = self.folder / "rows"
        if plain.exists():
            return pl.read_parquet(plain / "*.parquet")
        return read(str(self.folder / OFFERS))

    def processes(self) -> list[psutil.Process]:
        """The driver, its JVM and its Python workers."""
        return family(self.process.pid)

    def core_seconds(self) -> float:
        """User and system time of all its processes so far."""
        return core_seconds(self.processes())

    def _do(self, **command: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self._let(psutil.Process.resume)
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        said = self._await("done")
        self._let(psutil.Process.suspend)
        return said

    def _let(self, act: Callable[[psutil.Process], None]) -> None:
        """A program that looks for commits by itself stands still while others have their turn."""
        if self.kind.looks:
            for process in self.processes():
                act(process)

    def _await(self, event: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line) if line.startswith("{") else {}
            if said.get("event") == event:
                return said
            if said:
                self.batches.append(said)
        raise RuntimeError(f"{self.name} died: {self._log.read_text()[-3000:]}")
