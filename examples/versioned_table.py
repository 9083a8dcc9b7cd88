"""A versioned table: each sale with the price at the time of the sale, although prices and sales come late.

python examples/versioned_table.py
"""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes

TEXT, AMOUNT = serdes.string(), serdes.float64()


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    sales = builder.stream("sales", value=int)
    prices = builder.table(
        "prices",
        cs.Consumed(key=TEXT, value=AMOUNT),
        cs.Materialized(store="prices", history_retention="1 day"),
    )
    sales.join(prices, lambda count, price: count * price).to("revenue", value=AMOUNT)
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        sales = driver.create_input_topic("sales", str, int)
        prices = driver.create_input_topic("prices", str, AMOUNT)
        revenue = driver.create_output_topic("revenue", str, AMOUNT)

        prices.pipe_input("scarf", 20.0, timestamp=1_000)
        prices.pipe_input("scarf", 30.0, timestamp=3_000)
        sales.pipe_input("scarf", 2, timestamp=2_000)  # late: the price of second 2 counts
        assert revenue.read_values() == [40.0]

        prices.pipe_input("scarf", 25.0, timestamp=1_500)  # a late price, valid from 1.5 s to 3 s
        sales.pipe_input("scarf", 2, timestamp=2_000)
        assert revenue.read_values() == [50.0]

        history = driver.get_versioned_store("prices")
        assert [history.get("scarf", as_of_time=time) for time in (1_200, 2_000, 3_000)] == [20.0, 25.0, 30.0]
    print("each sale had the price of its own time")


if __name__ == "__main__":
    main()
