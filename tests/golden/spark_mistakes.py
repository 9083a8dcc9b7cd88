"""Mistakes of somebody who comes from Spark: each as the code that is written.

``Lake`` has what the code finds: a folder with Delta tables, and a builder. Those of `WITHOUT_SPARK` need no JVM.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.types import StructType

import crossstream as cs
from crossstream import serdes
from crossstream.spark.frames import check_frames
from crossstream.spark.store_source import StoreSource
from crossstream.storage.root import root_of

CUSTOMERS = pa.table({"id": [1, 2], "name": ["Ada", "Grace"], "city": ["London", "Arlington"]})
ORDERS = pa.table({"id": [10, 11], "customer_id": [1, 2], "item": ["tea", "mug"]})


class Frame:
    """Stands for a DataFrame of Spark. ``columns``: the type of each, as in the JSON of a schema."""

    def __init__(self, columns: dict[str, str], *, streaming: bool = True, session: Any = None) -> None:
        self.isStreaming = streaming
        self.sparkSession = session
        self.schema = StructType()
        for name, kind in columns.items():
            self.schema.add(name, kind)
        self.columns = list(columns)


class ConnectFrame(Frame):
    """Of a session over Spark Connect."""

    __module__ = "pyspark.sql.connect.dataframe"


COLUMNS = {"id": "long", "customer_id": "long", "item": "string", "at": "timestamp"}
CHANGES = {"_change_type": "string", "_commit_version": "long", "_commit_timestamp": "timestamp"}
ARRIVING = Frame(COLUMNS)


class Lake:
    """Tables in a folder, and what is built on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builder = cs.StreamsBuilder()
        write_deltalake(self.uri("customers"), CUSTOMERS)
        write_deltalake(self.uri("orders"), ORDERS)

    def uri(self, name: str) -> str:
        return str(self.folder / name)

    def customers(self, **settings: Any) -> cs.KTable:
        return self.builder.table_from_delta(self.uri("customers"), **{"key": "id", **settings})

    def orders(self, **settings: Any) -> cs.KTable:
        return self.builder.table_from_delta(self.uri("orders"), **{"key": "id", **settings})

    def state(self) -> str:
        """The state of an application that keeps the customers in the store ``customers``."""
        self.follow(lambda: None)
        return self.uri("state")

    def follow(self, change: Callable[[], object]) -> None:
        """The customers as a table of an application that runs, and takes what a change commits."""
        self.builder.table_from_delta(self.uri("customers"), key="id", store="customers")
        self.run(change)

    def follow_orders(self, change: Callable[[], object]) -> None:
        """The same with the orders as a stream."""
        self.builder.stream_from_delta(self.uri("orders"), key="id").to_table(store="orders")
        self.run(change)

    def run(self, change: Callable[[], object]) -> None:
        config = cs.StreamsConfig(application_id="shop", state_dir=self.folder / "state", engine="local")
        with cs.SparkStreams(self.builder.build(), config) as app:
            app.process_available()
            change()
            app.process_available()

    def start(self, session: Any) -> None:
        """Runs an application in a session."""
        self.orders()
        config = cs.StreamsConfig(application_id="shop", state_dir=self.folder / "state")
        with cs.SparkStreams(self.builder.build(), config, session) as app:
            app.process_available()

    def topology_of(self, frame: Frame) -> cs.Topology:
        self.builder.table_from(frame, key="id", name="orders")
        return self.builder.build()

    def locally(self, build: Callable[[cs.StreamsBuilder], object]) -> None:
        """Runs an application in this process."""
        build(self.builder)
        self.run(lambda: None)

    def catalog(self) -> dict[str, str]:
        """The properties of a catalog of Iceberg, which has a namespace and no table."""
        properties = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": str(self.folder)}
        SqlCatalog("default", **properties).create_namespace("shop")
        return {"type": "sql", **properties}

    def parquet(self) -> str:
        (self.folder / "parquet").mkdir()
        pq.write_table(CUSTOMERS, self.folder / "parquet" / "part-0.parquet")
        return self.uri("parquet")

    def write(self, table: pa.Table, **options: Any) -> None:
        write_deltalake(self.uri("customers"), table, **options)


