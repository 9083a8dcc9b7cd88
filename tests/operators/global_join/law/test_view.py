"""Views over two global tables: what streams, tables and other views find in them, in any batches."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.conformance.compare import assert_same_table
from tests.conformance.runner import per_batch, read
from tests.laws.effort import cases, law
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import Inputs, foreign_keys, known_keys, left_rows, records, rows

TEXT = serdes.string()
GLOBAL = {
    "shops": (foreign_keys, left_rows),
    "cities": (foreign_keys, left_rows),
    "lands": (foreign_keys, rows),
}
WITH_STREAM = {**GLOBAL, "orders": (known_keys, foreign_keys)}
WITH_TABLE = {**GLOBAL, "orders": (known_keys, foreign_keys)}
KINDS = st.tuples(st.sampled_from(["join", "left_join"]), st.sampled_from(["join", "left_join"]))
SHAPES = st.sampled_from(["one", "left of two", "right of two", "itself"])


def named(row: str) -> str | None:
    name = row.split(";")[0]
    return None if name == "-" else name


def paired(left: Any, right: Any) -> str:
    return f"{left}|{right}"


def or_none(left: str, right: str | None) -> str | None:
    """A joiner that gives no row for some."""
    return None if left.endswith("y") and right is None else paired(left, right)


def view_of(tables: dict[str, Any], shape: str, kinds: tuple[str, str]) -> Any:
    """A view of the shops with their cities, and for two views of the cities with their lands."""
    shops, cities, lands = tables["shops"], tables["cities"], tables["lands"]
    first, second = kinds
    if shape == "itself":
        return getattr(shops, first)(shops, or_none, key_selector=named)
    if shape == "one":
        return getattr(shops, first)(cities, or_none, key_selector=named)
    if shape == "right of two":
        inner = getattr(cities, second)(lands, paired, key_selector=named)
        return getattr(shops, first)(inner, or_none, key_selector=named)
    inner = getattr(shops, first)(cities, paired, key_selector=named)
    return getattr(inner, second)(lands, or_none, key_selector=named)


class Model:
    """The tables as plain dicts; a view is looked up by its definition."""

    def __init__(self, shape: str, kinds: tuple[str, str]) -> None:
        self.tables: dict[str, dict[Any, Any]] = {name: {} for name in GLOBAL}
        first, second = kinds
        shops, cities, lands = (self.tables[name].get for name in GLOBAL)
        self.view = {
            "itself": lambda key: joined(first, or_none, shops, shops, key),
            "one": lambda key: joined(first, or_none, shops, cities, key),
            "right of two": lambda key: joined(
                first, or_none, shops, lambda city: joined(second, paired, cities, lands, city), key
            ),
            "left of two": lambda key: joined(
                second, or_none, lambda shop: joined(first, paired, shops, cities, shop), lands, key
            ),
        }[shape]

    def put(self, side: str, key: Any, value: Any) -> None:
        if key is not None:
            self.tables[side][key] = value


def joined(kind: str, joiner: Any, left: Any, right: Any, key: Any) -> Any:
    row = left(key)
    if row is None:
        return None
    selected = named(row)
    other = None if selected is None else right(selected)
    return None if other is None and kind == "join" else joiner(row, other)


def run(topology: cs.Topology, sides: Any, inputs: Inputs, way: Way) -> list[list[Any]]:
    made = []
    with way.driver(topology) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in sides}
        results = driver.create_output_topic("results", TEXT, TEXT)
        for _ in way.pipe(driver, topics, inputs):
            made.append(read(results))
    return made


def topology_of(shape: str, kinds: tuple[str, str], kind: str, read_as: str) -> cs.Topology:
    builder, consumed = cs.StreamsBuilder(), cs.Consumed(key=TEXT, value=TEXT)
    tables = {name: builder.global_table(name, consumed) for name in GLOBAL}
    view = view_of(tables, shape, kinds)
    orders = getattr(builder, read_as)("orders", consumed)
    if read_as == "stream":
        result = getattr(orders, kind)(view, paired, key_selector=lambda key, value: value)
    else:
        result = getattr(orders, kind)(view, paired, foreign_key=lambda value: value).to_stream()
    result.to("results", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@law
@given(records(WITH_STREAM, max_size=24), ways(), SHAPES, KINDS, st.sampled_from(["join", "left_join"]))
def test_a_stream_finds_what_the_view_was_when_its_record_came(
    inputs: Inputs, way: Way, shape: str, kinds: tuple[str, str], kind: str
) -> None:
    taken = as_taken({"inputs": inputs}, way, tuple(WITH_STREAM))["inputs"]
    ends = way.ends(len(inputs))
    found = per_batch(run(topology_of(shape, kinds, kind, "stream"), WITH_STREAM, inputs, way), ends)
    model, wanted = Model(shape, kinds), []
    for item in taken:
        made = []
        key, value = item["key"], item["value"]
        if item["side"] != "orders":
            model.put(item["side"], key, value)
        elif value is not None:
            row = model.view(value)
            if row is not None or kind == "left_join":
                made.append((key, paired(value, row), item["ts"]))
        wanted.append(made)
    for got, want in zip(found, per_batch(wanted, ends), strict=True):
        assert sorted((one.key, one.value, one.ts) for one in got) == sorted(want)


@cases(1.5)
@given(records(WITH_TABLE, max_size=24), ways(), SHAPES, KINDS, st.sampled_from(["join", "left_join"]))
def test_a_table_follows_both_sides_of_the_view(
    inputs: Inputs, way: Way, shape: str, kinds: tuple[str, str], kind: str
) -> None:
    taken = as_taken({"inputs": inputs}, way, tuple(WITH_TABLE))["inputs"]
    found = [
        one for made in run(topology_of(shape, kinds, kind, "table"), WITH_TABLE, inputs, way) for one in made
    ]
    model, orders = Model(shape, kinds), dict[Any, Any]()
    for item in taken:
        if item["side"] != "orders":
            model.put(item["side"], item["key"], item["value"])
        elif item["key"] is not None:
            orders[item["key"]] = item["value"]
    wanted = {
        key: paired(value, model.view(value))
        for key, value in orders.items()
        if value is not None and (kind == "left_join" or model.view(value) is not None)
    }
    assert_same_table(found, wanted)


MANY = {**GLOBAL, "orders": (known_keys, foreign_keys), "third": (known_keys, st.just("x"))}


@cases(1.5)
@given(records(MANY, max_size=24), ways(), SHAPES, KINDS, st.sampled_from(["join", "left_join"]))
def test_streams_see_every_change_of_a_table_that_follows_a_view(
    inputs: Inputs, way: Way, shape: str, kinds: tuple[str, str], kind: str
) -> None:
    builder, consumed = cs.StreamsBuilder(), cs.Consumed(key=TEXT, value=TEXT)
    tables = {name: builder.global_table(name, consumed) for name in GLOBAL}
    orders = builder.table("orders", consumed)
    third = builder.stream("third", consumed)
    table = getattr(orders, kind)(view_of(tables, shape, kinds), paired, foreign_key=lambda value: value)
    third.left_join(table, paired).to("results", cs.Produced(key=TEXT, value=TEXT))
    topology, ends = builder.build(), way.ends(len(inputs))
    taken = as_taken({"inputs": inputs}, way, tuple(MANY))["inputs"]
    found = per_batch(run(topology, MANY, inputs, way), ends)
    model, held = Model(shape, kinds), dict[Any, Any]()
    wanted: list[list[Any]] = []
    for item in taken:
        key, value = item["key"], item["value"]
        wanted.append([])
        if item["side"] == "orders":
            held[key] = value
        elif item["side"] == "third":
            order = held.get(key)
            row = None if order is None else model.view(order)
            there = order is not None and (row is not None or kind == "left_join")
            wanted[-1].append((key, paired("x", paired(order, row) if there else None), item["ts"]))
        else:
            model.put(item["side"], key, value)
    for got, want in zip(found, per_batch(wanted, ends), strict=True):
        assert sorted((one.key, one.value, one.ts) for one in got) == sorted(want)


ROW = serdes.json({"to": pl.String, "name": pl.String})


@law
@given(records(WITH_TABLE, max_size=16), ways(), st.sampled_from(["join", "left_join"]), st.booleans())
def test_expressions_give_what_callables_give(inputs: Inputs, way: Way, kind: str, stream: bool) -> None:
    def made(expressions: bool) -> list[list[Any]]:
        builder = cs.StreamsBuilder()
        typed, text = cs.Consumed(key=TEXT, value=ROW), cs.Consumed(key=TEXT, value=TEXT)
        shops, cities = (builder.global_table(name, typed) for name in ("shops", "cities"))
        if expressions:
            name = pl.struct(
                pl.col("left").struct.field("name").alias("shop"),
                pl.col("right").struct.field("name").alias("city"),
            )
            view = getattr(shops, kind)(cities, name, key_selector="to")
            joiner: Any = pl.col("right").struct.field("city")
        else:
            view = getattr(shops, kind)(
                cities,
                lambda left, right: {"shop": left["name"], "city": right and right["name"]},
                key_selector=lambda left: left["to"],
            )
            joiner = lambda left, right: right and right["city"]  # noqa: E731
        if stream:
            orders: Any = builder.stream("orders", text)
            result = orders.left_join(view, joiner, key_selector=lambda key, value: value)
        else:
            orders = builder.table("orders", text)
            result = orders.left_join(view, joiner, foreign_key=lambda value: value).to_stream()
        result.to("results", cs.Produced(key=TEXT, value=serdes.json()))
        sides = [{**item, "value": struct_of(item)} for item in inputs if item["side"] != "lands"]
        found = []
        with way.driver(builder.build()) as driver:
            topics = {
                side: driver.create_input_topic(side, TEXT, TEXT if side == "orders" else ROW)
                for side in ("shops", "cities", "orders")
            }
            results = driver.create_output_topic("results", TEXT, serdes.json())
            for _ in way.pipe(driver, topics, sides):
                found.append([str(one) for one in read(results)])
        return found

    assert made(True) == made(False)


def struct_of(item: Any) -> Any:
    value = item["value"]
    if item["side"] == "orders" or value is None:
        return value
    return {"to": named(value), "name": value}
