"""The application of `crossstream bench hot`, run as a program: one batch after the other, each task timed.

It processes what there is whenever a line comes in, and prints what that took: core-seconds of the process, those of
each task by round, the most memory that it had of its own, and the results that it wrote.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

import crossstream as cs
from benchmarks.ours import Customer, Order
from crossstream.runtime import one_by_one, worker

_LOOK_SECONDS = 0.02


def joined() -> cs.Topology:
    """Orders with their customers."""
    left, right = pl.col("left").struct, pl.col("right").struct
    bill = pl.struct(
        item=left.field("item"),
        amount=left.field("amount"),
        customer=right.field("name"),
        city=right.field("city"),
    )
    builder = cs.StreamsBuilder()
    orders = builder.table("orders", value=Order)
    customers = builder.table("customers", value=Customer)
    orders.join(customers, bill, foreign_key="customer_id").to("results")
    return builder.build()


def windowed() -> cs.Topology:
    """What came in each hour: orders, what they are worth, the largest and the smallest one, by customer."""
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", value=Order)
    hours = orders.group_by("customer_id").windowed_by(cs.TimeWindows(size="1 hour"))
    amount = pl.col("quantity")
    hours.agg(
        orders=cs.agg.count(), quantity=cs.agg.sum(amount), least=cs.agg.min(amount), most=cs.agg.max(amount)
    ).to_stream().to("results")
    return builder.build()


class Timed:
    """Core-seconds of the tasks of each round after the first."""

    def __init__(self) -> None:
        self.tasks: dict[int, dict[int, float]] = {}
        self._run = worker.later_round
        vars(one_by_one)["later_round"] = self._timed

    def _timed(self, state: Any, plan: Any, batch: Any, number: int, pid: int, blocks: Any) -> Iterator[Any]:
        began = time.process_time()
        yield from self._run(state, plan, batch, number, pid, blocks)
        tasks = self.tasks.setdefault(number, {})
        tasks[pid] = tasks.get(pid, 0.0) + time.process_time() - began


class Peak:
    """The most MiB that the process had of its own, not of files that it maps."""

    def __init__(self) -> None:
        self.most = 0.0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    self.most = max(self.most, int(line.split()[1]) / 1024)
            time.sleep(_LOOK_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("topology", choices=("joined", "windowed"))
    parser.add_argument("partitions", type=int)
    given = parser.parse_args()
    config = cs.StreamsConfig(
        application_id="bench-hot",
        topics_dir=given.folder / "topics",
        state_dir=given.folder / "state",
        engine="local",
        partitions=given.partitions,
        single_task_rows=0,
        durable=False,
        max_records_per_batch=500_000,
    )
    timed, peak = Timed(), Peak()
    with cs.SparkStreams({"joined": joined, "windowed": windowed}[given.topology](), config) as app:
        for _ in sys.stdin:
            timed.tasks.clear()
            peak.most = 0.0
            began, clock = time.process_time(), time.monotonic()
            app.process_available()
            said = {
                "cores": time.process_time() - began,
                "seconds": time.monotonic() - clock,
                "tasks": {number: list(tasks.values()) for number, tasks in timed.tasks.items()},
                "peak": peak.most,
            }
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
