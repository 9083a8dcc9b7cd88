"""FraudService of the orders microservices: an order fails if its customer spends 2,000 or more in a session."""

from __future__ import annotations

import crossstream as cs

LIMIT = 2_000


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    created = builder.stream("orders").filter(lambda order: order["state"] == "CREATED")
    by_customer = created.group_by("customer", key=int)
    totals = by_customer.windowed_by(cs.SessionWindows(gap="1 hour", grace=0)).aggregate(
        lambda: {"sum": 0},
        lambda total, order: {"order": order["id"], "sum": total["sum"] + order["quantity"] * order["price"]},
        merger=lambda left, right: {**right, "sum": left["sum"] + right["sum"]},
        value=dict,
    )
    # A session that grew was deleted under its old end: such records are passed over.
    checked = totals.to_stream(lambda session, total: total and total["order"])
    known = checked.filter(lambda total: total is not None)
    failing = known.split().branch(lambda order, total: total["sum"] >= LIMIT, "fail")
    for result, stream in failing.default_branch("pass").items():
        validation = stream.map_values(lambda total, result=result: {"check": "FRAUD", "result": result})
        validation.to("order-validations", key=str, value=dict)
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        orders = driver.create_input_topic("orders")
        validations = driver.create_output_topic("order-validations")
        for number, (quantity, price) in enumerate([(3, 5), (1, 75), (1, 1_920)]):
            order = {
                "id": f"o{number}",
                "customer": 15,
                "state": "CREATED",
                "quantity": quantity,
                "price": price,
            }
            orders.pipe_input(order["id"], order, timestamp=number)
        found = {key: value["result"] for key, value in validations.read_key_values()}
        assert found == {"o0": "pass", "o1": "pass", "o2": "fail"}


if __name__ == "__main__":
    main()
