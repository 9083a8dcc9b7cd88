"""`crossstream bench evolve`: a changed application takes over its state, beside a fresh start from the topics.

Orders are joined with their customers by foreign key. When all is processed, the joiner changes: so that each row
differs, or one in a hundred. ``stored``: the result is kept in a store; ``sent``: only its topic has it, which is read
back. The peer is what any other engine does: the new code begins with an empty state and computes everything again.

While `crossstream evolve` runs, each frame of the input topics has a wrong checksum, so that reading a single record
would fail. In the end the topic of the result must fold to that of the fresh start. Seconds are those of the whole
command, with its start. Memory is the most that a process had resident: files that it maps are part of that, so what it
allocated itself (``anonymous``, looked at ten times a second) is beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil  # type: ignore[import-untyped]

from benchmarks.evolve_app import RESULT
from benchmarks.fk import machine
from benchmarks.ours import ROOT
from benchmarks.state import customer_columns, order_columns
from benchmarks.waiting import PARTITIONS
from crossstream.filetopics import FileTopics
from crossstream.topics import OffsetRange, TopicPartition

APP = ROOT / "benchmarks" / "evolve_app.py"
CHANGES = ("all_rows", "hundredth")
KEPT = {"stored": RESULT, "sent": ""}
INPUTS = ("orders", "customers")
HEADER, BLOCK = 64, 64
"""Bytes of the header of a frame, and what frames are aligned to (docs/spec/file-topics.md)."""


@dataclass(slots=True)
class Peaks:
    """The most MiB that a process of each part had: driver, JVM, Python workers. ``cores``: seconds, by process."""

    resident: dict[str, float] = field(default_factory=dict)
    anonymous: dict[str, float] = field(default_factory=dict)
    cores: dict[int, float] = field(default_factory=dict)

    def look(self, driver: int) -> None:
        try:
            found = psutil.Process(driver)
            processes = [("driver", found), *((part_of(one), one) for one in found.children(recursive=True))]
        except psutil.NoSuchProcess:
            return
        for part, process in processes:
            try:
                times = process.cpu_times()
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            except (OSError, psutil.NoSuchProcess):
                continue
            self.cores[process.pid] = times.user + times.system
            status = dict(line.split(":", 1) for line in lines if line.startswith(("VmHWM", "RssAnon")))
            for peaks, name in ((self.resident, "VmHWM"), (self.anonymous, "RssAnon")):
                if name in status:
                    peaks[part] = max(peaks.get(part, 0.0), int(status[name].split()[0]) / 1024)


def part_of(process: psutil.Process) -> str:
    try:
        return "jvm" if process.name() == "java" else "worker"
    except psutil.NoSuchProcess:
        return "worker"


@dataclass(frozen=True, slots=True)
class Run:
    """What a command took. ``rows``: records that it wrote to the topic of the result.

    ``within``: the seconds that it says itself: of the change, or of its batches, without the start of the program.
    A change on Spark starts its session within them.
    """

    seconds: float
    within: float
    rows: int
    peaks: Peaks

    def line(self, figure: str, side: str) -> dict[str, Any]:
        resident = {f"{part}, MiB": round(peak) for part, peak in self.peaks.resident.items()}
        own = {f"{part}, MiB anonymous": round(peak) for part, peak in self.peaks.anonymous.items()}
        return {
            "figure": figure,
            "side": side,
            "seconds": round(self.seconds, 2),
            "seconds without the start": round(self.within, 2),
            "core-seconds": round(sum(self.peaks.cores.values()), 1),
            "rows": self.rows,
            **resident,
            **own,
        }


@dataclass(frozen=True, slots=True)
class World:
    """A folder with topics and state. ``store``: of the result; empty: it has none."""

    folder: Path
    engine: str
    store: str

    @property
    def topics(self) -> FileTopics:
        return FileTopics(str(self.folder / "topics"), durable=False)

    def fill(self, orders: int, customers: int) -> None:
        log, writer = self.topics.log(), self.topics.writer()
        for topic in (*INPUTS, RESULT):
            log.create_topic(topic, PARTITIONS)
        for chunk in customer_columns(customers):
            writer.write("customers", chunk)
        for chunk in order_columns(np.arange(orders), customers, 1):
            writer.write("orders", chunk)
        writer.close()
        log.close()

    def copy(self, folder: Path) -> World:
        shutil.copytree(self.folder, folder)
        return World(folder, self.engine, self.store)

    def start(self, version: str) -> Run:
        """The application, until it has processed all there is."""
        return self.run("run", f"{APP}:{version}", "--once", "--json", "--engine", self.engine)

    def evolve(self, version: str) -> Run:
        """The change, while no record of the input can be read."""
        with sealed(self.folder / "topics"):
            state = str(self.folder / "state")
            return self.run("evolve", f"{APP}:{version}", state, "--format", "json", "--engine", self.engine)

    def run(self, *command: str) -> Run:
        """`crossstream` with these words, in a process of its own."""
        before = self.written()
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYSPARK_PYTHON": sys.executable,
            "BENCH_FOLDER": str(self.folder),
            "BENCH_ENGINE": self.engine,
            "BENCH_STORE": self.store,
        }
        said, peaks, began = self.folder / "said", Peaks(), time.monotonic()
        with said.open("w") as out:
            words = [sys.executable, "-m", "crossstream", *command]
            process = subprocess.Popen(words, env=environment, stdout=out, stderr=subprocess.STDOUT)
            while process.poll() is None:
                peaks.look(process.pid)
                time.sleep(0.1)
        seconds = time.monotonic() - began
        if process.returncode != 0:
            raise RuntimeError(f"crossstream {' '.join(command)} failed:\n{said.read_text()[-3000:]}")
        said_seconds = sum(
            json.loads(line)["seconds"] for line in said.read_text().splitlines() if line.startswith("{")
        )
        return Run(seconds, said_seconds, self.written() - before, peaks)

    def written(self) -> int:
        """Records of the topic of the result."""
        return sum(self.ends(RESULT).values())

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        return self.topics.log().end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])

    def result(self) -> pl.DataFrame:
        """What the topic of the result folds to."""
        reader, parts = self.topics.reader(), []
        for partition, end in self.ends(RESULT).items():
            for batch in reader.read(OffsetRange(RESULT, partition.partition, 0, end), 100_000):
                parts.append(pl.DataFrame(batch.select(["key", "value"])))
        rows = pl.concat(parts).unique("key", keep="last", maintain_order=True)
        return rows.drop_nulls("value").sort("key")


@contextmanager
def sealed(topics: Path) -> Iterator[None]:
    """In this block no record of the input topics can be read: the first byte of each frame is another one."""
    segments = [file for topic in INPUTS for file in (topics / topic).rglob("*.seg")]
    for file in segments:
        flip(file)
    try:
        yield
    finally:
        for file in segments:
            flip(file)


def flip(segment: Path) -> None:
    with segment.open("r+b") as file:
        at, size = 0, segment.stat().st_size
        while at + HEADER <= size:
            file.seek(at)
            header = file.read(HEADER)
            (length,) = struct.unpack_from("<Q", header, 8)
            first = file.read(1)
            file.seek(at + HEADER)
            file.write(bytes([first[0] ^ 0xFF]))
            at += -(-(HEADER + length) // BLOCK) * BLOCK


def measured(
    folder: Path, engine: str, kept: str, orders: int, customers: int, changes: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The figures of one engine and one way to keep the result."""
    world = World(folder / "first", engine, KEPT[kept])
    world.fill(orders, customers)
    yield world.start("first").line("the first version, from the topics", kept)
    for change in changes:
        figure = f"another joiner, {change.replace('_', ' ')}"
        again = world.copy(folder / "again")
        found = again.evolve(change)
        yield found.line(figure, f"evolve, {kept}")
        fresh = World(folder / "fresh", engine, KEPT[kept])
        fresh.fill(orders, customers)
        yield fresh.start(change).line(figure, f"fresh start, {kept}")
        if not again.result().equals(fresh.result()):
            raise AssertionError(f"{figure}, {kept}: the topic does not fold to that of a fresh start")
        for each in (again, fresh):
            shutil.rmtree(each.folder)
    shutil.rmtree(world.folder)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench evolve", description=__doc__)
    parser.add_argument("changes", nargs="*", default=CHANGES, help="of all_rows, hundredth")
    parser.add_argument("--orders", type=int, default=1_000_000)
    parser.add_argument("--customers", type=int, default=100_000)
    parser.add_argument("--engines", default="local,spark")
    parser.add_argument("--kept", default=",".join(KEPT), help="of stored, sent")
    arguments = parser.parse_args(argv)
    print(json.dumps(machine()), flush=True)
    for engine in arguments.engines.split(","):
        for kept in arguments.kept.split(","):
            with tempfile.TemporaryDirectory(prefix="crossstream-bench-") as folder:
                for line in measured(
                    Path(folder), engine, kept, arguments.orders, arguments.customers, arguments.changes
                ):
                    print(json.dumps({"engine": engine, **line}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
