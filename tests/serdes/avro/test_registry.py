"""Avro behind the frame of a schema registry: writers of several schemas, one reader."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from crossstream import SerdeError, serdes
from crossstream.serdes.calls import find_invalid
from crossstream.serdes.own import known

CONTEXT = SerializationContext("orders", MessageField.VALUE)


def _schema(*fields: Any, name: str = "Order") -> dict[str, Any]:
    made = [{"name": one[0], "type": one[1], **(one[2] if len(one) > 2 else {})} for one in fields]
    return {"type": "record", "name": name, "fields": made}


FIRST = _schema(("id", "int"), ("price", "float"))
SECOND = _schema(("price", "double"), ("id", "long"), ("note", ["null", "string"], {"default": None}))
THIRD = _schema(
    ("id", "long"), ("amount", "double", {"aliases": ["price"], "default": 0.0}), ("currency", "string")
)
READER = _schema(
    ("id", "long"),
    ("amount", "double", {"aliases": ["price"]}),
    ("currency", "string", {"default": "EUR"}),
    ("note", ["null", "string"], {"default": None}),
)


@dataclass
class Order:
    id: int
    price: float
    currency: str = "EUR"


@pytest.fixture
def client() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": f"mock://{uuid4()}"})


def _write(client: SchemaRegistryClient, schema: Any, value: Any) -> bytes:
    data = AvroSerializer(client, json.dumps(schema))(value, CONTEXT)
    assert data is not None
    return bytes(data)


def _rows(*rows: bytes | None) -> pa.LargeBinaryArray:
    return pa.array(rows, pa.large_binary())


def test_three_generations_in_one_batch(client: SchemaRegistryClient) -> None:
    rows = [
        _write(client, FIRST, {"id": 1, "price": 0.5}),
        _write(client, THIRD, {"id": 3, "amount": 2.5, "currency": "USD"}),
        None,
        _write(client, SECOND, {"id": 2, "price": 1.5, "note": "x"}),
        _write(client, FIRST, {"id": 4, "price": 4.5}),
    ]
    serde = serdes.confluent_avro(client, READER)
    expected = [
        {"id": 1, "amount": 0.5, "currency": "EUR", "note": None},
        {"id": 3, "amount": 2.5, "currency": "USD", "note": None},
        None,
        {"id": 2, "amount": 1.5, "currency": "EUR", "note": "x"},
        {"id": 4, "amount": 4.5, "currency": "EUR", "note": None},
    ]
    assert serde.decode_objects(_rows(*rows)) == expected
    assert serde.decode_series(_rows(*rows)).to_list() == expected
    assert serde.decode_series(_rows(*rows), ["note"]).struct.field("note").to_list() == [
        None,
        None,
        None,
        "x",
        None,
    ]
    typed = serdes.confluent_avro(client, Order)
    assert typed.decode_objects(_rows(rows[0], rows[3])) == [Order(1, 0.5), Order(2, 1.5)]


def test_what_is_written_is_read_by_the_client_of_the_registry(client: SchemaRegistryClient) -> None:
    serde = known(serdes.confluent_avro(client, Order)).written_to("orders", is_key=False)
    data = serde.serialize(Order(7, 1.5))
    assert AvroDeserializer(client)(data, CONTEXT) == {"id": 7, "price": 1.5, "currency": "EUR"}
    assert client.get_latest_version("orders-value").schema_id == int.from_bytes(data[1:5], "big")
    assert pickle.loads(pickle.dumps(serde)) == serde


def test_a_schema_that_does_not_fit_takes_no_neighbour(client: SchemaRegistryClient) -> None:
    good = _write(client, FIRST, {"id": 1, "price": 0.5})
    other = _write(client, _schema(("price", "double"), name="Other"), {"price": 1.0})
    serde = serdes.confluent_avro(client, Order)
    unknown = b"\x00\x00\x00\x27\x0f\x02"
    found = dict(find_invalid(serde, _rows(good, other, good[:-1], b"{}", unknown, good + b"x", None, good)))
    assert found.keys() == {1, 2, 3, 4, 5}
    assert "id is not in the writer's schema, and has no default" in found[1]
    assert "the payload is too short" in found[2]
    assert "no frame of a schema registry" in found[3]
    assert "no schema with id 9999" in found[4]
    assert "left over" in found[5]


def test_the_newest_schema_of_the_subject(client: SchemaRegistryClient) -> None:
    client.register_schema("orders-value", Schema(json.dumps(FIRST), "AVRO"))
    free = serdes.confluent_avro(client)
    assert free.dtype is None
    with pytest.raises(SerdeError, match="is not known") as caught:
        free.serialize({"id": 1, "price": 0.5})
    assert caught.value.code == "CS-404"
    serde = known(free).read_from("orders", is_key=False)
    client.register_schema("orders-value", Schema(json.dumps(SECOND), "AVRO"))
    data = _write(client, SECOND, {"id": 2, "price": 1.5, "note": "x"})
    with pytest.raises(SerdeError, match="is double for the writer"):
        serde.deserialize(data)  # the first schema stays that of the topology, and has an int
    named = serdes.confluent_avro(client, subject="orders-value")
    assert named.deserialize(data) == {"id": 2, "price": 1.5, "note": "x"}
    assert (
        known(named).written_to("orders", is_key=False).serialize({"id": 2, "price": 1.5, "note": "x"})
        == data
    )
    with pytest.raises(SerdeError) as missing:
        serdes.confluent_avro(client, subject="nothing-value")
    assert missing.value.code == "CS-421"


def test_keys_have_one_spelling(client: SchemaRegistryClient) -> None:
    ints, longs = (_write(client, _schema(("id", kind), name="K"), {"id": 7}) for kind in ("int", "long"))
    serde = serdes.confluent_avro(client, _schema(("id", "long"), name="K"))
    one, other = (serde.encode_objects(serde.decode_objects(_rows(data))) for data in (ints, longs))
    assert one.equals(other)
    assert ints[:5] != longs[:5]


def test_references(client: SchemaRegistryClient) -> None:
    line = json.dumps(_schema(("sku", "string"), name="Line"))
    basket = _schema(("lines", {"type": "array", "items": "Line"}), name="Basket")
    serde = serdes.confluent_avro(client, basket, references={"Line": line})
    data = known(serde).written_to("baskets", is_key=False).serialize({"lines": [{"sku": "a"}]})
    assert AvroDeserializer(client)(data, CONTEXT) == {"lines": [{"sku": "a"}]}
    assert serde.deserialize(data) == {"lines": [{"sku": "a"}]}
    latest = serdes.confluent_avro(client, subject="baskets-value")
    assert latest.deserialize(data) == {"lines": [{"sku": "a"}]}


def test_strategies(client: SchemaRegistryClient) -> None:
    schema = {**FIRST, "namespace": "com.acme"}
    for strategy, subject in (("record", "com.acme.Order"), ("topic-record", "orders-com.acme.Order")):
        serde = known(serdes.confluent_avro(client, schema, strategy=strategy)).written_to(
            "orders", is_key=False
        )
        serde.serialize({"id": 1, "price": 0.5})
        assert client.get_latest_version(subject).version == 1
    looked_up = serdes.confluent_avro(client, schema, "other", auto_register=False)
    with pytest.raises(SerdeError) as caught:
        known(looked_up).written_to("orders", is_key=False).serialize({"id": 1, "price": 0.5})
    assert caught.value.code == "CS-421"
