"""`crossstream bench hot`: keys that most rows have, beside the same work with an even load.

left      updates of orders of which nine in ten belong to one customer, and of orders that belong to all alike
fan-out   one customer with very many orders changes; then thousands, with a thousand orders each
window    a windowed aggregation in which all records have one key, and one in which they have thousands

One process runs the tasks of a batch one after the other, so that the core-seconds of each are known. `longest` is the
longest task of a round divided by the mean of its tasks. `critical` is what the batches would take if each task had a
core of its own: the longest task of each round, added up, and what is beside the tasks. The last column divides it by
that of the even load of the same round. Topics are folders, and what is written is counted and compared: all sides have
to write the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from benchmarks.fk import machine
from benchmarks.ours import ROOT
from benchmarks.report import bars, section, table
from benchmarks.state import customer_columns, records
from crossstream.filetopics import FileTopics
from crossstream.topics import OffsetRange, TopicPartition

PARTITIONS = 4
"""Of each topic."""
OURS = "crossstream"
HOT = 0.9
"""The share of the orders that belong to one customer."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; the full sizes are those of the published figures."""

    customers: int = 20_000
    orders: int = 500_000
    updates: int = 1_000_000
    referrers: int = 5_000_000
    wide: int = 5_000
    each: int = 1_000
    records: int = 2_000_000

    def scaled(self, scale: float) -> Sizes:
        def part(number: int) -> int:
            return max(1, int(number * scale))

        return Sizes(
            part(self.customers),
            part(self.orders),
            part(self.updates),
            part(self.referrers),
            part(self.wide),
            self.each,
            part(self.records),
        )


@dataclass(frozen=True, slots=True)
class Took:
    """What a piece of work took: core-seconds, those of the longest task of each round and the mean, MiB."""

    cores: float
    tasks: dict[str, list[float]]
    peak: float

    @property
    def critical(self) -> float:
        """Core-seconds, if each task had a core of its own."""
        tasks = self.tasks.values()
        return self.cores - sum(map(sum, tasks)) + sum(map(max, tasks))

    @property
    def longest(self) -> float:
        """Of the round that takes most: its longest task, divided by the mean of all."""
        most = max(self.tasks.values(), key=max)
        return max(most) / statistics.mean(most)


