"""Runs a query of Nexmark as a stream, from topics to a topic, until it is killed; first on topics to warm up with.

Run by a Python that has PySpark. It prints ``{"event": "running"}`` when the streams have started.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import TimestampType

from benchmarks.peers.spark_streaming.queries import QUERIES, Query

SCHEMAS = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "dateTime BIGINT, extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime BIGINT, "
    "expires BIGINT, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime BIGINT, extra STRING",
    "side_input": "key BIGINT, value STRING",
}
TIMES = ("dateTime", "expires")
LATENESS = "4 seconds"


def table(session: SparkSession, servers: str, prefix: str, name: str) -> DataFrame:
    """The records of a topic as rows: a stream, but for the side input."""
    reader: Any = session.read if name == "side_input" else session.readStream
    settings = {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": f"{prefix}-{name}",
        "startingOffsets": "earliest",
    }
    records = reader.format("kafka").options(**settings).load()
    return timed(
        records.select(fn.from_json(fn.col("value").cast("string"), SCHEMAS[name]).alias("row")).select(
            "row.*"
        )
    )


def timed(rows: DataFrame) -> DataFrame:
    """The rows with times as timestamps, and with a watermark if they have one."""
    times = {name: fn.timestamp_millis(name) for name in TIMES if name in rows.columns}
    return rows.withColumns(times).withWatermark("dateTime", LATENESS) if times else rows


def results(session: SparkSession, query: Query) -> DataFrame:
    """The rows of a query as records: times as milliseconds."""
    rows = session.sql(query.sql)
    times = [field.name for field in rows.schema.fields if isinstance(field.dataType, TimestampType)]
    key = fn.expr(query.key or "NULL").cast("string").alias("key")
    for name in times:
        rows = rows.withColumn(name, fn.unix_millis(name))
    return rows.select(key, fn.to_json(fn.struct(*rows.columns)).alias("value"))


def start(session: SparkSession, servers: str, name: str, prefix: str, folder: Path) -> None:
    """Starts a query on the topics of a prefix."""
    own = session.newSession()
    for topic in SCHEMAS:
        table(own, servers, prefix, topic).createOrReplaceTempView(topic)
    query = QUERIES[name]
    writing: Any = results(own, query).writeStream.format("kafka").outputMode(query.mode)
    writing = writing.option("kafka.bootstrap.servers", servers).option("topic", f"{prefix}-{name}")
    writing.option("checkpointLocation", str(folder / prefix)).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    for word in ("servers", "query", "folder"):
        parser.add_argument(f"--{word}", required=True)
    parser.add_argument("--prefix", action="append", required=True)
    parser.add_argument("--spark", action="append", default=[])
    given = parser.parse_args()
    build: Any = SparkSession.builder
    for setting in given.spark:
        build = build.config(*setting.split("=", 1))
    session = build.getOrCreate()
    for prefix in given.prefix:
        start(session, given.servers, given.query, prefix, Path(given.folder))
    print(json.dumps({"event": "running"}), flush=True)
    session.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
