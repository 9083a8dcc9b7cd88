"""Mistakes that a newcomer makes: each as the code that is written. None needs Spark, a JVM or a broker.

``Place`` has what the code finds: a folder with topics, a builder, and the settings of an application.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import crossstream as cs
from crossstream import serdes
from crossstream.filetopics import FileTopics
from crossstream.storage.commit_log import BatchLog
from tests.faults.one_process import process
from tests.spark.world import World


@dataclass
class Order:
    customer_id: str
    price: float


@dataclass
class Customer:
    customer_id: str
    name: str


class Plain:
    """Has no declared fields."""


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builder = cs.StreamsBuilder()
        log = FileTopics(str(folder / "topics")).log()
        for topic in ("orders", "copies"):
            log.create_topic(topic, 1)

    def orders(self) -> cs.KStream:
        return self.builder.stream("orders", value=Order)

    def tables(self) -> tuple[cs.KTable, cs.KTable]:
        return self.builder.table("orders", value=Order), self.builder.table("customers", value=Customer)

    def config(self, **settings: Any) -> cs.StreamsConfig:
        places = {"topics_dir": self.folder / "topics", "state_dir": self.folder / "state"}
        return cs.StreamsConfig(**{"application_id": "shop", **places, **settings})

    def start(self, build: Callable[[cs.StreamsBuilder], object] | None = None, **settings: Any) -> None:
        builder = cs.StreamsBuilder()
        (build or copies)(builder)
        with cs.SparkStreams(builder.build(), self.config(**settings)) as app:
            app.start()

    def process(self) -> None:
        builder = cs.StreamsBuilder()
        copies(builder)
        process(builder.build(), self.config())


def copies(builder: cs.StreamsBuilder) -> None:
    builder.table("orders", store="orders").to("copies")


def another_store(builder: cs.StreamsBuilder) -> None:
    builder.table("orders", store="purchases").to("copies")


def holds_a_lock(builder: cs.StreamsBuilder) -> None:
    lock = threading.Lock()
    builder.stream("orders").map_values(lambda order: (lock, order)).to("copies", value=dict)


def two_applications(place: Place) -> None:
    log = BatchLog(str(place.folder / "state"))
    log.lock("shop", 0o700)
    try:
        place.start()
    finally:
        log.unlock()


def changed_topology(place: Place) -> None:
    World(place.folder).append("orders", [("o1", {"price": 1}, 1)], value=serdes.json())
    place.process()
    place.start(another_store)


def absent_master(place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place.start(spark={"spark.master": f"spark://127.0.0.1:{port}"})


def no_java(place: Place) -> None:
    place.start()


JAVA = {"there is no Java": "", "Java too old": "11"}
"""Mistakes for which the test sets JAVA_HOME: to a folder with a Java of this version, or with none."""

MISTAKES: dict[str, Callable[[Place], object]] = {
    # -- reading topics
    "a name with a blank": lambda place: place.builder.stream("my orders"),
    "a list for a table": lambda place: place.builder.table(["orders", "returns"]),
    "types without their names": lambda place: place.builder.table("orders", str, Order),
    "a misspelt argument": lambda place: place.builder.table("orders", valeu=Order),
    "a class without fields": lambda place: place.builder.table("orders", value=Plain),
    "a serde that is not called": lambda place: place.builder.table("orders", value=serdes.json),
    "a serde by its name": lambda place: place.builder.table("orders", value="json"),
    "one topic read in two ways": lambda place: (place.orders(), place.builder.stream("orders", value=dict)),
    "a topology that reads nothing": lambda place: place.builder.build(),
    # -- functions
    "a function without parameters": lambda place: place.orders().map_values(lambda: 1),
    "an operator's name as the second argument": lambda place: place.orders().map_values(str, "named"),
    "a store as the second argument": lambda place: place.tables()[0].map_values(
        str, cs.Materialized(store="texts")
    ),
    "a function that is called": lambda place: place.orders().filter(len("orders")),
    "an async function": lambda place: place.orders().map_values(wait),
    "a field that does not exist": lambda place: place.orders().filter(pl.col("prise") > 1),
    "a predicate that is no truth": lambda place: place.orders().filter(pl.col("price") + 1),
    "a sum over all records": lambda place: place.orders().filter(pl.col("price") > pl.col("price").sum()),
    "an expression on undeclared values": lambda place: place.builder.stream("orders").filter(
        pl.col("price") > 1
    ),
    # -- joins
    "a foreign key that does not exist": lambda place: (
        lambda a, b: a.join(b, foreign_key="custmer_id", on_merge="keep-left")
    )(*place.tables()),
    "the foreign key in Java's place": lambda place: (
        lambda a, b: a.join(b, lambda order: order.customer_id, lambda order, customer: order)
    )(*place.tables()),
    "a foreign key as a joiner": lambda place: (lambda a, b: a.join(b, "customer_id"))(*place.tables()),
    "a field of both sides": lambda place: (lambda a, b: a.join(b, foreign_key="customer_id"))(
        *place.tables()
    ),
    "a merge that is none": lambda place: (
        lambda a, b: a.join(b, foreign_key="customer_id", on_merge="left")
    )(*place.tables()),
    "a joiner of one value": lambda place: (lambda a, b: a.join(b, lambda order: order))(*place.tables()),
    "a stream joined like a table": lambda place: place.tables()[0].join(place.builder.stream("clicks")),
    "streams without windows": lambda place: place.orders().join(place.builder.stream("paid")),
    "windows given twice": lambda place: place.orders().join(
        place.builder.stream("paid"), windows=cs.JoinWindows.of("1 minute"), within="1 minute"
    ),
    "a window that is no duration": lambda place: place.orders().join(
        place.builder.stream("paid"), within="soon"
    ),
    "a window for a table": lambda place: place.orders().join(
        place.builder.table("shops"), within="1 minute"
    ),
    "an outer join with a table": lambda place: place.orders().outer_join(place.builder.table("shops")),
    "a global table without a key": lambda place: place.orders().join(place.builder.global_table("shops")),
    "tables of two builders": lambda place: place.tables()[0].join(cs.StreamsBuilder().table("customers")),
    "keys of different types": lambda place: place.tables()[0].join(
        place.builder.table("numbers", key=int, value={"n": pl.Int64})
    ),
    # -- groups, results
    "a group of unknown keys": lambda place: place.orders().group_by(lambda order: order.customer_id),
    "a sum of text": lambda place: place.orders().group_by_key().agg(total=cs.agg.sum("customer_id")),
    "a result of unknown type": lambda place: place.orders().map_values(lambda order: order.price).to("out"),
    "a type that does not fit": lambda place: place.orders().map_values(pl.col("price")).to("out", value=str),
    "two stores of one name": lambda place: (
        place.builder.table("orders", store="rows"),
        place.builder.table("customers", store="rows"),
    ),
    # -- methods of another class
    "a method of a stream on a table": lambda place: place.tables()[0].map(len),  # type: ignore[attr-defined]
    "a count without groups": lambda place: place.orders().count(),  # type: ignore[attr-defined]
    "a method of Java": lambda place: place.orders().mapValues(str),  # type: ignore[attr-defined]
    # -- settings
    "an unknown setting": lambda place: place.config(aplication_id="shop"),
    "a setting of Kafka Streams": lambda place: place.config(num_stream_threads=4),
    "a duration without its unit": lambda place: place.config(trigger=2),
    "Kafka and files at once": lambda place: place.config(bootstrap_servers="localhost:9092"),
    "a guarantee that is none": lambda place: place.config(processing_guarantee="exactly-once"),
    # -- starting
    "a topic that is missing": lambda place: place.start(lambda builder: builder.table("ordrs").to("copies")),
    "a function that cannot be sent": lambda place: place.start(holds_a_lock),
    "two applications, one state folder": two_applications,
    "a changed topology": changed_topology,
    "a master that is absent": absent_master,
    "a master that is none": lambda place: place.start(spark={"spark.master": "sprak:7077"}),
    "a master without its port": lambda place: place.start(spark={"spark.master": "spark://host"}),
    "Spark Connect": lambda place: place.start(spark={"spark.remote": "sc://host"}),
    "too little memory": lambda place: place.start(spark={"spark.driver.memory": "100m"}),
    "memory that is none": lambda place: place.start(spark={"spark.driver.memory": "lots"}),
    "a Python that is missing": lambda place: place.start(spark={"spark.pyspark.python": "python9"}),
    "there is no Java": no_java,
    "Java too old": no_java,
}


async def wait(order: Any) -> Any:
    return order
