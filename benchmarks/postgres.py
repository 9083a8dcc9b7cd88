"""Rows a second into a table of Postgres, beside ``executemany``: `crossstream bench postgres`.

A table of five columns, whose key is text in random order; batches of 250,000 rows. First all rows are new; then half
of them are, and a twentieth are deletes. The same rows come from a topic, through an application without Spark: read,
decoded, kept in a store, written. Beside the time: the seconds of processors that this process and the server took.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import psutil  # type: ignore[import-untyped]  # no types of its own
import psycopg
import pyarrow as pa

import crossstream as cs
from crossstream import serdes
from crossstream.columns.flat import DELETED
from crossstream.databases.postgres import DSN, postgres_sink
from crossstream.dev import cdc
from crossstream.filetopics import FileTopics
from crossstream.once import BatchMark

BATCH = 250_000
COLUMNS = "id, customer, amount, items, at"
KEY = serdes.string()
VALUE = serdes.json(
    {"customer": pl.String, "amount": pl.Float64, "items": pl.Int64, "at": pl.Datetime("us", "UTC")}
)


def rows(ids: np.ndarray, seed: int) -> pl.DataFrame:
    """Orders of these numbers, in this order."""
    chance, count = np.random.default_rng(seed), len(ids)
    return pl.DataFrame(
        {
            "id": "o" + pl.Series(ids).cast(pl.String),
            "customer": "c" + pl.Series(chance.integers(0, 50_000, count)).cast(pl.String),
            "amount": chance.random(count) * 100,
            "items": chance.integers(0, 1_000, count),
            "at": pl.Series(chance.integers(16 * 10**14, 17 * 10**14, count)).cast(pl.Datetime("us", "UTC")),
        }
    )


def in_batches(frame: pl.DataFrame, deleted: np.ndarray) -> Iterator[pa.Table]:
    """As a sink gets them."""
    made = frame.to_arrow().cast(pa.schema([(one.name, _type(one.type)) for one in frame.to_arrow().schema]))
    made = made.append_column(DELETED, pa.array(deleted))
    made = made.replace_schema_metadata({"crossstream.key": "id"})
    for first in range(0, made.num_rows, BATCH):
        yield made.slice(first, BATCH)


def _type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


@dataclass(frozen=True, slots=True)
class Clock:
    """Times what is done with a server."""

    server: cdc.Postgres

    def cores(self) -> float:
        """Seconds of processors: of this process, and of the server with all that it has started."""
        number = int((self.server.folder / "data" / "postmaster.pid").read_text().split()[0])
        parent = psutil.Process(number)
        times = [parent.cpu_times(), *(child.cpu_times() for child in parent.children())]
        ended = times[0].children_user + times[0].children_system
        total: float = time.process_time() + ended + sum(one.user + one.system for one in times)
        return total

    def __call__(self, what: str, count: int, act: Callable[[], object]) -> None:
        cores, begun = self.cores(), time.perf_counter()
        act()
        seconds, cores = time.perf_counter() - begun, self.cores() - cores
        rates = f"{count / seconds:>9,.0f} rows/s {cores / count * 1e6:6.2f} core-seconds for a million"
        print(f"{what:30} {count:>9,} rows {seconds:7.2f} s {rates}", flush=True)


def by_sink(timed: Clock, first: pl.DataFrame, then: pl.DataFrame, deleted: np.ndarray) -> None:
    node: Any = SimpleNamespace(table="sink", options={DSN: timed.server.dsn()}, name="sink")
    sink = postgres_sink(node, {})
    sink.open()
    example = next(in_batches(first, np.zeros(first.height, bool)))
    sink.create(pa.schema([field for field in example.schema if field.name != DELETED]), ("id",))
    number = 0

    def write(batches: Iterator[pa.Table]) -> None:
        nonlocal number
        for batch in batches:
            sink.write(batch, BatchMark("bench", "sink", "state", number))
            number += 1

    timed(
        "to_postgres, new rows", first.height, lambda: write(in_batches(first, np.zeros(first.height, bool)))
    )
    timed("to_postgres, changes", then.height, lambda: write(in_batches(then, deleted)))
    few = then.head(100).unique("id")
    timed(
        "to_postgres, a batch of few", few.height, lambda: write(in_batches(few, np.zeros(few.height, bool)))
    )
    sink.close()


def by_executemany(timed: Clock, first: pl.DataFrame, then: pl.DataFrame) -> None:
    """psycopg sends all of them before it waits for the first answer."""
    own = [name.strip() for name in COLUMNS.split(",")]
    changed = ", ".join(f"{name} = excluded.{name}" for name in own[1:])
    insert = (
        f"INSERT INTO many ({COLUMNS}) VALUES (%s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET {changed}"
    )
    with psycopg.connect(timed.server.dsn()) as connection:
        connection.execute(b"CREATE TABLE many (LIKE sink INCLUDING ALL)")
        connection.commit()
        for what, frame in (("new rows", first), ("changes", then)):

            def write(frame: pl.DataFrame = frame) -> None:
                for part in frame.iter_slices(BATCH):
                    connection.cursor().executemany(insert.encode(), part.rows())
                    connection.commit()

            timed(f"executemany, {what}", frame.height, write)


def by_application(timed: Clock, first: pl.DataFrame) -> None:
    with tempfile.TemporaryDirectory() as folder:
        topics = FileTopics(f"{folder}/topics", durable=False)
        topics.log().create_topic("orders", 2)
        writer = topics.writer()
        for part in first.iter_slices(BATCH):
            value = part.select(
                pl.struct("customer", "amount", "items", pl.col("at").dt.strftime("%FT%T%.6fZ"))
            )
            texts = [part["id"], value.to_series().struct.json_encode()]
            columns = [text.to_arrow().cast(pa.large_string()).cast(pa.large_binary()) for text in texts]
            columns += [pa.array([0] * part.height, pa.int64()), pa.nulls(part.height, pa.large_binary())]
            names = ["key", "value", "timestamp", "headers"]
            writer.write("orders", pa.RecordBatch.from_arrays(columns, names=names))
        writer.close()
        builder = cs.StreamsBuilder()
        orders = builder.table("orders", cs.Consumed(key=KEY, value=VALUE), cs.Materialized(store="orders"))
        orders.to_postgres(timed.server.dsn(), "application", key="id")
        config = cs.StreamsConfig(
            application_id="bench",
            topics_dir=f"{folder}/topics",
            state_dir=f"{folder}/state",
            engine="local",
            partitions=2,
            max_records_per_batch=BATCH,
        )
        with cs.SparkStreams(builder.build(), config) as app:
            timed("an application, from a topic", first.height, app.process_available)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench postgres", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--many", type=int, default=200_000, help="rows for executemany")
    parser.add_argument(
        "--fsync", choices=("on", "off"), default="on", help="whether Postgres waits for the disk"
    )
    asked = parser.parse_args(argv)
    chance = np.random.default_rng(0)
    first = rows(chance.permutation(asked.rows), 1)
    then = rows(chance.permutation(asked.rows * 2)[: asked.rows], 2)
    deleted = chance.random(asked.rows) < 0.05
    with cdc.started(fsync=asked.fsync, shared_buffers="512MB", max_wal_size="4GB") as server:
        timed = Clock(server)
        by_sink(timed, first, then, deleted)
        by_executemany(timed, first.head(asked.many), then.head(asked.many))
        by_application(timed, first)
    return 0


if __name__ == "__main__":
    main()
