"""`crossstream bench where`: where a batch's time goes.

Five applications through Kafka and Spark, JSON in and out; core-seconds of each phase for a million records. Beside a
phase stands what its least costs: the client alone on the same topics, msgspec alone on the same JSON, Arrow alone on
the same columns (`where_limits.py`). All in one run.

The clocks are in `clocks/sitecustomize.py`; threads are told apart by their names. What a phase costs is measured while
the others run, on a machine that works at nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from struct import unpack
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks import report
from benchmarks.aggregate import AggregateBench
from benchmarks.aggregate_app import OursAggregated
from benchmarks.clocks.sitecustomize import PHASES
from benchmarks.fk import FIGURES, Bench, machine, scaled_sizes
from benchmarks.generate import Topics
from benchmarks.joins import JoinBench
from benchmarks.joins_app import OursJoined
from benchmarks.ours import ROOT, Ours
from benchmarks.where_limits import WORK, limits_of

CLOCKS = ROOT / "benchmarks" / "clocks"
PAGE = ROOT / "docs" / "where-time-goes.md"
HEADING = "Where a batch's time goes"
TICKS = os.sysconf("SC_CLK_TCK")


class Parts:
    """An application whose core time comes in parts. Mixed into `Ours`."""

    def __enter__(self) -> Any:
        self.clocks = Path(tempfile.mkdtemp(prefix="crossstream-clocks-"))
        with patched({"PYTHONPATH": str(CLOCKS), "CROSSSTREAM_CLOCKS": str(self.clocks)}):
            return super().__enter__()  # type: ignore[misc]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[misc]
        shutil.rmtree(self.clocks)

    def cpu_parts(self) -> dict[str, float]:
        """Core-seconds so far: the phases, and what threads did beside them."""
        parts = dict.fromkeys((*PHASES, *OTHERS), 0.0)
        driver, *others = self.processes()  # type: ignore[attr-defined]
        times = driver.cpu_times()
        parts[DRIVER] = times.user + times.system
        for process in others:
            with suppress(psutil.NoSuchProcess):
                is_java = "java" in process.name()
                for name, seconds in threads_of(process.pid):
                    parts[part_of(name, is_java)] += seconds
        for file in self.clocks.glob("*.clocks"):
            if int(file.stem) != driver.pid:
                for phase, seconds in zip(PHASES, unpack(f"{len(PHASES)}d", file.read_bytes()), strict=True):
                    parts[phase] += seconds
                    parts[REST] -= seconds
        return parts


DRIVER, REST, CLIENT, POOLS = (
    "driver: plans, commits",
    "workers: Spark's loop, the rest",
    "threads of Kafka's client",
    "threads of Arrow and Polars",
)
TASKS, SCHEDULING, COMPILING = "JVM: tasks", "JVM: scheduling", "JVM: compiling, garbage"
OTHERS = (CLIENT, POOLS, REST, TASKS, SCHEDULING, COMPILING, DRIVER)


def threads_of(process: int) -> Iterator[tuple[str, float]]:
    """The name of each thread and its core-seconds."""
    for file in Path(f"/proc/{process}/task").glob("*/stat"):
        with suppress(OSError):
            name, _, rest = file.read_text().partition("(")[2].rpartition(")")
            times = rest.split()[11:13]
            yield name, sum(map(int, times)) / TICKS


def part_of(thread: str, is_java: bool) -> str:
    """Which part a thread belongs to."""
    if is_java:
        if thread.startswith(("C1 ", "C2 ", "GC ", "G1 ", "VM ", "Signal", "Service Thread")):
            return COMPILING
        return TASKS if thread.startswith(("Executor task", "stdout writer", "Writer")) else SCHEDULING
    if thread.startswith("rdk:"):
        return CLIENT
    return REST if thread.startswith("python") else POOLS


@contextmanager
def patched(settings: dict[str, str]) -> Iterator[None]:
    """With these environment variables."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class ApartFk(Parts, Ours): ...


class ApartJoined(Parts, OursJoined): ...


class ApartAggregated(Parts, OursAggregated): ...


