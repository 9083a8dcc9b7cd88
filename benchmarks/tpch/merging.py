"""The side that keeps a query up to date by hand, on Spark and Delta Lake: its program and its result."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import polars as pl
import psutil  # type: ignore[import-untyped]

from benchmarks.ours import ROOT
from benchmarks.peers import delta_spark
from benchmarks.processes import core_seconds, family
from benchmarks.tpch.data import TABLES
from benchmarks.tpch.queries import SCHEMAS
from benchmarks.tpch.sql import SQL, in_order

PROGRAM = Path(__file__).resolve().parent.parent / "peers" / "tpch_merge" / "program.py"
TUNED = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
}
"""Spark for two cores."""
REST_SECONDS = 3.0
PATIENCE = 900.0


class Merging:
    """One run of the program, and its result."""

    def __init__(self, servers: str, prefix: str, query: str) -> None:
        self.given = {
            "query": query,
            "text": SQL[query].text,
            "servers": servers,
            "prefix": prefix,
            "tables": {name: ddl(name) for name in SQL[query].tables},
            "keys": {name: TABLES[name] for name in SQL[query].tables},
        }
        self.last: dict[str, Any] = {"event": "starting", "time": time.time()}
        self.seen = -1
        self.exported: list[str] = []
        self.changed = threading.Condition()

    def __enter__(self) -> Merging:
        self.folder = Path(tempfile.mkdtemp(prefix="crossstream-bench-merge-"))
        settings = {**delta_spark.settings(kafka=True), **TUNED}
        command = [str(delta_spark.python()), str(PROGRAM), "--folder", str(self.folder / "lake")]
        command += ["--given", json.dumps(self.given)]
        command += [f"--spark={name}={value}" for name, value in settings.items()]
        self.log = self.folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=delta_spark.environment(),
                cwd=ROOT,
            )
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes():
            process.kill()
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        return family(self.process.pid)

    def cpu(self) -> float:
        """Core-seconds so far, its children's included."""
        return core_seconds(self.processes())

    def settle(self, wanted: pl.DataFrame, at_rest: Callable[[], None] = lambda: None) -> float:
        """Waits until the result is the wanted one; when the batch that made it was committed."""
        stop = time.monotonic() + PATIENCE
        while True:
            ended = self._rest(stop)
            at_rest()
            found = self._rows()
            if found.equals(wanted):
                return ended
            if time.monotonic() > stop:
                raise RuntimeError(f"by hand: {len(found)} rows, not the {len(wanted)} wanted")

    def _rest(self, stop: float) -> float:
        """When the last batch ended, after one ended and then none began for a while."""
        while time.monotonic() < stop:
            time.sleep(0.1)
            self._check()
            with self.changed:
                last = self.last
            done = last["event"] == "batch" and last["number"] > self.seen
            if done and time.time() - last["time"] >= REST_SECONDS:
                self.seen = last["number"]
                return float(last["time"])
        raise RuntimeError("no batch ended in time")

    def _rows(self) -> pl.DataFrame:
        folder = str(self.folder / f"rows-{len(self.exported)}-{self.seen}")
        assert self.process.stdin is not None
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        with self.changed:
            while folder not in self.exported:
                self.changed.wait(1.0)
                self._check()
        return in_order(pl.read_parquet(f"{folder}/*.parquet"))

    def _check(self) -> None:
        if self.process.poll() is not None:
            raise RuntimeError(f"the program by hand died: {self.log.read_text()[-3000:]}")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            with self.changed:
                if event["event"] == "rows":
                    self.exported.append(event["folder"])
                elif event["event"] in ("begin", "batch"):
                    self.last = event
                self.changed.notify_all()


def ddl(table: str) -> str:
    """The columns of a table, as Spark has them."""
    types = {pl.Int64: "BIGINT", pl.String: "STRING"}
    return ", ".join(f"{name} {types[kind]}" for name, kind in SCHEMAS[table].items())
