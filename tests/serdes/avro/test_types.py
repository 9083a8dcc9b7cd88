"""Python types and Avro: the schema that is derived, values both ways, and what is refused."""

from __future__ import annotations

import enum
import json
import pickle
import uuid
from dataclasses import dataclass, field
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import polars as pl
import pyarrow as pa
import pytest

from crossstream import SerdeError, serdes
from crossstream.serdes.avro.types import schema_text
from crossstream.serdes.calls import find_invalid
from crossstream.serdes.own import check_key_serde
from tests.serdes.avro.schemas import read

UTC = timezone.utc


class Color(enum.Enum):
    RED = "RED"
    BLUE = "BLUE"


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: int
    customer: str | None
    price: Decimal
    weight: float
    at: datetime
    local: Annotated[datetime, msgspec.Meta(tz=False)]
    day: date
    clock: time
    token: uuid.UUID
    raw: bytes
    open: bool
    color: Color
    level: Level
    kind: Literal["a", "b"]
    lines: list[Line]
    tags: dict[str, int]
    note: str | None = None
    name: str | None = "x"
    old: list[Line] = field(default_factory=list)


ORDER = Order(
    id=2**62,
    customer=None,
    price=Decimal("1.5"),
    weight=0.1,
    at=datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC),
    local=datetime(2026, 1, 1, 1, 2, 3, 4),
    day=date(1999, 12, 31),
    clock=time(1, 2, 3, 4),
    token=uuid.UUID(int=7),
    raw=b"\x00\xff",
    open=True,
    color=Color.BLUE,
    level=Level.HIGH,
    kind="a",
    lines=[Line("a"), Line("b", 2)],
    tags={"x": 1},
)


def _rows(*rows: bytes | None) -> pa.LargeBinaryArray:
    return pa.array(rows, pa.large_binary())


