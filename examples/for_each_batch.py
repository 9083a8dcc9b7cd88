"""A sink of your own: each batch as a Spark DataFrame, written to Parquet, once even if a batch is repeated.

python examples/for_each_batch.py folder       # on Spark; the folder is made
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
ORDER = serdes.json({"customer": pl.String, "amount": pl.Float64})
CUSTOMER = serdes.json({"name": pl.String})

left, right = pl.col("left").struct, pl.col("right").struct


def build(orders: Any = "orders", customers: Any = "customers", folder: str = "bills") -> cs.Topology:
    """Reads topics, or streaming DataFrames if they are passed."""
    builder = cs.StreamsBuilder()

    def table(source: Any, value: serdes.Serde, name: str) -> cs.KTable:
        if isinstance(source, str):
            return builder.table(source, value=value)
        return builder.table_from(source, cs.Consumed(key=TEXT, value=value, name=name))

    def write(frame: DataFrame, batch_id: int) -> None:
        """A folder for each batch, overwritten: a batch that is repeated replaces what it wrote."""
        frame.select("key", "value.*").write.mode("overwrite").parquet(f"{folder}/batch={batch_id}")

    table(orders, ORDER, "orders").join(
        table(customers, CUSTOMER, "customers"),
        pl.struct(left.field("amount"), right.field("name")),
        foreign_key="customer",
        store="bills",
    ).to_stream().for_each_batch(write)
    return builder.build()


def main(folder: str, spark: SparkSession | None = None) -> None:
    session = spark or SparkSession.builder.master("local[2]").getOrCreate()
    session.createDataFrame([("c1", "Ada")], "id string, name string").write.json(f"{folder}/customers")
    session.createDataFrame(
        [("o1", "c1", 20.0), ("o2", "c9", 5.0)], "id string, customer string, amount double"
    ).write.json(f"{folder}/orders")

    orders = session.readStream.schema("id string, customer string, amount double").json(f"{folder}/orders")
    customers = session.readStream.schema("id string, name string").json(f"{folder}/customers")
    topology = build(
        orders.select(F.col("id").alias("key"), F.struct("customer", "amount").alias("value")),
        customers.select(F.col("id").alias("key"), F.struct("name").alias("value")),
        f"{folder}/bills",
    )
    config = cs.StreamsConfig(application_id="bills", state_dir=f"{folder}/state")
    with cs.SparkStreams(topology, config, session) as app:
        app.process_available()

    rows = session.read.parquet(f"{folder}/bills").select("key", "amount", "name").collect()
    assert [tuple(row) for row in rows] == [("o1", 20.0, "Ada")]
    print(f"one bill in {Path(folder, 'bills')}")
    if spark is None:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
