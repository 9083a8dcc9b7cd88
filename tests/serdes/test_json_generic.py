"""Generic classes, with types for their variables: ``Envelope[Order]``."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

import msgspec
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from tests.serdes.processes import read_in_another_process

V = TypeVar("V")
TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()
NEW = sys.version_info >= (3, 11)
"""Older Pythons have no generic TypedDicts and NamedTuples."""


class Order(msgspec.Struct, frozen=True):
    id: int


class Envelope(msgspec.Struct, Generic[V], frozen=True):
    op: str
    after: V | None = None
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Wrapped(Generic[V]):
    op: str
    after: V | None = None
    count: int = 1


class Holder(msgspec.Struct, frozen=True):
    inner: Envelope[Order]


class Checked(msgspec.Struct, Generic[V], frozen=True):
    after: V

    def __post_init__(self) -> None:
        if self.after is None:
            raise ValueError("nothing after")


AFTER = pl.Struct({"id": pl.Int64})
COLUMNS = pl.Struct({"op": pl.String, "after": AFTER, "count": pl.Int64})
FULL = b'{"op":"c","after":{"id":1},"count":1}'
KINDS: list[Any] = [
    pytest.param(
        Envelope[Order], FULL, Envelope("c", Order(1)), COLUMNS, "json[Envelope[Order]]", id="struct"
    ),
    pytest.param(
        Wrapped[Order], FULL, Wrapped("c", Order(1)), COLUMNS, "json[Wrapped[Order]]", id="dataclass"
    ),
    pytest.param(Envelope, FULL, Envelope("c", {"id": 1}), None, "json[Envelope]", id="without a type"),
    pytest.param(
        list[Envelope[Order]],
        b"[%s]" % FULL,
        [Envelope("c", Order(1))],
        pl.List(COLUMNS),
        "json[list[Envelope[Order]]]",
        id="list",
    ),
    pytest.param(
        Holder,
        b'{"inner":%s}' % FULL,
        Holder(Envelope("c", Order(1))),
        pl.Struct({"inner": COLUMNS}),
        "json[Holder]",
        id="field",
    ),
    pytest.param(
        Envelope[frozenset[str]],
        b'{"op":"c","after":["a","b"],"count":1}',
        Envelope("c", frozenset("ba")),
        None,
        "json[Envelope[frozenset[str]]]",
        id="set",
    ),
    pytest.param(
        Checked[Order],
        b'{"after":{"id":1}}',
        Checked(Order(1)),
        pl.Struct({"after": AFTER}),
        "json[Checked[Order]]",
        id="post init",
    ),
]

if NEW:

    class Fields(TypedDict, Generic[V]):
        op: str
        after: V

    class Pair(NamedTuple, Generic[V]):
        op: str
        after: V

    KINDS += [
        pytest.param(
            Fields[int],
            b'{"op":"c","after":1}',
            {"after": 1, "op": "c"},
            pl.Struct({"op": pl.String, "after": pl.Int64}),
            "json[Fields[int]]",
            id="typed dict",
        ),
        pytest.param(Pair[int], b'["c",1]', Pair("c", 1), None, "json[Pair[int]]", id="named tuple"),
    ]


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize(("kind", "text", "value", "dtype", "name"), KINDS)
def test_they_are_types_like_others(
    kind: Any, text: bytes, value: Any, dtype: Any, name: str, copies: int
) -> None:
    serde = serdes.json(kind)
    assert (serde.name, serde.dtype) == (name, dtype)
    data = serde.encode_objects([value, None] * copies)
    assert data.to_pylist() == [text, None] * copies
    assert serde.decode_objects(data) == [value, None] * copies
    if dtype is not None:
        assert serde.encode_series(serde.decode_series(data)).equals(data)


def test_what_the_text_leaves_out() -> None:
    for kind in (Envelope, Wrapped):
        serde = serdes.json(kind[Order])  # type: ignore[index]
        assert serde.serialize(serde.deserialize(b'{"op":"c"}')) == b'{"op":"c","after":null,"count":1}'
        with pytest.raises(cs.SerdeError, match="CS-402"):
            serde.deserialize(b'{"op":"c","after":{"id":"x"}}')
    with pytest.raises(cs.SerdeError, match="CS-402"):
        serdes.json(Checked[Order | None]).deserialize(b'{"after":null}')


def test_types_of_one_class_are_not_the_same() -> None:
    assert serdes.json(Envelope[Order]) == serdes.json(Envelope[Order])
    assert serdes.json(Envelope[Order]) != serdes.json(Envelope[int])


def test_as_keys_and_in_expressions() -> None:
    key, value = serdes.json(Envelope[int]), serdes.json(Envelope[Order])
    builder = cs.StreamsBuilder()
    table = builder.table("in", cs.Consumed(key=key, value=value), cs.Materialized(store="rows"))
    table.to_stream().map_values(pl.col("after").struct.field("id") + pl.col("count")).to(
        "out", cs.Produced(value=JSON)
    )
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", BYTES, BYTES)
        topic.pipe_input(b'{"count":1, "after":7,"op":"x"}', FULL)
        topic.pipe_input(b'{"op":"x","after":7}', b'{"op":"d","after":{"id":5}}')
        found = driver.create_output_topic("out", key, JSON).read_key_values()
        assert found == [(Envelope("x", 7), 2), (Envelope("x", 7), 6)]
        assert driver.get_key_value_store("rows").get(Envelope("x", 7)) == Envelope("d", Order(5))


SCRIPT = """
import dataclasses, pickle, sys
from typing import Generic, NamedTuple, Optional, TypedDict, TypeVar
import msgspec
from crossstream import serdes
from crossstream.serdes.shipping import dumps