@dataclass(slots=True)
class Side:
    """An application of one checkout in a process of its own, with topics in a folder."""

    name: str
    topology: str
    partitions: int
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="crossstream-bench-hot-")))
    _process: subprocess.Popen[str] | None = None

    @property
    def topics(self) -> FileTopics:
        return FileTopics(str(self.folder / "topics"), durable=False)

    def start(self) -> None:
        log = self.topics.log()
        for topic in ("orders", "customers", "results"):
            log.create_topic(topic, PARTITIONS)
        log.close()
        checkout = self.name.partition("@")[2]
        source = Path(checkout or ROOT) / "src"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
        words = [str(self.folder), self.topology, str(self.partitions)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hot_app", *words],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def send(self, topic: str, chunks: Iterator[pa.RecordBatch]) -> None:
        writer = self.topics.writer()
        for chunk in chunks:
            writer.write(topic, chunk)
        writer.flush()
        writer.close()

    def run(self) -> Took:
        """Processes all there is."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the application of {self.name} ended: {process.wait()}")
        said = json.loads(line)
        return Took(said["cores"], said["tasks"], said["peak"])

    def ends(self) -> dict[TopicPartition, int]:
        places = [TopicPartition("results", number) for number in range(PARTITIONS)]
        with closing(self.topics.log()) as log:
            return dict(log.end_offsets(places))

    def written(self, since: dict[TopicPartition, int]) -> tuple[int, int]:
        """How many results have been written since, and a sum of the hashes of the last one of each key."""
        spans = [
            OffsetRange(tp.topic, tp.partition, since.get(tp, 0), end) for tp, end in self.ends().items()
        ]
        rows: dict[bytes, bytes | None] = {}
        count = 0
        for _, batch in self.topics.reader().read_many(spans, 65_536):
            count += batch.num_rows
            rows.update(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
        digest = xxhash.xxh3_64_intdigest
        return count, sum(digest(key + b"\0" + (row or b"")) for key, row in rows.items()) % (1 << 64)

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(name: str, topology: str, partitions: int) -> Iterator[Side]:
    side = Side(name, topology, partitions)
    try:
        side.start()
        yield side
    finally:
        side.stop()


def orders(
    ids: np.ndarray, customers: int, seed: int, *, hot: float = 0.0, chunk: int = 100_000
) -> Iterator[pa.RecordBatch]:
    """Rows of orders; the share ``hot`` of them belongs to the first customer, whichever order it is."""
    rng = np.random.default_rng([seed, 9])
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        refers = part % max(1, customers - 1) + 1
        refers = np.where(part % 100 < hot * 100, 0, refers)
        cents = rng.integers(100, 99_999, len(part)).tolist()
        counts = rng.integers(1, 9, len(part)).tolist()
        values = [
            b'{"customer_id":"c%07d","item":"item-00001","quantity":%d,"amount":%d.%02d,"status":"open"}'
            % (customer, count, cent // 100, cent % 100)
            for customer, count, cent in zip(refers.tolist(), counts, cents, strict=True)
        ]
        yield records([b"o%08d" % order for order in part.tolist()], values)


class Bench:
    def __init__(self, sizes: Sizes, rounds: int, sides: Sequence[str], partitions: Sequence[int]) -> None:
        self.sizes, self.rounds, self.sides, self.partitions = sizes, rounds, sides, partitions
        self.lines: list[dict[str, Any]] = []

    def left(self) -> None:
        """Updates of orders that all exist; in each round the even load beside the one with a hot key."""
        for partitions in self.partitions:
            for number in range(self.rounds):
                for side in self.sides:
                    even = self._left(side, partitions, 0.0, number)
                    self.note("left updates", side, partitions, "even", even, even)
                    hot = self._left(side, partitions, HOT, number)
                    self.note("left updates", side, partitions, "hot", hot, even)

    def _left(self, name: str, partitions: int, hot: float, seed: int) -> Took:
        sizes = self.sizes
        ids = np.arange(sizes.orders)
        with running(name, "joined", partitions) as side:
            side.send("customers", customer_columns(sizes.customers))
            side.run()
            for part in np.array_split(ids, 4):  # as a topic fills: in more than one batch
                side.send("orders", orders(part, sizes.customers, seed, hot=hot))
                side.run()
            rng = np.random.default_rng([seed, 7])
            before = side.ends()
            drawn = rng.integers(0, sizes.orders, sizes.updates)
            side.send("orders", orders(drawn, sizes.customers, seed + 100, hot=hot))
            took = side.run()
            self.same(("left", partitions, hot, seed), side.written(before))
        return took

    def fan_out(self) -> None:
        """One right row with all the orders beside as many orders of thousands."""
        sizes = self.sizes
        for partitions in self.partitions:
            for number in range(self.rounds):
                for side in self.sides:
                    even = self._fan_out(side, partitions, sizes.wide, sizes.wide * sizes.each, number)
                    self.note("fan-out", side, partitions, "even", even, even)
                    hot = self._fan_out(side, partitions, 1, sizes.referrers, number)
                    self.note("fan-out", side, partitions, "hot", hot, even)

    def _fan_out(self, name: str, partitions: int, wide: int, referrers: int, seed: int) -> Took:
        ids = np.arange(referrers)
        with running(name, "joined", partitions) as side:
            side.send("customers", customer_columns(wide + 1))
            side.run()
            for part in np.array_split(ids, max(2, referrers // 500_000)):
                side.send("orders", orders(part, wide + 1, seed))
                side.run()
            before = side.ends()
            side.send("customers", customer_columns(wide + 1))
            took = side.run()
            count, total = side.written(before)
            if count != referrers:
                raise RuntimeError(f"{name}: {count} results of {referrers}")
            self.same(("fan-out", partitions, wide, seed), (count, total))
        return took

    def window(self) -> None:
        """A windowed aggregation."""
        sizes = self.sizes
        for partitions in self.partitions:
            for number in range(self.rounds):
                for side in self.sides:
                    even = self._window(side, partitions, sizes.customers, number)
                    self.note("window", side, partitions, "even", even, even)
                    hot = self._window(side, partitions, 1, number)
                    self.note("window", side, partitions, "hot", hot, even)

    def _window(self, name: str, partitions: int, customers: int, seed: int) -> Took:
        ids = np.arange(self.sizes.records)
        with running(name, "windowed", partitions) as side:
            side.send("orders", orders(ids[:1000], customers + 1, seed))
            side.run()
            before = side.ends()
            side.send("orders", orders(ids, customers + 1, seed))
            took = side.run()
            self.same(("window", partitions, customers, seed), side.written(before))
        return took

    def same(self, what: tuple[object, ...], found: tuple[int, int]) -> None:
        """All sides write the same rows, however state is cut: the number of partitions changes nothing either."""
        key = (what[0], *what[2:])
        wanted = self._wanted.setdefault(key, found)
        if found != wanted:
            raise RuntimeError(f"{what}: {found} is not {wanted}")

    _wanted: dict[tuple[object, ...], tuple[int, int]] = {}  # noqa: RUF012

    def note(self, figure: str, side: str, partitions: int, load: str, took: Took, even: Took) -> None:
        line = {
            "figure": figure,
            "side": side,
            "partitions": partitions,
            "load": load,
            "core-seconds": round(took.cores, 2),
            "critical": round(took.critical, 2),
            "longest": round(took.longest, 2),
            "peak MiB": round(took.peak),
            "cores to even": round(took.cores / even.cores, 2),
            "critical to even": round(took.critical / even.critical, 2),
        }
        self.lines.append(line)
        print(json.dumps(line), flush=True)

    def write(self, command: str) -> None:
        """The section of the results, and its picture: medians of the rounds."""
        names = ("core-seconds", "critical", "longest", "peak MiB", "cores to even", "critical to even")
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for line in self.lines:
            at = tuple(line[name] for name in ("figure", "partitions", "load", "side"))
            found.setdefault(at, []).append(line)
        rows, groups = [], dict[str, dict[str, float]]()
        for at, lines in sorted(found.items()):
            middle = [statistics.median(line[name] for line in lines) for name in names]
            figure, partitions, load, side = at
            shown = side.partition("@")[0] + (" (before)" if "@" in side else "")
            rows.append((figure, partitions, load, shown, *middle))
            if load == "hot":
                groups.setdefault(f"{figure}, {partitions} partitions", {})[shown] = middle[-1]
        head = ("work", "partitions", "load", "side", *names)
        section("Hot keys", f"`{command}`\n\n{table(head, rows)}")
        bars("hot", "A hot key against an even load, a core for each task", groups, "times the even load")


FIGURES = {"left": Bench.left, "fan-out": Bench.fan_out, "window": Bench.window}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench hot", description=__doc__)
    parser.add_argument("figures", nargs="*", default=list(FIGURES), help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--sides", default=OURS, help="crossstream@CHECKOUT runs another checkout")
    parser.add_argument("--partitions", default="2,4,8", help="numbers of state partitions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument(
        "--write", action="store_true", help="write the section of RESULTS.md, and the picture"
    )
    given = parser.parse_args(argv)
    print(json.dumps(machine()), flush=True)
    partitions = [int(number) for number in given.partitions.split(",")]
    bench = Bench(Sizes().scaled(given.scale), given.rounds, given.sides.split(","), partitions)
    for figure in given.figures:
        FIGURES[figure](bench)
    if given.write:
        bench.write(" ".join(["crossstream bench hot", *(sys.argv[1:] if argv is None else argv)]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
