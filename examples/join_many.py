"""Several foreign keys in one join: each order with its customer and its product.

python examples/join_many.py
"""

from __future__ import annotations

import polars as pl

import crossstream as cs
from crossstream import serdes

ORDER = serdes.json({"customer": pl.String, "product": pl.String, "count": pl.Int64})
CUSTOMER = serdes.json({"name": pl.String})
PRODUCT = serdes.json({"price": pl.Int64})


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.table("orders", value=ORDER)
    customers = builder.table("customers", value=CUSTOMER)
    products = builder.table("products", value=PRODUCT)
    bills = orders.join_many(
        {"customer": (customers, "customer"), "product": (products, "product")},
        pl.struct(
            to=pl.col("customer").struct.field("name"),
            total=pl.col("left").struct.field("count") * pl.col("product").struct.field("price"),
        ),
        store="bills",
    )
    bills.to("bills")
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        orders = driver.create_input_topic("orders", str, ORDER)
        customers = driver.create_input_topic("customers", str, CUSTOMER)
        products = driver.create_input_topic("products", str, PRODUCT)
        bills = driver.create_output_topic("bills", str, dict)

        customers.pipe_input("c1", {"name": "Ada"})
        orders.pipe_input("o1", {"customer": "c1", "product": "p1", "count": 3})
        products.pipe_input("p1", {"price": 20})
        products.pipe_input("p1", {"price": 25})
        customers.pipe_input("c1", {"name": "Ada L."})
        assert bills.read_values() == [
            {"to": "Ada", "total": 60},
            {"to": "Ada", "total": 75},
            {"to": "Ada L.", "total": 75},
        ]
    print("the bill followed the price and the name")


if __name__ == "__main__":
    main()