V = TypeVar("V")

class Order(msgspec.Struct):
    id: int

class Envelope(msgspec.Struct, Generic[V]):
    op: str
    after: Optional[V] = None

class Wider(Envelope[V], Generic[V]):
    more: list[V] = []

@dataclasses.dataclass
class Wrapped(Generic[V]):
    op: str
    after: Optional[V] = None

kinds = [Envelope[Order], Wider[Order], Wrapped[Order], Optional[Wrapped[Order]]]
if sys.version_info >= (3, 11):
    class Fields(TypedDict, Generic[V]):
        op: str
        after: V

    class Pair(NamedTuple, Generic[V]):
        op: str
        after: V

    kinds += [Fields[Order], dict[str, Pair[Order]]]

if sys.argv[1] == "write":
    sys.stdout.buffer.write(dumps(list(map(serdes.json, kinds))))
else:
    del Order, Envelope, Wider, Wrapped, kinds
    for serde in pickle.loads(sys.stdin.buffer.read()):
        text = b'{"a":["c",{"id":1}]}' if "Pair" in serde.name else b'{"op":"c","after":{"id":1}}'
        print(serde.name, serde.serialize(serde.deserialize(text)).decode(), serde.deserialize(text))
"""

SHIPPED = """\
json[Envelope[Order]] {"op":"c","after":{"id":1}} Envelope(op='c', after=Order(id=1))
json[Wider[Order]] {"op":"c","after":{"id":1},"more":[]} Wider(op='c', after=Order(id=1), more=[])
json[Wrapped[Order]] {"op":"c","after":{"id":1}} Wrapped(op='c', after=Order(id=1))
json[Wrapped[Order] | None] {"op":"c","after":{"id":1}} Wrapped(op='c', after=Order(id=1))
"""
SHIPPED_TOO = """\
json[Fields[Order]] {"op":"c","after":{"id":1}} {'op': 'c', 'after': Order(id=1)}
json[dict[str, Pair[Order]]] {"a":["c",{"id":1}]} {'a': Pair(op='c', after=Order(id=1))}
"""


@pytest.mark.slow
def test_those_of_the_main_file_reach_another_process(tmp_path: Path) -> None:
    assert read_in_another_process(tmp_path, SCRIPT).decode() == SHIPPED + (SHIPPED_TOO if NEW else "")
