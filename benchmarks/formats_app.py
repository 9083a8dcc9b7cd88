"""The foreign-key join of the benchmark on values of each format. ``functions``: the format, and a registry's URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.generate import Topics
from benchmarks.joins_app import expression
from benchmarks.ours import Customer, Order, Ours, main

FORMATS = ("json", "avro", "debezium")


@dataclass
class OrderRow:
    """An order as a row of a database, with its key."""

    id: str
    customer_id: str
    item: str
    quantity: int
    amount: float
    status: str


@dataclass
class CustomerRow:
    id: str
    name: str
    city: str
    tier: str
    since: int
    newsletter: bool


@dataclass
class Joined:
    item: str
    amount: float
    customer: str
    city: str


class OursInFormat(Ours):
    """`Ours` with these topologies."""

    module = "benchmarks.formats_app"


def topology(topics: Topics, functions: str) -> Any:
    """Orders with the name and city of their customers: expressions, values in and out in one format."""
    import polars as pl

    import crossstream as cs
    from crossstream import serdes

    form, _, registry = functions.partition("+")
    builder = cs.StreamsBuilder()

    def value(kind: type) -> Any:
        return serdes.json(kind) if form == "json" else serdes.confluent_avro(registry, kind)

    def table(topic: str, kind: type, row: type) -> Any:
        if form == "debezium":
            return builder.table(topic, source=cs.debezium(row, registry=registry))
        return builder.table(topic, cs.Consumed(key=serdes.string(), value=value(kind)))

    orders = table(topics.orders, Order, OrderRow)
    customers = table(topics.customers, Customer, CustomerRow)
    joined = orders.join(customers, expression(), foreign_key=pl.col("customer_id"))
    joined.to_stream().to(topics.results, cs.Produced(key=serdes.string(), value=value(Joined)))
    return builder.build()


if __name__ == "__main__":
    main(topology)
