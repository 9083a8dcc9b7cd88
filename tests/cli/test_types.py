"""`crossstream types`: what it prints is a module whose classes the serdes take."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from crossstream import serdes
from crossstream.cli import main
from crossstream.cli.types import module_of
from crossstream.serdes.registry.client import Registered, RegistrySettings, connection

pytest.importorskip("confluent_kafka.schema_registry")

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": 'An "order" with \\ and """ in its text"',
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "class", "type": "string", "default": "a"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "None"]}, "default": "None"},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
         "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "more",
            "type": ["null", "shop.Line"], "default": None}]}}, "default": []},
        {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {}},
        {"name": "hash", "type": {"type": "fixed", "name": "Md5", "size": 16}},
        {"name": "last", "type": ["null", "Line"], "default": None},
        {"name": "either", "type": ["int", "string"], "default": 0},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip

JSON = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "from": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}, "default": []},
        "kind": {"enum": ["a", "b"]},
        "size": {"type": ["number", "null"]},
        "parent": {"$ref": "#"},
        "city": {"$ref": "city.json"},
        "inner": {"type": "object", "properties": {"x y": {"type": "boolean"}}, "required": ["x y"]},
        "any": {},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
    },
    "required": ["id", "from", "at"],
    "$defs": {"Line": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Line"}}}},
}


def imported(text: str, name: str) -> Any:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name, "exec"), module.__dict__)
    return module


def test_avro() -> None:
    text = module_of(Registered(3, "AVRO", json.dumps(AVRO), (), 2), "orders-value")
    assert text.startswith('"""Subject orders-value, version 2, id 3.')
    module = imported(text, "made_of_avro")
    assert "class Line:" in text
    assert "price: Decimal | None = None" in text
    assert "state: State = State.None_" in text
    assert "hash: bytes" in text
    assert module.Order.__struct_encode_fields__[1] == "class"
    assert serdes.json(module.Order).name == "json[Order]"


def test_json_schema() -> None:
    city = {
        "type": "object",
        "title": "City",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    text = module_of(
        Registered(3, "JSON", json.dumps(JSON), (("city.json", json.dumps(city)),), 1), "orders-value"
    )
    module = imported(text, "made_of_json")
    order = serdes.confluent_json("mock://types", module.Order)
    given = {
        "id": 1,
        "from": "a",
        "at": "2026-01-01T00:00:00Z",
        "city": {"name": "Rome"},
        "inner": {"x y": True},
    }
    read = order.deserialize(b"\0\0\0\0\0" + json.dumps(given).encode())
    assert (read.city.name, read.inner.x_y, read.lines, read.parent) == ("Rome", True, [], None)
    assert "kind: Literal['a', 'b'] | None = None" in text
    assert "pair: tuple[int, str] | None = None" in text


def test_what_a_serde_registers_comes_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = RegistrySettings.of("mock://printed")
    module = imported(module_of(Registered(1, "JSON", json.dumps(JSON)), "orders"), "first_made")
    serde: Any = serdes.confluent_json("mock://printed", module.Order)
    connection(settings).register("orders-value", "JSON", serde.schema)
    assert main(["types", "mock://printed", "orders-value", "--version", "1"]) == 0
    again = imported(capsys.readouterr().out, "second_made")
    assert list(again.Order.__struct_encode_fields__) == list(module.Order.__struct_encode_fields__)


def test_names_are_never_code() -> None:
    evil = {
        "type": "record",
        "name": "A",
        "doc": '""" + exit() + """',
        "fields": [
            {"name": "x): exit() #", "type": {"type": "enum", "name": "E", "symbols": ["a = exit()"]}},
        ],
    }
    module = imported(module_of(Registered(1, "AVRO", json.dumps(evil)), 'a"""\nexit()'), "evil_made")
    assert module.A.__struct_encode_fields__ == ("x): exit() #",)


def test_protobuf_is_made_by_protoc(capsys: pytest.CaptureFixture[str]) -> None:
    connection(RegistrySettings.of("mock://printed")).register("proto-value", "PROTOBUF", "")
    assert main(["types", "mock://printed", "proto-value"]) == 1
    assert "protoc --python_out" in capsys.readouterr().err


def test_an_unknown_subject(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["types", "mock://printed", "nothing"]) == 1
    assert "CS-421" in capsys.readouterr().err


def test_an_empty_list_is_the_default_of_a_field_with_another_name() -> None:
    lines = {"type": "array", "items": {"type": "string"}, "default": []}
    schema = {"type": "object", "title": "Order", "properties": {"line-items": lines, "tags": lines}}
    made: dict[str, Any] = {}
    exec(module_of(Registered(1, "JSON", json.dumps(schema)), "orders-value"), made)
    order = made["Order"]()
    assert (order.line_items, order.tags) == ([], [])
