"""The application of `crossstream bench evolve` and its later versions: orders with their customers.

The environment says where it lives: ``BENCH_FOLDER`` has topics and state, ``BENCH_ENGINE`` runs it, and with
``BENCH_STORE=bills`` the result is kept in a store of that name.
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

import crossstream as cs
from benchmarks.ours import Customer, Order

RESULT = "bills"
FOLDER = Path(os.environ.get("BENCH_FOLDER", "bench-evolve"))
STORE = os.environ.get("BENCH_STORE") or None

config = cs.StreamsConfig(
    application_id="bench-evolve",
    topics_dir=FOLDER / "topics",
    state_dir=FOLDER / "state",
    engine="local" if os.environ.get("BENCH_ENGINE") == "local" else "spark",
    partitions=2,
    max_records_per_batch=500_000,
    spark={"spark.master": "local[2]", "spark.ui.enabled": "false"},
)

left, right = pl.col("left").struct, pl.col("right").struct
amount = left.field("amount")
PARTS = {
    "item": left.field("item"),
    "amount": amount,
    "customer": right.field("name"),
    "city": right.field("city"),
}


def joined(**parts: pl.Expr) -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.table("orders", value=Order)
    customers = builder.table("customers", value=Customer)
    bill = pl.struct([part.alias(name) for name, part in parts.items()])
    bills = orders.join(customers, bill, foreign_key="customer_id", store=STORE)
    bills.to(RESULT)
    return builder.build()


def first() -> cs.Topology:
    return joined(**PARTS)


def all_rows() -> cs.Topology:
    """Another joiner, by which each row has one field more."""
    return joined(**PARTS, tier=right.field("tier"))


def hundredth() -> cs.Topology:
    """Another joiner, by which whole amounts change: one in a hundred."""
    return joined(
        **{**PARTS, "amount": pl.when(amount == amount.floor()).then(amount * 0.5).otherwise(amount)}
    )