def doubled(lake: Lake) -> None:
    """Two rows of one key."""
    lake.write(CUSTOMERS.slice(0, 1), mode="append")
    lake.follow(lambda: None)


def doubled_static(lake: Lake) -> None:
    rates = lake.builder.global_table_from(pa.concat_tables([CUSTOMERS, CUSTOMERS]), key="id", name="names")
    lake.orders().join(rates, key_selector="customer_id", on_merge=cs.prefixed("c_"), store="offers")
    lake.run(lambda: None)


def doubled_later(lake: Lake) -> None:
    twice = pa.table({"id": [3, 3], "name": ["Edsger", "Barbara"], "city": ["Nuenen", "Boston"]})
    lake.follow(lambda: lake.write(twice, mode="append"))


def made_again(lake: Lake) -> None:
    def change() -> None:
        shutil.rmtree(lake.uri("customers"))
        lake.write(CUSTOMERS)

    lake.follow(change)


def vacuumed(lake: Lake) -> None:
    def change() -> None:
        lake.write(CUSTOMERS.slice(1), mode="overwrite")
        lake.write(CUSTOMERS.slice(0, 1), mode="overwrite")
        DeltaTable(lake.uri("customers")).vacuum(0, dry_run=False, enforce_retention_duration=False)

    lake.follow(change)


def renamed(lake: Lake) -> None:
    other = CUSTOMERS.rename_columns(["id", "full_name", "city"])
    lake.follow(lambda: lake.write(other, mode="overwrite", schema_mode="overwrite"))


def retyped(lake: Lake) -> None:
    other = CUSTOMERS.set_column(2, "city", pa.array([1.5, 2.5]))
    lake.follow(lambda: lake.write(other, mode="overwrite", schema_mode="overwrite"))


def updated_events(lake: Lake) -> None:
    lake.follow_orders(lambda: DeltaTable(lake.uri("orders")).update({"item": "'lamp'"}, predicate="id = 10"))


class StoppedSession:
    """Of PySpark, in place of one that was stopped."""

    _jsparkSession = object()
    sparkContext = SimpleNamespace(_jsc=None)


class ConnectSession:
    """Of Spark Connect."""

    __module__ = "pyspark.sql.connect.session"


def table_of(lake: Lake, **options: str) -> None:
    """Reads the store of the customers as Spark plans it."""
    source = StoreSource({"path": lake.state(), "store": "customers", **options})
    source.reader(source.schema()).partitions()


def stream_of(lake: Lake, **options: str) -> None:
    """Begins to follow it."""
    source = StoreSource({"path": lake.state(), "store": "customers", "changes": "true", **options})
    source.streamReader(source.schema()).initialOffset()


