"""`crossstream bench size`: what a batch, a start, a merge and a rescaling cost by the rows that the state has.

Events are counted by key (`count`), and orders joined with their customers by foreign key (`fk`), on file topics. The
application reads the first row of each key, and so fills its state by itself. Then, in each of three starts:

start     seconds from a ready session to the first committed batch, which is of one record
batch     a batch of 20,000 records of random keys: core-seconds of driver, JVM and workers, bytes written to the disk
          and read from it, bytes resident in the largest worker

and once for each filled state, in a process of its own: opening all partitions, a batch of 20,000 rows for each store
with the merging that it pays for, the cut into one more state partition, and a sum over the rows of the store, which
has to be that of the records. ``crossstream@CHECKOUT`` is the version of another checkout.

A row of `count` takes about 150 bytes of the disk with its records, at most, and one of `fk` 400. Of 100,000,000 rows:
20 GB, and about ten minutes. More than 10,000,000 are measured once, whatever ``--rounds`` says.
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
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa

from benchmarks.data import START_MS
from benchmarks.fk import machine
from benchmarks.generate import Topics
from benchmarks.ours import ROOT, Ours
from benchmarks.report import section, table
from benchmarks.size_app import OursOfSize
from benchmarks.size_probe import KEY, VALUE
from benchmarks.state import wait_for_rows
from benchmarks.waiting import PARTITIONS
from crossstream.filetopics import FileTopics

SIDE = "crossstream"
SIZES = (1_000_000, 10_000_000, 100_000_000)
ONCE = 10_000_000
"""More rows than that are measured once."""
STORES = {"count": ("key-value", "value"), "fk": ("references", "reference")}
"""Kind and column of the store that is compared."""
CUSTOMERS = 100_000
BATCH = 20_000
WARM = 4
"""Batches of each start that do not count."""
CHUNK = 500_000
MIB = 1 << 20

Figures = dict[str, float]


@dataclass(slots=True)
class World:
    """The topics and the state of one application. ``last``: by key how often it came (`count`), or its customer."""

    work: str
    rows: int
    folder: Path
    last: np.ndarray = field(init=False)
    sent: int = 0

    def __post_init__(self) -> None:
        self.last = np.zeros(self.rows, np.int64)
        log = FileTopics(str(self.folder / "topics"), durable=False).log()
        for topic in (self.topics.orders, self.topics.customers, self.topics.results):
            log.create_topic(topic, PARTITIONS)
        log.close()

    @property
    def topics(self) -> Topics:
        return Topics.of("size")

    @property
    def customers(self) -> int:
        return min(CUSTOMERS, self.rows)

    def send(self, topic: str, chunks: Iterator[pa.RecordBatch]) -> None:
        writer = FileTopics(str(self.folder / "topics"), durable=False).writer()
        for chunk in chunks:
            writer.write(topic, chunk)
            self.sent += chunk.num_rows
        writer.flush()
        writer.close()

    def fill(self) -> None:
        """The first record of each key."""
        if self.work == "fk":
            self.send(self.topics.customers, self._customers())
        rng = np.random.default_rng(1)
        for first in range(0, self.rows, 10 * CHUNK):
            keys = np.arange(first, min(first + 10 * CHUNK, self.rows))
            self.send(self.topics.orders, self._orders(keys, rng))

    def update(self, rows: int, seed: int) -> None:
        """Records of random keys."""
        rng = np.random.default_rng(seed)
        self.send(self.topics.orders, self._orders(rng.integers(0, self.rows, rows), rng))

    def expected(self) -> dict[str, Any]:
        """What `size_probe` finds of the store when all records are counted or joined."""
        keys = np.arange(self.rows, dtype=np.uint64)
        total = (keys * KEY ^ self.last.astype(np.uint64) * VALUE).sum(dtype=np.uint64)
        return {"rows": self.rows, "sum": str(total)}

    def _customers(self) -> Iterator[pa.RecordBatch]:
        values = [b'{"name":"Customer %07d"}' % number for number in range(self.customers)]
        yield records(np.arange(self.customers), pa.array(values, pa.large_binary()))

    def _orders(self, keys: np.ndarray, rng: np.random.Generator) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(keys), CHUNK):
            part = keys[start : start + CHUNK]
            if self.work == "count":
                np.add.at(self.last, part, 1)
                yield records(part, numbers(part))
            else:
                refers = rng.integers(0, self.customers, len(part))
                self.last[part] = refers  # of a key that comes twice the last one stays
                values = [b'{"customer":%d}' % customer for customer in refers.tolist()]
                yield records(part, pa.array(values, pa.large_binary()))


def numbers(values: np.ndarray) -> pa.Array:
    """Numbers as bytes, the highest first."""
    ends = np.arange(len(values) + 1, dtype=np.int64) * 8
    content = np.ascontiguousarray(values.astype(">i8"))
    return pa.Array.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(content)]
    )


def records(keys: np.ndarray, values: pa.Array) -> pa.RecordBatch:
    columns = [
        numbers(keys),
        values,
        pa.array(np.full(len(keys), START_MS)),
        pa.nulls(len(keys), pa.large_binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "timestamp", "headers"])


def measure(side: str, work: str, rows: int, batches: int, starts: int) -> Figures:
    """The figures of one filled state."""
    folder = Path(tempfile.mkdtemp(prefix="crossstream-bench-size-"))
    world, found = World(work, rows, folder), {"rows": float(rows)}
    try:
        world.fill()
        with running(side, world) as app:
            wait_for_rows(app, world.sent)
            found["core-seconds to fill"] = sum(app.cpu_parts().values())
        starting = [_started(side, world, batches, seed) for seed in range(starts)]
        found |= {name: statistics.median(one[name] for one in starting) for name in starting[0]}
        found |= _probed(side, world)
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def running(side: str, world: World) -> Ours:
    checkout = side.partition("@")[2]
    return OursOfSize(
        "",
        f"size-{world.work}",
        world.topics,
        functions=world.work + (f"@{checkout}" if checkout else ""),
        topics_dir=world.folder / "topics",
        state_dir=world.folder / "state",
        patience=3600,
    )


def _started(side: str, world: World, batches: int, seed: int) -> Figures:
    """A start, and batches after it."""
    world.update(1, 100 + seed)
    with running(side, world) as app:
        wait_for_rows(app, 1)
        rows, before, used, disk = 1, 0, Figures(), Figures()
        for number in range(WARM + batches):
            if number == WARM:
                before, used, disk = len(app.batches), app.cpu_parts(), _disk(app)
            world.update(BATCH, 1_000 * (seed + 1) + number)
            rows += BATCH
            wait_for_rows(app, rows)
            time.sleep(0.2)
        now, moved = app.cpu_parts(), _disk(app)
        return {
            "seconds of a start": app.batches[0]["since_start"],
            "core-seconds of a batch": sum(now[part] - used[part] for part in now) / batches,
            "in the workers": (now["workers"] - used["workers"]) / batches,
            "seconds of a batch": sum(batch["seconds"] for batch in app.batches[before:]) / batches,
            "MiB written": (moved["written"] - disk["written"]) / batches / MIB,
            "MiB read": (moved["read"] - disk["read"]) / batches / MIB,
            "MiB resident": app.resident() / MIB,
        }


def _disk(app: Ours) -> Figures:
    """Bytes written and read by the application so far: handed to the system, and fetched from the disk."""
    total = {"written": 0.0, "read": 0.0}
    for process in app.processes():
        with suppress(psutil.Error):
            counted = process.io_counters()
            total["written"] += counted.write_chars
            total["read"] += counted.read_bytes
    return total


def _probed(side: str, world: World) -> Figures:
    """What the state costs in a process of its own; the rows are those of the records before and after the cut."""
    state = world.folder / "state"
    opened, merged = probe(side, "open", state), probe(side, "merge", state)
    compare(side, world, state)
    cut = probe(side, "rescale", state, "3")
    compare(side, world, state)
    return {
        "MiB of state": opened["bytes"] / MIB,
        "runs": opened["runs"],
        "files": opened["files"],
        "core-seconds to open": opened["cores"],
        "core-milliseconds of merging": merged["mean"],
        "at most": merged["most"],
        "MiB merged": merged["bytes"] / MIB,
        "seconds of a rescaling": cut["seconds"],
        "core-seconds of a rescaling": cut["cores"],
        "MiB rescaled": cut["bytes"] / MIB,
    }


def compare(side: str, world: World, state: Path) -> None:
    """Raises if the store has not the rows that the records make."""
    found = probe(side, "rows", state, *STORES[world.work])
    wanted = world.expected()
    if {name: found[name] for name in wanted} != wanted:
        raise AssertionError(f"{side}: {world.work} over {world.rows} rows: {found}, and not {wanted}")


def probe(side: str, what: str, *arguments: object) -> dict[str, Any]:
    """Runs `size_probe` with the package of a side."""
    checkout = side.partition("@")[2]
    paths = [f"{checkout or ROOT}/src", str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.size_probe", what, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


SHOWN = (
    "runs",
    "files",
    "core-seconds of a batch",
    "in the workers",
    "seconds of a batch",
    "MiB written",
    "MiB read",
    "MiB resident",
    "seconds of a start",
    "core-seconds to open",
    "core-milliseconds of merging",
    "at most",
    "seconds of a rescaling",
    "MiB rescaled",
)


def report(figures: dict[tuple[str, str, int], Figures], command: str) -> str:
    """The section of the results: a table, and what a batch costs by the size of the state."""
    head = ["", "", "rows", *SHOWN]
    rows = [
        [work, side.partition("@")[0] + ("@before" if "@" in side else ""), f"{size:,}", *map(_short, shown)]
        for (work, side, size), found in figures.items()
        for shown in [[found[name] for name in SHOWN]]
    ]
    ratios = "; ".join(f"{what}: {ratio:.2f}" for what, ratio in growth(figures).items())
    return f"`{command}`\n\n{table(head, rows)}\n\nCore-seconds of a batch, against the smallest state: {ratios}."


def growth(figures: dict[tuple[str, str, int], Figures]) -> dict[str, float]:
    """How many times the core-seconds of a batch over the smallest state a batch costs."""
    cost = {of: found["core-seconds of a batch"] for of, found in figures.items()}
    least = {
        (work, side): min(size for w, s, size in cost if (w, s) == (work, side)) for work, side, _ in cost
    }
    return {
        f"{work} {size:,}, {side.partition('@')[0]}{'@before' if '@' in side else ''}": cost[work, side, size]
        / cost[work, side, least[work, side]]
        for work, side, size in cost
        if size != least[work, side]
    }


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench size", description=__doc__)
    parser.add_argument("works", nargs="*", default=["count", "fk"], help="count, fk")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="rows of the state")
    parser.add_argument("--most", default="fk=10000000", help="rows that a work is measured with at most")
    parser.add_argument(
        "--sides", default=SIDE, help="crossstream@CHECKOUT is the version of another checkout"
    )
    parser.add_argument("--batches", type=int, default=20, help="batches that count, of each start")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument(
        "--rounds", type=int, default=3, help="states that are filled for each side, alternating"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the sizes")
    parser.add_argument("--write", action="store_true", help="writes the section of the results")
    given = parser.parse_args(argv)
    most = dict(pair.split("=") for pair in given.most.split(",") if pair)
    print(json.dumps(machine()), flush=True)
    figures: dict[tuple[str, str, int], Figures] = {}
    for work in given.works:
        for size in map(int, given.sizes.split(",")):
            if size > int(most.get(work, size)):
                continue
            taken: dict[str, list[Figures]] = {side: [] for side in given.sides.split(",")}
            for _ in range(given.rounds if size <= ONCE else 1):
                for side, all_ in taken.items():
                    all_.append(measure(side, work, int(size * given.scale), given.batches, given.starts))
                    print(json.dumps({"work": work, "side": side, **all_[-1]}), flush=True)
            for side, all_ in taken.items():
                medians = {name: statistics.median(one[name] for one in all_) for name in all_[0]}
                figures[work, side, int(size * given.scale)] = medians
    body = report(figures, f"crossstream bench size {' '.join(argv or [])}".strip())
    print(body)
    if given.write:
        section("The size of the state", body)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
