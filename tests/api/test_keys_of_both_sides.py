"""A join by a field of the left row: where the prefix gives the other side's key the same name, it is one field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

import crossstream as cs

PREFIX = cs.prefixed("customer_")


@dataclass
class Order:
    customer_id: str | None
    amount: int


@dataclass
class Customer:
    id: str
    name: str


TYPES: dict[str, tuple[Any, Any]] = {
    "classes": (Order, Customer),
    "schemas": ({"customer_id": pl.String, "amount": pl.Int64}, {"id": pl.String, "name": pl.String}),
    "undeclared": (dict, dict),
    "one of both": (Order, dict),
}
KEYS: dict[str, Any] = {
    "text": "customer_id",
    "expression": pl.col("customer_id"),
    "function": lambda order: order["customer_id"] if isinstance(order, dict) else order.customer_id,
}


def run(make: Callable[[cs.StreamsBuilder], cs.KTable | cs.KStream], *records: Any) -> list[Any]:
    """What comes out: (key, value). ``records``: (topic, key, value)."""
    builder = cs.StreamsBuilder()
    make(builder).to("out", value=dict)
    with cs.TopologyTestDriver(builder.build()) as driver:
        topics: dict[str, cs.TestInputTopic] = {}
        for topic, key, value in records:
            topics[topic] = topics.get(topic) or driver.create_input_topic(topic, str, dict)
            topics[topic].pipe_input(key, value)
        return driver.create_output_topic("out", str, dict).read_key_values()


ORDER = ("orders", "o1", {"customer_id": "c1", "amount": 7})
ADA = ("customers", "c1", {"id": "c1", "name": "ada"})
BOTH = {"customer_id": "c1", "amount": 7, "customer_name": "ada"}


def is_known(types: str, key: str) -> bool:
    """An expression needs types, and with types a function does not say which field it reads."""
    return key == "text" or (key == "expression") == (types in ("classes", "schemas"))


@pytest.mark.parametrize(
    ("types", "key"), [(types, key) for types in TYPES for key in KEYS if is_known(types, key)]
)
def test_the_foreign_key_and_the_key_are_one_field(types: str, key: str) -> None:
    left, right = TYPES[types]

    def make(builder: cs.StreamsBuilder) -> cs.KTable:
        orders, customers = builder.table("orders", value=left), builder.table("customers", value=right)
        return orders.left_join(customers, foreign_key=KEYS[key], on_merge=PREFIX)

    (_, alone), (_, joined) = run(make, ORDER, ADA)
    assert joined == BOTH
    assert {name: value for name, value in alone.items() if value is not None} == {
        "customer_id": "c1",
        "amount": 7,
    }
    assert list(joined) == ["customer_id", "amount", "customer_name"]
    [(_, without)] = run(make, ("orders", "o1", {"customer_id": None, "amount": 7}))
    assert (without.get("customer_id"), without["amount"], without.get("customer_name")) == (None, 7, None)


@pytest.mark.parametrize("types", TYPES)
def test_rows_of_the_other_side_alone_have_its_key(types: str) -> None:
    left, right = TYPES[types]

    def make(builder: cs.StreamsBuilder) -> cs.KStream:
        orders, customers = builder.table("orders", value=left), builder.table("customers", value=right)
        both = orders.outer_join(
            customers, foreign_key="customer_id", on_merge=PREFIX, keyed_by=cs.LeftOrRight
        )
        return both.to_stream(lambda key, value: "k")

    builder = cs.StreamsBuilder()
    make(builder).to("out", key=str, value=dict)
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("customers", str, dict).pipe_input(*ADA[1:])
        [found] = driver.create_output_topic("out", str, dict).read_values()
    assert {name: value for name, value in found.items() if value is not None} == {
        "customer_id": "c1",
        "customer_name": "ada",
    }


JOINS: dict[str, Callable[[cs.StreamsBuilder, Any, Any], cs.KTable | cs.KStream]] = {
    "a table with a global table": lambda b, left, right: b.table("orders", value=left).join(
        b.global_table("customers", value=right), foreign_key="customer_id", on_merge=PREFIX
    ),
    "a stream with a global table": lambda b, left, right: b.stream("orders", value=left).join(
        b.global_table("customers", value=right), key_selector="customer_id", on_merge=PREFIX
    ),
    "a stream that selected the key": lambda b, left, right: (
        b.stream("orders", value=left)
        .select_key("customer_id")
        .filter(lambda order: True)
        .repartition(key=str)
        .join(b.table("customers", value=right), on_merge=PREFIX)
    ),
}


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("join", JOINS)
def test_every_join_by_a_field(join: str, types: str) -> None:
    found = run(lambda builder: JOINS[join](builder, *TYPES[types]), ADA, ORDER)
    assert [value for _, value in found] == [BOTH]


def test_a_view_of_global_tables() -> None:
    def make(builder: cs.StreamsBuilder) -> cs.KStream:
        orders = builder.global_table("orders", value=Order)
        view = orders.join(
            builder.global_table("customers", value=Customer), key_selector="customer_id", on_merge=PREFIX
        )
        return builder.stream("asked", value={"order": pl.String}).join(
            view, lambda asked, row: row, key_selector="order"
        )

    [(_, found)] = run(make, ADA, ORDER, ("asked", "q", {"order": "o1"}))
    assert found == BOTH


def test_undeclared_values_that_differ_are_two_fields() -> None:
    def make(builder: cs.StreamsBuilder) -> cs.KTable:
        return builder.table("orders").join(
            builder.table("customers"), foreign_key="customer_id", on_merge=PREFIX
        )

    with pytest.raises(cs.ProcessingError, match="both sides have the field 'customer_id'"):
        run(make, ORDER, ("customers", "c1", {"id": "another"}))


@pytest.mark.parametrize(
    ("left", "right", "settings", "step"),
    [
        ({"customer_id": pl.String}, {"id": pl.Int64}, {"foreign_key": "customer_id"}, "another prefix"),
        ({"customer_id": pl.String, "by": pl.String}, Customer, {"foreign_key": "by"}, "another prefix"),
        ({"customer_id": pl.String}, Customer, {}, "another prefix"),
        (
            {"customer_id": pl.String, "customer_name": pl.String},
            Customer,
            {"foreign_key": "customer_id"},
            "name",
        ),
        (
            Order,
            Customer,
            {"foreign_key": lambda order: order.customer_id},
            "name the foreign key by its field: 'customer_id'",
        ),
        (Order, Customer, {"foreign_key": pl.col("customer_id").str.to_lowercase()}, "another prefix"),
    ],
)
def test_other_fields_of_one_name_are_refused(
    left: Any, right: Any, settings: dict[str, Any], step: str
) -> None:
    builder = cs.StreamsBuilder()
    orders, customers = builder.table("orders", value=left), builder.table("customers", value=right)
    with pytest.raises(cs.TopologyError) as caught:
        orders.join(customers, on_merge=PREFIX, **settings)
    assert caught.value.code == "CS-136"
    assert "'customer_id'" in caught.value.what
    assert step in str(caught.value)
