"""Avro in topologies: a join by foreign key with expressions and with functions, and an aggregation of keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes


@dataclass
class Order:
    customer: str
    price: float


@dataclass
class Customer:
    name: str


@dataclass
class Bill:
    to: str
    price: float


@dataclass(frozen=True)
class Id:
    number: int


def _bill(order: Order, customer: Customer) -> Bill:
    return Bill(customer.name, order.price)


KEY = Id(7)


@dataclass
class Line:
    sku: str
    count: int = 1
    note: str | None = None
    seen: datetime | None = None


def test_instances_are_written_from_their_attributes() -> None:
    serde = serdes.avro(Line)
    assert serde.form.attributes is not None  # type: ignore[attr-defined]
    rows = [
        Line(
            f"é{at}",
            at,
            None if at % 3 else "x",
            None if at % 2 else datetime(2026, 1, 1, tzinfo=timezone.utc),
        )
        for at in range(200)
    ]
    one_by_one = [serde.serialize(row) for row in rows]
    assert serde.encode_objects(rows).to_pylist() == one_by_one
    assert serde.encode_objects([*rows[:100], None, *rows[100:]]).to_pylist()[100:102] == [
        None,
        one_by_one[100],
    ]
    assert serde.decode_objects(serde.encode_objects(rows)) == rows
    with pytest.raises(cs.SerdeError, match="CS-401"):
        serde.encode_objects([*rows, Line("b", "many")])  # type: ignore[arg-type]
    broken = Line("c")
    del broken.sku
    with pytest.raises(cs.SerdeError, match="CS-401"):
        serde.encode_objects([*rows, broken])


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("expressions", [False, True])
def test_a_join_by_foreign_key(framed: bool, expressions: bool) -> None:
    registry = f"mock://{uuid4()}"

    def avro(schema: Any) -> serdes.Serde:
        return serdes.confluent_avro(registry, schema) if framed else serdes.avro(schema)

    builder = cs.StreamsBuilder()
    orders = builder.table("orders", cs.Consumed(key=avro(Id), value=avro(Order)))
    customers = builder.table("customers", cs.Consumed(key=avro("string"), value=avro(Customer)))
    left, right = pl.col("left").struct, pl.col("right").struct
    if expressions:
        joiner = pl.struct(to=right.field("name"), price=left.field("price"))
        bills = orders.join(customers, joiner, foreign_key=pl.col("customer"))
    else:
        bills = orders.join(customers, _bill, foreign_key=lambda order: order.customer)
    bills.to_stream().to("bills", cs.Produced(key=avro(Id), value=avro(Bill)))
    with cs.TopologyTestDriver(builder.build()) as driver:
        into = driver.create_input_topic("orders", avro(Id), avro(Order))
        names = driver.create_input_topic("customers", avro("string"), avro(Customer))
        out = driver.create_output_topic("bills", avro(Id), avro(Bill))
        names.pipe_input("c1", Customer("Ada"))
        into.pipe_input(KEY, Order("c1", 1.5))
        assert out.read_key_values_to_map() == {KEY: Bill("Ada", 1.5)}
        names.pipe_input("c1", Customer("Grace"))
        assert out.read_key_values_to_map() == {KEY: Bill("Grace", 1.5)}
        into.pipe_input(KEY, None)
        assert out.read_key_values_to_map() == {KEY: None}
