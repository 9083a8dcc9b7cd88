"""`crossstream bench tpch`: six queries of TPC-H, kept up to date while all their tables change; beside their peers.

Each run has topics of its own: the snapshot comes first, then some changes that are not counted, then those that are,
which become visible at once (a transaction). The clock runs until the last result is there. Each time the result is
compared with DuckDB's on the same tables, whole. Sides alternate.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import psutil  # type: ignore[import-untyped]

from benchmarks.data import START_MS
from benchmarks.fk import held, machine
from benchmarks.generate import Sending, create_more
from benchmarks.tpch import figures
from benchmarks.tpch.changes import Scenario, scenario
from benchmarks.tpch.data import Change, applied, generated, snapshot
from benchmarks.tpch.sides import SIDES, Side, runnable, side_of
from benchmarks.tpch.sql import SQL, expected
from crossstream.dev import broker

PARTITIONS = 4
SCALE_FACTOR = 0.1
FIRST, COUNTED = 40_000, 200_000
"""Changes of all tables that are not counted, and that are, at full size."""


@dataclass(frozen=True)
class Day:
    """The changes of a run, and what each query gives after the snapshot, the first changes and the counted ones."""

    scenario: Scenario

    @cached_property
    def tables(self) -> list[Mapping[str, pl.DataFrame]]:
        after = [self.scenario.first]
        for part in self.scenario.parts:
            after.append(applied(after[-1], part))
        return after

    def parts(self, query: str) -> list[list[Change]]:
        """Snapshot, first and counted changes of the tables that the query reads."""
        return [
            [change for change in part if change.table in SQL[query].tables]
            for part in (snapshot(self.scenario.first), *self.scenario.parts)
        ]

    def sizes(self) -> str:
        """What there is, and what changes, in words."""
        first, (_, counted) = self.tables[0], self.scenario.parts
        changes = sum(len(change.rows) for change in counted)
        gone = sum(int(change.rows["gone"].sum()) for change in counted)
        return (
            f"{len(first['orders']):,} orders with {len(first['lineitem']):,} lines, JSON with all columns, "
            f"{PARTITIONS} partitions; then {changes:,} changes of all tables, of which {gone:,} are deletes. "
            "A query reads its own tables."
        )

    def results(self, query: str) -> list[pl.DataFrame]:
        return [expected(query, tables) for tables in self.tables]


class TpchBench:
    """One broker, and runs against it."""

    def __init__(self, scale: float, port: int) -> None:
        self.day = Day(scenario(generated(SCALE_FACTOR * scale), (int(FIRST * scale), int(COUNTED * scale))))
        self.info = broker.start(port, Path(tempfile.mkdtemp(prefix="crossstream-bench-broker-")))
        self.servers = self.info.bootstrap_servers
        self.stamp = f"{int(time.time()) % 1_000_000}"
        self.runs = 0
        self.lines: list[dict[str, Any]] = []

    def close(self) -> None:
        broker.stop(self.info.port)

    def broker_cpu(self) -> float:
        times = psutil.Process(self.info.pid).cpu_times()
        return float(times.user + times.system)

    def measure(self, query: str, sides: Sequence[str], rounds: int) -> None:
        results = self.day.results(query)
        if any(after.equals(before) for before, after in pairwise(results)):
            print(f"without {query}: its result does not change at this scale", flush=True)
            return
        for number in range(rounds):
            for name in sides[:: -1 if number % 2 else 1]:
                self.run(query, name, results, number)

    def run(self, query: str, name: str, results: Sequence[pl.DataFrame], number: int) -> None:
        """One side on one query, from an empty state to the last result."""
        self.runs += 1
        prefix = f"tpch-{query}-{self.stamp}-{self.runs}"
        create_more(self.servers, [f"{prefix}-{table}" for table in SQL[query].tables], PARTITIONS)
        create_more(self.servers, [f"{prefix}-results"], PARTITIONS, append_time=True)
        first, *parts = self.day.parts(query)
        self.send(prefix, first, START_MS)
        with side_of(name, self.servers, prefix, query, PARTITIONS) as side:
            began = time.time()
            side.settle(results[0])
            line: dict[str, Any] = {"query": query, "side": name, "round": number}
            line["snapshot"] = round(time.time() - began, 1)
            for part, wanted in zip(parts, results[1:], strict=True):
                took = self.timed(side, prefix, part, wanted)
        count = sum(len(change.rows) for change in parts[-1])
        line |= {"changes": count, "per second": round(count / took["seconds"])}
        cores = took["side_cpu"] + took["broker_cpu"]
        line["core-seconds per million"] = round(cores * 1_000_000 / count, 2)
        line |= {name: round(value, 2) for name, value in took.items()}
        self.lines.append(line)
        print(json.dumps(line), flush=True)

    def timed(self, side: Side, prefix: str, part: list[Change], wanted: pl.DataFrame) -> dict[str, float]:
        """Seconds from the moment the changes are visible to the last result; core-seconds of side and broker."""
        with held(side):
            visible = self.send(prefix, part, START_MS + 86_400_000, at_once=True)
        before, broker_before = side.cpu(), self.broker_cpu()
        spent = {"side_cpu": 0.0, "broker_cpu": 0.0}

        def note() -> None:
            spent.update(side_cpu=side.cpu() - before, broker_cpu=self.broker_cpu() - broker_before)

        last = side.settle(wanted, note)
        return {"seconds": last - visible, **spent}

    def send(self, prefix: str, part: list[Change], start_ms: int, at_once: bool = False) -> float:
        """Sends the changes; when they could be read."""
        with Sending(self.servers, prefix, at_once) as sending:
            for change in part:
                sending.send(f"{prefix}-{change.table}", change.messages(start_ms))
        return sending.visible


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench tpch", description=__doc__)
    parser.add_argument("queries", nargs="*", default=list(SQL), help=f"of {', '.join(SQL)}")
    parser.add_argument("--sides", default=",".join(SIDES), help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, alternating")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--port", type=int, default=19692)
    parser.add_argument("--write", action="store_true", help="writes the results and their picture")
    arguments = parser.parse_args(argv)
    sides = runnable(arguments.sides.split(","))
    print(json.dumps(machine()), flush=True)
    with closing(TpchBench(arguments.scale, arguments.port)) as bench:
        for query in arguments.queries:
            bench.measure(query, sides, arguments.rounds)
        for line in figures.summary(bench.lines):
            print(json.dumps(line), flush=True)
        if arguments.write:
            words = [*arguments.queries, "--sides", ",".join(sides), "--rounds", str(arguments.rounds)]
            command = " ".join(["crossstream bench tpch", *words, "--scale", f"{arguments.scale:g}"])
            figures.write(bench.lines, command, bench.day.sizes())
    return 0
