"""One query by hand on Spark and Delta Lake, from topics of JSON; run by a Python that has PySpark and nothing of ours.

Of each batch it takes the last record of each key, and merges it into a Delta table of each topic. Then it finds the
keys of the result that the changes touch, runs the query on the rows that these keys need, and merges what it gives
into the result. Where a result has few groups, the query runs on all rows.

Says ``batch`` when a batch begins and when it ended. On each line of its input it writes the result as Parquet.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

UPSERT = """
MERGE INTO delta.`{path}` AS old USING {new} AS new ON {same}
WHEN MATCHED AND new.gone THEN DELETE
WHEN MATCHED THEN UPDATE SET {assigned}
WHEN NOT MATCHED AND NOT new.gone THEN INSERT ({columns}) VALUES ({values})
"""

OF_ORDERS = """
SELECT l_orderkey AS touched FROM changed_lineitem UNION SELECT o_orderkey FROM changed_orders
UNION SELECT o_orderkey FROM orders JOIN changed_customer ON o_custkey = c_custkey
"""
OF_CUSTOMERS = """
SELECT c_custkey AS touched FROM changed_customer UNION SELECT o_custkey FROM changed_orders
UNION SELECT o_custkey FROM orders JOIN changed_orders USING (o_orderkey)
UNION SELECT o_custkey FROM orders JOIN changed_lineitem ON o_orderkey = l_orderkey
UNION SELECT c_custkey FROM customer JOIN changed_nation ON c_nationkey = n_nationkey
"""
OF_LINES = """
SELECT l_orderkey, l_linenumber FROM changed_lineitem
UNION SELECT l_orderkey, l_linenumber FROM lineitem JOIN changed_orders ON l_orderkey = o_orderkey
UNION SELECT l_orderkey, l_linenumber FROM lineitem JOIN orders ON l_orderkey = o_orderkey
  JOIN changed_customer ON o_custkey = c_custkey
UNION SELECT l_orderkey, l_linenumber FROM lineitem JOIN changed_part ON l_partkey = p_partkey
UNION SELECT l_orderkey, l_linenumber FROM lineitem JOIN changed_supplier ON l_suppkey = s_suppkey
UNION SELECT l_orderkey, l_linenumber FROM lineitem JOIN supplier ON l_suppkey = s_suppkey
  JOIN changed_nation ON s_nationkey = n_nationkey
