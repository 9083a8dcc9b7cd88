"""Sums per key beside Spark's own streaming aggregate, both on files: there is no Kafka connector for Spark's JVM here.

python -m benchmarks.aggregate_spark --records 1000000 --rounds 3

The same JSON orders: lines of text files for Spark (25 files a batch), records of a file topic for crossstream, in
batches of as many records. Both write each changed sum: Spark to JSON files, crossstream to a file topic. Both run on
the same session with two cores; Spark keeps its state in RocksDB. The first batch, which starts workers and compiles,
is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.joins import LATER
from benchmarks.keyed_data import keyed_orders
from benchmarks.ours import Order

BATCHES = 5
FILES = 25
PARTITIONS = 4


def spark_rate(session: Any, folder: Path) -> float:
    from pyspark.sql import functions as fn

    schema = "customer_id string, item string, quantity long, amount double, status string"
    lines = session.readStream.schema(schema).option("maxFilesPerTrigger", FILES).json(str(folder / "lines"))
    sums = lines.groupBy("customer_id").agg(fn.count("*").alias("number"), fn.sum("amount").alias("total"))
    out = str(folder / "sums")

    def write(frame: Any, batch: int) -> None:
        frame.write.mode("append").json(out)

    query = sums.writeStream.outputMode("update").foreachBatch(write)
    query = query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    done = [(p["numInputRows"], p["durationMs"]["triggerExecution"] / 1000) for p in query.recentProgress]
    return rate([batch for batch in done if batch[0]])


def our_rate(folder: Path, records: int) -> float:
    import crossstream as cs
    from crossstream import serdes

    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=serdes.string(), value=serdes.json(Order))
    grouped = builder.stream("orders", consumed).group_by_key()
    sums = grouped.agg(number=cs.agg.count(), total=cs.agg.sum("amount"))
    sums.to_stream().to("sums")
    config = cs.StreamsConfig(
        application_id="sums",
        topics_dir=folder / "topics",
        state_dir=folder / "state",
        max_records_per_batch=records // BATCHES,
    )
    done: list[tuple[int, float]] = []
    with cs.SparkStreams(builder.build(), config) as app:
        app.on_progress(lambda progress: done.append((progress.rows, progress.seconds)))
        app.process_available()
    return rate(done)


def rate(batches: Sequence[tuple[int, float]]) -> float:
    """Records a second in all batches, of (records, seconds) each, but the first."""
    assert len(batches) >= BATCHES, batches
    return sum(rows for rows, _ in batches[1:]) / sum(seconds for _, seconds in batches[1:])


def write_both(folder: Path, records: int) -> None:
    from tests.spark.world import World, record_batch

    world = World(folder)
    world.create(orders=PARTITIONS, sums=PARTITIONS)
    writer = world.topics.writer()
    chunk = records // (BATCHES * FILES)
    (folder / "lines").mkdir()
    for number, messages in enumerate(keyed_orders(100_000, records, 1, LATER, chunk)):
        writer.write("orders", record_batch(messages), None)
        lines = b"\n".join(value or b"" for _, value, _ in messages)
        (folder / "lines" / f"{number:05d}.json").write_bytes(lines + b"\n")
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    build: Any = SparkSession.builder
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings = {
        "spark.sql.shuffle.partitions": PARTITIONS,
        "spark.sql.streaming.stateStore.providerClass": store,
        "spark.ui.enabled": False,
        "spark.driver.memory": "3g",
    }
    build = build.master("local[2]")
    for name, value in settings.items():
        build = build.config(name, value)
    session = build.getOrCreate()
    for _ in range(arguments.rounds):
        folder = Path(tempfile.mkdtemp())
        try:
            write_both(folder, arguments.records)
            for side in ("spark", "crossstream"):
                began = time.perf_counter()
                found = (
                    spark_rate(session, folder) if side == "spark" else our_rate(folder, arguments.records)
                )
                whole = time.perf_counter() - began
                figure = {"figure": "sums: records per second", "side": side, "value": round(found)}
                print(json.dumps({**figure, "whole seconds": round(whole, 1)}), flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