class Apart:
    """Takes the times of a run, then the limits on its topics. Mixed into a `Bench`."""

    name = ""
    runs: list[dict[str, float]]
    limits: list[dict[str, float]]

    def timed(self, running: Any, produce: Any, results: str) -> dict[str, float]:
        took: dict[str, float] = super().timed(running, produce, results)  # type: ignore[misc]
        self.topics = Topics.of(results.removesuffix("-results"))
        return took

    def note(self, figure: str, side: str, value: float, **took: float) -> None:
        if took and not self._for_nothing:  # type: ignore[attr-defined]
            self.runs.append({name.removesuffix("_cpu"): seconds for name, seconds in took.items()})
            self.limits.append(limits_of(self.servers, self.topics, WORK[self.name]))  # type: ignore[attr-defined]
        super().note(figure, side, value, **took)  # type: ignore[misc]

    def of(self, name: str) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
        """Core-seconds of the parts of each run, and the limits."""
        self.name = name
        self.runs: list[dict[str, float]] = []
        self.limits: list[dict[str, float]] = []
        self.work(name)
        return self.runs, self.limits

    def work(self, name: str) -> None:
        raise NotImplementedError


class FkApart(Apart, Bench):
    def side(self, name: str, prefix: str, warm: Topics) -> AbstractContextManager[Any]:
        how = name.removeprefix("crossstream-")
        return ApartFk(self.servers, prefix, Topics.of(prefix), functions=how, warm_up=warm)

    def work(self, name: str) -> None:
        FIGURES[name.removeprefix("fk ")](self)


class JoinsApart(Apart, JoinBench):
    def side(self, name: str, prefix: str, warm: Topics) -> AbstractContextManager[Any]:
        how = self.workload.how(name.removeprefix("crossstream-"))
        return ApartJoined(self.servers, prefix, Topics.of(prefix), functions=how, warm_up=warm)

    def work(self, name: str) -> None:
        self.measure(name)


class CountApart(Apart, AggregateBench):
    def side(self, name: str, prefix: str, warm: Topics) -> AbstractContextManager[Any]:
        return ApartAggregated(self.servers, prefix, Topics.of(prefix), functions="count", warm_up=warm)

    def work(self, name: str) -> None:
        self.measure(name)


BENCHES = {"fk left": FkApart, "fk fan-out": FkApart, "count": CountApart}


def measured(name: str, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Core-seconds of each part for a million records, and its limit, medians of the rounds."""
    kind, sides = BENCHES.get(name, JoinsApart), [f"crossstream-{arguments.functions}"]
    scale: Any = scaled_sizes(arguments.scale) if kind is FkApart else arguments.scale
    with closing(kind(scale, arguments.port, arguments.rounds, sides)) as bench:
        runs, limits = bench.of(name)
        records = WORK[name].records(bench)
    found = {}
    for part in (*PHASES, *OTHERS, "broker"):
        spent = median(run[part] for run in runs) * 1e6 / records
        least = [limit[part] for limit in limits if part in limit]
        found[part] = [spent, median(least) if least else float("nan")]
    return found


def body(figures: dict[str, dict[str, list[float]]], arguments: argparse.Namespace) -> str:
    """The tables, one for each application."""
    rows = []
    for part in (*PHASES, *OTHERS, "broker"):
        cells = [
            f"{shown(spent)} ({shown(least)})" for spent, least in (one[part] for one in figures.values())
        ]
        rows.append([part, *(cell.removesuffix(" (–)") for cell in cells)])
    rows.append(["all", *(shown(sum(spent for spent, _ in one.values())) for one in figures.values())])
    head = ["core-seconds per million", *figures]
    command = f"`crossstream bench where --rounds {arguments.rounds} --scale {arguments.scale:g}`"
    return f"{command}, {arguments.functions}; in brackets the limit.\n\n{report.table(head, rows)}"


def shown(seconds: float) -> str:
    return "–" if math.isnan(seconds) else f"{max(seconds, 0):.2f}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench where", description=__doc__)
    parser.add_argument("applications", nargs="*", default=list(WORK), help=f"of {', '.join(WORK)}")
    parser.add_argument("--functions", default="expressions", help="or callables (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--port", type=int, default=19892)
    parser.add_argument("--write", action="store_true", help="into RESULTS.md and docs/where-time-goes.md")
    arguments = parser.parse_args(argv)
    print(json.dumps(machine()), flush=True)
    figures = {name: measured(name, arguments) for name in arguments.applications}
    text = body(figures, arguments)
    print(text)
    if arguments.write:
        report.section(HEADING, text)
        report.section(HEADING, text, PAGE)
        parts = {part: {name: one[part][0] for name, one in figures.items()} for part in (*PHASES, *OTHERS)}
        report.bars("where", "Where a batch's time goes", parts, "core-seconds per million records")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
