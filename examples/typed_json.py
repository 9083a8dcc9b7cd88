"""Typed JSON: dataclasses in, dataclasses out, and a mistake in a field's name found while building.

python examples/typed_json.py
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

import crossstream as cs
from crossstream import serdes


@dataclass(frozen=True)
class Order:
    customer: str
    price: float
    gift: bool = False


@dataclass(frozen=True)
class Bill:
    customer: str
    total: float


ORDER, BILL = serdes.json(Order), serdes.json(Bill)


def bill(order: Order) -> Bill:
    """The annotation declares the type of the result."""
    return Bill(order.customer, order.price + (2.5 if order.gift else 0))


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", value=ORDER)
    orders.map_values(bill).filter(pl.col("total") > 10).to("bills", value=BILL)
    return builder.build()


def refused() -> str:
    """The error that a misspelled field gives, in the line that has it."""
    orders = cs.StreamsBuilder().stream("orders", value=ORDER)
    try:
        orders.filter(pl.col("prise") > 10)
    except cs.TopologyError as error:
        return f"{error.code}: {error.next}"
    return "nothing"


def main() -> None:
    with cs.TopologyTestDriver(build(), deserialization_errors="skip") as driver:
        orders = driver.create_input_topic("orders", str, ORDER)
        bills = driver.create_output_topic("bills", str, BILL)

        orders.pipe_input("o1", Order("Ada", 19.5, gift=True))
        orders.pipe_input("o2", Order("Eve", 3.0))
        driver.create_input_topic("orders", str, dict).pipe_input("o3", {"customer": "Joe"})
        assert bills.read_key_values() == [("o1", Bill("Ada", 22.0))]
        assert driver.metrics()["dropped"] == {"orders: undecodable": 1}  # o3 has no price
    assert refused() == "CS-114: did you mean 'price'?"
    print("one bill; one order without a price was skipped")


if __name__ == "__main__":
    main()
