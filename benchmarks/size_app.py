"""The applications of `crossstream bench size`: events counted by key, and orders joined with their customers.

Keys are 8 bytes and values short, so that many rows fit on a disk. ``functions``: which of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.generate import Topics
from benchmarks.ours import Ours, main


class OursOfSize(Ours):
    """`Ours` with these topologies; of another checkout its package alone, for that may have no such program."""

    module = "benchmarks.size_app"
    brings_program = False


@dataclass
class Order:
    customer: int


@dataclass
class Customer:
    name: str


def of_size(topics: Topics, work: str) -> Any:
    """Events counted by key (``count``), or orders with the name of their customer (``fk``)."""
    import polars as pl

    import crossstream as cs
    from crossstream import serdes

    number = serdes.int64()
    builder: Any = cs.StreamsBuilder()
    if work == "count":
        counted = builder.stream(topics.orders, cs.Consumed(key=number, value=number)).group_by_key().count()
        counted.to_stream().to(topics.results, cs.Produced(key=number, value=number))
        return builder.build()
    orders = builder.table(topics.orders, cs.Consumed(key=number, value=serdes.json(Order)))
    customers = builder.table(topics.customers, cs.Consumed(key=number, value=serdes.json(Customer)))
    joiner = pl.struct(name=pl.col("right").struct.field("name"))
    joined = orders.join(customers, joiner, foreign_key=pl.col("customer"))
    joined.to_stream().to(topics.results, cs.Produced(key=number, value=serdes.json()))
    return builder.build()


if __name__ == "__main__":
    main(of_size)
