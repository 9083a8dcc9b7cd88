"""A foreign-key join with expressions: each product with its merchant, as both change.

python examples/foreign_key_join.py                          # the changes below, without Spark
crossstream describe examples/foreign_key_join.py --plan     # how it runs on Spark
"""

from __future__ import annotations

import polars as pl

import crossstream as cs
from crossstream import serdes

PRODUCT = serdes.json({"name": pl.String, "merchant": pl.String})
MERCHANT = serdes.json({"name": pl.String})

left, right = pl.col("left").struct, pl.col("right").struct


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    products = builder.table("products", value=PRODUCT)
    merchants = builder.table("merchants", value=MERCHANT)
    offers = products.join(
        merchants,
        pl.struct(left.field("name"), right.field("name").alias("shop")),
        foreign_key="merchant",
        store="offers",
    )
    offers.to("offers")
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        products = driver.create_input_topic("products", str, PRODUCT)
        merchants = driver.create_input_topic("merchants", str, MERCHANT)
        offers = driver.get_key_value_store("offers")

        products.pipe_input("scarf", {"name": "Scarf", "merchant": "m1"})
        assert offers.get("scarf") is None  # the merchant does not exist yet

        merchants.pipe_input("m1", {"name": "Knit & Co"})
        merchants.pipe_input("m2", {"name": "Hatters"})
        assert offers.get("scarf") == {"name": "Scarf", "shop": "Knit & Co"}

        merchants.pipe_input("m1", {"name": "Best Knits"})  # the right side changes
        assert offers.get("scarf") == {"name": "Scarf", "shop": "Best Knits"}

        products.pipe_input("scarf", {"name": "Scarf", "merchant": "m2"})  # the foreign key changes
        assert offers.get("scarf") == {"name": "Scarf", "shop": "Hatters"}

        merchants.pipe_input("m2", None)  # the right side is deleted
        assert offers.get("scarf") is None
    print("each product followed its merchant")


if __name__ == "__main__":
    main()
