"""No record stops an application that skips, whatever is in it, and whatever a function does with it.

    law    with skip or dead letters for both kinds of errors every record is processed, skipped or a dead letter

Values are random JSON and what looks like it; functions raise, exit, recurse, or give what no serde takes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()
WINDOWS = cs.JoinWindows.of(5)


@dataclass
class Row:
    a: int
    b: str | None = None
    c: list[float] | None = None
    at: datetime | None = None


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


SERDES: dict[str, Any] = {
    "json": JSON,
    "row": serdes.json(Row),
    "schema": serdes.json(
        {"a": pl.Int64, "b": pl.String, "c": pl.List(pl.Float64), "at": pl.Datetime("us", "UTC")}
    ),
    "text": TEXT,
    "bytes": BYTES,
    "int": serdes.int64(),
}
TYPED = ("row", "schema")
NASTY = [
    b'{"a": [1, "x"]}',
    deep(33),
    deep(1200),
    b'{"a": 9223372036854775808}',
    b'{"a": -9223372036854775809}',
    b'{"a": 1, "b": "\\ud83d"}',
    b'{"a": 1e400}',
    b'{"a": 1, "c": [1e400, null]}',
    b'{"a": 1, "at": "0001-01-01T00:00:00+14:00"}',
    b'{"a": 1, "a": 2}',
    b"[" * 1100,
    b"\xef\xbb\xbf{}",
    b'"\x00"',
    b"",
    b"null",
    b"\xff",
    (7).to_bytes(8, "big"),
]
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["a", "b", 1, 2, 3]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "at", "", "é"]), inner, max_size=4)
    ),
    max_leaves=8,
)
rows = st.fixed_dictionaries(
    {"a": st.integers(0, 5)},
    optional={
        "b": st.text(max_size=3) | st.none(),
        "c": st.lists(st.floats() | st.none(), max_size=2),
        "at": plain,
    },
)
written = (plain | rows).map(lambda value: json.dumps(value).encode())
values = st.none() | written | st.sampled_from(NASTY) | st.binary(max_size=9)
records = st.lists(st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("kl"), values), max_size=8)


def recursing(value: Any) -> Any:
    return recursing(value)


def out_of_memory(value: Any) -> Any:
    raise MemoryError


def exiting(value: Any) -> Any:
    sys.exit(1)


def passing(value: Any) -> Any:
    return value


def odd(value: Any) -> Any:
    """What JSON does not give back, or no serde takes, for some values."""
    return {"a": {1}, "b": object(), "c": float("nan")}.get(str(value)[:1], value)


CALLABLES: dict[str, Callable[[Any], Any]] = {
    "field": lambda value: value["a"],
    "attribute": lambda value: value.a,
    "passing": passing,
    "odd": odd,
    "recursing": recursing,
    "memory": out_of_memory,
    "exiting": exiting,
    "set": lambda value: {1},
    "key": lambda value: {2: value},
    "nested": lambda value: {"x": [value, (value,)]},
}
EXPRESSIONS: dict[str, pl.Expr] = {
    "field": pl.col("a"),
    "divided": 100 // pl.col("a"),
    "cast": pl.col("b").cast(pl.Int64),
    "first": pl.col("c").list.get(0),
    "struct": pl.struct(x=pl.col("c"), y=pl.col("at").dt.offset_by("9000y")),
    "whole": pl.col("value"),
}


def merged(left: Any, right: Any) -> Any:
    return [left["a"], None if right is None else right["a"]]


def build(serde: str, function: Any, way: str, sink: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=SERDES[serde])
    if way in ("table", "foreign key", "tables"):
        left, right = builder.table("left", consumed), builder.table("right", consumed)
        joined = {
            "table": lambda: left.map_values(function),
            "foreign key": lambda: left.left_join(right, merged, foreign_key=function),
            "tables": lambda: left.map_values(function).outer_join(right, lambda one, other: [one, other]),
        }[way]()
        joined.to_stream().to("out", cs.Produced(key=TEXT, value=sink))
        return builder.build()
    stream, other = builder.stream("left", consumed), builder.stream("right", consumed)
    made: dict[str, Callable[[], Any]] = {
        "map_values": lambda: stream.map_values(function),
        "kept": lambda: stream.map_values(function).repartition(),
        "to_table": lambda: stream.map_values(function).to_table().to_stream(),
        "filter": lambda: stream.filter(lambda value: CALLABLES["passing"](value)).map_values(function),
        "select_key": lambda: stream.select_key(function).repartition(cs.Repartitioned(key=TEXT)),
        "streams": lambda: stream.map_values(function).left_join(other, merged, WINDOWS),
        "stream-table": lambda: stream.map_values(function).left_join(other.to_table(), merged),
    }
    made[way]().to("out", cs.Produced(key=TEXT, value=sink))
    return builder.build()


WAYS = (
    *("map_values", "kept", "to_table", "filter", "select_key", "streams", "stream-table"),
    *("table", "foreign key", "tables"),
)
ONE_FOR_ONE = 4
"""Nodes of a topology whose function gives a record for each record: two sources, the operator, the sink."""
Policy = Literal["skip", "dead letters"]


def settings(policy: Policy) -> dict[str, Any]:
    if policy == "skip":
        return {"deserialization_errors": "skip", "processing_errors": "skip"}
    return {"deserialization_errors": cs.DeadLetter("bad"), "processing_errors": cs.DeadLetter("failed")}


def check(
    topology: cs.Topology, given: list[tuple[str, str, bytes | None]], size: int, policy: Policy
) -> None:
    with cs.TopologyTestDriver(topology, commit_every=size, partitions=2, **settings(policy)) as driver:
        topics = {name: driver.create_input_topic(name, TEXT, BYTES) for name in ("left", "right")}
        for at, (topic, key, value) in enumerate(given):
            topics[topic].pipe_input(key, value, timestamp=at)
        driver.commit()
        if len(topology.nodes) <= ONE_FOR_ONE:
            out = driver.create_output_topic("out", BYTES, BYTES).queue_size
            read = sum(topic == "left" for topic, _, _ in given)
            dropped = driver.metrics()["dropped"]
            assert out + sum(count for reason, count in dropped.items() if reason.startswith("left")) == read


def topologies(read: list[str], functions: dict[str, Any], ways: list[str]) -> Any:
    """Records, and what they go through: the serde they are read with, a function, its operator, a sink, a policy."""
    sinks = [JSON, TEXT, serdes.int64(), serdes.json(Row)]
    choices = (read, sorted(functions), ways, sinks, [1, 3, 100], ["skip", "dead letters"])
    return given(records, *map(st.sampled_from, choices))


@cases(4)
@topologies(sorted(SERDES), CALLABLES, list(WAYS))
def test_callables(
    given: list[tuple[str, str, bytes | None]],
    serde: str,
    function: str,
    way: str,
    sink: Any,
    size: int,
    policy: Policy,
) -> None:
    check(build(serde, CALLABLES[function], way, sink), given, size, policy)


@cases(4)
@topologies(list(TYPED), EXPRESSIONS, [way for way in WAYS if way != "select_key"])
def test_expressions(
    given: list[tuple[str, str, bytes | None]],
    serde: str,
    function: str,
    way: str,
    sink: Any,
    size: int,
    policy: Policy,
) -> None:
    try:
        topology = build(serde, EXPRESSIONS[function], way, sink)
    except cs.TopologyError as error:  # what cannot fit is found while building
        if error.code not in ("CS-113", "CS-115", "CS-134"):
            raise
        return
    check(topology, given, size, policy)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "dead letters"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("serde", sorted(SERDES))
def test_nasty_records(serde: str, way: str, policy: Policy) -> None:
    given = [(topic, key, value) for value in NASTY for topic in ("left", "right") for key in "kl"]
    for function in ("passing", "field", "nested"):
        for size in (1, 1000):
            check(build(serde, CALLABLES[function], way, JSON), given, size, policy)
