"""Five tables that Debezium reads from a database, two results: ``crossstream run tests/end_to_end/five_tables.py``.

$PREFIX is that of the connector's topics, $SERVERS are Kafka's, $REGISTRY is the schema registry.
"""

import os
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

import crossstream as cs
from crossstream import serdes

PREFIX, SERVERS, REGISTRY = (os.environ[name] for name in ("PREFIX", "SERVERS", "REGISTRY"))
ID = serdes.int64()


@dataclass
class Address:
    id: int
    city: str


@dataclass
class Customer:
    id: int
    name: str
    address_id: int | None
    about: str | None


@dataclass
class Product:
    id: int
    price: Decimal


@dataclass
class Order:
    id: int
    customer_id: int | None
    note: str | None


@dataclass
class Line:
    order_id: int
    line: int
    product_id: int | None
    quantity: int


@dataclass
class Home:
    name: str
    city: str | None
    about: int | None


@dataclass
class Named:
    name: str
    city: str | None
    about: int | None
    note: int | None


@dataclass
class Priced:
    order_id: int
    cost: Decimal


@dataclass
class Total:
    lines: int
    cost: Decimal


def home(customer: Customer, address: Address | None) -> Home:
    return Home(customer.name, address and address.city, size(customer.about))


def named(order: Order, home: Home) -> Named:
    return Named(home.name, home.city, home.about, size(order.note))


def priced(line: Line, product: Product) -> Priced:
    return Priced(line.order_id, line.quantity * product.price)


def size(text: str | None) -> int | None:
    return None if text is None else len(text)


builder = cs.StreamsBuilder()


def table(name: str, row: type, **settings: Any) -> cs.KTable:
    return builder.table(f"{PREFIX}.public.{name}", source=cs.debezium(row, registry=REGISTRY, **settings))


# After a crash Connect writes events again. One that leaves out a large value may then follow the delete of its row.
customers = table("customers", Customer, ordered_by="source.lsn")
orders = table("orders", Order)
homes = customers.left_join(table("addresses", Address), home, foreign_key="address_id")
NAMED = serdes.confluent_avro(REGISTRY, Named)
orders.join(homes, named, foreign_key="customer_id").to_stream().to(
    f"{PREFIX}.named", cs.Produced(key=ID, value=NAMED)
)

lines = table("order_lines", Line, key=["order_id", "line"], ordered_by="source.lsn", truncate="delete")
costs = lines.join(
    table("products", Product),
    priced,
    foreign_key="product_id",
    materialized=cs.Materialized(value=serdes.json(Priced)),
)
TOTAL = serdes.confluent_avro(REGISTRY, Total)
totals = costs.group_by(pl.col("order_id"), cs.Grouped(key=ID)).agg(
    lines=cs.agg.count(), cost=cs.agg.sum("cost"), materialized=cs.Materialized(value=TOTAL)
)
totals.to_stream().to(f"{PREFIX}.totals", cs.Produced(key=ID, value=TOTAL))

config = cs.StreamsConfig(
    application_id=PREFIX,
    bootstrap_servers=SERVERS,
    processing_guarantee="exactly_once",
    broker_patience="2 minutes",
    partitions=4,
)
