"""InventoryService of the orders microservices: an order passes if enough is in stock that is not reserved yet."""

from __future__ import annotations

import crossstream as cs


class Validator:
    """Reserves stock for orders; ``reserved`` is the store of what is reserved, by product."""

    def init(self, context: cs.ProcessorContext) -> None:
        self.context = context
        self.reserved = context.store("reserved-stock")

    def process(self, record: cs.Record) -> None:
        order, stock = record.value["order"], record.value["stock"]
        reserved = self.reserved.get(record.key) or 0
        fits = stock - reserved >= order["quantity"]
        if fits:
            self.reserved.put(record.key, reserved + order["quantity"])
        self.context.forward(order["id"], {"check": "INVENTORY", "result": "pass" if fits else "fail"})


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    stock = builder.table("warehouse-inventory", value=int)
    by_product = builder.stream("orders").select_key("product").repartition(key=str)
    both = by_product.join(stock, lambda order, count: {"order": order, "stock": count})
    reserved = cs.KeyValueStore("reserved-stock", key=str, value=int)
    both.process(Validator, stores=[reserved]).to("order-validations", key=str, value=dict)
    return builder.build()


def main() -> None:
    with cs.TopologyTestDriver(build()) as driver:
        stock = driver.create_input_topic("warehouse-inventory")
        orders = driver.create_input_topic("orders")
        validations = driver.create_output_topic("order-validations")
        stock.pipe_input("UNDERPANTS", 75)
        for number, quantity in enumerate([70, 10, 5]):
            order = {"id": f"o{number}", "product": "UNDERPANTS", "quantity": quantity}
            orders.pipe_input(order["id"], order)
        found = {key: value["result"] for key, value in validations.read_key_values()}
        assert found == {"o0": "pass", "o1": "fail", "o2": "pass"}


if __name__ == "__main__":
    main()
