"""JSON in frames: typed as `serdes.json` is, and read by the registry client's own deserializer."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.calls import find_invalid
from crossstream.serdes.registry.client import connection
from crossstream.serdes.registry.json import schema_of_type
from crossstream.serdes.registry.serde import put_frames

pytest.importorskip("confluent_kafka.schema_registry")

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

URL = "mock://json"
VALUE = SerializationContext("orders", MessageField.VALUE)


@dataclass(frozen=True)
class Line:
    sku: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    price: float | None = None
    lines: tuple[Line, ...] = ()


ORDERS = st.builds(
    Order,
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=5),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.builds(Line, st.text(max_size=3), st.integers(0, 9)), max_size=2).map(tuple),
)


def serde(type: Any = Order, topic: str | None = "orders", registry: Any = URL, **settings: Any) -> Any:
    made = serdes.confluent_json(registry, type, **settings)
    return made if topic is None else made.written_to(topic, is_key=False)  # type: ignore[attr-defined]


@given(st.lists(st.none() | ORDERS, max_size=5))
def test_both_ways_are_those_of_json(orders: list[Order | None]) -> None:
    data, plain = serde().encode_objects(orders), serdes.json(Order).encode_objects(orders)
    assert [None if row is None else row[5:] for row in data.to_pylist()] == plain.to_pylist()
    assert serde().decode_objects(data) == orders
    column = serde().decode_series(data)
    assert column.equals(serdes.json(Order).decode_series(plain), null_equal=True)
    assert serde().decode_objects(serde().encode_series(column)) == orders


def test_the_client_reads_what_is_written_and_the_other_way_round() -> None:
    pytest.importorskip("jsonschema")  # which the client's own serializers need
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    client = SchemaRegistryClient.new_client({"url": "mock://json-both"})
    order = Order(1, "Ada", 2.5, (Line("a"),))
    ours = serde(registry=client)
    data = ours.serialize(order)
    read = JSONDeserializer(ours.schema, schema_registry_client=client)
    assert read(data, VALUE) == json.loads(data[5:])
    write = JSONSerializer(ours.schema, client)
    theirs = write({"id": 2, "customer": "Bob", "lines": []}, VALUE)
    assert ours.deserialize(theirs) == Order(2, "Bob")
    assert theirs[:5] == data[:5]


def test_the_schema_of_a_type_is_closed() -> None:
    schema = json.loads(schema_of_type(serdes.json(Order)) or "")
    assert schema["title"] == "Order"
    assert schema["required"] == ["id", "customer"]
    assert schema["additionalProperties"] is schema["$defs"]["Line"]["additionalProperties"] is False


def test_the_schema_of_polars_types() -> None:
    types = {"a": pl.Int64, "b": pl.List(pl.Float64), "c": pl.Date, "d": pl.Struct({"e": pl.String})}
    schema = json.loads(schema_of_type(serdes.json(types)) or "")
    assert schema["properties"]["b"] == {"type": ["array", "null"], "items": {"type": ["number", "null"]}}
    data = serde(types, validate=True).serialize({"a": 1, "b": [1.5], "c": None, "d": {"e": "x"}})
    assert serde(types, validate=True).deserialize(data)["b"] == [1.5]


def test_without_a_type_the_newest_schema_of_the_subject_is_used() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://untyped"})
    plain = serde(None, registry=client)
    with pytest.raises(cs.SerdeError, match="no schema under subject orders-value") as caught:
        plain.serialize({"id": 1})
    assert caught.value.code == "CS-421"
    id = client.register_schema("orders-value", Schema('{"type": "object"}', "JSON"))
    assert plain.serialize({"id": 1}) == b"\0" + id.to_bytes(4, "big") + b'{"id":1}'
    client.register_schema("orders-value", Schema('"string"', "AVRO"))
    other = serde(None, registry=client, topic="orders")
    with pytest.raises(cs.SerdeError, match="is AVRO, not JSON"):
        other.serialize({"id": 1})


def test_keys_are_equal_whatever_the_id_of_their_schema() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://keys"})
    key = serdes.confluent_json(client, int)
    builder = cs.StreamsBuilder()
    text = serdes.string()
    left, right = (builder.table(name, cs.Consumed(key=key, value=text)) for name in ("left", "right"))
    left.join(right, lambda one, other: one + other).to_stream().to("out", cs.Produced(value=text))
    with cs.TopologyTestDriver(builder.build()) as driver:
        for name in ("left", "right"):
            driver.create_input_topic(name, key, text).pipe_input(1, name)
        out = driver.create_output_topic("out", serdes.bytes(), text).read_key_values()
    ids = {name: client.get_latest_version(f"{name}-key").schema_id for name in ("left", "right", "out")}
    assert len(set(ids.values())) == 3
    assert out == [(b"\0" + ids["out"].to_bytes(4, "big") + b"1", "leftright")]


@pytest.mark.parametrize("way", ["objects", "series", None])
def test_bad_rows_are_found_one_by_one(way: Any) -> None:
    good = serde().serialize(Order(1, "a"))
    avro = connection(serde().registry).client.register_schema("x", Schema('"int"', "AVRO"))
    rows = [good, b"{}", None, put(9999), put(avro), good[:5] + b"{", good, b"\0\0"]
    found = dict(find_invalid(serde(), pa.array(rows, pa.large_binary()), None, way))
    assert list(found) == [1, 3, 4, 5, 7]
    assert "has no schema with id 9999" in found[3]
    assert "is AVRO, not JSON: use serdes.confluent_avro" in found[4]


def put(id: int) -> Any:
    return put_frames(id, pa.array([b"{}"], pa.large_binary()))[0].as_py()


def test_bad_records_are_skipped_or_stop() -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("orders", cs.Consumed(key=serdes.string(), value=serde(topic=None)))
    stream.filter(pl.col("id") > 0).to("out", cs.Produced(value=serdes.json(Order)))
    good = serde().serialize(Order(1, "a"))
    with cs.TopologyTestDriver(builder.build(), commit_every=4, deserialization_errors="skip") as driver:
        raw = driver.create_input_topic("orders", serdes.string(), serdes.bytes())
        raw.pipe_records([("a", good), ("b", put(777)), ("c", b"{}"), ("e", good)])
        read = driver.create_output_topic("out", serdes.string(), serdes.json(Order)).read_key_values()
        assert [key for key, _ in read] == ["a", "e"]
        assert driver.metrics()["dropped"]["orders: undecodable"] == 2


def test_a_plain_serde_that_meets_a_frame_says_so() -> None:
    builder = cs.StreamsBuilder()
    builder.stream("orders", cs.Consumed(key=serdes.string(), value=serdes.json(Order))).map_values(str).to(
        "out", cs.Produced(value=serdes.string())
    )
    with cs.TopologyTestDriver(builder.build()) as driver:
        raw = driver.create_input_topic("orders", serdes.string(), serdes.bytes())
        with pytest.raises(
            cs.SerdeError, match=r"looks like the frame of a schema registry \(schema id \d+\)"
        ) as caught:
            raw.pipe_input("a", serde().serialize(Order(1, "a")))
    assert caught.value.code == "CS-402"
    assert "serdes.confluent_json(…)" in caught.value.what


def test_validation_is_by_the_schema_of_the_writer() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}, "required": ["id"]}
    checked = serde({"id": pl.Int64}, schema=schema, validate=True)
    plain = serde({"id": pl.Int64}, schema=schema)
    data = plain.encode_objects([{"id": 1}, {"id": 0}, None, {"id": 5}])
    assert plain.decode_series(data).struct.field("id").to_list() == [1, 0, None, 5]
    [(row, reason)] = find_invalid(checked, data)
    assert row == 1
    assert "0 is less than the minimum of 1" in reason
    with pytest.raises(cs.SerdeError, match="less than the minimum") as caught:
        checked.serialize({"id": 0})
    assert caught.value.code == "CS-403"


def test_references() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://references"})
    schema = {"type": "object", "properties": {"at": {"$ref": "city.json"}}}
    order = serde(
        None,
        registry=client,
        schema=schema,
        references={"city.json": '{"type": "string", "minLength": 2}'},
        validate=True,
    )
    data = order.serialize({"at": "Rome"})
    assert client.get_schema(int.from_bytes(data[1:5], "big")).references[0].subject == "city.json"
    assert order.deserialize(data) == {"at": "Rome"}
    assert len(find_invalid(order, pa.array([data[:5] + b'{"at":"R"}'], pa.large_binary()))) == 1


@pytest.mark.parametrize("schema", ["{", "[]", "7"])
def test_what_is_no_schema(schema: str) -> None:
    with pytest.raises(cs.SerdeError, match="is not a JSON Schema") as caught:
        serdes.confluent_json(URL, Order, schema=schema)
    assert caught.value.code == "CS-404"


def test_identity_and_pickles() -> None:
    one, other = serde(topic=None), serde(topic=None, registry={"url": URL})
    assert one == other == pickle.loads(pickle.dumps(one))
    assert one != serde()
    assert hash(one) == hash(other)
    assert one.name == "confluent_json[Order]"
    assert serde(Line, topic=None) != one


def test_keys_inside_other_keys_have_the_id_of_the_topic() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://inside"})
    key = serdes.confluent_json(client, int)
    builder = cs.StreamsBuilder()
    counts = (
        builder.stream("orders", cs.Consumed(key=key, value=serdes.string()))
        .group_by_key()
        .windowed_by(cs.TimeWindows(size=60_000))
        .count()
    )
    counts.to_stream().to("out", cs.Produced(value=serdes.int64()))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("orders", key, serdes.string()).pipe_input(7, "a", timestamp=5)
        [(data, count)] = driver.create_output_topic("out", serdes.bytes(), serdes.int64()).read_key_values()
    id = client.get_latest_version("out-key").schema_id
    assert data == b"\0" + id.to_bytes(4, "big") + b"7" + bytes(8)
    assert count == 1
    both = serdes.left_or_right(key, key)
    assert both.written_to("out", is_key=True).serialize((None, 7)) == b"\1" + data[:6]  # type: ignore[attr-defined]
