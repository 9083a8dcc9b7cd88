"""Protobuf in frames: columns, objects, and the registry client's own serializers."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.calls import find_invalid
from crossstream.serdes.own import check_key_serde
from crossstream.serdes.protobuf import serde as module
from crossstream.serdes.protobuf.arrow import arrow_type
from crossstream.serdes.protobuf.columns import plain_of
from crossstream.serdes.registry.client import connection

pytest.importorskip("confluent_kafka.schema_registry.protobuf")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.serdes.registry.messages import (
    Item,
    Key,
    Order,
    Tree,
    common_file,
    field,
    made,
    message,
    order_file,
)

URL = "mock://protobuf"
VALUE = SerializationContext("orders", MessageField.VALUE)
NEW_FORMAT = {"use.deprecated.format": False}  # which versions before 2.9 want to be said

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=5)
FLOATS = st.floats(allow_nan=False)
STATES = st.sampled_from(["NEW", "PAID", "SENT", "7", "-3"])
ITEMS = st.fixed_dictionaries({"sku": TEXT, "count": INT32, "state": STATES})
ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "id": INT64,
        "customer": TEXT,
        "price": FLOATS,
        "items": st.lists(ITEMS, max_size=3),
        "tags": st.dictionaries(TEXT, INT64, max_size=3),
        "state": STATES,
        "at": st.datetimes(),
        "vip": st.booleans(),
        "raw": st.binary(max_size=4),
        "card": TEXT,
        "note": TEXT,
        "address": st.fixed_dictionaries({"city": TEXT}),
        "numbers": st.lists(st.integers(0, 2**32 - 1), max_size=3),
        "hash": st.integers(0, 2**64 - 1),
        "took": st.integers(-(2**62), 2**62).map(lambda micros: timedelta(microseconds=micros)),
        "weight": st.floats(width=32, allow_nan=False),
        "states": st.lists(STATES, max_size=3),
        "gift": st.booleans(),
        "change": INT32,
        "places": st.dictionaries(INT32, st.fixed_dictionaries({"city": TEXT}), max_size=2),
    },
)


def serde(kind: Any = Order, topic: str | None = "orders", **settings: Any) -> Any:
    made = serdes.confluent_protobuf(kind, settings.pop("registry", URL), **settings)
    return made if topic is None else made.written_to(topic, is_key=False)


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "columnar", lambda message: None)


@given(st.lists(st.none() | ORDERS, max_size=4))
@settings(deadline=None)
def test_columns_are_what_objects_are(orders: list[dict[str, Any] | None]) -> None:
    data = serde().encode_objects(orders)
    messages = serde().decode_objects(data)
    column = serde().decode_series(data)
    rows = [None if one is None else plain_of(one) for one in messages]
    slow = pl.Series("", pa.array(rows, arrow_type(serde().dtype)))
    assert column.dtype == serde().dtype
    assert sorted_maps(column).equals(sorted_maps(slow), null_equal=True)
    assert serde().decode_objects(serde().encode_series(column)) == messages


def sorted_maps(column: pl.Series) -> pl.Series:
    by_key = [pl.col("a").struct.field(name).list.sort() for name in ("tags", "places")]
    return pl.DataFrame({"a": column}).select(pl.col("a").struct.with_fields(*by_key)).to_series()


@given(st.lists(st.tuples(TEXT, INT64, st.floats()), min_size=1, max_size=4))
@settings(deadline=None)
def test_keys_have_one_form(keys: list[tuple[str, int, float]]) -> None:
    keys = [(shop, id, rate) for shop, id, rate in keys if not math.isnan(rate)]
    messages = [Key(shop=shop, id=id, rate=rate) for shop, id, rate in keys]
    data = serde(Key).encode_objects(messages)
    assert serde(Key).encode_series(serde(Key).decode_series(data)).equals(data)


@given(st.binary(max_size=12), ORDERS)
@settings(deadline=None)
def test_damaged_rows_are_found_and_leave_their_neighbours(damage: bytes, order: dict[str, Any]) -> None:
    good = serde().serialize(order)
    data = pa.array([good, good[:6] + damage, None, good], pa.large_binary())
    try:
        module_reads = Order.FromString(damage)
    except Exception:
        module_reads = None
    refused = [] if module_reads is not None else [1]
    wrong = {way: [row for row, _ in find_invalid(serde(), data, None, way)] for way in ("objects", "series")}  # type: ignore[arg-type]
    assert wrong["objects"] == refused
    assert wrong["series"] in ([], refused)  # ptars takes varints that are too long


def test_the_client_reads_what_is_written_and_the_other_way_round() -> None:
    order = Order(id=1, items=[Item(sku="a")], tags={"b": 2})
    client = SchemaRegistryClient.new_client({"url": "mock://both"})
    ours = serde(registry=client)
    data = ours.serialize(order)
    assert ProtobufDeserializer(Order, NEW_FORMAT, client)(data, VALUE) == order
    assert ProtobufSerializer(Order, client, NEW_FORMAT)(order, VALUE) == data
    nested = serde(Item, registry=client)
    theirs = ProtobufSerializer(Item, client, NEW_FORMAT)(Item(sku="a", count=3), VALUE)
    assert nested.deserialize(theirs) == Item(sku="a", count=3)
    assert nested.serialize(Item(sku="a", count=3)) == theirs
    assert sorted(client.get_subjects()) == ["orders-value", "shop/common.proto"]


def test_subjects() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://subjects"})
    for strategy in ("record", "topic-record"):
        serde(registry=client, strategy=strategy).serialize(Order())
    serde(registry=client, subject="mine").serialize(Order())
    assert {"shop.Order", "orders-shop.Order", "mine"} <= set(client.get_subjects())


def test_a_message_at_another_place_is_read_by_its_name() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://places"})
    newer = message(made(common_file(), order_file(first="Head")), "shop.Order")
    data = serde(newer, registry=client).encode_objects([newer(id=7), None, newer(id=8)])
    assert data[0].as_py()[5:7] == b"\2\2"
    assert [one and one.id for one in serde(registry=client).decode_objects(data)] == [7, None, 8]
    assert serde(registry=client).decode_series(data).struct.field("id").to_list() == [7, None, 8]


def test_another_message_of_the_file_is_refused() -> None:
    data = serde(Key).serialize(Key(id=1))
    with pytest.raises(cs.SerdeError, match=r"the message is shop\.Key, not shop\.Order") as caught:
        serde().deserialize(data)
    assert caught.value.code == "CS-402"


def test_a_schema_of_another_format_is_refused() -> None:
    data = serdes.confluent_json(URL, int).written_to("numbers", is_key=False).serialize(3)  # type: ignore[attr-defined]
    with pytest.raises(cs.SerdeError, match=r"is JSON, not PROTOBUF: use serdes\.confluent_json"):
        serde().deserialize(data)


@pytest.mark.parametrize(
    "rest", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x01", b"\x02", b"\x0a\x02", b"\x04\x02\x00"]
)
def test_damaged_message_indexes(rest: bytes) -> None:
    good = serde().serialize(Order(id=1))
    data = pa.array([good, good[:5] + rest, good], pa.large_binary())
    found = find_invalid(serde(), data)
    assert [row for row, _ in found] == [1]


def test_fields_that_are_new_and_fields_that_are_gone() -> None:
    file = order_file()
    order = file.message_type[0]
    del order.field[1]
    field(order, "extra", 30, 9)
    newer = message(made(common_file(), file), "shop.Order")
    data = serde(newer, "newer").serialize(newer(id=3, extra="x"))
    read = serde().deserialize(data)
    assert (read.id, read.customer) == (3, "")
    assert serde().decode_series(pa.array([data], pa.large_binary())).struct.field("customer").to_list() == [
        ""
    ]


def test_a_message_that_contains_itself_has_some_columns() -> None:
    tree = serde(Tree)
    assert tree.dtype is None
    assert tree.some_columns == pl.Struct({"name": pl.String})
    data = tree.encode_objects([Tree(name="a", children=[Tree(name="b")])])
    assert tree.decode_series(data, ["name"]).to_list() == [{"name": "a"}]
    with pytest.raises(cs.SerdeError, match="contains its own message"):
        tree.decode_series(data)


def test_columns_of_other_types_are_fitted_or_refused() -> None:
    order = serde()
    small = pl.Series(
        [{"id": 1, "items": [{"sku": "a", "count": 2}], "at": None}, None, {"id": None, "items": None}]
    )
    assert order.decode_objects(order.encode_series(small)) == [
        Order(id=1, items=[Item(sku="a", count=2)]),
        None,
        Order(),
    ]
    for wrong, said in (
        ({"nothing": 1}, "has no field nothing"),
        ({"id": "a"}, "field id is String"),
        ({"items": [{"sku": 1}]}, "field items.sku is Int64"),
        ({"change": 2**40}, "Int32"),
    ):
        with pytest.raises(cs.SerdeError, match=said) as caught:
            order.encode_series(pl.Series([wrong]))
        assert caught.value.code == "CS-401"
    with pytest.raises(cs.SerdeError, match="'LOST' is not one of NEW, PAID, SENT"):
        order.encode_series(pl.Series([{"state": "LOST"}]))


def test_keys_need_one_form() -> None:
    with pytest.raises(cs.SerdeError, match="the field tags is a map or a wrapper"):
        check_key_serde(serde())
    check_key_serde(serde(Key))


def test_without_ptars_the_results_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one(monkeypatch)
    data = serde().encode_objects([{"id": 1, "tags": {"a": 1}}, None])
    column = serde().decode_series(data)
    assert column.dtype == serde().dtype
    assert serde().encode_series(column).equals(data)


def test_a_table_joined_by_foreign_key() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://join"})
    key, orders = (serdes.confluent_protobuf(kind, client) for kind in (Key, Order))
    people = serdes.confluent_json(client, {"name": pl.String})
    builder = cs.StreamsBuilder()
    left = builder.table("orders", cs.Consumed(key=key, value=orders))
    right = builder.table("people", cs.Consumed(key=serdes.string(), value=people))
    joined = left.join(
        right, lambda order, person: {"id": order.id, "name": person["name"]}, foreign_key="customer"
    )
    joined.to_stream().to("out", cs.Produced(value=serdes.json()))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("people", serdes.string(), people).pipe_input("ada", {"name": "Ada"})
        driver.create_input_topic("orders", key, orders).pipe_input(Key(id=1), Order(id=1, customer="ada"))
        out = driver.create_output_topic("out", key, serdes.json()).read_key_values()
    assert out == [(Key(id=1), {"id": 1, "name": "Ada"})]
    assert "out-key" in client.get_subjects()


@pytest.mark.slow
def test_it_is_sent_to_another_process() -> None:
    data = serde(topic=None).serialize(Order(id=5))
    code = f"import pickle; print(pickle.loads({pickle.dumps(serde(topic=None))!r}).deserialize({data!r}).id)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert run.stdout.strip() == "5", run.stderr
    assert pickle.loads(pickle.dumps(serde())).name == serde().name


@pytest.mark.parametrize("wrong", [int, "orders_pb2.Order", Order(), {"id": 1}])
def test_something_else_than_a_class_of_messages(wrong: Any) -> None:
    with pytest.raises(cs.SerdeError, match="is not a class of Protobuf messages") as caught:
        serdes.confluent_protobuf(wrong, URL)
    assert caught.value.code == "CS-404"


def test_the_schema_is_registered_once() -> None:
    order = serde(topic="once")
    order.serialize(Order())
    client = connection(order.registry).client
    before = client.get_versions("once-value")
    order.encode_objects([Order(id=2)] * 3)
    assert client.get_versions("once-value") == before == [1]


def test_a_map_without_a_value_is_read_with_its_default() -> None:
    data = serde().serialize(Order(id=1)) + b"\xaa\x01\x02\x08\x05"  # places: key 5, no value
    assert list(serde().deserialize(data).places) == [5]
    column = serde().decode_series(pa.array([data, None], pa.large_binary()))
    assert column.struct.field("places").to_list() == [[{"key": 5, "value": {"city": ""}}], None]
