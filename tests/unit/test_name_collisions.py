"""Names that the engine gives inside a plan are no names of topics, operators or stores of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.topology.plan import Flow
from crossstream.topology.planner import Planner
from tests.unit.dsl_cases import JSON

TEXT, ANY = serdes.string(), serdes.json()
PRODUCED = cs.Produced(key=TEXT, value=ANY)
Records = list[tuple[str, str, Any]]


def results(topology: cs.Topology, records: Records, *topics: str) -> list[list[tuple[Any, Any]]]:
    """What a topology writes to topics, for records as (topic, key, value), in the order given."""
    with cs.TopologyTestDriver(topology) as driver:
        inputs = {topic: driver.create_input_topic(topic, TEXT, ANY) for topic, _, _ in records}
        for timestamp, (topic, key, value) in enumerate(records):
            inputs[topic].pipe_input(key, value, timestamp)
        return [driver.create_output_topic(topic, TEXT, ANY).read_key_values() for topic in topics]


@pytest.mark.parametrize("table_first", [True, False])
def test_a_stream_of_a_topic_called_like_the_records_of_a_table(table_first: bool) -> None:
    builder = cs.StreamsBuilder()

    def table() -> None:
        builder.table("orders", JSON, cs.Materialized(store="orders")).to_stream().to("rows", PRODUCED)

    def stream() -> None:
        builder.stream("orders.records", JSON).to("events", PRODUCED)

    for declare in (table, stream) if table_first else (stream, table):
        declare()
    records = [("orders", "k", "row"), ("orders.records", "s", "event")]
    assert results(builder.build(), records, "rows", "events") == [[("k", "row")], [("s", "event")]]


def test_an_operator_called_like_the_records_of_a_table() -> None:
    builder = cs.StreamsBuilder()
    rows = builder.table("orders", JSON).to_stream()
    rows.filter(lambda value: True, named=cs.Named("orders.records")).to("rows", PRODUCED)
    assert results(builder.build(), [("orders", "k", "row")], "rows") == [[("k", "row")]]


def test_a_global_table_beside_one_called_like_its_records() -> None:
    builder = cs.StreamsBuilder()
    views = builder.stream("views", JSON)
    for topic in ("shops", "shops.records"):
        shops = builder.global_table(topic, JSON)
        views = views.join(shops, lambda view, row: [view, row], key_selector=lambda key, view: key)
    views.to("out", PRODUCED)
    records = [("shops", "k", 1), ("shops.records", "k", 2), ("views", "k", 0)]
    assert results(builder.build(), records, "out") == [[("k", [[0, 1], 2])]]


def by_foreign_key(builder: cs.StreamsBuilder) -> cs.KTable:
    products, merchants = builder.table("products", JSON), builder.table("merchants", JSON)
    return products.join(
        merchants,
        lambda product, merchant: [product, merchant],
        foreign_key=lambda product: product,
        table_joined=cs.TableJoined(name="promo"),
    )


def by_global_table(builder: cs.StreamsBuilder) -> cs.KTable:
    products, merchants = builder.table("products", JSON), builder.global_table("merchants", JSON)
    return products.join(
        merchants,
        lambda product, merchant: [product, merchant],
        foreign_key=lambda product: product,
        named=cs.Named("promo"),
    )


def of_many(builder: cs.StreamsBuilder) -> cs.KTable:
    products, merchants = builder.table("products", JSON), builder.table("merchants", JSON)
    return products.join_many(
        {"merchant": (merchants, lambda product: product)},
        lambda product, rows: [product, rows["merchant"]],
        named=cs.Named("promo"),
    )


INNER = ("subscriptions", "answers", "asks", "rows", "references", "interest", "partners", "changes")


@pytest.mark.parametrize("part", INNER)
@pytest.mark.parametrize("join", [by_foreign_key, by_global_table, of_many])
@pytest.mark.parametrize("join_first", [True, False])
def test_a_stream_of_a_topic_called_like_a_part_of_a_join(
    join: Callable[[cs.StreamsBuilder], cs.KTable], part: str, join_first: bool
) -> None:
    builder = cs.StreamsBuilder()

    def joined() -> None:
        join(builder).to_stream().to("joined", PRODUCED)

    def stream() -> None:
        builder.stream(f"promo.{part}", JSON).to("events", PRODUCED)

    for declare in (joined, stream) if join_first else (stream, joined):
        declare()
    records = [("merchants", "m", "shop"), ("products", "p", "m"), (f"promo.{part}", "s", "event")]
    expected = [[("p", ["m", "shop"])], [("s", "event")]]
    assert results(builder.build(), records, "joined", "events") == expected


def test_a_stream_of_two_topics_called_like_a_table_with_its_foreign_keys() -> None:
    """A source of several topics is called after all of them: ``a+promo``."""
    builder = cs.StreamsBuilder()
    left, right = builder.table("left", JSON), builder.table("right", JSON)
    rows = left.join(left, lambda one, same: one, named=cs.Named("a"))
    events = builder.stream(["a", "promo"], JSON)
    joined = rows.join(
        right,
        lambda row, other: [row, other],
        foreign_key=lambda row: row,
        table_joined=cs.TableJoined(name="promo"),
    )
    joined.to_stream().to("joined", PRODUCED)
    events.filter(lambda event: True).to("events", PRODUCED)
    records = [("right", "r", 1), ("left", "l", "r"), ("a", "s", "event")]
    assert results(builder.build(), records, "joined", "events") == [[("l", ["r", 1])], [("s", "event")]]


def test_foreign_keys_are_taken_once_whatever_the_join_is_called() -> None:
    """A join without a name is called after both tables: ``left.join(a+b.to_table)``."""
    builder, taken = cs.StreamsBuilder(), []
    left, right = builder.table("left", JSON), builder.stream(["a", "b"], JSON).to_table()

    def foreign_key(row: Any) -> Any:
        taken.append(row)
        return row

    left.join(right, lambda row, other: [row, other], foreign_key=foreign_key).to_stream().to("out", PRODUCED)
    assert results(builder.build(), [("a", "r", 1), ("left", "l", "r")], "out") == [[("l", ["r", 1])]]
    assert taken == ["r"]


def test_no_flow_takes_the_place_of_another() -> None:
    planner = Planner(by_foreign_key(cs.StreamsBuilder())._draft.finish())
    planner.add(Flow("orders", 0, TEXT, ANY))
    with pytest.raises(AssertionError, match="orders"):
        planner.add(Flow("orders", 1, TEXT, ANY))
