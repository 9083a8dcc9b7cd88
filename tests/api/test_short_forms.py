"""The short forms: types as serdes, text as fields, joins without a joiner, settings by keyword."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.api.types import as_serde
from tests.api.cases import node_of, serde_names


@dataclass
class Order:
    customer_id: str | None
    price: float


@dataclass
class Customer:
    name: str


@dataclass
class Detail:
    customer_id: str | None
    price: float
    name: str


class Struct(msgspec.Struct):
    name: str


class Typed(TypedDict):
    name: str


class Named(NamedTuple):
    name: str


# -- types as serdes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "serde"),
    [
        (str, serdes.string()),
        (bytes, serdes.bytes()),
        (int, serdes.int64()),
        (float, serdes.float64()),
        (bool, serdes.boolean()),
        (UUID, serdes.uuid()),
        (dict, serdes.json()),
        (list[str], serdes.json(list[str])),
        ({"name": pl.String}, serdes.json({"name": pl.String})),
        *((kind, serdes.json(kind)) for kind in (Order, Struct, Typed, Named)),
        (serdes.int16(), serdes.int16()),
        (None, None),
    ],
)
def test_a_type_stands_for_its_serde(given: Any, serde: Any) -> None:
    assert as_serde(given) == serde
    for option in (cs.Consumed, cs.Produced, cs.Materialized, cs.Grouped, cs.Repartitioned, cs.Joined):
        assert option(value=given).value == serde


def without_lines(topology: cs.Topology) -> Any:
    shown = topology.to_dict()
    return [
        {name: part for name, part in node.items() if name not in ("line", "location")}
        for node in shown["nodes"]
    ]


def test_short_and_long_forms_make_the_same_topology() -> None:
    def short(builder: cs.StreamsBuilder) -> None:
        orders = builder.table("orders", key=int, value=Order, store="orders")
        builder.global_table("shops", value=str, store="shops")
        stream = builder.stream("clicks", value=Customer)
        stream.group_by("name").windowed_by("1 hour").count(store="counts")
        stream.group_by(lambda one: one.name, key=str).reduce(lambda a, b: b, store="last", value=Customer)
        stream.select_key("name").repartition(key=str, partitions=3).to_table(store="rows")
        orders.map_values(lambda order: order.price, store="prices", value=float).to(
            "prices", key=int, value=float
        )
        orders.filter(lambda order: order.price > 1, store="dear").to_stream().to("dear", value=Order)
        stream.join(stream, lambda a, b: [a, b], before="1 minute", after="2 minutes", grace="1 second")
        stream.left_join(stream, lambda a, b: [a, b], within="10 minutes")

    def long(builder: cs.StreamsBuilder) -> None:
        numbers = cs.Consumed(key=serdes.int64(), value=serdes.json(Order))
        orders = builder.table("orders", numbers, cs.Materialized(store="orders"))
        texts = cs.Consumed(key=serdes.string(), value=serdes.string())
        builder.global_table("shops", texts, cs.Materialized(store="shops"))
        customers = serdes.json(Customer)
        stream = builder.stream("clicks", cs.Consumed(key=serdes.string(), value=customers))
        hours = cs.TimeWindows(size="1 hour")
        stream.group_by("name").windowed_by(hours).count(materialized=cs.Materialized(store="counts"))
        stream.group_by(lambda one: one.name, cs.Grouped(key=serdes.string())).reduce(
            lambda a, b: b, materialized=cs.Materialized(store="last", value=customers)
        )
        repartitioned = cs.Repartitioned(key=serdes.string(), partitions=3)
        rows = stream.select_key("name").repartition(repartitioned)
        rows.to_table(materialized=cs.Materialized(store="rows"))
        prices = cs.Materialized(store="prices", value=serdes.float64())
        produced = cs.Produced(key=serdes.int64(), value=serdes.float64())
        orders.map_values(lambda order: order.price, materialized=prices).to("prices", produced)
        dear = orders.filter(lambda order: order.price > 1, materialized=cs.Materialized(store="dear"))
        dear.to_stream().to("dear", cs.Produced(value=serdes.json(Order)))
        bounds = cs.JoinWindows(before="1 minute", after="2 minutes", grace="1 second")
        stream.join(stream, lambda a, b: [a, b], bounds)
        stream.left_join(stream, lambda a, b: [a, b], cs.JoinWindows.of("10 minutes"))

    made = []
    for build in (short, long):
        builder = cs.StreamsBuilder()
        build(builder)
        made.append(builder.build())
    assert [without_lines(topology) for topology in made[:1]] == [
        without_lines(topology) for topology in made[1:]
    ]
    assert made[0].plan(4) == made[1].plan(4)


# -- text names a field ----------------------------------------------------------------------------------


def test_the_key_of_a_field_has_its_type_or_is_text() -> None:
    builder = cs.StreamsBuilder()
    typed, untyped = builder.stream("a", value=Order), builder.stream("b")
    assert serde_names(typed.group_by("price").count()) == ("float64", "int64")
    assert serde_names(untyped.group_by("price").count()) == ("string", "int64")


# -- joins without a joiner ------------------------------------------------------------------------------


def sides(left: Any, right: Any) -> tuple[cs.KTable, cs.KTable]:
    builder = cs.StreamsBuilder()
    return builder.table("left", value=left), builder.table("right", value=right)


def test_the_result_has_the_fields_of_both_sides_and_their_types() -> None:
    orders, customers = sides(Order, Customer)
    joined = orders.join(customers, foreign_key="customer_id", store="joined")
    fields = {"customer_id": pl.String, "price": pl.Float64, "name": pl.String}
    assert node_of(joined).value_type == serdes.json(fields)
    assert node_of(joined).store.value == serdes.json(fields)
    assert node_of(joined).joiner.expression is not None
    joined.to("details", value=Detail)


FIELDS = ("id", "a", "b")
LEFT, RIGHT = {"id": pl.Int64, "a": pl.String}, {"id": pl.Int64, "b": pl.String}
MERGES = ["keep-left", "keep-right", cs.prefixed("r_")]


def rows(names: list[str]) -> st.SearchStrategy[Any]:
    return st.none() | st.fixed_dictionaries(
        {name: st.integers(0, 3) if name == "id" else st.text("xy") for name in names}
    )


CHANGES = st.lists(
    st.tuples(st.just("left"), st.sampled_from("pq"), rows(["id", "a"]))
    | st.tuples(st.just("right"), st.sampled_from("pq"), rows(["id", "b"])),
    max_size=8,
)


@given(CHANGES, st.sampled_from(MERGES), st.sampled_from(["join", "left_join", "outer_join"]))
def test_declared_and_undeclared_values_merge_alike(changes: Any, on_merge: Any, method: str) -> None:
    """Where a side is missing, its fields are missing; in a declared type they are None."""

    def results(left: Any, right: Any) -> list[Any]:
        one, two = sides(left, right)
        getattr(one, method)(two, on_merge=on_merge).to("out", value=dict)
        found = []
        with cs.TopologyTestDriver(node_topology(one)) as driver:
            topics = {name: driver.create_input_topic(name, str, dict) for name in ("left", "right")}
            for topic, key, value in changes:
                topics[topic].pipe_input(key, value)
            for key, value in driver.create_output_topic("out", str, dict).read_key_values():
                known = None if value is None else {k: v for k, v in value.items() if v is not None}
                found.append((key, known))
        return found

    assert results(LEFT, RIGHT) == results(dict, dict)


def node_topology(table: cs.KTable) -> cs.Topology:
    return table._draft.finish()


def test_undeclared_fields_of_both_sides_stop_the_record_that_has_them() -> None:
    one, two = sides(dict, dict)
    one.join(two).to("out")
    with cs.TopologyTestDriver(node_topology(one)) as driver:
        driver.create_input_topic("left").pipe_input("k", {"id": 1})
        with pytest.raises(
            cs.ProcessingError, match="both sides have the field 'id': write on_merge=\"keep-left\""
        ):
            driver.create_input_topic("right").pipe_input("k", {"id": 2})


def test_objects_and_dicts_merge() -> None:
    one, two = sides(Order, dict)
    one.join(two, foreign_key="customer_id").to("out")
    with cs.TopologyTestDriver(node_topology(one)) as driver:
        driver.create_input_topic("left").pipe_input("k", Order("c", 2.5))
        driver.create_input_topic("right").pipe_input("c", {"name": "ada"})
        assert driver.create_output_topic("out").read_values() == [
            {"customer_id": "c", "price": 2.5, "name": "ada"}
        ]


@pytest.mark.parametrize("types", [(Order, Customer), (dict, dict), (Order, dict)])
def test_several_tables_come_under_their_names(types: tuple[Any, Any]) -> None:
    builder = cs.StreamsBuilder()
    orders, customers = builder.table("orders", value=types[0]), builder.table("customers", value=types[1])
    orders.join_many({"customer": (customers, "customer_id")}, store="many").to("out")
    orders.left_join_many({"price": (customers, "customer_id")}).to("left")
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("orders", str, dict).pipe_input("o", {"customer_id": "c", "price": 2.5})
        left = driver.create_output_topic("left", str, dict)
        assert left.read_values() == [{"customer_id": "c", "price": None}]
        driver.create_input_topic("customers", str, dict).pipe_input("c", {"name": "ada"})
        expected = {"customer_id": "c", "price": 2.5, "customer": {"name": "ada"}}
        assert driver.create_output_topic("out", str, dict).read_values() == [expected]
        assert driver.get_key_value_store("many").get("o") == expected
        assert left.read_values() == [{"customer_id": "c", "price": {"name": "ada"}}]


def test_streams_join_without_a_joiner() -> None:
    builder = cs.StreamsBuilder()
    orders, paid = builder.stream("orders", value=Order), builder.stream("paid", value=Customer)
    shops = builder.global_table("shops", value={"city": pl.String})
    orders.join(paid, within="1 minute").to("paid-orders")
    orders.left_join(shops, key_selector="customer_id").to("with-city")
    orders.join(builder.table("customers", value=Customer)).to("with-name")
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("customers").pipe_input("k", Customer("eve"))
        driver.create_input_topic("orders").pipe_input("k", Order("c", 1.0))
        driver.create_input_topic("paid").pipe_input("k", Customer("ada"))
        whole = {"customer_id": "c", "price": 1.0}
        assert driver.create_output_topic("paid-orders").read_values() == [{**whole, "name": "ada"}]
        assert driver.create_output_topic("with-city").read_values() == [{**whole, "city": None}]
        assert driver.create_output_topic("with-name").read_values() == [{**whole, "name": "eve"}]


def test_a_view_of_global_tables_without_a_joiner() -> None:
    builder = cs.StreamsBuilder()
    shops = builder.global_table("shops", value={"city": pl.String})
    cities = builder.global_table("cities", value={"country": pl.String})
    orders = builder.stream("orders", value={"shop": pl.String})
    orders.join(shops.join(cities, key_selector="city"), key_selector="shop").to("out")
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("shops").pipe_input("s", {"city": "Berne"})
        driver.create_input_topic("cities").pipe_input("Berne", {"country": "CH"})
        driver.create_input_topic("orders").pipe_input("o", {"shop": "s"})
        assert driver.create_output_topic("out").read_values() == [
            {"shop": "s", "city": "Berne", "country": "CH"}
        ]


# -- what is written to topics ----------------------------------------------------------------------------


def test_a_declared_type_is_written_in_its_serde() -> None:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", value=Order)
    orders.map_values(pl.col("price")).to("prices")
    orders.select_key("customer_id").map_values(pl.struct("price")).to("by-customer")
    sinks = [node for node in builder.build() if node.key is not None and node.shape == "none"]
    assert [(sink.key.name, sink.value) for sink in sinks] == [
        ("string", serdes.float64()),
        ("string", serdes.json({"price": pl.Float64})),
    ]


def test_a_column_called_store_is_a_column() -> None:
    grouped = cs.StreamsBuilder().stream("s", value=Order).group_by_key()
    assert node_of(grouped.agg(store=cs.agg.count())).value == serdes.json({"store": pl.Int64})
    assert grouped.agg(store="kept", number=cs.agg.count()).queryable_store_name == "kept"


# -- signatures -------------------------------------------------------------------------------------------


def methods() -> list[Any]:
    kinds = (cs.StreamsBuilder, cs.KStream, cs.KTable, cs.GlobalKTable, cs.GroupedKStream, cs.GroupedKTable)
    return [
        getattr(kind, name)
        for kind in kinds
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name))
    ]


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.__qualname__)
def test_signatures_name_what_can_be_passed(method: Any) -> None:
    """What `help` and a notebook's Shift-Tab show. Only `merge` takes any number of streams, and `agg` any name."""
    parameters = list(inspect.signature(method).parameters.values())
    anything = {one.name for one in parameters if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    assert anything <= {"merge": {"others"}, "agg": {"columns"}}.get(method.__name__, set())
    assert "crossstream" not in str(inspect.signature(method))


def test_the_signature_of_a_join_names_the_settings_of_all_its_kinds() -> None:
    names = set(inspect.signature(cs.KStream.join).parameters)
    assert {"other", "joiner", "windows", "within", "joined", "key_selector", "on_merge", "headers"} <= names
