"""The scale of a decimal that is known is that of its column, down to stores, queries and Delta."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.described import made
from crossstream.serdes.own import known
from tests.lakehouse.lake import Lake

RAW = serdes.bytes()


@dataclass
class Line:
    net: Decimal | None


@dataclass
class Order:
    id: int
    amount: Decimal
    rate: Decimal | None
    lines: list[Line]


SCALES = {"amount": 2, "lines.net": 3}
ROW = {"id": 1, "amount": "BOI=", "rate": 0.5, "lines": [{"net": "BOI="}]}
TYPES = {"amount": pa.decimal128(38, 2), "rate": pa.decimal128(38, 18), "net": pa.decimal128(38, 3)}


def run(make: Callable[[cs.KTable], object], read: Callable[[cs.TopologyTestDriver], Any]) -> Any:
    builder = cs.StreamsBuilder()
    make(builder.table("orders", source=cs.debezium(Order, scales=SCALES), store="orders"))
    with cs.TopologyTestDriver(builder.build()) as driver:
        event = json.dumps({"op": "c", "before": None, "after": ROW}).encode()
        driver.create_input_topic("orders", RAW, RAW).pipe_input(b'{"id": 1}', event)
        return read(driver)


def types_of(row: pa.StructType) -> dict[str, pa.DataType]:
    lines = row.field("lines").type.value_type
    return {**{name: row.field(name).type for name in ("amount", "rate")}, "net": lines.field("net").type}


def test_a_store_has_the_scale() -> None:
    table = run(lambda table: None, lambda driver: driver.get_key_value_store("orders").to_arrow())
    assert types_of(table.schema.field("value").type) == TYPES
    [value] = table.column("value").to_pylist()
    assert (value["amount"], value["lines"]) == (Decimal("12.50"), [{"net": Decimal("1.250")}])


def test_expressions_and_joins_keep_it() -> None:
    def make(table: cs.KTable) -> None:
        table.map_values(pl.struct("amount", "rate", "lines"), store="made")
        table.filter(pl.col("amount") > 1).join(table, on_merge="keep-left", store="joined")

    stores = run(
        make,
        lambda driver: [driver.get_key_value_store(name).to_arrow() for name in ("made", "joined")],
    )
    assert [types_of(store.schema.field("value").type) for store in stores] == [TYPES, TYPES]


def test_delta_has_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    run(lambda table: table.to_delta(lake.path("orders"), key="order_id"), lambda driver: None)
    schema = pa.schema(DeltaTable(lake.path("orders")).to_pyarrow_table().schema)
    assert types_of(pa.struct(list(schema))) == TYPES


def test_callables_get_objects_with_its_digits() -> None:
    found = run(
        lambda table: table.map_values(lambda order: str(order.amount)).to("out", value=str),
        lambda driver: driver.create_output_topic("out", RAW, str).read_values(),
    )
    assert found == ["12.50"]


def test_a_reader_without_the_class_has_it() -> None:
    serde = cs.debezium(Order, scales=SCALES).stored
    assert made(known(serde).described(), {}).dtype == serde.dtype


@dataclass
class Priced:
    amount: Annotated[Decimal, msgspec.Meta(extra={"scale": 2})]
    note: Annotated[str, msgspec.Meta(description="for people")]


def test_a_class_declares_it_by_an_annotation() -> None:
    assert serdes.json(Priced).dtype == pl.Struct({"amount": pl.Decimal(38, 2), "note": pl.String})


@pytest.mark.parametrize("scale", [-1, 39, 1.5, "2", True, None])
def test_what_is_no_scale_is_refused(scale: Any) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        cs.debezium(Order, scales={"amount": scale})
    assert caught.value.code == "CS-101"