"""
"""The keys of a result that changes touch; ``changed_T``: the new rows of a table, ``T``: all of them."""

ORDER_ROWS = {"lineitem": "l_orderkey = touched", "orders": "o_orderkey = touched"}
CUSTOMER_ROWS = {"customer": "c_custkey = touched", "orders": "o_custkey = touched"}
LINE_ROWS = {
    "lineitem": "lineitem.l_orderkey = t.l_orderkey AND lineitem.l_linenumber = t.l_linenumber",
}
TOUCHED: dict[str, tuple[str, dict[str, str]]] = {
    "q3": (OF_ORDERS, ORDER_ROWS),
    "q10": (OF_CUSTOMERS, CUSTOMER_ROWS),
    "q18": (OF_ORDERS, ORDER_ROWS),
    "lines": (OF_LINES, LINE_ROWS),
}
"""How the keys of a result are found, and of which tables the query needs only the rows of these keys."""
RESULT_KEYS = {"q3": "l_orderkey", "q10": "c_custkey", "q18": "o_orderkey"}


class Keeping:
    """The query, kept up to date in the folder."""

    def __init__(self, session: SparkSession, given: dict[str, Any], folder: Path) -> None:
        self.session, self.given, self.folder = session, given, folder
        self.query: str = given["query"]
        self.schemas: dict[str, Any] = {
            name: StructType.fromDDL(ddl) for name, ddl in given["tables"].items()
        }
        for name, schema in self.schemas.items():
            self._create(name, schema)
        for name in self.schemas:
            self.whole(name).createOrReplaceTempView(name)
        self.result_schema = session.sql(given["text"]).schema
        self._create("result", self.result_schema)

    def start(self) -> None:
        reading = self.session.readStream.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self.given["servers"],
                "subscribe": ",".join(self._topic(name) for name in self.schemas),
                "startingOffsets": "earliest",
                "kafka.isolation.level": "read_committed",
            }
        )
        writing = reading.load().writeStream.foreachBatch(self.merge)
        self.streaming = writing.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def merge(self, batch: DataFrame, number: int) -> None:
        say(event="begin", number=number)
        try:
            self._merge(batch)
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # else the query ends alone
        say(event="batch", number=number, time=time.time())

    def _merge(self, batch: DataFrame) -> None:
        self.session = batch.sparkSession  # of the stream: it has views of its own
        batch.persist()
        for name in self.schemas:
            self.changed(batch, name).persist().createOrReplaceTempView(f"changed_{name}")
        for name in self.schemas:
            self.whole(name).createOrReplaceTempView(name)
        if self.query not in TOUCHED:
            self._merge_tables()
            rows = self.session.sql(self.given["text"])
            rows.write.format("delta").mode("overwrite").save(self._path("result"))
        else:
            self._merge_touched()
        for name in self.schemas:
            self.session.table(f"changed_{name}").unpersist()
        batch.unpersist()

    def _merge_touched(self) -> None:
        keys, rows = TOUCHED[self.query]
        before = (
            self.session.sql(keys).localCheckpoint() if self.query == "q10" else None
        )  # a move has two sides
        self._merge_tables()
        touched = self.session.sql(keys)
        touched = (touched if before is None else touched.union(before)).dropDuplicates().persist()
        for name, same in rows.items():
            touched.createOrReplaceTempView("t")
            part = self.session.sql(f"SELECT {name}.* FROM {name} LEFT SEMI JOIN t ON {same}")
            part.createOrReplaceTempView(f"part_{name}")
        for name in rows:
            self.session.table(f"part_{name}").createOrReplaceTempView(name)
        key = self.result_keys()
        found = self.session.sql(self.given["text"]).withColumn("gone", fn.lit(False))
        named = touched if len(key) > 1 else touched.withColumnRenamed("touched", key[0])
        every = named.join(found, key, "left").withColumn("gone", fn.coalesce("gone", fn.lit(True)))
        every.createOrReplaceTempView("new_result")
        self._upsert("result", "new_result", key, self.result_schema.names)
        touched.unpersist()

    def result_keys(self) -> list[str]:
        return [RESULT_KEYS[self.query]] if self.query in RESULT_KEYS else ["l_orderkey", "l_linenumber"]

    def _merge_tables(self) -> None:
        for name, schema in self.schemas.items():
            if not self.session.table(f"changed_{name}").isEmpty():
                self._upsert(name, f"changed_{name}", self.given["keys"][name], schema.names)
            self.whole(name).createOrReplaceTempView(name)

    def changed(self, batch: DataFrame, name: str) -> DataFrame:
        """The last row of each key among the records of a table; of one that is ``gone``, the key alone."""
        mine = batch.filter(fn.col("topic") == self._topic(name))
        last = mine.groupBy("key").agg(fn.max_by(fn.struct("value"), "offset").alias("last"))
        row = fn.from_json(fn.col("last.value").cast("string"), self.schemas[name]).alias("row")
        rows = last.select("key", row, fn.col("last.value").isNull().alias("gone"))
        keys = self.given["keys"][name]
        columns = [
            (self._of_key(keys, place) if column in keys else fn.col(f"row.{column}")).alias(column)
            for column in self.schemas[name].names
            for place in [keys.index(column) if column in keys else 0]
        ]
        return rows.select(*columns, "gone")

    @staticmethod
    def _of_key(keys: list[str], place: int) -> Any:
        if len(keys) == 1:
            return fn.conv(fn.hex("key"), 16, 10).cast("bigint")
        return fn.split(fn.col("key").cast("string"), "-")[place].cast("bigint")

    def _upsert(self, table: str, new: str, keys: list[str], columns: list[str]) -> None:
        text = UPSERT.format(
            path=self._path(table),
            new=new,
            same=" AND ".join(f"old.{key} = new.{key}" for key in keys),
            assigned=", ".join(f"{name} = new.{name}" for name in columns),
            columns=", ".join(columns),
            values=", ".join(f"new.{name}" for name in columns),
        )
        self.session.sql(text)

    def rows(self, folder: str) -> None:
        self.whole("result").write.parquet(folder)

    def whole(self, table: str) -> DataFrame:
        return self.session.read.format("delta").load(self._path(table))

    def _create(self, table: str, schema: StructType) -> None:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
        properties = "'delta.enableDeletionVectors' = 'true'"
        self.session.sql(
            f"CREATE TABLE delta.`{self._path(table)}` ({columns}) USING DELTA TBLPROPERTIES ({properties})"
        )

    def _path(self, table: str) -> str:
        return str(self.folder / table)

    def _topic(self, table: str) -> str:
        return f"{self.given['prefix']}-{table}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spark", action="append", default=[])
    parser.add_argument("--given", required=True, help="query, text, tables, keys, servers, prefix: JSON")
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    builder: Any = SparkSession.builder.appName("by hand")
    for pair in arguments.spark:
        builder = builder.config(*pair.split("=", 1))
    session = builder.getOrCreate()
    keeping = Keeping(session, json.loads(arguments.given), arguments.folder)
    keeping.start()
    say(event="running")
    for line in sys.stdin:
        keeping.rows(line.strip())
        say(event="rows", folder=line.strip())
    keeping.streaming.stop()
    session.stop()


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
