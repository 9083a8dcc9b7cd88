"""Expressions need values of a declared type; it is asked for where they are written. Callables take any JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import msgspec
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.json.plain import KeptJson

TEXT, JSON = serdes.string(), serdes.json()
ANY = cs.Consumed(key=TEXT, value=JSON)
COL = pl.col("price")
KEY = COL.cast(pl.String)
LEFT = pl.col("left").struct.field("price")
WINDOWS = cs.JoinWindows.of("1 minute")


def both(left: Any, right: Any) -> Any:
    return [left, right]


class Handles:
    """A stream, tables and a global table over JSON without a declared type."""

    def __init__(self, value: Any = JSON) -> None:
        self.builder = cs.StreamsBuilder()
        self.consumed = cs.Consumed(key=TEXT, value=value)
        self.stream = self.builder.stream("orders", self.consumed)
        self.other = self.builder.stream("clicks", self.consumed)
        self.table, self.right = (self.builder.table(topic, self.consumed) for topic in ("rows", "rights"))
        self.everywhere = self.builder.global_table("shops", self.consumed)


WRITTEN: dict[str, Callable[[Handles], Any]] = {
    "map_values": lambda h: h.stream.map_values(COL),
    "filter": lambda h: h.stream.filter(COL > 1),
    "filter_not": lambda h: h.stream.filter_not(COL > 1),
    "flat_map_values": lambda h: h.stream.flat_map_values(pl.concat_list(COL)),
    "select_key": lambda h: h.stream.select_key(COL),
    "split": lambda h: h.stream.split().branch(COL > 1),
    "table map_values": lambda h: h.table.map_values(COL),
    "table filter": lambda h: h.table.filter(COL > 1),
    "table filter_not": lambda h: h.table.filter_not(COL > 1),
    "to_stream": lambda h: h.table.to_stream(COL),
    "join of tables": lambda h: h.table.join(h.right, LEFT),
    "left join of tables": lambda h: h.table.left_join(h.right, LEFT),
    "outer join of tables": lambda h: h.table.outer_join(h.right, LEFT),
    "foreign key": lambda h: h.table.join(h.right, both, foreign_key=KEY),
    "joiner by foreign key": lambda h: h.table.join(h.right, LEFT, foreign_key="id"),
    "right join": lambda h: h.table.right_join(h.right, LEFT, foreign_key="id", keyed_by=cs.LeftOrRight),
    "table and global table": lambda h: h.table.join(h.everywhere, LEFT, foreign_key="id"),
    "foreign key of a global table": lambda h: h.table.join(h.everywhere, both, foreign_key=KEY),
    "join_many": lambda h: h.table.join_many({"one": (h.right, KEY)}, lambda left, rows: left),
    "joiner of join_many": lambda h: h.table.join_many({"one": (h.right, "id")}, LEFT),
    "left_join_many": lambda h: h.table.left_join_many({"one": (h.right, "id")}, LEFT),
    "stream and table": lambda h: h.stream.join(h.table, LEFT),
    "left join of a stream": lambda h: h.stream.left_join(h.table, LEFT),
    "streams": lambda h: h.stream.join(h.other, LEFT, WINDOWS),
    "outer join of streams": lambda h: h.stream.outer_join(h.other, LEFT, WINDOWS),
    "stream and global table": lambda h: h.stream.join(h.everywhere, LEFT, key_selector="id"),
    "key_selector": lambda h: h.stream.left_join(h.everywhere, both, key_selector=KEY),
    "timestamp_extractor": lambda h: h.builder.stream(
        "more", cs.Consumed(key=TEXT, value=JSON, timestamp_extractor=COL)
    ),
    "timestamp_extractor of a table": lambda h: h.builder.table(
        "more", cs.Consumed(key=TEXT, value=JSON, timestamp_extractor=COL)
    ),
}


@pytest.mark.parametrize("operator", WRITTEN)
def test_an_expression_over_undeclared_json_is_refused_where_it_is_written(operator: str) -> None:
    handles = Handles()
    with pytest.raises(cs.TopologyError, match="is not declared") as caught:
        WRITTEN[operator](handles)
    error = caught.value
    assert error.code == "CS-113"
    assert 'value={"price": pl.…}' in str(error.next)
    assert "test_declared_types.py:" in str(error.where["line"])


DECLARED = serdes.json({"id": pl.String, "price": pl.Int64})


@pytest.mark.parametrize("operator", [name for name in WRITTEN if "timestamp_extractor" not in name])
def test_the_same_expression_over_a_declared_type_is_taken(operator: str) -> None:
    WRITTEN[operator](Handles(DECLARED))


@pytest.mark.parametrize(
    "expression", [pl.col("value"), pl.struct(pl.all()), pl.col("value").struct.field("price"), pl.nth(0)]
)
def test_the_value_as_a_whole_needs_a_declared_type_too(expression: pl.Expr) -> None:
    with pytest.raises(cs.TopologyError, match="CS-113") as caught:
        Handles().stream.map_values(expression)
    assert "value=Order" in str(caught.value.next)


def test_an_expression_that_reads_nothing_of_the_value_needs_no_type() -> None:
    handles = Handles()
    handles.stream.map_values(pl.col("key"))
    handles.stream.filter(pl.lit(True))
    handles.table.join(handles.right, pl.struct("key"))


def test_a_key_needs_a_declared_type_as_well() -> None:
    handles = Handles(DECLARED)
    moved = handles.stream.map(lambda key, value: (value["id"], value))
    with pytest.raises(cs.TopologyError, match=r"the type of the keys of orders\.map is not declared"):
        moved.map_values(pl.col("key"))
    by_id = handles.stream.select_key("id")
    by_id.filter(pl.col("key") == "x")


@dataclass
class Order:
    id: str
    price: int


def priced(value: Any) -> Order:
    return Order(value["id"], value["price"])


def listed(value: Any) -> list[Order]:
    return [priced(value)]


def test_after_a_callable_its_annotation_declares_the_type() -> None:
    handles = Handles()
    with pytest.raises(cs.TopologyError, match="CS-113"):
        handles.stream.map_values(lambda value: value).filter(COL > 1)
    handles.stream.map_values(priced).filter(COL > 1)
    handles.table.map_values(priced).join(handles.right, LEFT)
    handles.stream.map_values(lambda value: value).repartition(cs.Repartitioned(value=DECLARED)).filter(
        COL > 1
    )


@pytest.mark.parametrize(
    "hint",
    [
        dict[str, Any],
        dict,
        list[int] | None,
        str | None,
        int,
        tuple[str, ...],
        Literal["a"],
        "no such class",
        None,
        Any,
    ],
    ids=str,
)
def test_an_annotation_of_plain_json_says_nothing(hint: Any) -> None:
    """It gives values back as they are; a store in which they are kept has the same form with and without it."""

    def mapper(value: Any) -> Any:
        return value

    mapper.__annotations__["return"] = hint
    stored = cs.Materialized(store="kept")
    node = Handles().table.map_values(mapper, materialized=stored)._node
    plain = Handles().table.map_values(lambda value: value, materialized=stored)._node
    assert (node.value, node.value_type) == (plain.value, plain.value_type) == (KeptJson(), None)


@pytest.mark.parametrize(
    "hint", [set[int], dict[int, str], Order, list[Order], Order | None, Decimal], ids=str
)
def test_an_annotation_of_what_json_would_change_declares_the_type(hint: Any) -> None:
    def mapper(value: Any) -> Any:
        return value

    mapper.__annotations__["return"] = hint
    node = Handles().table.map_values(mapper)._node
    assert node.value_type == serdes.json(hint)


def test_a_type_by_annotation_may_be_a_list() -> None:
    Handles().stream.map_values(listed).flat_map_values(pl.col("value")).filter(COL > 1)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (pl.col("prise"), "did you mean 'price'"),
        (pl.struct("id", "nothing_like_it"), "its fields are: id, price"),
        (pl.col("value").struct.field("prise"), "did you mean 'price'"),
    ],
    ids=["misspelled", "unknown", "field"],
)
def test_a_field_that_the_type_does_not_have_is_refused(expression: pl.Expr, words: str) -> None:
    with pytest.raises(cs.TopologyError, match="CS-114") as caught:
        Handles(DECLARED).stream.map_values(expression)
    assert words in str(caught.value.next)


def test_a_field_of_a_side_that_its_type_does_not_have_is_refused() -> None:
    handles = Handles(DECLARED)
    with pytest.raises(cs.TopologyError, match=r"CS-114.*'prise'") as caught:
        handles.table.join(handles.right, pl.col("right").struct.field("prise"))
    assert "'price'" in str(caught.value.next)


def test_what_a_field_cannot_do_is_refused() -> None:
    with pytest.raises(cs.TopologyError, match="CS-114"):
        Handles(DECLARED).stream.map_values(pl.col("price").str.to_uppercase())


def test_a_serde_that_does_not_take_what_an_expression_gives_is_refused() -> None:
    handles = Handles(DECLARED)
    with pytest.raises(cs.TopologyError, match="CS-115"):
        handles.table.map_values(COL, materialized=cs.Materialized(value=TEXT))
    with pytest.raises(cs.TopologyError, match="CS-115"):
        handles.stream.map_values(COL).to("out", cs.Produced(value=TEXT))


# Fields by name


class Shop(msgspec.Struct):
    id: str
    tags: dict[str, int] = {}


def told(build: Callable[[cs.StreamsBuilder], cs.KStream], records: Any, every: int, **topics: Any) -> Any:
    """What ``build`` writes of records (topic, key, value), all of them read as undeclared JSON."""
    builder = cs.StreamsBuilder()
    build(builder).to("out", cs.Produced(key=TEXT, value=JSON))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        for time, (topic, key, value) in enumerate(records):
            driver.create_input_topic(topic, TEXT, JSON).pipe_input(key, value, time)
        driver.commit()
        return driver.create_output_topic("out", TEXT, JSON).read_key_values()


ROWS = [
    ("shops", "s", {"city": "Bern"}),
    ("orders", "a", {"shop": "s", "odd": [1, "x"]}),
    ("orders", "b", {"odd": 1}),
    ("orders", "c", {"shop": None}),
]


@pytest.mark.parametrize("every", [1, 9])
@pytest.mark.parametrize("value", [JSON, serdes.json({"shop": pl.String, "city": pl.String})])
def test_a_text_as_foreign_key_is_a_plain_look_up(value: Any, every: int) -> None:
    def build(builder: cs.StreamsBuilder) -> cs.KStream:
        orders, shops = (
            builder.table(topic, cs.Consumed(key=TEXT, value=value)) for topic in ("orders", "shops")
        )
        joined = orders.left_join(shops, lambda order, shop: shop and shop["city"], foreign_key="shop")
        return joined.to_stream()

    assert sorted(told(build, ROWS, every)) == [("a", "Bern"), ("b", None), ("c", None)]


@pytest.mark.parametrize("every", [1, 9])
def test_a_text_names_a_field_wherever_a_key_is_taken_from_values(every: int) -> None:
    def by_selector(builder: cs.StreamsBuilder) -> cs.KStream:
        shops = builder.global_table("shops", ANY)
        return builder.stream("orders", ANY).left_join(
            shops, lambda order, shop: shop and shop["city"], key_selector="shop"
        )

    def by_many(builder: cs.StreamsBuilder) -> cs.KStream:
        orders, shops = builder.table("orders", ANY), builder.table("shops", ANY)
        bills = orders.left_join_many({"shop": (shops, "shop")}, lambda order, rows: rows["shop"])
        return bills.to_stream().map_values(lambda shop: shop and shop["city"])

    def re_keyed(builder: cs.StreamsBuilder) -> cs.KStream:
        builder.table("shops", ANY)
        return builder.table("orders", ANY).to_stream("shop").map_values(lambda order: None)

    def selected(builder: cs.StreamsBuilder) -> cs.KStream:
        builder.table("shops", ANY)
        return builder.stream("orders", ANY).select_key("shop").map_values(lambda order: None)

    for build in (by_selector, by_many):
        assert sorted(told(build, ROWS, every)) == [("a", "Bern"), ("b", None), ("c", None)]
    for build in (re_keyed, selected):
        assert told(build, ROWS, every) == [("s", None), (None, None), (None, None)]


def test_a_text_may_name_a_field_of_instances() -> None:
    builder = cs.StreamsBuilder()
    shops = builder.table("shops", cs.Consumed(key=TEXT, value=serdes.json(Shop)))
    joined = shops.join(shops, lambda left, right: right.tags, foreign_key="id")
    joined.to_stream().to("out", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("shops", TEXT, JSON).pipe_input("a", {"id": "a", "tags": {"x": 1}})
        assert driver.create_output_topic("out", TEXT, JSON).read_values() == [{"x": 1}]
    with pytest.raises(cs.TopologyError, match="CS-114"):
        shops.join(shops, both, foreign_key="idd")


def test_a_misspelled_text_over_a_declared_type_is_refused() -> None:
    handles = Handles(DECLARED)
    with pytest.raises(cs.TopologyError, match=r"CS-114.*'prise'") as caught:
        handles.table.join(handles.right, both, foreign_key="prise")
    assert "'price'" in str(caught.value.next)


# Classes with fields that have no column form


SHOP = cs.Consumed(key=TEXT, value=serdes.json(Shop))


@pytest.mark.parametrize("every", [1, 9])
def test_other_fields_of_a_class_are_read_by_expressions(every: int) -> None:
    """Story: a dict has no column form, so that field is for callables; a bad one is a matter of its record."""

    def build(builder: cs.StreamsBuilder) -> cs.KStream:
        shops = builder.stream("shops", SHOP)
        return shops.filter(pl.col("id") != "x").map_values(lambda shop: shop.tags)

    records = [("shops", "a", {"id": "a", "tags": {"n": 1}}), ("shops", "b", {"id": "x"})]
    assert told(build, records, every) == [("a", {"n": 1})]
    builder = cs.StreamsBuilder()
    build(builder).to("out", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build(), commit_every=every, deserialization_errors="skip") as driver:
        topic = driver.create_input_topic("shops", TEXT, JSON)
        topic.pipe_records([("a", {"id": "a", "tags": {"n": "text"}}), ("b", {"id": "b", "tags": {}})])
        driver.commit()
        assert driver.create_output_topic("out", TEXT, JSON).read_key_values() == [("b", {})]
        assert driver.metrics()["dropped"] == {"shops: undecodable": 1}


@pytest.mark.parametrize("expression", [pl.col("tags"), pl.struct(pl.all()), pl.col("value")], ids=str)
def test_a_field_without_a_column_form_is_refused(expression: pl.Expr) -> None:
    with pytest.raises(cs.TopologyError, match=r"CS-114.*field tags of Shop") as caught:
        cs.StreamsBuilder().stream("shops", SHOP).map_values(expression)
    assert "callable" in str(caught.value.next)


# Callables take any JSON


DEEP: Any = None
for _ in range(33):
    DEEP = {"in": DEEP}
ODD = [{"a": [1, "x"]}, {"a": 1}, DEEP, [1, {"a": [[]]}], {"a": 2**70}, "text", 1.5, {"": {"\0": True}}]


@pytest.mark.parametrize("every", [1, 3, 9])
def test_callables_take_json_of_any_shape(every: int) -> None:
    """In streams, stores, shuffles and joins: {"a": [1, "x"]} and 33 objects in one another stopped an application."""

    def build(builder: cs.StreamsBuilder) -> cs.KStream:
        stream = builder.stream("in", ANY)
        again = stream.filter(lambda value: True).map_values(lambda value: [value])
        moved = again.map(lambda key, value: (key, value[0])).repartition(cs.Repartitioned(key=TEXT))
        table = moved.to_table(materialized=cs.Materialized(store="kept"))
        return table.left_join(
            table.filter(lambda value: value != 1.5), lambda left, right: [left, right]
        ).to_stream()

    records = [("in", f"k{n}", value) for n, value in enumerate(ODD)]
    found = dict(told(build, records, every))
    assert found == {f"k{n}": [value, None if value == 1.5 else value] for n, value in enumerate(ODD)}