WITHOUT_SPARK: dict[str, Callable[[Lake], object]] = {
    # -- tables of a lake
    "a table without a key": lambda lake: lake.builder.table_from_delta(lake.uri("customers")),
    "a path that is not there": lambda lake: lake.builder.table_from_delta(lake.uri("custmers"), key="id"),
    "a name of a catalog as a path": lambda lake: lake.builder.table_from_delta("shop.customers", key="id"),
    "a folder of Parquet": lambda lake: lake.builder.table_from_delta(lake.parquet(), key="id"),
    "a frame as a Delta table": lambda lake: lake.builder.table_from_delta(CUSTOMERS, key="id"),
    "a key column that is not there": lambda lake: lake.customers(key="customer_id"),
    "a key column in capitals": lambda lake: lake.customers(key="ID"),
    "a key column given twice": lambda lake: lake.customers(key=["id", "id"]),
    "a key of no column": lambda lake: lake.customers(key=[]),
    "a column that is not there": lambda lake: lake.customers(columns=["nme"]),
    "a negative version": lambda lake: lake.customers(version=-1),
    "a version that is not there": lambda lake: lake.customers(version=7),
    "a version as text": lambda lake: lake.customers(version="latest"),
    "a time that is no time": lambda lake: lake.builder.stream_from_delta(
        lake.uri("orders"), timestamp="item"
    ),
    "a table that is read twice": lambda lake: (lake.customers(), lake.customers(columns=["name"])),
    "a field that is not there": lambda lake: lake.orders().join(
        lake.customers(), foreign_key="customer", on_merge=cs.prefixed("c_")
    ),
    "a foreign key of another type": lambda lake: lake.orders().join(
        lake.customers(), foreign_key="item", on_merge=cs.prefixed("c_")
    ),
    "duplicate keys in a table": doubled,
    "duplicate keys in a commit": doubled_later,
    "an update of a table of events": updated_events,
    "a table that was made again": made_again,
    "a version that was vacuumed": vacuumed,
    "a renamed column": renamed,
    "a column of another type": retyped,
    # -- catalogs
    "a wrong catalog": lambda lake: lake.builder.table_from_iceberg(
        "shop.customers", {"type": "glu"}, key="id"
    ),
    "a catalog that is no mapping": lambda lake: lake.builder.table_from_iceberg(
        "shop.customers", "my_catalog", key="id"
    ),
    "a table that the catalog has not": lambda lake: lake.builder.table_from_iceberg(
        "shop.custmers", lake.catalog(), key="id"
    ),
    "a table of no namespace": lambda lake: lake.builder.table_from_iceberg(
        "customers", lake.catalog(), key="id"
    ),
    # -- DataFrames
    "a static frame for a stream": lambda lake: lake.builder.table_from(
        Frame(COLUMNS, streaming=False), key="id"
    ),
    "a frame of another library": lambda lake: lake.builder.table_from(CUSTOMERS, key="id"),
    "a frame of Spark Connect": lambda lake: lake.builder.table_from(ConnectFrame(COLUMNS), key="id"),
    "plain columns without a key": lambda lake: lake.builder.table_from(ARRIVING),
    "a key that the frame has not": lambda lake: lake.builder.table_from(ARRIVING, key="order_id"),
    "a key of the frame given twice": lambda lake: lake.builder.table_from(ARRIVING, key=["id", "id"]),
    "a key by its expression": lambda lake: lake.builder.table_from(ARRIVING, key=7),  # type: ignore[arg-type]
    "a key and its serde": lambda lake: lake.builder.table_from(
        ARRIVING, cs.Consumed(key=serdes.int64()), key="id"
    ),
    "a column that the frame has not": lambda lake: lake.builder.table_from(
        ARRIVING, key="id", columns=["itm"]
    ),
    "changes without their version": lambda lake: lake.builder.table_from(
        Frame({**COLUMNS, "_change_type": "string"}), key="id"
    ),
    "the kind of change as a column": lambda lake: lake.builder.table_from(
        Frame(COLUMNS | CHANGES), key="id", columns=["item", "_change_type"]
    ),
    "a time for changes": lambda lake: lake.builder.table_from(
        Frame(COLUMNS | CHANGES), key="id", timestamp="at"
    ),
    "a time of text": lambda lake: lake.builder.stream_from(ARRIVING, key="id", timestamp="item"),
    "columns that differ by case": lambda lake: lake.builder.table_from(
        Frame({**COLUMNS, "ITEM": "string"}), key="id"
    ),
    "a type without a place": lambda lake: lake.builder.table_from(
        Frame({**COLUMNS, "pause": "interval day to second", "any": "variant"}), key="id"
    ),
    "a misspelt field of a frame": lambda lake: lake.builder.table_from(ARRIVING, key="id").filter(
        pl.col("itme") == "tea"
    ),
    # -- static tables
    "a stream that is read again": lambda lake: lake.builder.global_table_from(ARRIVING, key="id"),
    "a path that is read again": lambda lake: lake.builder.global_table_from("lake/rates", key="id"),
    "a time between two readings without its unit": lambda lake: lake.builder.global_table_from(
        CUSTOMERS, key="id", refresh=5
    ),
    "a key that the static table has not": lambda lake: lake.builder.global_table_from(CUSTOMERS, key="code"),
    "a function that gives no table": lambda lake: lake.builder.global_table_from(lambda: None, key="id"),
    "a function that fails": lambda lake: lake.builder.global_table_from(lambda: {}["rates"], key="id"),
    "duplicate keys in a static table": doubled_static,
    # -- results
    "a function of the frame alone": lambda lake: (
        lake.orders().to_stream().for_each_batch(lambda frame: None)
    ),
    "a function that is called": lambda lake: lake.orders().to_stream().for_each_batch(print("frame")),
    "for each batch of a table": lambda lake: lake.orders().for_each_batch(print),  # type: ignore[attr-defined]
    "parallel that is no truth": lambda lake: (
        lake.orders().to_stream().for_each_batch(lambda frame, batch_id: None, parallel="yes")
    ),
}

