"""The foreign-key join of the benchmark of lake tables, as a crossstream application that is told when to work.

Each line of the input is a command, in JSON; each answer is a line of the output:

    {"do": "open", "name": …, "orders": …, "customers": …, "folder": …}    builds the application and starts it
    {"do": "go"}                                                           processes what is there
    {"do": "look"}                                                         the memory of the driver
    {"do": "close"}

The result is kept as a store and is a Delta table in the folder; with ``--kept`` it is the store alone, whose rows are
left as Parquet in the end. Without customers the orders alone are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.lakes_memory import Peaks
from benchmarks.ours import Customer, Order, say

OFFERS = "offers"


def opened_delta(builder: Any, given: dict[str, str]) -> tuple[Any, Any]:
    """Both tables from the lake."""
    return builder.table_from_delta(given["orders"], key="id"), builder.table_from_delta(
        given["customers"], key="id"
    )


def opened_kafka(builder: Any, given: dict[str, str]) -> tuple[Any, Any]:
    """The same records as JSON, from topics."""
    import crossstream as cs
    from crossstream import serdes

    def table(topic: str, type_: type) -> Any:
        return builder.table(topic, cs.Consumed(key=serdes.string(), value=serdes.json(type_)))

    return table(given["orders"], Order), table(given["customers"], Customer)


SOURCES = {"delta": opened_delta, "kafka": opened_kafka}


def topology(source: str, given: dict[str, str], to_delta: bool = True) -> Any:
    import crossstream as cs

    builder = cs.StreamsBuilder()
    if "customers" not in given:
        builder.table_from_delta(given["orders"], key="id", store="orders")
        return builder.build()
    orders, customers = SOURCES[source](builder, given)
    left, right = pl.col("left").struct, pl.col("right").struct
    both = pl.struct(
        item=left.field("item"),
        amount=left.field("amount"),
        customer=right.field("name"),
        city=right.field("city"),
    )
    offers = orders.join(customers, both, foreign_key=pl.col("customer_id"), store=OFFERS)
    if to_delta:
        offers.to_delta(str(Path(given["folder"]) / OFFERS), key="id")
    return builder.build()


def leave(rows: pl.DataFrame, folder: Path) -> None:
    folder.mkdir()
    rows.rename({"key": "id"}).unnest("value").write_parquet(folder / "rows.parquet")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", choices=SOURCES, required=True)
    parser.add_argument("--bootstrap")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--spark", action="append", default=[])
    arguments = parser.parse_args()

    import crossstream as cs
    from crossstream.spark.session import make_session

    settings = {"spark.master": arguments.master, "spark.ui.enabled": "false"}
    settings |= dict(pair.split("=", 1) for pair in arguments.spark)
    session = make_session("lakes", settings)
    app: Any = None

    def noted(progress: Any) -> None:
        rows, seconds = progress.rows, round(progress.seconds, 3)
        say("batch", id=progress.batch, rows=rows, seconds=seconds, phases=progress.phases)

    say("ready")
    for line in sys.stdin:
        given = json.loads(line)
        began, looked = time.monotonic(), {}
        if given["do"] == "open":
            config = cs.StreamsConfig(
                application_id=given["name"],
                bootstrap_servers=arguments.bootstrap,
                state_dir=str(Path(given["folder"]) / "state"),
                partitions=2,
            )
            folder = Path(given["folder"])
            app = cs.SparkStreams(topology(arguments.source, given, not arguments.kept), config, session)
            app.__enter__()
            app.on_progress(noted)
        elif given["do"] == "go":
            app.process_available()
        elif given["do"] == "look":
            looked = asdict(Peaks.look(session))
        else:
            if arguments.kept:
                leave(app.store(OFFERS).to_polars(), folder / "rows")
            app.__exit__(None, None, None)
        say("done", seconds=time.monotonic() - began, **looked)
    session.stop()


if __name__ == "__main__":
    main()
