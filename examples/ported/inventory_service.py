"""InventoryService of the orders microservices: an order passes if enough is in stock that is not reserved yet."""

from __future__ import annotations

from typing import Any

import crossstream as cs
from crossstream import serdes

TEXT, NUMBER, JSON = serdes.string(), serdes.int64(), serdes.json()


class Validator:
    """Reserves stock for orders; ``reserved`` is the store of what is reserved, by product."""

    def init(self, context: Any) -> None:
        self.context = context
        self.reserved = context.store("reserved-stock")

    def process(self, record: Any) -> None:
        order, stock = record.value["order"], record.value["stock"]
        reserved = self.reserved.get(record.key) or 0
        fits = stock - reserved >= order["quantity"]
        if fits:
            self.reserved.put(record.key, reserved + order["quantity"])
        result = {"check": "INVENTORY", "result": "pass" if fits else "fail"}
        self.context.forward(order["id"], result)

    def close(self) -> None: ...


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=JSON))
    stock = builder.table("warehouse-inventory", cs.Consumed(key=TEXT, value=NUMBER))
    by_product = orders.select_key(lambda order: order["product"]).repartition(cs.Repartitioned(key=TEXT))
    both = by_product.join(stock, lambda order, count: {"order": order, "stock": count})
    reserved = cs.KeyValueStore("reserved-stock", key=TEXT, value=NUMBER)
    validated = both.process(Validator, stores=[reserved])
    validated.to("order-validations", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        stock = driver.create_input_topic("warehouse-inventory", TEXT, NUMBER)
        orders = driver.create_input_topic("orders", TEXT, JSON)
        validations = driver.create_output_topic("order-validations", TEXT, JSON)
        stock.pipe_input("UNDERPANTS", 75)
        for number, quantity in enumerate([70, 10, 5]):
            orders.pipe_input(
                f"o{number}", {"id": f"o{number}", "product": "UNDERPANTS", "quantity": quantity}
            )
        assert [(key, value["result"]) for key, value in validations.read_key_values()] == [
            ("o0", "pass"),
            ("o1", "fail"),
            ("o2", "pass"),
        ]


if __name__ == "__main__":
    main()
