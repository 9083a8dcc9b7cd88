"""Joins whose keys never meet give nothing, or rows without a partner: they say so once, with a key of each side."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

pytestmark = pytest.mark.slow

JSON = serdes.json()
ROWS = 1_200
WINDOWS = cs.JoinWindows.of("1 hour")
LOOSE = cs.Consumed(key=JSON, value=JSON)


def pair(left: Any, right: Any) -> Any:
    return [left, right]


def customer(order: Any) -> Any:
    return order["customer_id"]


class Sides:
    """Orders by number, and customers by keys such as ``{"id": 7}``."""

    def __init__(self) -> None:
        self.builder = cs.StreamsBuilder()

    def stream(self, topic: str) -> Any:
        return self.builder.stream(topic, LOOSE)

    def table(self, topic: str, **options: Any) -> Any:
        return self.builder.table(topic, LOOSE, cs.Materialized(store=topic, **options))

    def whole(self) -> Any:
        return self.builder.global_table("customers", LOOSE, cs.Materialized(store="customers"))


EVERY: Any = {"materialized": cs.Materialized(store="joined", value=JSON, history_retention=10**9)}
JOINS: dict[str, Callable[[Sides], Any]] = {
    "stream-stream": lambda s: s.stream("orders").join(s.stream("customers"), pair, WINDOWS),
    "stream-stream, outer": lambda s: s.stream("orders").outer_join(s.stream("customers"), pair, WINDOWS),
    "stream-table": lambda s: s.stream("orders").join(s.table("customers"), pair),
    "stream-table, left": lambda s: s.stream("orders").left_join(s.table("customers"), pair),
    "stream-global": lambda s: s.stream("orders").join(
        s.whole(), pair, key_selector=lambda k, v: customer(v)
    ),
    "stream-global, left": lambda s: s.stream("orders").left_join(
        s.whole(), pair, key_selector=lambda k, v: customer(v)
    ),
    "table-table": lambda s: s.table("orders").join(s.table("customers"), pair),
    "table-table, outer": lambda s: s.table("orders").outer_join(s.table("customers"), pair),
    "foreign key": lambda s: s.table("orders").join(s.table("customers"), pair, foreign_key=customer),
    "foreign key, left": lambda s: s.table("orders").left_join(
        s.table("customers"), pair, foreign_key=customer
    ),
    "foreign key, every change": lambda s: s.table("orders").join(
        s.table("customers"), pair, foreign_key=customer, **EVERY
    ),
    "table-global": lambda s: s.table("orders").join(s.whole(), pair, foreign_key=customer),
    "many": lambda s: s.table("orders").join_many({"customer": (s.table("customers"), customer)}, pair),
    "many, every change": lambda s: s.table("orders").join_many(
        {"customer": (s.table("customers"), customer)}, pair, **EVERY
    ),
}


def run(
    topology: cs.Topology, orders: list[Any], customers: list[Any], every: int = 10_000
) -> dict[str, Any]:
    """What the driver says after it has read all customers, and then all orders."""
    with cs.TopologyTestDriver(topology, partitions=2, commit_every=every) as driver:
        inputs = {"customers": customers, "orders": orders}
        for name, rows in inputs.items():
            topic = driver.create_input_topic(name, JSON, JSON)
            for number, (key, value) in enumerate(rows):
                topic.pipe_input(key, value, timestamp=number if name == "customers" else ROWS + number)
        driver.commit()
        return driver.metrics()


def orders(keyed_by: Callable[[int], Any] = lambda number: number) -> list[Any]:
    """Orders that refer to the customers by number."""
    return [(keyed_by(number), {"customer_id": keyed_by(number)}) for number in range(ROWS)]


CUSTOMERS = [({"id": number}, {"name": f"n{number}"}) for number in range(ROWS)]


@pytest.mark.parametrize("kind", sorted(JOINS))
@pytest.mark.parametrize("every", [10_000, 100])
def test_a_number_that_asks_for_objects(kind: str, every: int, caplog: pytest.LogCaptureFixture) -> None:
    """All is well, as far as errors go: no row has a partner, and there is one warning in the whole run."""
    sides = Sides()
    JOINS[kind](sides)
    with caplog.at_level(logging.WARNING):
        metrics = run(sides.builder.build(), orders(), CUSTOMERS, every)
    [record] = [one for one in caplog.records if one.name == "crossstream.joins"]
    text = record.getMessage()
    assert metrics["warnings"] == (text,)
    [operator] = metrics["unmatched"]
    assert operator in text
    assert set(metrics["matched"].values()) <= {0}
    assert metrics["unmatched"][operator] > 1_000
    asked, _, present = text.partition("customers has keys such as")
    assert "orders asks for the key" in asked
    assert "(int, json)" in asked
    assert "{'id': " in present
    assert "(dict, json)" in present


@pytest.mark.parametrize("kind", sorted(JOINS))
def test_keys_that_meet(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    sides = Sides()
    JOINS[kind](sides)
    metrics = run(sides.builder.build(), orders(lambda number: {"id": number}), CUSTOMERS)
    assert metrics["warnings"] == ()
    [operator] = metrics["matched"]
    assert metrics["matched"][operator] >= ROWS
    assert not caplog.records


@pytest.mark.parametrize("kind", ["stream-stream", "stream-table", "foreign key", "many"])
def test_one_row_that_finds_its_partner_is_enough(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    sides = Sides()
    JOINS[kind](sides)
    rows = [({"id": 0}, {"customer_id": {"id": 0}}), *orders()]
    assert run(sides.builder.build(), rows, CUSTOMERS, 100)["warnings"] == ()
    assert not caplog.records


@pytest.mark.parametrize("kind", sorted(JOINS))
def test_rows_that_ask_while_there_is_nothing_to_find(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """They are counted, but nothing is wrong with their keys as far as anybody can know."""
    sides = Sides()
    JOINS[kind](sides)
    metrics = run(sides.builder.build(), orders(), [])
    assert sum(metrics["unmatched"].values()) == ROWS
    assert metrics["warnings"] == ()
    assert not caplog.records


@pytest.mark.parametrize("kind", ["stream-stream", "stream-table", "foreign key", "many"])
def test_few_keys_that_are_in_different_partitions(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """No task sees a key of both sides; together they do."""
    sides = Sides()
    JOINS[kind](sides)
    is_stream = kind.startswith("stream")
    with cs.TopologyTestDriver(sides.builder.build(), partitions=64, commit_every=300) as driver:
        topics = {name: driver.create_input_topic(name, JSON, JSON) for name in ("customers", "orders")}
        topics["customers"].pipe_input({"id": 1}, {"name": "a"})
        driver.commit()
        for number in range(ROWS):
            topics["orders"].pipe_input(1 if is_stream else number, {"customer_id": 1}, timestamp=number)
        assert len(driver.metrics()["warnings"]) == 1
    assert len(caplog.records) == 1


def test_keys_of_one_kind(caplog: pytest.LogCaptureFixture) -> None:
    """Here the customers come after the orders that look for them."""
    sides = Sides()
    JOINS["stream-table"](sides)
    first = [({"id": -1}, {"name": "somebody"})]
    with cs.TopologyTestDriver(sides.builder.build(), commit_every=10_000) as driver:
        for name, rows in (
            ("customers", first),
            ("orders", orders(lambda number: {"id": number})),
            ("customers", CUSTOMERS),
        ):
            topic = driver.create_input_topic(name, JSON, JSON)
            for key, value in rows:
                topic.pipe_input(key, value)
            driver.commit()
    [record] = caplog.records
    assert "which rows come first" in record.getMessage()


def test_each_table_of_a_join_of_many_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    builder = cs.StreamsBuilder()
    left = builder.table("orders", LOOSE, cs.Materialized(store="orders"))
    customers = builder.table("customers", LOOSE, cs.Materialized(store="customers"))
    shops = builder.table("shops", LOOSE, cs.Materialized(store="shops"))
    left.left_join_many({"customer": (customers, customer), "shop": (shops, lambda o: o["shop"])}, pair)
    with cs.TopologyTestDriver(builder.build(), commit_every=10_000) as driver:
        topics = {
            name: driver.create_input_topic(name, JSON, JSON) for name in ("orders", "customers", "shops")
        }
        for number in range(ROWS):
            topics["customers"].pipe_input({"id": number}, {}, timestamp=number)
            topics["shops"].pipe_input(number, {}, timestamp=number)
            topics["orders"].pipe_input(number, {"customer_id": number, "shop": number}, timestamp=number)
        driver.commit()
        metrics = driver.metrics()
    found = {name.rpartition(": ")[2]: rows for name, rows in metrics["matched"].items() if rows}
    assert found == {"shop": 2 * ROWS}, "each order its shop, and each shop an order"
    assert {name.rpartition(": ")[2]: rows for name, rows in metrics["unmatched"].items() if rows} == {
        "customer": 2 * ROWS
    }
    [record] = caplog.records
    assert ": customer" in record.getMessage()


def test_a_row_without_a_key_does_not_ask() -> None:
    sides = Sides()
    JOINS["foreign key, left"](sides)
    metrics = run(sides.builder.build(), [(1, {"customer_id": None}), (2, {"customer_id": 7})], CUSTOMERS[:3])
    assert metrics["unmatched"] == {"orders.left_join(customers)": 1 + 3}
