"""A Polars expression over a declared type gives what the callable gives that says the same, over any JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import law
from tests.laws.engine import Way, ways
from tests.laws.strategies import KEYS, Inputs, records


@dataclass
class Order:
    """Also what comes without a type: there, fields may be missing instead of null."""

    n: int
    customer: str | None = None
    price: float | None = None
    tags: list[str] = field(default_factory=list)


TEXT, JSON, TYPED = serdes.string(), serdes.json(), serdes.json(Order)
SCHEMA = serdes.json({"n": pl.Int64, "customer": pl.String, "price": pl.Float64, "tags": pl.List(pl.String)})
NAMES = ("n", "customer", "price", "tags")


@dataclass
class Loud:
    key: str
    loud: str | None


def at(order: Any, name: str) -> Any:
    return order.get(name) if isinstance(order, dict) else getattr(order, name)


def left(name: str) -> pl.Expr:
    return pl.col("left").struct.field(name)


def right(name: str) -> pl.Expr:
    return pl.col("right").struct.field(name)


orders = st.fixed_dictionaries(
    {"n": st.integers(0, 9)},
    optional={
        "customer": st.none() | st.sampled_from(KEYS),
        "price": st.none() | st.sampled_from([0.5, 2.0]),
        "tags": st.lists(st.sampled_from(["x", "y"]), max_size=2),
    },
)
sides = {side: (st.sampled_from(KEYS), st.none() | orders | orders) for side in ("left", "right")}
inputs = records(sides)
typed = pytest.mark.parametrize(
    "serde", [(JSON, TYPED), (TYPED, TYPED), (JSON, SCHEMA)], ids=["untyped", "class", "schema"]
)
"""What the callables read, and the expressions."""

Pair = tuple[Callable[..., Any], pl.Expr]

FILTERS: list[Pair] = [
    (lambda v: at(v, "n") > 4, pl.col("n") > 4),
    (lambda v: at(v, "customer") == "a", pl.col("customer") == "a"),
    (lambda v: (at(v, "price") or 0) < 1, pl.col("price").fill_null(0) < 1),
    (lambda k, v: k < "b", pl.col("key") < "b"),
]
MAPPERS: list[Pair] = [
    (lambda v: at(v, "n") + 1, pl.col("n") + 1),
    (lambda v: at(v, "customer"), pl.col("customer")),
    (
        lambda k, v: {"key": k, "loud": at(v, "customer") and at(v, "customer").upper()},
        pl.struct("key", loud=pl.col("customer").str.to_uppercase()),
    ),
    (
        lambda v: None if at(v, "price") is None else at(v, "price") * at(v, "n"),
        pl.col("price") * pl.col("n"),
    ),
    (lambda v: {"first": (at(v, "tags") or [None])[0]}, pl.struct(first=pl.col("tags").list.first())),
    (lambda v: 7, pl.lit(7)),
]
JOINERS: list[Pair] = [
    (
        lambda a, b: {"l": a and at(a, "n"), "r": b and at(b, "n")},
        pl.struct(l=left("n"), r=right("n")),
    ),
    (
        lambda a, b: {"who": f"{(a and at(a, 'customer')) or '-'}/{(b and at(b, 'customer')) or '-'}"},
        pl.struct(
            who=pl.concat_str(left("customer").fill_null("-"), pl.lit("/"), right("customer").fill_null("-"))
        ),
    ),
    (
        lambda a, b: {"loud": b and at(b, "customer") and at(b, "customer").upper()},
        pl.struct(loud=right("customer").str.to_uppercase()),
    ),
    (lambda k, a, b: {"key": k, "alone": b is None}, pl.struct("key", alone=pl.col("right").is_null())),
]


@typed
@law
@given(st.sampled_from(FILTERS), st.sampled_from(MAPPERS), inputs, ways())
def test_on_streams(serde: Any, predicate: Pair, mapper: Pair, given_: Inputs, way: Way) -> None:
    def build(builder: cs.StreamsBuilder, style: int) -> Any:
        stream = builder.stream("left", cs.Consumed(key=TEXT, value=serde[style])).filter(
            lambda v: v is not None
        )
        return stream.filter(predicate[style]).map_values(mapper[style])

    check(build, given_, way, order=False)


@typed
@law
@given(st.sampled_from(FILTERS), inputs, ways())
def test_keys_and_lists_of_streams(serde: Any, predicate: Pair, given_: Inputs, way: Way) -> None:
    def build(builder: cs.StreamsBuilder, style: int) -> Any:
        stream = builder.stream("left", cs.Consumed(key=TEXT, value=serde[style])).filter(
            lambda v: v is not None
        )
        split = stream.split().branch(predicate[style], "one").default_branch("other")
        by_customer = split["one"].select_key((lambda v: at(v, "customer"), pl.col("customer"))[style])
        tags = split["other"].flat_map_values((lambda v: at(v, "tags") or [], pl.col("tags"))[style])
        return by_customer.map_values(lambda v: at(v, "n")).merge(tags)

    check(build, given_, way, order=False)


@typed
@law
@given(st.sampled_from(FILTERS), st.sampled_from(MAPPERS), inputs, ways())
def test_on_tables(serde: Any, predicate: Pair, mapper: Pair, given_: Inputs, way: Way) -> None:
    def build(builder: cs.StreamsBuilder, style: int) -> Any:
        table = builder.table("left", cs.Consumed(key=TEXT, value=serde[style]))
        return table.filter(predicate[style]).map_values(mapper[style]).to_stream()

    check(build, given_, way)


@typed
@law
@given(st.sampled_from(JOINERS), st.sampled_from(["left_join", "outer_join", "join"]), inputs, ways())
def test_in_joins(serde: Any, joiner: Pair, method: str, given_: Inputs, way: Way) -> None:
    def build(builder: cs.StreamsBuilder, style: int) -> Any:
        consumed = cs.Consumed(key=TEXT, value=serde[style])
        tables = builder.table("left", consumed), builder.table("right", consumed)
        return getattr(tables[0], method)(tables[1], joiner[style]).to_stream()

    check(build, given_, way)


@typed
@law
@given(st.sampled_from(JOINERS), st.sampled_from(["left_join", "join"]), inputs, ways())
def test_in_foreign_key_joins(serde: Any, joiner: Pair, method: str, given_: Inputs, way: Way) -> None:
    def build(builder: cs.StreamsBuilder, style: int) -> Any:
        consumed = cs.Consumed(key=TEXT, value=serde[style])
        tables = builder.table("left", consumed), builder.table("right", consumed)
        reference = (lambda v: at(v, "customer"), pl.col("customer"))[style]
        return getattr(tables[0], method)(tables[1], joiner[style], foreign_key=reference).to_stream()

    check(build, given_, way)


@typed
@law
@given(st.sampled_from(MAPPERS[2:3]), inputs, ways())
def test_over_what_a_callable_made(serde: Any, mapper: Pair, given_: Inputs, way: Way) -> None:
    """The second step is an expression only once; the annotation of the first declares the type."""

    def loud(key: Any, value: Any) -> Loud:
        return Loud(**mapper[0](key, value))

    def build(builder: cs.StreamsBuilder, style: int) -> Any:
        table = builder.table("left", cs.Consumed(key=TEXT, value=serde[style])).map_values(loud)
        chosen = table.filter((lambda v: at(v, "loud") == "A", pl.col("loud") == "A")[style])
        return chosen.map_values((lambda v: at(v, "loud"), pl.col("loud"))[style]).to_stream()

    check(build, given_, way)


def check(
    build: Callable[[cs.StreamsBuilder, int], Any], given_: Inputs, way: Way, order: bool = True
) -> None:
    """Both styles, each in the given batches and record by record: the same tables, or the same records."""
    ran = [run(build, style, given_, way) for style in (0, 1)]
    assert ran[0] == ran[1]
    alone = [run(build, style, given_, Way(way.partitions, places=way.places)) for style in (0, 1)]
    assert alone[0] == alone[1]
    if order:
        assert fold(ran[0]) == fold(alone[0])
    else:
        assert sorted(map(repr, ran[0])) == sorted(map(repr, alone[0]))


def fold(records_: list[cs.TestRecord]) -> dict[Any, Any]:
    rows = {record.key: record.value for record in records_}
    return {key: value for key, value in rows.items() if value is not None}


def run(
    build: Callable[[cs.StreamsBuilder, int], Any], style: int, given_: Inputs, way: Way
) -> list[cs.TestRecord]:
    builder = cs.StreamsBuilder()
    build(builder, style).to("out", cs.Produced(key=TEXT, value=JSON))
    used = [node.name for node in builder.build() if node.name in ("left", "right")]
    with cs.TopologyTestDriver(builder.build(), partitions=way.partitions, commit_every=way.every) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, JSON) for side in used}
        for item in given_:
            if item["side"] in topics:
                place = way.place(KEYS.index(item["key"]))
                topics[item["side"]].pipe_input(item["key"], item["value"], item["ts"], partition=place)
        driver.commit()
        return driver.create_output_topic("out", TEXT, JSON).read_records()
