"""Names that the engine gives inside a plan are no names of topics, operators or stores of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Flow
from tests.api.cases import JSON

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
    planner = PlanBuilder(by_foreign_key(cs.StreamsBuilder())._draft.finish())
    planner.add(Flow("orders", 0, TEXT, ANY))
    with pytest.raises(AssertionError, match="orders"):
        planner.add(Flow("orders", 1, TEXT, ANY))


def two_joins(store: str | None, *, store_first: bool, other_store: str | None = None) -> cs.Topology:
    builder, windows = cs.StreamsBuilder(), cs.JoinWindows.of(100)
    views, clicks, carts, orders = (
        builder.stream(topic, JSON) for topic in ("views", "clicks", "carts", "orders")
    )

    def seen() -> None:
        named = cs.StreamJoined(name="seen", other_store=other_store)
        views.left_join(clicks, lambda *pair: [*pair], windows, named).to("seen", PRODUCED)

    def bought() -> None:
        named = cs.StreamJoined(name="bought", store=store)
        carts.join(orders, lambda *pair: [*pair], windows, named).to("bought", PRODUCED)

    for declare in (bought, seen) if store_first else (seen, bought):
        declare()
    return builder.build()


SEEN = ("seen.left", "seen.right", "seen.waiting")


@pytest.mark.parametrize("store_first", [True, False])
@pytest.mark.parametrize("store", [None, "carts-kept", *SEEN])
def test_a_store_called_like_one_of_another_join_of_streams(store: str | None, store_first: bool) -> None:
    records = [("views", "k", 1), ("carts", "k", 2), ("clicks", "k", 3), ("orders", "k", 4)]
    found = results(two_joins(store, store_first=store_first), records, "seen", "bought")
    assert found == [[("k", [1, 3])], [("k", [2, 4])]]


def test_a_store_called_like_the_other_store_of_its_own_join() -> None:
    topology = two_joins(None, store_first=False, other_store="seen.left")
    records = [("views", "k", 1), ("views", "k", 2), ("clicks", "k", 3)]
    assert results(topology, records, "seen") == [[("k", [1, 3]), ("k", [2, 3])]]


def test_stores_are_called_the_same_in_whatever_order_operators_come() -> None:
    """An inner store gives way to one of the user's, whichever is there first; so does its name in the texts."""
    for store_first in (True, False):
        topology = two_joins("seen.left", store_first=store_first)
        plan = plan_topology(topology)
        assert sorted(plan.stores) == [
            "bought.right",
            "seen.left",
            "seen.left-2",
            "seen.right",
            "seen.waiting",
        ]
        assert plan.stores["seen.left"].public == "seen.left"
        assert "Processor: seen (stores: [seen.left-2, seen.right])" in topology.describe()
        assert "store seen.left-2, seen.right" in topology.to_mermaid()
        stores = {node["name"]: node.get("stores") for node in topology.to_dict()["nodes"]}
        assert stores["seen"] == ["seen.left-2", "seen.right"]


OWN = ("references", "subscriptions", "referrers", "interest", "interested", "rows", "partners", "left")


@pytest.mark.parametrize("part", OWN)
@pytest.mark.parametrize("join", [by_foreign_key, by_global_table, of_many])
@pytest.mark.parametrize("join_first", [True, False])
def test_a_table_kept_under_the_name_of_a_part_of_a_join(
    join: Callable[[cs.StreamsBuilder], cs.KTable], part: str, join_first: bool
) -> None:
    builder, store = cs.StreamsBuilder(), f"promo.{part}"

    def joined() -> None:
        join(builder).to_stream().to("joined", PRODUCED)

    def kept() -> None:
        builder.table("other", JSON, cs.Materialized(store=store)).to_stream().to("others", PRODUCED)

    for declare in (joined, kept) if join_first else (kept, joined):
        declare()
    with cs.TopologyTestDriver(builder.build()) as driver:
        for topic, key, value in (("other", "o", "row"), ("merchants", "m", "shop"), ("products", "p", "m")):
            driver.create_input_topic(topic, TEXT, ANY).pipe_input(key, value)
        out = [
            driver.create_output_topic(topic, TEXT, ANY).read_key_values() for topic in ("joined", "others")
        ]
        assert out == [[("p", ["m", "shop"])], [("o", "row")]]
        assert dict(driver.get_key_value_store(store).all()) == {"o": "row"}


def test_a_table_that_is_kept_by_a_later_join_under_the_name_of_a_part_of_an_earlier_one() -> None:
    builder = cs.StreamsBuilder()
    left = builder.table("left", JSON, cs.Materialized(store="promo.references"))
    right = builder.table("right", JSON)
    promo = cs.TableJoined(name="promo")
    joined = left.join(right, lambda *pair: [*pair], foreign_key=lambda row: row, table_joined=promo)
    joined.to_stream().to("joined", PRODUCED)
    right.join(left, lambda *pair: [*pair], foreign_key=lambda row: row).to_stream().to("back", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        for topic, key, value in (("right", "r", "l"), ("left", "l", "r"), ("left", "l", "s")):
            driver.create_input_topic(topic, TEXT, ANY).pipe_input(key, value)
        out = [driver.create_output_topic(topic, TEXT, ANY).read_key_values() for topic in ("joined", "back")]
        assert out == [[("l", ["r", "l"]), ("l", None)], [("r", ["l", "r"]), ("r", ["l", "s"])]]
        assert dict(driver.get_key_value_store("promo.references").all()) == {"l": "s"}


def test_a_result_kept_under_the_name_of_a_part_of_its_own_join() -> None:
    builder = cs.StreamsBuilder()
    left, right = builder.table("left", JSON), builder.table("right", JSON)
    left.join(
        right,
        lambda row, other: [row, other],
        foreign_key=lambda row: row,
        table_joined=cs.TableJoined(name="promo"),
        materialized=cs.Materialized(store="promo.references"),
    ).to_stream().to("out", PRODUCED)
    records = [("left", "l", "r"), ("right", "r", 1), ("right", "r", 2)]
    assert results(builder.build(), records, "out") == [[("l", ["r", 1]), ("l", ["r", 2])]]


@pytest.mark.parametrize("join_first", [True, False])
def test_a_table_kept_under_the_name_of_the_records_that_wait_for_another(join_first: bool) -> None:
    builder = cs.StreamsBuilder()

    def joined() -> None:
        rates = builder.table("rates", JSON, cs.Materialized(history_retention=100))
        named = cs.Joined(name="priced", grace=10)
        builder.stream("orders", JSON).join(rates, lambda *pair: [*pair], named).to("joined", PRODUCED)

    def kept() -> None:
        builder.table("other", JSON, cs.Materialized(store="priced.buffer")).to_stream().to(
            "others", PRODUCED
        )

    for declare in (joined, kept) if join_first else (kept, joined):
        declare()
    topology = builder.build()
    assert "priced.buffer-2" in topology.describe()
    with cs.TopologyTestDriver(topology) as driver:
        driver.create_input_topic("other", TEXT, ANY).pipe_input("o", "row", 1)
        driver.create_input_topic("rates", TEXT, ANY).pipe_input("k", 2, 1)
        orders = driver.create_input_topic("orders", TEXT, ANY)
        orders.pipe_input("k", 1, 1)
        orders.pipe_input("k", 1, 20)
        assert driver.create_output_topic("joined", TEXT, ANY).read_key_values() == [("k", [1, 2])]
        assert dict(driver.get_key_value_store("priced.buffer").all()) == {"o": "row"}
