"""Many payloads, half of them damaged: each comes out right or is refused, no neighbour is lost, nothing hangs."""

from __future__ import annotations

import random
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from crossstream import SerdeError, serdes
from crossstream.serdes.avro import cursor as avro_cursor
from crossstream.serdes.avro import read as avro_read
from crossstream.serdes.calls import find_invalid
from tests.serdes.avro.schemas import comparable, read, write

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "open", "type": "boolean"},
        {"name": "weight", "type": "double"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
    ],
}
NESTED = {
    "type": "record",
    "name": "Basket",
    "fields": [
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "sku", "type": "string"}, {"name": "count", "type": ["null", "int"]}]}}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "rates", "type": {"type": "array", "items": "double"}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
    ],
}  # fmt: skip
UNIONS = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "body", "type": ["null", "long", "string", {"type": "array", "items": "int"}]},
        {"name": "size", "type": "int"},
    ],
}
UTC = timezone.utc


def _order(rng: random.Random) -> Any:
    return {
        "id": rng.getrandbits(rng.choice([3, 20, 62])),
        "customer": rng.choice([None, "Ada", "é" * rng.randrange(20)]),
        "price": Decimal(rng.randrange(-(10**10), 10**10)).scaleb(-2),
        "at": datetime(2026, 1, 1 + rng.randrange(28), tzinfo=UTC),
        "state": rng.choice(["NEW", "PAID", "SENT"]),
        "open": rng.random() < 0.5,
        "weight": rng.random(),
        "hash": rng.randbytes(4),
    }


def _basket(rng: random.Random) -> Any:
    return {
        "lines": [
            {"sku": "s" * rng.randrange(20), "count": rng.choice([None, 7])} for _ in range(rng.randrange(4))
        ],
        "tags": {str(at): "x" for at in range(rng.randrange(3))},
        "rates": [rng.random() for _ in range(rng.choice([0, 0, 1, 3]))],
        "nothing": [None] * rng.randrange(3),
    }


def _event(rng: random.Random) -> Any:
    body = rng.choice([None, rng.getrandbits(50), "text", [1, -2, 3]])
    return {"body": body, "size": rng.randrange(-9, 9)}


def _damage(rng: random.Random, row: bytes, other: bytes) -> bytes:
    cut = rng.randrange(len(row) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return row[:cut]
    if kind == 1:
        return row + rng.randbytes(rng.randrange(1, 12))
    if kind == 2:
        return row[:cut] + other[rng.randrange(len(other) + 1) :]
    if kind == 3:
        return row[:cut] + rng.randbytes(rng.randrange(1, 12)) + row[cut:]
    cut = min(cut, len(row) - 1)
    return row[:cut] + bytes([row[cut] ^ (1 << rng.randrange(8))]) + row[cut + 1 :]


def _check(schema: Any, make: Any, rows: int, seed: int) -> None:
    rng = random.Random(seed)
    values = [make(rng) for _ in range(rows)]
    good = [write(schema, value) for value in values]
    damaged = {row for row in range(rows) if rng.random() < 0.5}
    wire = [_damage(rng, row, rng.choice(good)) if at in damaged else row for at, row in enumerate(good)]
    serde = serdes.avro(schema)
    bad = dict(find_invalid(serde, pa.array(wire, pa.large_binary()), way="objects"))
    assert bad.keys() <= damaged
    assert len(bad) > len(damaged) / 4
    kept = [at for at in range(rows) if at not in bad]
    found = serde.decode_objects(pa.array([wire[at] for at in kept], pa.large_binary()))
    for at, value in zip(kept, found, strict=True):
        expected = read(schema, wire[at]) if at in damaged else values[at]
        assert comparable(value) == comparable(expected), wire[at]
    column = pa.array(wire, pa.large_binary())
    with pytest.raises(SerdeError, match=r"^\[CS-402\]"):
        serde.decode_series(column, ["size"] if schema is UNIONS else None)
    assert {
        row for row, _ in find_invalid(serde, column, ["size"] if schema is UNIONS else None, "series")
    } == bad.keys()


@pytest.mark.parametrize(("schema", "make"), [(ORDER, _order), (NESTED, _basket), (UNIONS, _event)])
def test_damaged_payloads(schema: Any, make: Any) -> None:
    _check(schema, make, 2000, seed=1)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("schema", "make"), [(ORDER, _order), (NESTED, _basket), (UNIONS, _event)])
