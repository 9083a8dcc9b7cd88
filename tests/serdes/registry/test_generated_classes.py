"""The serdes take classes as the libraries of docs/schema-registry.md write them."""

from __future__ import annotations

import datetime
import enum
import json
import typing
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum

import msgspec
import polars as pl
import pytest
from msgspec import UNSET, Struct, UnsetType

import crossstream as cs
from crossstream import serdes

pytest.importorskip("confluent_kafka.schema_registry")

AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


class Kind(Enum):
    a = "a"
    b = "b"


@dataclass
class Line:
    sku: str


@dataclass
class FromJson:
    """datamodel-codegen --output-model-type dataclasses.dataclass"""

    customer: str
    at: datetime.datetime
    lines: list[Line] | None = field(default_factory=list)
    kind: Kind | None = None
    note: str | None = None


class Renamed(Struct):
    """datamodel-codegen --output-model-type msgspec.Struct"""

    customer: str
    at: datetime.datetime
    from_: str = msgspec.field(name="from")
    lines: list[Line] | UnsetType = msgspec.field(default_factory=list)
    kind: Kind | UnsetType = UNSET
    note: str | UnsetType | None = UNSET


class State(str, enum.Enum):
    NEW = "NEW"
    GOLD = "GOLD"


class AvroModel:
    """Stands for the base class of the library."""


@dataclass
class FromAvro(AvroModel):
    """dc-avro generate-model --model-type dataclass"""

    id: int
    price: Decimal
    uid: uuid.UUID
    at: datetime.datetime
    state: State = State.NEW
    lines: typing.List[Line] = field(default_factory=list)  # noqa: UP006
    note: typing.Optional[str] = None  # noqa: UP045

    class Meta:
        field_order = ("id", "state", "price", "at", "lines", "uid", "note")


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "state",
            "type": {"type": "enum", "name": "State", "symbols": ["NEW", "GOLD"]},
            "default": "NEW",
        },
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
            "default": [],
        },
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def test_a_dataclass_of_a_json_schema() -> None:
    serde = serdes.confluent_json("mock://generated", FromJson)
    given = {"customer": "Ada", "at": "2026-01-01T00:00:00Z", "lines": [{"sku": "x"}], "kind": "b"}
    read = serde.deserialize(b"\0\0\0\0\0" + json.dumps(given).encode())
    assert read == FromJson("Ada", AT, [Line("x")], Kind.b)
    assert serde.deserialize(serde.serialize(read)) == read


def test_a_struct_of_a_json_schema_keeps_names_and_what_is_left_out() -> None:
    serde = serdes.confluent_json("mock://generated", Renamed)
    data = b'\0\0\0\0\0{"customer":"Ada","at":"2026-01-01T00:00:00Z","from":"web","lines":[]}'
    read = serde.deserialize(data)
    assert (read.from_, read.kind, read.note) == ("web", UNSET, UNSET)
    assert serde.serialize(read) == data


def test_expressions_read_a_struct_but_for_what_may_be_left_out() -> None:
    serde, text = serdes.confluent_json("mock://generated", Renamed), serdes.string()
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=text, value=serde))
    orders.filter(pl.col("from") == "web").map_values(pl.col("customer")).to("web")
    with pytest.raises(cs.TopologyError) as caught:
        orders.filter(pl.col("kind") == "a")
    assert caught.value.code == "CS-114"
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("orders", text, serde).pipe_input("o1", Renamed("Ada", AT, "web"))
        assert driver.create_output_topic("web", text, text).read_key_values() == [("o1", "Ada")]


def test_a_dataclass_of_an_avro_schema() -> None:
    serde = serdes.confluent_avro("mock://generated", AVRO, type=FromAvro)
    row = FromAvro(1, Decimal("2.50"), uuid.UUID(int=3), AT, State.GOLD, [Line("x")])
    assert serde.deserialize(serde.serialize(row)) == row
