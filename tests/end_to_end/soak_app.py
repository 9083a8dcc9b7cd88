"""What runs for an hour in `test_soak`: ``python -m tests.end_to_end.soak_app SERVERS PREFIX STATE_DIR``.

Prints a line of JSON for each batch.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()


@dataclass
class Customer:
    name: str


@dataclass
class Order:
    id: int
    customer_id: str
    amount: int


@dataclass
class Click:
    id: int


def topology(prefix: str) -> cs.StreamsBuilder:
    """Joins of every kind but with global tables, a windowed count that waits for its end, and a sum."""
    builder = cs.StreamsBuilder()
    customers = builder.table(prefix + "customers", cs.Consumed(key=TEXT, value=serdes.json(Customer)))
    orders = builder.table(prefix + "orders", cs.Consumed(key=TEXT, value=serdes.json(Order)))
    views = builder.stream(prefix + "views", cs.Consumed(key=TEXT, value=serdes.json(Click)))
    clicks = builder.stream(prefix + "clicks", cs.Consumed(key=TEXT, value=serdes.json(Click)))
    left, right = pl.col("left").struct, pl.col("right").struct
    written = cs.Produced(key=TEXT, value=serdes.json())
    orders.join(
        customers,
        pl.struct(id=left.field("id"), name=right.field("name")),
        foreign_key=pl.col("customer_id"),
    ).to_stream().to(prefix + "named", written)
    clicks.join(customers, pl.struct(id=left.field("id"), name=right.field("name"))).to(
        prefix + "enriched", written
    )
    views.join(clicks, pl.struct(view=left.field("id"), click=right.field("id")), within="1 second").to(
        prefix + "visits", written
    )
    each = clicks.group_by_key().windowed_by(cs.TimeWindows(size="5 seconds", grace="1 second")).count()
    each.suppress(cs.Suppressed.until_window_closes()).to_stream(lambda key, count: key.key).to(
        prefix + "counts", cs.Produced(key=TEXT, value=serdes.int64())
    )
    orders.group_by(
        lambda key, order: (order.customer_id, order.amount), cs.Grouped(key=TEXT, value=serdes.int64())
    ).reduce(lambda total, amount: total + amount, lambda total, amount: total - amount).to_stream().to(
        prefix + "totals", cs.Produced(key=TEXT, value=serdes.int64())
    )
    return builder


def main(servers: str, prefix: str, state_dir: Path) -> None:
    config = cs.StreamsConfig(
        application_id=prefix + "app",
        bootstrap_servers=servers,
        state_dir=str(state_dir),
        partitions=2,
        processing_guarantee="exactly_once",
    )
    with cs.SparkStreams(topology(prefix).build(), config) as app:
        app.on_progress(
            lambda p: print(
                json.dumps({"batch": p.batch, "rows": p.rows, "seconds": p.seconds, "at": time.time()}),
                flush=True,
            )
        )
        app.start()
        sys.stdin.read()
        app.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
