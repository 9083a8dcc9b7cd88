"""Processor time of the operators of a join of many and of a chain of joins: no Spark, no Kafka, two partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import crossstream as cs
from benchmarks.data import START_MS, Message
from benchmarks.generate import Topics
from benchmarks.join_many_app import TABLES, joined
from benchmarks.star_data import Star, order_updates, rows_of

BATCH = 50_000
WAYS = ("many", "chain")


@dataclass(slots=True)
class Spent:
    """Processor seconds, records in, results out."""

    seconds: float = 0.0
    records: int = 0
    results: int = 0


@dataclass
class Engine:
    """A topology in the driver; ``spent`` by what was done."""

    how: str
    spent: dict[str, Spent] = field(default_factory=dict)

    def __post_init__(self) -> None:
        topology = joined(Topics.of("x"), self.how)
        self.driver = cs.TopologyTestDriver(topology, partitions=2, commit_every=10**9)

    def run(self, what: str, table: str, messages: list[Message]) -> None:
        """One batch."""
        keys, values, times = zip(*messages, strict=True)
        records = [
            pa.array(keys, pa.large_binary()),
            pa.array(values, pa.large_binary()),
            pa.array(times, pa.int64()),
        ]
        rows = pa.RecordBatch.from_arrays(
            [*records, pa.nulls(len(keys), pa.large_binary())], names=["key", "value", "timestamp", "headers"]
        )
        self.driver._pipe(f"x-{table}", rows, None)
        before = time.process_time()
        self.driver.commit()
        spent = self.spent.setdefault(what, Spent())
        spent.seconds += time.process_time() - before
        spent.records += len(messages)
        written = self.driver._output.written
        spent.results += sum(part.num_rows for part in written.pop("x-results", []))


def measure(scale: float = 1.0) -> Iterator[dict[str, Any]]:
    """Microseconds of processor time by what was done, both ways; the results must be as many."""
    star = Star(*(int(rows * scale) for rows in (200_000, 40_000, 8_000, 400)))
    for how in WAYS:
        run(how, Star(2_000, 400, 80, 4))  # what is loaded and made once belongs to neither
    ways = {how: run(how, star) for how in WAYS}
    for what, many in ways["many"].spent.items():
        chain = ways["chain"].spent[what]
        assert many.results == chain.results, (what, many, chain)
        per = "result" if what.startswith("new") else "record"
        count = many.results if per == "result" else many.records
        yield {
            "figure": f"microseconds of processor time per {per}: {what}",
            "join_many": round(many.seconds / count * 1e6, 2),
            "chain": round(chain.seconds / count * 1e6, 2),
            "times": round(chain.seconds / many.seconds, 2),
        }


def run(how: str, star: Star) -> Engine:
    engine = Engine(how)
    for table in TABLES.values():
        engine.run("right rows, before any order", table, rows_of(table, range(star.rows(table)), 1))
    messages = [m for chunk in order_updates(star, 2 * star.orders, 1, START_MS) for m in chunk]
    for first in range(0, len(messages), BATCH):
        what = "orders, new and changed" if first < star.orders else "orders, mostly changed"
        engine.run(what, "orders", messages[first : first + BATCH])
    for seed, table in enumerate(TABLES.values(), 10):
        chosen = np.random.default_rng(seed).permutation(star.rows(table))[: star.rows(table) // 4]
        engine.run(f"new {table}", table, rows_of(table, sorted(chosen.tolist()), seed))
    engine.driver.close()
    return engine
