"""A global table: payments in any currency, with a small table that every machine holds as a whole.

The field of a record that names the row may be any; the stream is not moved.

    python examples/global_table.py
"""

from __future__ import annotations

import polars as pl

import crossstream as cs
from crossstream import serdes

PAYMENT = serdes.json({"currency": pl.String, "amount": pl.Float64})
RATE = serdes.json({"euros": pl.Float64})

left, right = pl.col("left").struct, pl.col("right").struct


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    payments = builder.stream("payments", value=PAYMENT)
    rates = builder.global_table("rates", value=RATE)
    payments.join(
        rates,
        pl.struct(euros=left.field("amount") * right.field("euros")),
        key_selector="currency",
    ).to("payments-in-euros", value=dict)
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        rates = driver.create_input_topic("rates", str, RATE)
        payments = driver.create_input_topic("payments", str, PAYMENT)
        euros = driver.create_output_topic("payments-in-euros", str, dict)

        rates.pipe_input("USD", {"euros": 0.5})
        payments.pipe_input("p1", {"currency": "USD", "amount": 10.0})
        rates.pipe_input("USD", {"euros": 0.75})
        payments.pipe_input("p2", {"currency": "USD", "amount": 10.0})
        assert euros.read_key_values() == [("p1", {"euros": 5.0}), ("p2", {"euros": 7.5})]
    print("each payment had the rate of its moment")


if __name__ == "__main__":
    main()
