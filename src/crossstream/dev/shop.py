"""Orders with the names of their customers, from two tables of a Postgres.

Debezium writes each change of a row into a topic, in Avro behind a schema registry. This application joins the tables
by their foreign key and writes the result into the topic `shop.sales`, as Avro, each change exactly once. Every batch
is a state that the database had: the connector writes where its transactions end (`provide.transaction.metadata`).

    crossstream run shop.py         # until Ctrl-C; --once: process what is there, and exit
"""

import os
from dataclasses import dataclass
from decimal import Decimal

import crossstream as cs
from crossstream import serdes

SERVERS = os.environ.get("SERVERS", "127.0.0.1:9092")
REGISTRY = os.environ.get("REGISTRY", "http://127.0.0.1:8081/apis/ccompat/v7")
TRANSACTIONS = "shop.transaction"


@dataclass
class Customer:
    id: int
    name: str
    city: str | None


@dataclass
class Order:
    id: int
    customer_id: int | None
    amount: Decimal


@dataclass
class Sale:
    customer: str
    city: str | None
    amount: Decimal


def sale(order: Order, customer: Customer) -> Sale:
    return Sale(customer.name, customer.city, order.amount)


builder = cs.StreamsBuilder()
customers = builder.table(
    "shop.public.customers", source=cs.debezium(Customer, registry=REGISTRY, transactions=TRANSACTIONS)
)
orders = builder.table(
    "shop.public.orders", source=cs.debezium(Order, registry=REGISTRY, transactions=TRANSACTIONS)
)

sales = orders.join(customers, sale, foreign_key="customer_id")

AVRO = serdes.confluent_avro(REGISTRY, Sale)
sales.to_stream().to("shop.sales", cs.Produced(key=serdes.int64(), value=AVRO))

config = cs.StreamsConfig(
    application_id="shop",
    bootstrap_servers=SERVERS,
    processing_guarantee="exactly_once",
)
