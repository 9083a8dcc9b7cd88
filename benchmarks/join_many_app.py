"""Orders with customers, products and stores, as crossstream applications: in one operator, chained, and alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from benchmarks.generate import Topics
from benchmarks.ours import Customer, Ours, main

TABLES = {"customer": "customers", "product": "products", "store": "stores"}
KEPT = ("quantity", "amount", "status")
"""Fields of an order in the result."""
TAKEN = {"customer": {"customer": "name", "tier": "tier"}, "product": {"title": "title", "price": "price"}}
TAKEN |= {"store": {"street": "street", "country": "country"}}
"""Fields of the right tables in the result, and what they are there."""

INSTEAD = {"customer": "Customer 0012345", "tier": "silver", "title": "Product 12345", "price": 512.5}
INSTEAD |= {"street": "Street 5123", "country": "PT"}
"""What orders alone have in their results where a join has fields of the right tables."""


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


CALLABLES = "-callables"
"""Ends the names of ways that take callables on untyped JSON; the others take expressions on typed JSON."""

TYPES = {"orders": Order, "customers": Customer, "products": Product, "stores": Store}


class OursMany(Ours):
    """`Ours` with these topologies; ``functions``: many, chain or orders, or one of the first two with `CALLABLES`."""

    module = "benchmarks.join_many_app"
    max_records = None


def table(builder: Any, topics: Topics, name: str, typed: bool = True, **options: Any) -> Any:
    """One of the four tables, as JSON."""
    import crossstream as cs
    from crossstream import serdes

    value = serdes.json(TYPES[name]) if typed else serdes.json()
    return builder.table(f"{topics.prefix}-{name}", cs.Consumed(key=serdes.string(), value=value), **options)


def joined(topics: Topics, how: str) -> Any:
    """The topology; many and chain give the same results, orders their own part of them and `INSTEAD`."""
    import crossstream as cs
    from crossstream import serdes

    builder = cs.StreamsBuilder()
    if how == "orders":
        made = alone(table(builder, topics, "orders", materialized=cs.Materialized(store="orders")))
    else:
        typed = not how.endswith(CALLABLES)
        made = WAYS[how]({name: table(builder, topics, name, typed) for name in TYPES})
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


def alone(orders: Any) -> Any:
    """No join: the orders kept, and results as long as those of the join. Less than this no join of them can take."""
    import polars as pl

    own = [pl.col("value").struct.field(name) for name in KEPT]
    return orders.map_values(pl.struct(*own, *(pl.lit(value).alias(name) for name, value in INSTEAD.items())))


def chained(named: dict[str, Any]) -> Any:
    """Three joins, each of which passes on what the next ones and the result need."""
    import polars as pl

    result, kept, sides = named["orders"], list(KEPT), list(TABLES)
    for place, side in enumerate(sides):
        wanted = [f"{later}_id" for later in sides[place + 1 :]] + kept
        fields = [pl.col("left").struct.field(name) for name in wanted]
        fields += [pl.col("right").struct.field(name).alias(to) for to, name in TAKEN[side].items()]
        result = result.join(named[TABLES[side]], pl.struct(*fields), foreign_key=pl.col(f"{side}_id"))
        kept += TAKEN[side]
    return result


def many_callables(named: dict[str, Any]) -> Any:
    others = {side: (named[table], itemgetter(f"{side}_id")) for side, table in TABLES.items()}
    return named["orders"].join_many(others, whole)


def whole(order: dict[str, Any], rights: dict[str, dict[str, Any]]) -> dict[str, Any]:
    result = {name: order[name] for name in KEPT}
    for side, taken in TAKEN.items():
        right = rights[side]
        for to, name in taken.items():
            result[to] = right[name]
    return result


def chained_callables(named: dict[str, Any]) -> Any:
    """Three joins, each of which passes on what the next ones and the result need."""
    result, kept, sides = named["orders"], list(KEPT), list(TABLES)
    for place, side in enumerate(sides):
        wanted = [f"{later}_id" for later in sides[place + 1 :]] + kept
        result = result.join(
            named[TABLES[side]], partial(part, wanted, TAKEN[side]), foreign_key=itemgetter(f"{side}_id")
        )
        kept += TAKEN[side]
    return result


def part(
    wanted: list[str], taken: dict[str, str], left: dict[str, Any], right: dict[str, Any]
) -> dict[str, Any]:
    result = {name: left[name] for name in wanted}
    for to, name in taken.items():
        result[to] = right[name]
    return result


WAYS = {
    "many": many,
    "chain": chained,
    f"many{CALLABLES}": many_callables,
    f"chain{CALLABLES}": chained_callables,
}


if __name__ == "__main__":
    main(joined)