def test_200_000_damaged_payloads(schema: Any, make: Any) -> None:
    for seed in range(34):
        _check(schema, make, 4000, seed)  # half of them damaged


def _reasons(schema: Any, *rows: bytes) -> list[str]:
    found = find_invalid(serdes.avro(schema), pa.array(rows, pa.large_binary()), way="objects")
    return [reason for _, reason in found]


NUMBERS = {"type": "array", "items": "long"}


@pytest.mark.parametrize(
    ("schema", "row", "reason"),
    [
        ("string", b"", "the payload is too short"),
        ("string", b"\x06ab", "the payload is too short"),
        ("string", b"\x01", "a negative length"),
        ("string", b"\x02\xff", "text that is not UTF-8"),
        ("string", b"\x02ab", "bytes are left over behind the value"),
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a", "the payload is too short"),
        ("long", b"\xff" * 9 + b"\x02", "a number of more than 64 bits"),
        ("long", b"\xff" * 20, "a number of more than 64 bits"),
        ("long", b"\xff" * 3, "the payload is too short"),
        ("int", b"\x80\x80\x80\x80\x10", "an int of more than 32 bits"),
        ("boolean", b"\x02", "a boolean that is neither 0 nor 1"),
        (["null", "long"], b"\x04", "a branch that the union does not have"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "a number that no symbol has"),
        (NUMBERS, b"\x04\x02\x02", "the payload is too short"),
        (
            NUMBERS,
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02",
            "more items than the payload has bytes for",
        ),
        (NUMBERS, b"\x01\xfe\x7f\x02\x00", "a block that is longer than the payload"),
        ({"type": "array", "items": "null"}, b"\xd2\x0f\x00", "more than 1000 items without bytes"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2},
            b"\x02\x64",
            "a decimal of more than 2 digits",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x00", "a decimal of no bytes"),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", "a date beyond its range"),
        ({"type": "string", "logicalType": "uuid"}, b"\x02a", "text that is not a UUID"),
    ],
)
def test_reasons(schema: Any, row: bytes, reason: str) -> None:
    assert [one for one in _reasons(schema, row) if reason in one]


def test_arrays_in_blocks_with_sizes_and_without() -> None:
    serde = serdes.avro(NUMBERS)
    assert serde.deserialize(b"\x03\x04\x02\x04\x02\x06\x00") == [1, 2, 3]
    assert serde.serialize([1, 2, 3]) == b"\x06\x02\x04\x06\x00"


@pytest.mark.timeout(60)
def test_long_arrays_beside_short_ones() -> None:
    text = serdes.avro({"type": "array", "items": {"type": "map", "values": "string"}})
    values = [[{"a": "b"}] * 20_000, [], [{"a": "é"}] * 3, [{}] * (avro_read.ROUNDS + 1)]
    assert text.decode_objects(text.encode_objects(values)) == values
    numbers = serdes.avro({"type": "array", "items": "double"})
    rows = [[0.5] * 200_000, [], [1.0]]
    assert numbers.decode_objects(numbers.encode_objects(rows)) == rows


def test_a_type_inside_itself_has_objects_and_a_depth() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "value", "type": "int"},
            {"name": "next", "type": ["null", "Node"], "default": None},
        ],
    }
    serde = serdes.avro(node)
    assert serde.dtype is None
    chain: Any = None
    for value in range(avro_cursor.DEEPEST):
        chain = {"value": value, "next": chain}
    data = serde.serialize(chain)
    assert data is not None
    assert serde.deserialize(data) == chain == read(node, data)
    assert "more than 64 levels" in _reasons(node, b"\x02\x02" * 100_000, data)[0]
    assert len(_reasons(node, b"\x02\x02" * 100_000, data)) == 1
