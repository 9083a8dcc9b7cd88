"""Tests of a topology with pytest: the driver runs it in the process of the test, without JVM and broker.

pytest examples/test_with_the_driver.py
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import crossstream as cs


def build() -> cs.Topology:
    """What is tested; an application would import it from its own file."""
    builder = cs.StreamsBuilder()
    orders = builder.table("orders")
    customers = builder.table("customers")
    orders.left_join(
        customers,
        lambda order, customer: {"item": order["item"], "name": customer and customer["name"]},
        foreign_key="customer",
        store="named",
    ).to("named")
    return builder.build()


@pytest.fixture
def driver() -> Iterator[cs.TopologyTestDriver]:
    with cs.TopologyTestDriver(build()) as driver:
        yield driver


def test_an_order_without_a_customer_is_kept(driver: cs.TopologyTestDriver) -> None:
    driver.create_input_topic("orders", str, dict).pipe_input("o1", {"item": "tea", "customer": "c1"}, 1000)
    named = driver.create_output_topic("named", str, dict)
    assert named.read_record() == cs.TestRecord("o1", {"item": "tea", "name": None}, 1000)
    assert named.is_empty


def test_an_order_follows_its_customer(driver: cs.TopologyTestDriver) -> None:
    driver.create_input_topic("orders", str, dict).pipe_input("o1", {"item": "tea", "customer": "c1"})
    customers = driver.create_input_topic("customers", str, dict)
    for name in ("Ada", "Eve"):
        customers.pipe_input("c1", {"name": name})
        assert driver.get_key_value_store("named").get("o1")["name"] == name
    customers.pipe_input("c1", None)
    assert driver.get_key_value_store("named").get("o1")["name"] is None


@pytest.mark.parametrize(("partitions", "commit_every"), [(1, 1), (4, 1), (3, 7), (1, 1000)])
def test_batches_and_partitions_change_nothing(partitions: int, commit_every: int) -> None:
    with cs.TopologyTestDriver(build(), partitions=partitions, commit_every=commit_every) as driver:
        orders = driver.create_input_topic("orders", str, dict)
        orders.pipe_records([(f"o{n}", {"item": n, "customer": f"c{n % 3}"}, n) for n in range(30)])
        driver.create_input_topic("customers", str, dict).pipe_input("c1", {"name": "Ada"})
        driver.commit()
        rows = dict(driver.get_key_value_store("named").all())
    assert sum(row["name"] == "Ada" for row in rows.values()) == 10
