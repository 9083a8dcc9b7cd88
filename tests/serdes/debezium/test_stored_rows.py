"""The serde of the rows of a table: Avro where events are Avro, if it holds the type as JSON does."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import polars as pl
import pytest

import crossstream as cs


@dataclass
class Order:
    id: int
    amount: Decimal
    at: datetime | None = None
    tags: list[str] | None = None


def test_rows_of_avro_events_are_avro() -> None:
    assert cs.debezium(Order, registry="mock://stored").stored.name.startswith("confluent_avro[Order")
    assert cs.debezium(Order).stored == cs.debezium(Order).row


@pytest.mark.parametrize(
    "kind", [time, list[time] | None, timedelta, Annotated[int, msgspec.Meta(ge=0)], dict[str, int] | None]
)
def test_types_that_avro_does_not_hold_are_json(kind: Any) -> None:
    row = make_dataclass("Row", [("id", int), ("it", kind)])
    try:
        source = cs.debezium(row, registry="mock://stored")
    except cs.TopologyError:
        return  # no column holds it
    assert source.stored == source.row


def test_a_schema_of_columns_is_json() -> None:
    source = cs.debezium({"id": pl.Int64(), "size": pl.UInt64()}, registry="mock://stored")
    assert source.stored == source.row
