"""A key is its value, however it was written: `{"id": 1}` is `{"id":1}`, as in Kafka Streams."""

from __future__ import annotations

import dataclasses
import uuid
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()
ID = uuid.UUID("0a1b2c3d-0000-4000-8000-00000000abcd")


@dataclasses.dataclass
class Place:
    id: int
    region: str = "eu"


class Part(TypedDict):
    id: int
    area: str


class Shelf(msgspec.Struct, frozen=True):
    part: Part
    tags: frozenset[str] = frozenset()


TEXTS = [
    pytest.param(JSON, [b'{"id": 1}', b'{"id":1}', b' { "id" : 1 } '], {"id": 1}, id="json"),
    pytest.param(JSON, [b'"caf\\u00e9"', '"café"'.encode()], "café", id="json text"),
    pytest.param(serdes.json(Place), [b'{"id":1}', b'{"region":"eu", "id":1}'], Place(1), id="dataclass"),
    pytest.param(
        serdes.json(Part),
        [b'{"area":"eu","id":1}', b'{"id":1,"area":"eu"}'],
        {"id": 1, "area": "eu"},
        id="typed dict",
    ),
    pytest.param(serdes.json(frozenset[int]), [b"[8,0]", b"[0,8]", b"[8,0,0]"], frozenset({0, 8}), id="set"),
    pytest.param(serdes.uuid(), [str(ID).upper().encode(), str(ID).encode()], ID, id="uuid"),
]


