"""Enrichment: each order of a stream with the customer's row at that moment.

Later changes of the customer do not change orders that are done. If they should, read the orders as a table:
see foreign_key_join.py.

    python examples/stream_table_join.py
"""

from __future__ import annotations

import polars as pl

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
ORDER = serdes.json({"customer": pl.String, "item": pl.String})
CUSTOMER = serdes.json({"name": pl.String})

left, right = pl.col("left").struct, pl.col("right").struct


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", value=ORDER)
    customers = builder.table("customers", value=CUSTOMER)
    orders.select_key("customer").join(
        customers,
        pl.struct(left.field("item"), right.field("name").alias("for")),
        cs.Joined(key=TEXT),
    ).to("orders-with-names", key=str, value=dict)
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        orders = driver.create_input_topic("orders", str, ORDER)
        customers = driver.create_input_topic("customers", str, CUSTOMER)
        named = driver.create_output_topic("orders-with-names", str, dict)

        customers.pipe_input("c1", {"name": "Ada"})
        orders.pipe_input("o1", {"customer": "c1", "item": "tea"})
        customers.pipe_input("c1", {"name": "Ada L."})
        orders.pipe_input("o2", {"customer": "c1", "item": "ink"})
        orders.pipe_input(
            "o3", {"customer": "c9", "item": "jam"}
        )  # an inner join drops it; left_join keeps it
        assert named.read_values() == [{"item": "tea", "for": "Ada"}, {"item": "ink", "for": "Ada L."}]
    print("two orders found their customer")


if __name__ == "__main__":
    main()