def test_the_schema_of_a_class() -> None:
    made = {one["name"]: one for one in json.loads(schema_text(Order))["fields"]}
    assert made["id"]["type"] == "long"
    assert made["customer"] == {"name": "customer", "type": ["null", "string"]}
    assert made["price"]["type"] == {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18}
    assert made["weight"]["type"] == "double"
    assert made["at"]["type"]["logicalType"] == "timestamp-micros"
    assert made["local"]["type"]["logicalType"] == "local-timestamp-micros"
    assert made["day"]["type"]["logicalType"] == "date"
    assert made["clock"]["type"]["logicalType"] == "time-micros"
    assert made["token"]["type"] == {"type": "string", "logicalType": "uuid"}
    assert made["color"]["type"] == {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
    assert made["level"]["type"] == "long"
    assert made["kind"]["type"] == "string"
    assert made["lines"]["type"]["items"]["fields"][1] == {"name": "count", "type": "long", "default": 1}
    assert made["tags"]["type"] == {"type": "map", "values": "long"}
    assert made["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    assert made["name"] == {"name": "name", "type": ["string", "null"], "default": "x"}
    assert made["old"] == {"name": "old", "type": {"type": "array", "items": "Line"}, "default": []}


def test_instances_both_ways() -> None:
    serde = serdes.avro(Order)
    wire = serde.encode_objects([ORDER, None])
    assert serde.decode_objects(wire) == [ORDER, None]
    found = read(json.loads(schema_text(Order)), wire[0].as_py())
    assert found["price"] == Decimal("1.5")
    assert found["color"] == "BLUE"
    column = serde.decode_series(wire)
    assert column.dtype == serde.dtype
    assert serde.encode_series(column).equals(wire)
    assert column.struct.field("tags").to_list()[0] == [{"key": "x", "value": 1}]
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert hash(serde) == hash(serdes.avro(Order))


@dataclass
class Basket:
    id: int
    color: Color | None
    lines: list[Line]
    token: uuid.UUID
    at: datetime
    first: Line | None = None


class Frozen(msgspec.Struct, frozen=True, rename="camel"):
    unit_price: float
    line: Line


class OnlyNamed(msgspec.Struct, kw_only=True):
    id: int


def test_instances_made_from_columns_are_those_of_msgspec() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    baskets = [
        Basket(1, Color.RED, [Line("a"), Line("b", 2)], uuid.UUID(int=1), at, Line("c")),
        Basket(2, None, [], uuid.UUID(int=2), at),
    ]
    for kind, values in (
        (Basket, baskets),
        (Frozen, [Frozen(0.5, Line("a"))]),
        (OnlyNamed, [OnlyNamed(id=7)]),
    ):
        serde = serdes.avro(kind)
        wire = serde.encode_objects([*values, None] * 20)
        assert serde.decode_objects(wire) == [*values, None] * 20
        assert [serde.deserialize(serde.serialize(value)) for value in values] == values
    assert serdes.avro(Basket).form.build is not None
    assert serdes.avro(Frozen).form.build is not None
    assert serdes.avro(OnlyNamed).form.build is None


class Bill(msgspec.Struct, frozen=True):
    id: int
    total: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Row(TypedDict):
    id: int


def test_structs_and_dicts_of_a_type() -> None:
    serde = serdes.avro(Bill)
    data = serde.serialize(Bill(7, 1.5))
    assert serde.deserialize(data) == Bill(7, 1.5)
    assert serde.serialize({"id": 7, "total": 1.5}) == data
    assert serdes.avro(Row).deserialize(b"\x0e") == {"id": 7}
    assert serdes.avro(int).deserialize(b"\x0e") == 7


def test_limits_of_a_type_are_kept() -> None:
    serde, plain = serdes.avro(Bill), serdes.avro(json.loads(schema_text(Bill)))
    below = plain.serialize({"id": 1, "total": -1.0})
    with pytest.raises(SerdeError, match=r"^\[CS-401\]"):
        serde.serialize(Bill(1, -1.0))
    with pytest.raises(SerdeError, match=r"^\[CS-401\]"):
        serde.encode_series(pl.Series([{"id": 1, "total": -1.0}]))
    good = plain.serialize({"id": 1, "total": 1.0})
    for way in ("objects", "series"):
        assert [row for row, _ in find_invalid(serde, _rows(good, below, good), way=way)] == [1]


def test_a_schema_with_a_type() -> None:
    schema = json.loads(schema_text(Bill))
    schema["fields"].append({"name": "more", "type": "string", "default": ""})
    serde = serdes.avro(schema, Bill)
    assert serde.deserialize(serde.serialize(Bill(7, 1.0))) == Bill(7, 1.0)
    wider = serdes.avro(
        {"type": "record", "name": "W", "fields": [{"name": "id", "type": ["null", "long"]}]}, Bill
    )
    assert [row for row, _ in find_invalid(wider, _rows(b"\x02\x0e", b"\x00"), way="series")] == [1]


def test_all_the_other_columns() -> None:
    cents = {"type": "fixed", "name": "C", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "small", "type": "int"},
            {"name": "half", "type": "float"},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
            {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}},
            {"name": "cents", "type": cents},
            {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "unknown", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
            {"name": "rows", "type": {"type": "array", "items": ["null", {"type": "map", "values": "boolean"}]}},
        ],
    }  # fmt: skip
    value = {
        "small": -7,
        "half": 0.5,
        "hash": b"ab",
        "id": uuid.UUID(int=2**127 + 5),
        "cents": Decimal("-1.28"),
        "ms": datetime(2026, 1, 1, 0, 0, 0, 5000, tzinfo=UTC),
        "unknown": 5,
        "rows": [None, {"x": True}],
    }
    serde = serdes.avro(schema)
    wire = serde.encode_objects([value])
    assert serde.decode_objects(wire) == [value]
    column = serde.decode_series(wire)
    assert serde.encode_series(column).equals(wire)
    assert column.struct.field("id").to_list() == [str(value["id"])]
    assert serde.dtype == column.dtype
    assert column.struct.field("ms").dtype == pl.Datetime("ms", "UTC")