@pytest.mark.parametrize("every", [1, 1000])
@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize(("serde", "texts", "key"), TEXTS)
def test_one_row_for_each_key(serde: Any, texts: list[bytes], key: Any, every: int, rows: int) -> None:
    builder = cs.StreamsBuilder()
    table = builder.table("in", cs.Consumed(key=serde, value=JSON), cs.Materialized(store="rows"))
    other = builder.table("other", cs.Consumed(key=serde, value=JSON))
    table.join(other, lambda mine, theirs: [mine, theirs]).to_stream().to("out", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        topics = [driver.create_input_topic(name, BYTES, BYTES) for name in ("in", "other")]
        for number, text in enumerate(texts * rows):
            topics[0].pipe_input(text, b"%d" % number)
        topics[1].pipe_input(texts[0], b'"x"')
        driver.commit()
        store = driver.get_key_value_store("rows")
        last = len(texts) * rows - 1
        assert list(store.all()) == [(key, last)]
        assert store.get(key) == last
        out = driver.create_output_topic("out", BYTES, BYTES).read_key_values()
        assert out[-1] == (serde.serialize(key), b'[%d,"x"]' % last)
        topics[0].pipe_input(texts[-1], None)
        driver.commit()
        assert list(store.all()) == []


@pytest.mark.parametrize(
    ("serde", "made", "text"),
    [
        (serdes.json(Part), {"area": "eu", "id": 1}, b'{"id":1,"area":"eu"}'),
        (serdes.json(frozenset[int]), [8, 0], b"[0,8]"),
        (serdes.json(frozenset[str]), frozenset("xba"), b'["a","b","x"]'),
        (JSON, frozenset("xba"), b'["a","b","x"]'),
        (serdes.json(tuple[str, frozenset[int]]), ("k", frozenset({8, 0})), b'["k",[0,8]]'),
        (serdes.left_or_right(TEXT, serdes.json(set[int])), (None, {8, 0}), b"\1[0,8]"),
    ],
)
@pytest.mark.parametrize("rows", [1, 100])
def test_keys_that_functions_make(serde: Any, made: Any, text: bytes, rows: int) -> None:
    builder = cs.StreamsBuilder()
    keyed = builder.stream("in", cs.Consumed(key=TEXT, value=JSON)).select_key(lambda *_: made)
    keyed.to("out", cs.Produced(key=serde, value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        for number in range(rows):
            driver.create_input_topic("in", TEXT, JSON).pipe_input("x", number)
        assert {key for key, _ in driver.create_output_topic("out", BYTES, BYTES).read_key_values()} == {text}


def test_a_typed_dict_inside_a_struct_is_refused_as_a_key() -> None:
    """Its fields are written as they come."""
    with pytest.raises(cs.SerdeError, match="a TypedDict is inside it") as caught:
        cs.Consumed(key=serdes.json(Shelf), value=JSON)
    assert caught.value.code == "CS-404"


def test_foreign_keys_find_their_row() -> None:
    builder = cs.StreamsBuilder()
    left = builder.table("in", cs.Consumed(key=TEXT, value=JSON))
    right = builder.table("right", cs.Consumed(key=JSON, value=JSON))
    joined = left.join(right, lambda _, found: found, foreign_key=lambda value: value["c"])
    joined.to_stream().to("out", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("right", BYTES, BYTES).pipe_input(b'{"t": "a", "n": 1}', b"7")
        driver.create_input_topic("in", BYTES, BYTES).pipe_input(b"x", b'{"c":{"t":"a","n":1}}')
        driver.commit()
        assert driver.create_output_topic("out", TEXT, JSON).read_key_values() == [("x", 7)]


@dataclasses.dataclass
class Offer:
    rate: Decimal


@pytest.mark.parametrize(
    "function", [lambda offer: offer.rate, pl.col("rate")], ids=["callable", "expression"]
)
@pytest.mark.parametrize("written", [b'"19.5"', b'"1E+2"', b'"1E-7"'])
def test_foreign_keys_that_are_decimals(function: Any, written: bytes) -> None:
    builder = cs.StreamsBuilder()
    left = builder.table("in", cs.Consumed(key=TEXT, value=serdes.json(Offer)))
    right = builder.table("right", cs.Consumed(key=serdes.json(Decimal), value=JSON))
    joined = left.join(right, lambda _, found: found, foreign_key=function)
    joined.to_stream().to("out", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("right", BYTES, BYTES).pipe_input(written, b"7")
        driver.create_input_topic("in", BYTES, BYTES).pipe_input(b"x", b'{"rate":' + written + b"}")
        driver.commit()
        assert driver.create_output_topic("out", TEXT, JSON).read_key_values() == [("x", 7)]


def test_keys_of_one_of_two_tables() -> None:
    serde = serdes.left_or_right(TEXT, JSON)
    builder = cs.StreamsBuilder()
    builder.table("in", cs.Consumed(key=serde, value=JSON), cs.Materialized(store="rows"))
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", BYTES, BYTES)
        topic.pipe_input(b'\1{"id": 1}', b"1")
        topic.pipe_input(b'\1{"id":1}', b"2")
        driver.commit()
        assert list(driver.get_key_value_store("rows").all()) == [((None, {"id": 1}), 2)]


@pytest.mark.parametrize("every", [1, 1000])
@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize(
    ("serde", "texts"),
    [
        (serdes.float64(), ["fff8000000000000", "7ff8000000000000", "7ff8000000000001", "fff0000000000001"]),
        (serdes.float32(), ["ffc00000", "7fc00000", "7fc00001", "ff800001"]),
    ],
)
def test_one_row_for_every_nan(serde: Any, texts: list[str], every: int, copies: int) -> None:
    """In a topic, made by a function, and made by an expression: Kafka Streams has one NaN."""
    builder = cs.StreamsBuilder()
    table = builder.table("rows", cs.Consumed(key=serde, value=JSON), cs.Materialized(store="rows"))
    numbers = builder.stream("numbers", cs.Consumed(key=TEXT, value=serdes.float64()))
    for name, keyed in {
        "callable": numbers.select_key(lambda _, value: value - value),
        "expression": numbers.select_key(pl.col("value") - pl.col("value")),
    }.items():
        joined = keyed.repartition(cs.Repartitioned(key=serde, value=serdes.float64()))
        joined.join(table, lambda _, row: row).to(name, cs.Produced(key=serde, value=JSON))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        for number, text in enumerate(texts * copies):
            driver.create_input_topic("rows", BYTES, BYTES).pipe_input(bytes.fromhex(text), b"%d" % number, 1)
        driver.commit()
        last = len(texts) * copies - 1
        assert [row for _, row in driver.get_key_value_store("rows").all()] == [last]
        driver.create_input_topic("numbers", TEXT, serdes.float64()).pipe_input("x", float("inf"), 2)
        driver.commit()
        for name in ("callable", "expression"):
            found = driver.create_output_topic(name, BYTES, JSON).read_key_values()
            assert found == [(serde.serialize(float("nan")), last)]
