"""`crossstream bench lakes`: the foreign-key join of two Delta tables, beside Kafka, and by hand on Spark.

Orders and customers are Delta tables with a change feed, and topics with the same records in JSON. All sides run at
once, each with two cores, and work in turn; a side that has nothing to do waits. ``snapshot``: both tables as they are
first. ``commits``: then one commit after the other, the next one when all sides have the last one in their results.
``backlog``: all other commits, at once. The clock runs from the moment that the records are visible until the side says
that its results are written. Each side keeps its result in a Delta table, those of ours whose names end in ``kept`` in
a store alone; in the end its rows must be those of the join of both tables at their last version. Sides are warmed up
by another, smaller lake.

``memory`` is apart: how much the memory of crossstream's driver grows while it takes a large snapshot.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import psutil  # type: ignore[import-untyped]

from benchmarks import lakes_memory
from benchmarks.data import START_MS, Message
from benchmarks.fk import machine
from benchmarks.generate import Sending, Topics, create
from benchmarks.lakes_data import DELETED, Change, Data, Lake, LakeSizes
from benchmarks.lakes_sides import SIDES, Side
from benchmarks.peers import delta_spark
from benchmarks.waiting import PARTITIONS
from crossstream.dev import broker

ONE_BY_ONE = 20
WARM = 0.05
"""The share of the sizes that the sides are warmed up with."""
CHUNK = 20_000


@dataclass(slots=True)
class Feed:
    """A lake and the topics with the same records, which become visible together."""

    lake: Lake
    servers: str | None
    """Of Kafka; None: no side reads topics."""
    prefix: str
    left: Iterator[list[Change]] = field(init=False)
    _sent: int = 0

    def start(self) -> int:
        """The first rows of both tables. Returns how many."""
        data = Data(self.lake.sizes)
        first = list(data.first())
        self.left = data.commits()
        if self.servers is not None:
            create(self.servers, Topics.of(self.prefix), PARTITIONS)
            self._send(first)
        return sum(len(change.rows) for change in first)

    def show(self, steps: int) -> int:
        """The next commits. Returns the number of changes."""
        if self.servers is not None:
            self._send([change for _ in range(steps) for change in next(self.left, ())])
        return self.lake.show(steps)

    def _send(self, changes: list[Change]) -> None:
        assert self.servers is not None
        with Sending(self.servers, self.prefix, at_once=True) as sending:
            for change in changes:
                sending.send(f"{self.prefix}-{change.table}", messages_of(change, START_MS + self._sent))
                self._sent += len(change.rows)


def messages_of(change: Change, start_ms: int) -> Iterator[list[Message]]:
    """The rows of a commit as records of JSON, one a ms."""
    names = [name for name in change.rows.columns if name not in ("id", DELETED)]
    value = pl.when(~pl.col(DELETED)).then(pl.struct(names).struct.json_encode())
    for part in change.rows.select("id", value.alias("value")).iter_slices(CHUNK):
        yield [
            (key.encode(), None if text is None else text.encode(), start_ms + place)
            for place, (key, text) in enumerate(part.iter_rows())
        ]
        start_ms += len(part)


class LakesBench:
    """One broker, and all sides at once against it."""

    def __init__(self, sizes: LakeSizes, folder: Path, port: int, sides: Sequence[str]) -> None:
        self.sizes, self.folder, self.sides = sizes, folder, sides
        self.stamp = f"{int(time.time()) % 1_000_000}"
        self.port = port
        self.info: Any = None

    def __enter__(self) -> LakesBench:
        if any(SIDES[side].reads_topics for side in self.sides):
            self.info = broker.start(self.port, Path(tempfile.mkdtemp(prefix="crossstream-bench-broker-")))
        return self

    def __exit__(self, *_: object) -> None:
        if self.info is not None:
            broker.stop(self.port)

    @property
    def servers(self) -> str | None:
        return None if self.info is None else self.info.bootstrap_servers

    def feed(self, name: str, sizes: LakeSizes) -> Feed:
        lake = Lake.kept(self.folder / name, sizes)
        return Feed(lake, self.servers, f"lakes-{self.stamp}-{time.monotonic_ns()}")

    def run(self, one_by_one: int) -> None:
        """One round: all sides from the snapshot to the last commit."""
        with tempfile.TemporaryDirectory(prefix="crossstream-bench-") as scratch, ExitStack() as stack:
            sides = [
                stack.enter_context(Side(SIDES[name], self.servers, Path(scratch))) for name in self.sides
            ]
            warm = self.feed("warm", replace(self.sizes.scaled(WARM), commits=6, every=3))
            warm.start()
            with opened(sides, warm, "warm"):
                for steps in (0, 1, 1, 1, 3):
                    warm.show(steps)
                    for side in sides:
                        side.go()
            feed = self.feed("lake", self.sizes)
            rows = feed.start()
            with opened(sides, feed, "lake"):
                self.measure(sides, feed, rows, one_by_one)
            self.compare(sides, feed.lake)

    def measure(self, sides: Sequence[Side], feed: Feed, rows: int, one_by_one: int) -> None:
        """Every second commit the last side is the first."""
        for side in sides:
            self.note("snapshot", side.name, [(rows, *self.timed(side))])
        took: dict[str, list[tuple[int, float, float]]] = {side.name: [] for side in sides}
        for number in range(min(one_by_one, self.sizes.commits)):
            changes = feed.show(1)
            for side in sides[:: -1 if number % 2 else 1]:
                took[side.name].append((changes, *self.timed(side)))
        for side in sides:
            self.note("commits one by one", side.name, took[side.name])
        if changes := feed.show(self.sizes.commits):
            for side in sides:
                self.note("backlog", side.name, [(changes, *self.timed(side))])

    def timed(self, side: Side) -> tuple[float, float]:
        """Seconds, and core-seconds of the side and of the broker if the side reads from it."""
        before = side.core_seconds() + self.broker_seconds(side)
        seconds = side.go()
        return seconds, side.core_seconds() + self.broker_seconds(side) - before

    def broker_seconds(self, side: Side) -> float:
        if not side.kind.reads_topics:
            return 0.0
        times = psutil.Process(self.info.pid).cpu_times()
        return float(times.user + times.system)

    def note(self, figure: str, side: str, took: Sequence[tuple[int, float, float]]) -> None:
        """Rows or changes a second of the median turn, and core-seconds a million of them in all turns."""
        if not took:
            return
        rate = statistics.median(rows / seconds for rows, seconds, _ in took)
        rows, cores = sum(one[0] for one in took), sum(one[2] for one in took)
        line = {"figure": figure, "side": side, "per second": round(rate), "turns": len(took)}
        line["seconds"] = round(sum(one[1] for one in took), 2)
        line["core-seconds per million"] = round(cores * 1_000_000 / rows, 1)
        print(json.dumps(line), flush=True)

    def compare(self, sides: Sequence[Side], lake: Lake) -> None:
        wanted = lake.joined()
        for side in sides:
            found = side.rows().select(wanted.columns).sort("id")
            if not found.equals(wanted):
                only = wanted.join(found, on=wanted.columns, how="anti", nulls_equal=True)
                raise AssertionError(
                    f"{side.name}: {len(found)} rows, not the {len(wanted)} wanted; it lacks {only}"
                )
        print(json.dumps({"results": "equal", "rows": len(wanted)}), flush=True)


@contextmanager
def opened(sides: Sequence[Side], feed: Feed, name: str) -> Iterator[None]:
    """The sides on this feed. The topics must be there when they are opened."""
    for side in sides:
        side.open(name, side.kind.sources(feed.lake, feed.prefix))
    try:
        yield
    finally:
        for side in sides:
            side.close()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench lakes", description=__doc__)
    parser.add_argument("figures", nargs="*", default=["join", "memory"], help="of join, memory")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rounds", type=int, default=1, help="runs, all sides from the start again")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--one-by-one", type=int, default=ONE_BY_ONE, help="commits before the backlog")
    parser.add_argument("--folder", type=Path, help="keeps the lake there for the next run")
    parser.add_argument("--port", type=int, default=19294)
    arguments = parser.parse_args(argv)
    names = arguments.sides.split(",")
    by_hand = {"merge-by-hand": f"PySpark {delta_spark.PYSPARK}, Delta Lake {delta_spark.DELTA}"}
    print(json.dumps({**machine(), **by_hand}), flush=True)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="crossstream-bench-lake-"))
    try:
        if "join" in arguments.figures:
            sizes = LakeSizes().scaled(arguments.scale)
            with LakesBench(sizes, folder, arguments.port, names) as bench:
                for _ in range(arguments.rounds):
                    bench.run(arguments.one_by_one)
        if "memory" in arguments.figures:
            lakes_memory.measure(folder, arguments.scale)
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
