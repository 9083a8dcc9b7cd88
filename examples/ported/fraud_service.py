"""FraudService of the orders microservices: an order fails if its customer spends 2,000 or more in a session."""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes

TEXT, NUMBER, JSON = serdes.string(), serdes.int64(), serdes.json()
LIMIT = 2_000


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=JSON))
    created = orders.filter(lambda order: order["state"] == "CREATED")
    by_customer = created.group_by(lambda order: order["customer"], cs.Grouped(key=NUMBER, value=JSON))
    totals = by_customer.windowed_by(cs.SessionWindows(gap="1 hour")).aggregate(
        lambda: {"sum": 0},
        lambda total, order: {"order": order["id"], "sum": total["sum"] + order["quantity"] * order["price"]},
        merger=lambda left, right: {**right, "sum": left["sum"] + right["sum"]},
        materialized=cs.Materialized(value=JSON),
    )
    # A session that grew was deleted under its old end: such records are passed over.
    checked = totals.to_stream(lambda session, total: total and total["order"]).filter(
        lambda total: total is not None
    )
    branches = (
        checked.split().branch(lambda order, total: total["sum"] >= LIMIT, "fail").default_branch("pass")
    )
    for result, stream in branches.items():
        validation = stream.map_values(lambda total, result=result: {"check": "FRAUD", "result": result})
        validation.to("order-validations", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        orders = driver.create_input_topic("orders", TEXT, JSON)
        validations = driver.create_output_topic("order-validations", TEXT, JSON)
        for number, (quantity, price) in enumerate([(3, 5), (1, 75), (1, 1_920)]):
            order = {
                "id": f"o{number}",
                "customer": 15,
                "state": "CREATED",
                "quantity": quantity,
                "price": price,
            }
            orders.pipe_input(order["id"], order, timestamp=number)
        assert [(key, value["result"]) for key, value in validations.read_key_values()] == [
            ("o0", "pass"),
            ("o1", "pass"),
            ("o2", "fail"),
        ]


if __name__ == "__main__":
    main()
