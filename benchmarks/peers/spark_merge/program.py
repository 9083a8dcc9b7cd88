"""The join by hand on Spark and Delta Lake; it takes the commands of `benchmarks.lakes_app`.

First the join of both tables as they are becomes a Delta table. Then one query follows the change feeds of both. Of
each batch it takes the newest image of each order that changed, and the orders that refer to a customer that changed,
joins them with the customers as they are then, and merges them into the result.

Run by a Python that has PySpark and nothing else of ours.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

ORDER = ("id", "customer_id", "item", "amount")
CREATE = """
CREATE TABLE delta.`{0}` (id STRING, item STRING, amount DOUBLE, customer STRING, city STRING) USING DELTA
TBLPROPERTIES ({1})
"""
MERGE = """
MERGE INTO delta.`{0}` AS offer USING changed ON offer.id = changed.id
WHEN MATCHED AND changed.customer IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED AND changed.customer IS NOT NULL THEN INSERT *
"""


class Merging:
    """Both tables of a lake, and the result in a folder."""

    def __init__(self, session: SparkSession, given: dict[str, str], properties: str) -> None:
        self.session, self.given, self.properties = session, given, properties
        self.offers = str(Path(given["folder"]) / "offers")
        self.query: Any = None

    def go(self) -> None:
        """The first time the snapshot; then what was committed since."""
        if self.query is not None:
            self.query.processAllAvailable()
            return
        self.session.sql(CREATE.format(self.offers, self.properties))
        joined = self.with_customers(self.read("orders").select(*ORDER), self.read("customers"), "inner")
        joined.write.format("delta").mode("append").save(self.offers)
        both = self.feed("orders").unionByName(self.feed("customers"), allowMissingColumns=True)
        writing = both.writeStream.foreachBatch(self.merge)
        self.query = writing.option("checkpointLocation", f"{self.given['folder']}/checkpoint").start()
        self.query.processAllAvailable()  # finds where it starts

    def close(self) -> None:
        """Leaves the rows of the result as Parquet, for readers that do not know deletion vectors."""
        if self.query is None:
            return
        self.query.stop()
        rows = self.session.read.format("delta").load(self.offers)
        rows.write.parquet(str(Path(self.given["folder"]) / "rows"))

    def merge(self, batch: DataFrame, _number: int) -> None:
        batch.persist()
        customers = self.read("customers")
        changed = newest(batch.filter("feed = 'orders'")).select(*ORDER, "gone")
        moved = newest(batch.filter("feed = 'customers'")).select(fn.col("id").alias("customer_id"))
        if not moved.isEmpty():
            orders = self.read("orders").select(*ORDER, fn.lit(False).alias("gone"))
            theirs = orders.join(fn.broadcast(moved), "customer_id", "left_semi")
            changed = changed.unionByName(theirs.join(fn.broadcast(changed), "id", "left_anti"))
        there = fn.when(~fn.col("gone"), fn.col("customer_id")).alias("customer_id")
        rows = changed.select("id", there, "item", "amount")
        self.with_customers(rows, customers, "left").createOrReplaceTempView("changed")
        batch.sparkSession.sql(MERGE.format(self.offers))
        batch.unpersist()

    def with_customers(self, orders: DataFrame, customers: DataFrame, how: str) -> DataFrame:
        taken = customers.select(
            fn.col("id").alias("customer_id"), fn.col("name").alias("customer"), fn.col("city")
        )
        joined = orders.join(fn.broadcast(taken), "customer_id", how)
        return joined.select("id", "item", "amount", "customer", "city")

    def read(self, table: str) -> DataFrame:
        return self.session.read.format("delta").load(self.given[table])

    def feed(self, table: str) -> DataFrame:
        """The changes from the next version on: one that is not there yet cannot be named."""
        feed = self.session.readStream.format("delta").option("readChangeFeed", "true")
        rows = feed.option("startingVersion", "latest").load(self.given[table])
        return rows.filter("_change_type <> 'update_preimage'").withColumn("feed", fn.lit(table))


def newest(changes: DataFrame) -> DataFrame:
    """The last image of each key; ``gone``: it is deleted. An update within a version is not in two images of it."""
    names = [name for name in ORDER if name != "id"]
    last = fn.max_by(fn.struct("_change_type", *names), "_commit_version").alias("last")
    images = changes.groupBy("id").agg(last).select("id", "last.*")
    return images.withColumn("gone", fn.col("_change_type") == "delete")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spark", action="append", default=[])
    parser.add_argument("--properties", default="'delta.enableDeletionVectors' = 'true'")
    arguments = parser.parse_args()
    builder: Any = SparkSession.builder.appName("by hand")
    for pair in arguments.spark:
        builder = builder.config(*pair.split("=", 1))
    session = builder.getOrCreate()
    merging: Any = None
    say(event="ready")
    for line in sys.stdin:
        given = json.loads(line)
        began = time.monotonic()
        if given["do"] == "open":
            merging = Merging(session, given, arguments.properties)
        elif given["do"] == "go":
            merging.go()
        else:
            merging.close()
        say(event="done", seconds=time.monotonic() - began)
    session.stop()


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