WIDE = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "body", "type": ["null", "long", "string"]}, {"name": "size", "type": "int"}],
}


def test_a_union_of_several_types_is_for_callables() -> None:
    serde = serdes.avro(WIDE)
    wire = serde.encode_objects([{"body": "x", "size": 1}, {"body": 7, "size": 2}])
    assert serde.decode_objects(wire) == [{"body": "x", "size": 1}, {"body": 7, "size": 2}]
    assert serde.dtype is None
    assert serde.decode_series(wire, ["size"]).to_list() == [{"size": 1}, {"size": 2}]
    with pytest.raises(SerdeError, match="a union of several types") as caught:
        serde.decode_series(wire, ["body"])
    assert caught.value.code == "CS-404"


def test_columns_are_made_to_fit() -> None:
    serde = serdes.avro(Line)
    narrow = pl.Series([{"count": 3, "sku": "a"}], dtype=pl.Struct({"count": pl.Int8, "sku": pl.String}))
    assert serde.decode_objects(serde.encode_series(narrow)) == [Line("a", 3)]
    with pytest.raises(SerdeError, match="field sku is null") as caught:
        serde.encode_series(pl.Series([{"count": 3, "sku": None}], dtype=narrow.dtype))
    assert caught.value.code == "CS-401"
    with pytest.raises(SerdeError, match="has no field more"):
        serde.encode_series(pl.Series([{"count": 3, "sku": "a", "more": 1}]))
    with pytest.raises(SerdeError, match="takes a column of"):
        serde.encode_series(pl.Series([1]))


def test_symbols_that_do_not_exist() -> None:
    serde = serdes.avro({"type": "enum", "name": "E", "symbols": ["A", "B"]})
    with pytest.raises(SerdeError, match="is not a symbol of E") as caught:
        serde.encode_series(pl.Series(["A", "C"]))
    assert caught.value.code == "CS-403"
    assert "A, B" in caught.value.next
    with pytest.raises(SerdeError, match=r"^\[CS-401\]"):
        serde.serialize("C")


@pytest.mark.parametrize(
    "value",
    [{"id": "x"}, {"id": 7, "more": 1}, {}, {"id": 2**63}, {"id": True}, 7, {"id": 7.5}],
)
def test_objects_that_do_not_fit(value: Any) -> None:
    serde = serdes.avro({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
    with pytest.raises(SerdeError, match=r"^\[CS-401\]"):
        serde.serialize(value)


def test_numbers_without_bytes() -> None:
    cents = serdes.avro({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    for value in ("1.005", "1000"):
        with pytest.raises(SerdeError, match=r"^\[CS-403\]"):
            cents.serialize(Decimal(value))
    with pytest.raises(SerdeError, match="beyond the range of Float32"):
        serdes.avro("float").serialize(1e300)


@pytest.mark.parametrize(
    "schema",
    [
        "strang",
        "{",
        {"type": "record", "name": "R"},
        {"type": "record", "name": "1R", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "Unknown"}]},
        ["null", ["long"]],
        ["long", "long"],
        {"type": "enum", "name": "E", "symbols": ["A", "A"]},
        object,
        dict[int, str],
        complex,
        7,
    ],
)
def test_what_is_not_a_schema(schema: Any) -> None:
    with pytest.raises(SerdeError, match=r"^\[CS-404\]"):
        serdes.avro(schema)


def test_keys() -> None:
    check_key_serde(serdes.avro(Line))
    with pytest.raises(SerdeError, match="a map in it"):
        check_key_serde(serdes.avro({"type": "map", "values": "long"}))
    assert serdes.avro(Line).varied


def test_names() -> None:
    assert serdes.avro(Line).name.startswith("avro[Line ")
    assert serdes.avro("string").name.startswith("avro[string ")
    assert serdes.avro(Line).name == serdes.avro(Line).name != serdes.avro("string").name
    spaced = json.dumps(json.loads(schema_text(Line)), indent=1)
    assert serdes.avro(spaced) == serdes.avro(json.loads(spaced))
