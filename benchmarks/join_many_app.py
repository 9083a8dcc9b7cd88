"""Orders with their customers, products and stores, as crossstream applications: in one operator, and chained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.generate import Topics
from benchmarks.ours import Customer, Ours, main

TABLES = {"customer": "customers", "product": "products", "store": "stores"}
KEPT = ("quantity", "amount", "status")
"""Fields of an order in the result."""
TAKEN = {"customer": {"customer": "name", "tier": "tier"}, "product": {"title": "title", "price": "price"}}
TAKEN |= {"store": {"street": "street", "country": "country"}}
"""Fields of the right tables in the result, and what they are there."""


@dataclass
class Order:
    customer_id: str
    product_id: str
    store_id: str
    quantity: int
    amount: float
    status: str


@dataclass
class Product:
    title: str
    price: float
    colour: str
    weight: int


@dataclass
class Store:
    street: str
    country: str
    opened: int


TYPES = {"orders": Order, "customers": Customer, "products": Product, "stores": Store}


class OursMany(Ours):
    """`Ours` with these topologies; ``functions``: many, or chain."""

    module = "benchmarks.join_many_app"
    max_records = None


def tables(builder: Any, prefix: str) -> dict[str, Any]:
    """All four tables, as typed JSON."""
    import crossstream as cs
    from crossstream import serdes

    return {
        name: builder.table(f"{prefix}-{name}", cs.Consumed(key=serdes.string(), value=serdes.json(kind)))
        for name, kind in TYPES.items()
    }


def joined(topics: Topics, how: str) -> Any:
    """The topology; both ways give the same results."""
    import crossstream as cs
    from crossstream import serdes

    builder = cs.StreamsBuilder()
    made = (many if how == "many" else chained)(tables(builder, topics.orders.removesuffix("-orders")))
    made.to_stream().to(topics.results, cs.Produced(key=serdes.string(), value=serdes.json()))
    return builder.build()


def many(named: dict[str, Any]) -> Any:
    import polars as pl

    fields = [pl.col("left").struct.field(name) for name in KEPT]
    fields += [
        pl.col(side).struct.field(name).alias(to)
        for side, taken in TAKEN.items()
        for to, name in taken.items()
    ]
    others = {side: (named[table], pl.col(f"{side}_id")) for side, table in TABLES.items()}
    return named["orders"].join_many(others, pl.struct(*fields))


def chained(named: dict[str, Any]) -> Any:
    """Three joins, each of which passes on what the next ones and the result need."""
    import polars as pl

    import crossstream as cs
    from crossstream import serdes

    result, kept, sides = named["orders"], list(KEPT), list(TABLES)
    for place, side in enumerate(sides):
        wanted = [f"{later}_id" for later in sides[place + 1 :]] + kept
        fields = [pl.col("left").struct.field(name) for name in wanted]
        fields += [pl.col("right").struct.field(name).alias(to) for to, name in TAKEN[side].items()]
        result = result.join(
            named[TABLES[side]],
            pl.struct(*fields),
            foreign_key=pl.col(f"{side}_id"),
            materialized=cs.Materialized(value=serdes.json()),
        )
        kept += TAKEN[side]
    return result


if __name__ == "__main__":
    main(joined)
