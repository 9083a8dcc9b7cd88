"""A foreign key has one text, whether a callable gives it or an expression, and so finds its row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
ForeignKey = pl.Expr | Callable[[Any], Any]
ROWS = [1, 100]


def found(key: Any, order: type, foreign_key: ForeignKey, row: Any, orders: list[Any]) -> list[str]:
    """The orders that find the one row of the other table, whose key has the serde ``key``."""
    builder, written = cs.StreamsBuilder(), serdes.json(order)
    left = builder.table("orders", cs.Consumed(key=TEXT, value=written))
    right = builder.table("rows", cs.Consumed(key=key, value=JSON))
    result = cs.Materialized(store="found", key=TEXT, value=JSON)
    left.join(right, lambda order, row: row, foreign_key=foreign_key, materialized=result)
    with cs.TopologyTestDriver(builder.build(), commit_every=1000) as driver:
        driver.create_input_topic("rows", key, JSON).pipe_input(row, "row")
        driver.create_input_topic("orders", TEXT, written).pipe_records(
            [(f"{number:03}", one, number) for number, one in enumerate(orders)]
        )
        driver.commit()
        return [key for key, _ in driver.get_key_value_store("found").all()]


def names(rows: int) -> list[str]:
    return [f"{number:03}" for number in range(rows)]


@dataclass
class Rated:
    rate: Decimal


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("foreign_key", [lambda order: order.rate, pl.col("rate")])
def test_a_decimal_without_declared_scale(foreign_key: ForeignKey, rows: int) -> None:
    assert found(JSON, Rated, foreign_key, "19.5", [Rated(Decimal("19.5"))] * rows) == names(rows)
