"""`crossstream bench history`: a table from its topic alone, and from a lake with the topic behind it.

Updates of orders are in a topic of Kafka, in JSON. Most of them are in Delta tables, too, with their partitions and
offsets: ``log`` has all records as a sink appends them, ``rows`` the newest record of each order, as one that upserts
keeps them. Each side begins with an empty state and reads until it has all there is: the topic from its beginning, or
the table and what the topic has after it. Sides run in turn, and their tables must be equal in the end. Core-seconds
are those of this process and of the broker, with ``--engine local``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil  # type: ignore[import-untyped]
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.data import START_MS
from benchmarks.fk import machine
from benchmarks.lakes_data import order_rows
from benchmarks.ours import Order
from crossstream.dev import broker
from crossstream.kafka import KafkaConnection
from crossstream.partitioning import murmur2_partitions
from crossstream.records import PRODUCER_RECORDS

PARTITIONS = 4
IN_LAKE = 0.98
"""The share of the records that the lake has; the others are of the topic alone."""
CHUNK = 100_000
"""Records of a file of the log, of one partition."""
SIDES = ("topic", "log", "rows")
VALUE = ("customer_id", "item", "quantity", "amount", "status")


@dataclass(frozen=True, slots=True)
class World:
    """A topic and the tables of its history. ``broker``: its process."""

    servers: str
    broker: int
    topic: str
    folder: Path

    def lake(self, side: str) -> str:
        return str(self.folder / side)

    def cores(self) -> float:
        """Core-seconds so far."""
        times = psutil.Process(self.broker).cpu_times()
        return time.process_time() + float(times.user + times.system)


def updates(records: int, orders: int) -> pl.DataFrame:
    """Records in the order of the topic, with their partitions and offsets; later ones of an order change it."""
    rng = np.random.default_rng(7)
    ids = np.concatenate([np.arange(orders), rng.integers(0, orders, records - orders)])
    found = order_rows(ids, rng.integers(0, orders // 10 + 1, records), rng)
    by_order = np.array(murmur2_partitions([id_.encode() for id_ in found["id"].head(orders)], PARTITIONS))
    partitions = pl.Series("partition", by_order[ids], dtype=pl.Int32)
    timed = found.with_columns(partitions, timestamp=pl.int_range(START_MS, START_MS + records))
    return timed.with_columns(offset=pl.int_range(pl.len()).over("partition"))


def fill(world: World, rows: pl.DataFrame) -> None:
    """Writes the topic, and the tables of most of it."""
    connection = KafkaConnection(world.servers)
    log, writer = connection.log(), connection.writer()
    log.create_topic(world.topic, PARTITIONS)
    values = rows.select(pl.struct(VALUE).struct.json_encode().cast(pl.Binary)).to_series()
    for start in range(0, rows.height, CHUNK):
        part = rows.slice(start, CHUNK)
        columns = [part["id"].cast(pl.Binary), values.slice(start, CHUNK), part["timestamp"]]
        arrays = [
            column.to_arrow().cast(field.type)
            for column, field in zip(columns, PRODUCER_RECORDS, strict=False)
        ]
        batch = pa.RecordBatch.from_arrays(
            [*arrays, pa.nulls(part.height, pa.large_binary())], schema=PRODUCER_RECORDS
        )
        writer.write(world.topic, batch, part["partition"].to_list())
    writer.close()
    log.close()
    known = rows.head(int(rows.height * IN_LAKE))
    for (_,), part in known.partition_by("partition", as_dict=True).items():
        for start in range(0, part.height, CHUNK):
            write_deltalake(world.lake("log"), part.slice(start, CHUNK).to_arrow(), mode="append")
    newest = known.unique("id", keep="last", maintain_order=True)
    write_deltalake(world.lake("rows"), newest.to_arrow())


def topology(world: World, side: str) -> Any:
    import crossstream as cs

    past = None
    if side != "topic":
        past = cs.history(delta=world.lake(side), key="id", until=cs.offsets())
    builder = cs.StreamsBuilder()
    builder.table(world.topic, value=Order, store="orders", history=past)
    return builder.build()


def run(world: World, side: str, engine: Any, session: Any) -> tuple[float, float, pl.DataFrame]:
    """Seconds and core-seconds from the start of an application until it has read all there is, and its table."""
    import crossstream as cs

    with tempfile.TemporaryDirectory(prefix="crossstream-bench-") as folder:
        config = cs.StreamsConfig(
            application_id=f"history-{side}-{time.monotonic_ns()}",
            bootstrap_servers=world.servers,
            state_dir=folder,
            partitions=2,
            engine=engine,
        )
        with cs.SparkStreams(topology(world, side), config, session) as app:
            began, cores = time.monotonic(), world.cores()
            app.process_available()
            took = time.monotonic() - began, world.cores() - cores
            return *took, app.store("orders").to_polars().sort("key")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench history", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--orders", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=("spark", "local"), default="spark")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--port", type=int, default=19394)
    arguments = parser.parse_args(argv)
    print(json.dumps(machine()), flush=True)
    sides = arguments.sides.split(",")
    session = None
    if arguments.engine == "spark":
        from crossstream.spark.session import make_session

        session = make_session("history", {"spark.master": "local[2]", "spark.ui.enabled": "false"})
    with tempfile.TemporaryDirectory(prefix="crossstream-bench-broker-") as data:
        info = broker.start(arguments.port, Path(data) / "broker")
        try:
            world = World(info.bootstrap_servers, info.pid, "orders", Path(data))
            fill(world, updates(arguments.records, arguments.orders))
            took = measured(world, sides, arguments.rounds, arguments.engine, session)
        finally:
            broker.stop(arguments.port)
    for side in sides:
        seconds, cores = (statistics.median(column) for column in zip(*took[side], strict=True))
        line = {"side": side, "seconds": round(seconds, 2), "core-seconds": round(cores, 2)}
        line["records per second"] = round(arguments.records / seconds)
        if "topic" in took:
            faster = [topic[0] / one[0] for topic, one in zip(took["topic"], took[side], strict=True)]
            line["times as fast"] = round(statistics.median(faster), 2)
            line["times fewer core-seconds"] = round(
                statistics.median(one[1] for one in took["topic"]) / cores, 2
            )
        print(json.dumps(line), flush=True)
    return 0


def measured(
    world: World, sides: Sequence[str], rounds: int, engine: Any, session: Any
) -> dict[str, list[tuple[float, float]]]:
    """The seconds of each round; the first one, which warms up, does not count."""
    took: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
    expected: pl.DataFrame | None = None
    for number in range(rounds + 1):
        for side in sides if number % 2 else sides[::-1]:
            seconds, cores, found = run(world, side, engine, session)
            if expected is not None and not found.equals(expected):
                raise AssertionError(f"{side}: the table differs")
            expected = found
            print(json.dumps({"round": number, "side": side, "seconds": round(seconds, 2)}), flush=True)
            if number:
                took[side].append((seconds, cores))
    return took


if __name__ == "__main__":
    raise SystemExit(main())
