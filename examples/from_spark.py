"""A table of Delta and files that Spark reads, joined by a foreign key; the result is a table of Spark, and a stream.

python examples/from_spark.py folder       # on Spark, and with deltalake; the folder is made
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import crossstream as cs

ORDER = "id bigint, customer_id bigint, item string, price double"


def make(folder: str, spark: SparkSession) -> None:
    """A folder where orders arrive as files, and a Delta table of customers."""
    rows = [(10, 1, "tea", 12.5), (11, 1, "scarf", 9.0), (12, 2, "mug", 7.25)]
    spark.createDataFrame(rows, ORDER).write.parquet(f"{folder}/orders")
    customers = pa.table({"id": [1, 2], "name": ["Ada", "Grace"], "city": ["London", "Arlington"]})
    write_deltalake(f"{folder}/customers", customers)


def read(reader: Any, folder: str, **options: Any) -> Any:
    """The offers, as a table or as a stream of changes."""
    return reader.format("crossstream").options(store="offers", **options).load(f"{folder}/state")


def main(folder: str, spark: SparkSession | None = None) -> None:
    session = spark or SparkSession.builder.master("local[2]").getOrCreate()
    make(folder, session)

    builder = cs.StreamsBuilder()
    orders = builder.table_from(
        session.readStream.schema(ORDER).parquet(f"{folder}/orders"), key="id", name="orders"
    )
    customers = builder.table_from_delta(f"{folder}/customers", key="id")
    offers = orders.join(
        customers, foreign_key="customer_id", on_merge=cs.prefixed("customer_"), store="offers"
    )
    offers.to_delta(f"{folder}/offers", key="id")

    config = cs.StreamsConfig(application_id="shop", state_dir=f"{folder}/state")
    cs.register(session)
    with cs.SparkStreams(builder.build(), config, session) as app:
        app.process_available()
        first = app.progress.batch
        assert read(session.read, folder).where("customer_city = 'London'").count() == 2

        customers_now = DeltaTable(f"{folder}/customers")
        customers_now.update({"city": "'Paris'"}, predicate="id = 1")  # any engine may commit
        app.process_available()
        assert read(session.read, folder).where("customer_city = 'Paris'").count() == 2

    changes = read(session.readStream, folder, startingBatch=first + 1)
    query = changes.writeStream.format("memory").queryName("changes").trigger(availableNow=True)
    query.start().awaitTermination()
    moved = session.table("changes").select("_change_type", "key", "customer_city").orderBy("key").collect()
    assert [tuple(row) for row in moved] == [
        ("update_postimage", 10, "Paris"),
        ("update_postimage", 11, "Paris"),
    ]
    assert DeltaTable(f"{folder}/offers").to_pyarrow_table().num_rows == 3
    print("two offers have moved to Paris")
    if spark is None:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
