"""`crossstream bench store_table`: a store as a table of Spark, beside the same rows as Parquet.

scan      seconds of reading all columns of all rows, into Spark's noop sink
sum       seconds of counting the rows and adding a column up; the store is asked for that column only
look-up   seconds of the row of one key, by a filter that is pushed; of Parquet, too
changes   seconds of a stream's batch of 5,000 updates in process, and of what it has to read

The sides alternate in one session; rounds that only warm it up do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import crossstream as cs
from benchmarks.data import START_MS, drawn_orders, order_value
from benchmarks.fk import machine
from crossstream.filetopics import FileTopics
from crossstream.query.feed import Feed, Position
from crossstream.query.table import StoreTable
from crossstream.records import RECORDS

PARTITIONS, UPDATES, WARM = 4, 5_000, 3
TEXT = cs.serdes.string()
ORDER = cs.serdes.json(
    {
        "customer_id": pl.String,
        "item": pl.String,
        "quantity": pl.Int64,
        "amount": pl.Float64,
        "status": pl.String,
    }
)


def records_of(ids: np.ndarray, seed: int) -> pa.RecordBatch:
    """One order for each number."""
    rng = np.random.default_rng(seed)
    drawn = zip(rng.integers(0, 100_000, len(ids)).tolist(), *drawn_orders(rng, len(ids)), strict=True)
    values = [order_value(b"c%07d" % customer, *row) for customer, *row in drawn]
    keys = [b"o%07d" % one for one in ids.tolist()]
    places = np.arange(len(ids))
    columns: list[Any] = [keys, values, START_MS + places, places, [None] * len(ids)]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, RECORDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def fill(folder: Path, rows: int) -> Path:
    """The state of an application with a store of orders: all of them, then a batch of updates."""
    builder = cs.StreamsBuilder()
    builder.table("orders", cs.Consumed(key=TEXT, value=ORDER), cs.Materialized(store="orders"))
    topics = FileTopics(str(folder / "topics"))
    topics.log().create_topic("orders", PARTITIONS)
    config = cs.StreamsConfig(
        application_id="bench",
        topics_dir=topics.topics_dir,
        state_dir=str(folder / "state"),
        partitions=PARTITIONS,
        engine="local",
    )
    updated = np.random.default_rng(3).permutation(rows)[:UPDATES]
    with cs.SparkStreams(builder.build(), config) as app:
        for seed, ids in enumerate((np.arange(rows), updated)):
            writer = topics.writer()
            for start in range(0, len(ids), 100_000):
                writer.write("orders", records_of(ids[start : start + 100_000], seed * 1000 + start))
            writer.close()
            app.process_available()
    return folder / "state"


def alternating(sides: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median of each side, the first rounds left out."""
    took: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(WARM + rounds):
        for side, act in sides.items():
            begun = time.perf_counter()
            act()
            if number >= WARM:
                took[side].append(time.perf_counter() - begun)
    return {side: statistics.median(seconds) for side, seconds in took.items()}


def note(what: str, took: dict[str, float]) -> None:
    print(
        json.dumps({"what": what, **{side: round(seconds, 3) for side, seconds in took.items()}}), flush=True
    )


def measure(folder: Path, rows: int, rounds: int) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    state, parquet = fill(folder, rows), str(folder / "parquet")
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    cs.register(spark)

    def store(**options: str) -> Any:
        return spark.read.format("crossstream").options(store="orders", **options).load(str(state))

    store().write.mode("overwrite").parquet(parquet)
    noop = {
        "store": lambda: store().write.format("noop").mode("overwrite").save(),
        "parquet": lambda: spark.read.parquet(parquet).write.format("noop").mode("overwrite").save(),
    }
    note(f"scan of {rows:,} rows", alternating(noop, rounds))
    added = {
        "store": lambda: store(columns="amount").selectExpr("count(*)", "sum(amount)").collect(),
        "parquet": lambda: spark.read.parquet(parquet).selectExpr("count(*)", "sum(amount)").collect(),
    }
    note("count and sum", alternating(added, rounds))
    key = f"key = 'o{rows // 2:07}'"
    found = {
        "store": lambda: store().where(key).collect(),
        "parquet": lambda: spark.read.parquet(parquet).where(key).collect(),
    }
    note("look-up of one key", alternating(found, rounds))
    spark.stop()
    feed = Feed(StoreTable.open(state, "orders"))
    newest = feed.newest()
    between = Position(newest - 1, False, feed.state()), Position(newest, False, feed.state())

    def changes() -> None:
        seen = sum(len(one.rows["key"]) for steps in feed.plan(*between) for one in feed.read(steps))
        assert seen == min(UPDATES, rows), seen

    note(f"changes of a batch of {UPDATES:,} updates", alternating({"store": changes}, rounds))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="crossstream bench store_table", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args(argv)
    print(json.dumps(machine()), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments.rows, arguments.rounds)


if __name__ == "__main__":
    main()