WITHOUT_SPARK |= {
    # -- sessions
    "a session of Spark Connect": lambda lake: lake.start(ConnectSession()),
    "a session that is stopped": lambda lake: lake.start(StoppedSession()),
    "the master for a session": lambda lake: lake.start("local[2]"),
    "a frame of a session that is stopped": lambda lake: check_frames(
        lake.topology_of(Frame(COLUMNS, session=StoppedSession())), root_of(lake.uri("state"))
    ),
    "a frame without Spark": lambda lake: lake.locally(
        lambda builder: builder.table_from(ARRIVING, key="id", name="orders")
    ),
    "each batch as a frame, without Spark": lambda lake: lake.locally(
        lambda builder: (
            builder.table_from_delta(lake.uri("orders"), key="id")
            .to_stream()
            .for_each_batch(lambda frame, batch_id: None)
        )
    ),
    # -- stores as tables of Spark
    "registering for no session": lambda lake: cs.register("local[2]"),  # type: ignore[arg-type]
    "a store that is not there": lambda lake: table_of(lake, store="custmers"),
    "a state folder that is not there": lambda lake: table_of(lake, path=lake.uri("stat")),
    "a store without its name": lambda lake: table_of(lake, store=""),
    "a store without its folder": lambda lake: table_of(lake, path=""),
    "an option of Delta": lambda lake: table_of(lake, versionAsOf="1"),
    "a batch that is not there": lambda lake: table_of(lake, batch="7"),
    "a negative batch": lambda lake: table_of(lake, batch="-1"),
    "a batch as a word": lambda lake: table_of(lake, batch="latest"),
    "a column that the store has not": lambda lake: table_of(lake, columns="key,nme"),
    "changes of a table": lambda lake: table_of(lake, changes="true"),
    "a stream from a batch that is not there": lambda lake: stream_of(lake, startingBatch="7"),
    "a stream from the earliest batch": lambda lake: stream_of(lake, startingBatch="earliest"),
    "a stream of no batch at a time": lambda lake: stream_of(lake, maxBatchesPerTrigger="0"),
}


def counted_without_window(lake: Lake, spark: Any) -> None:
    """A streaming aggregate without a watermark, which Spark updates."""
    rows = spark.readStream.format("rate").load().groupBy("value").count()
    lake.builder.table_from(rows, key="value", name="counts")
    config = cs.StreamsConfig(application_id="shop", state_dir=lake.folder / "state")
    with cs.SparkStreams(lake.builder.build(), config, spark) as app:
        app.process_available()


ON_SPARK: dict[str, Callable[[Lake, Any], object]] = {
    "rows that Spark does not append": counted_without_window,
}
