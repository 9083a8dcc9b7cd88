"""What is rebuilt of a changed topology is what a first run of the new code has: stores row by row, and results."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.evolution.stored_rows import topic_of
from crossstream.graph.names import matches
from tests.evolution.rebuilding import check_as_fresh, contents, decided, rebuilt, rows_of
from tests.faults.one_process import process
from tests.spark.world import TEXT, World

JSON = serdes.json()
Order = dict[str, Any]


def names(order: Order, customer: Order) -> Order:
    return {"who": customer["name"]}


def names_and_amounts(order: Order, customer: Order) -> Order:
    return {"who": customer["name"], "amount": order["amount"]}


def left_names(order: Order, customer: Order | None) -> Order:
    return {"who": None if customer is None else customer["name"]}


def customer_of(order: Order) -> str:
    return str(order["customer"])


def city_of(order: Order) -> str:
    return str(order["city"])


def is_large(order: Order) -> bool:
    return bool(order["amount"] > 20)


def is_small(order: Order) -> bool:
    return bool(order["amount"] <= 30)


def three(order: Order, rows: Order) -> Order:
    return {"who": rows["customer"]["name"], "where": rows["city"]["town"]}


def other_three(order: Order, rows: Order) -> Order:
    return {**three(order, rows), "amount": order["amount"]}


def both(large: Order, order: Order) -> Order:
    return {"large": large["amount"], "order": order["amount"]}


def both_or_one(large: Order, order: Order | None) -> Order:
    return {"large": large["amount"], "order": None if order is None else order["amount"]}


def beside(pair: Order, order: Order) -> Order:
    return {**pair, "beside": order["amount"]}


def kept(store: str = "large") -> Any:
    return cs.Materialized(store=store, key=str, value=dict, history_retention="1 day")


def by_name(offers: Any) -> Any:
    return offers.group_by(lambda key, offer: (offer["who"], offer), key=str, value=dict)


def add(key: str, so_far: list[Any], offer: Order) -> list[Any]:
    return sorted([*so_far, offer["amount"]])


def subtract(key: str, so_far: list[Any], offer: Order) -> list[Any]:
    return [amount for amount in so_far if amount != offer["amount"]]


Make = Callable[[cs.KTable[Any, Any], cs.KTable[Any, Any], cs.KTable[Any, Any]], cs.KTable[Any, Any]]


def topology(make: Make) -> cs.Topology:
    builder = cs.StreamsBuilder()
    tables = [builder.table(topic, key=str, value=dict) for topic in ("orders", "customers", "cities")]
    make(*tables).to_stream().to("out", key=str, value=JSON)
    return builder.build()


def joined(joiner: Any, **settings: Any) -> Make:
    settings = {"foreign_key": customer_of, "table_joined": cs.TableJoined(name="offers"), **settings}
    return lambda orders, customers, _: orders.join(customers, joiner, **settings)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(orders=3, customers=2, cities=1)
    orders = [
        (f"o{i}", {"customer": f"c{i % 7}", "city": f"t{i % 3}", "amount": i}, 1000 + i) for i in range(50)
    ]
    world.append("orders", orders, value=JSON)
    world.append("customers", [(f"c{i}", {"name": f"name {i}"}, 500 + i) for i in range(6)], value=JSON)
    world.append("cities", [(f"t{i}", {"town": f"town {i}"}, 600 + i) for i in range(2)], value=JSON)
    return world


def run(world: World, made: cs.Topology) -> None:
    """Some batches, of which the last one replaces and deletes rows."""
    process(made, world.config(max_records_per_batch=20))
    changed = {"customer": "c0", "city": "t1", "amount": 7}
    world.append("orders", [("o1", None, 3000), ("o2", changed, 3001), ("o3", changed, 3002)], value=JSON)
    world.append("customers", [("c3", None, 3003), ("c4", {"name": "another"}, 3004)], value=JSON)
    process(made, world.config())


def many(joiner: Any) -> Make:
    def make(orders: Any, customers: Any, cities: Any) -> Any:
        others = {"customer": (customers, customer_of), "city": (cities, city_of)}
        return orders.join_many(others, joiner)

    return make


CHANGES: dict[str, tuple[Make, Make, int]] = {
    "another joiner": (joined(names), joined(names_and_amounts), 0),
    "another joiner of a kept result": (
        joined(names, store="offers"),
        joined(names_and_amounts, store="offers"),
        1,
    ),
    "inner to left": (
        joined(names),
        lambda o, c, _: o.left_join(
            c, left_names, foreign_key=customer_of, table_joined=cs.TableJoined(name="offers")
        ),
        0,
    ),
    "another foreign key": (
        joined(names),
        lambda o, c, t: o.join(c, names, foreign_key=city_of, table_joined=cs.TableJoined(name="offers")),
        2,
    ),
    "a filter behind": (
        lambda o, c, t: joined(names_and_amounts)(o, c, t),
        lambda o, c, t: joined(names_and_amounts)(o, c, t).filter(is_small),
        0,
    ),
    "a filter before": (joined(names), lambda o, c, t: joined(names)(o.filter(is_large), c, t), 2),
    "one more dimension": (joined(names), many(three), 2),
    "another joiner of many": (many(three), many(other_three), 0),
    "an aggregate of a result": (
        joined(names_and_amounts),
        lambda o, c, t: by_name(joined(names_and_amounts)(o, c, t)).aggregate(list, add, subtract),
        0,
    ),
    "another aggregate": (
        lambda o, c, t: by_name(joined(names_and_amounts)(o, c, t)).aggregate(list, add, subtract),
        lambda o, c, t: by_name(joined(names_and_amounts)(o, c, t)).agg(n=cs.agg.count()),
        0,
    ),
    "a table with versions": (
        lambda o, c, t: joined(names)(o, c, t),
        lambda o, c, t: joined(names)(o.filter(is_large, materialized=kept()), c, t),
        2,
    ),
    "a join by key of a table with versions": (
        lambda o, c, t: o.filter(is_large, materialized=kept()).join(o, both),
        lambda o, c, t: o.filter(is_large, materialized=kept()).left_join(o, both_or_one),
        2,
    ),
    "a foreign-key join of tables with versions": (
        lambda o, c, t: o.filter(is_large, materialized=kept()).join(o, both),
        lambda o, c, t: (
            o.filter(is_large, materialized=kept())
            .join(o, both)
            .join(
                o.filter(is_large, materialized=kept("other")),
                beside,
                foreign_key=lambda pair: f"o{pair['order']}",
            )
        ),
        1,
    ),
    "a filter changed": (
        lambda o, c, t: joined(names)(o.filter(is_large), c, t),
        lambda o, c, t: joined(names)(o.filter(is_small), c, t),
        2,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_rebuilt_is_what_a_first_run_has(world: World, change: str) -> None:
    before, after, _ = CHANGES[change]
    run(world, topology(before))
    check_as_fresh(world, topology(after))


def stream_topology(make: Callable[..., Any]) -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", key=str, value=dict).filter(is_there)
    customers = builder.table("customers", key=str, value=dict)
    make(orders, customers).to_stream().to("out", value=JSON)
    return builder.build()


def is_there(order: Order | None) -> bool:
    return order is not None


def by_customer(order: Order) -> str:
    return str(order["customer"])


def counted(orders: Any) -> Any:
    return orders.group_by(lambda key, order: order["customer"], key=str).count(store="counts")


def count_and_name(count: int, customer: Order) -> Order:
    return {"n": count, "who": customer["name"]}


def count_and_whole(count: int, customer: Order) -> Order:
    return {"n": count, "customer": customer}


def customer_of_count(key: str, count: int) -> str:
    return key


OF_STREAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], set[str]]] = {
    "another joiner behind an aggregate": (
        lambda o, c: counted(o).join(c, count_and_name),
        lambda o, c: counted(o).join(c, count_and_whole),
        set(),
    ),
    "a filter before an aggregate": (
        lambda o, c: counted(o).join(c, count_and_name),
        lambda o, c: counted(o.filter(is_large)).join(c, count_and_name),
        {"orders", "customers"},
    ),
    "an aggregate of a stream joined with a table": (
        lambda o, c: counted(o).join(c, count_and_name),
        lambda o, c: counted(
            o.select_key(by_customer).join(c, lambda order, customer: {**order, "customer": customer["name"]})
        ).map_values(lambda count: {"n": count}),
        {"orders", "customers"},
    ),
    "windows": (
        lambda o, c: counted(o).map_values(lambda count: {"n": count}),
        lambda o, c: (
            o.select_key(by_customer)
            .group_by_key(key=str)
            .windowed_by(cs.TimeWindows(size="10 ms"))
            .count()
            .map_values(lambda count: {"n": count})
        ),
        {"orders"},
    ),
}


@pytest.mark.parametrize("change", OF_STREAMS)
def test_what_is_below_a_stream_is_read_again(world: World, change: str) -> None:
    before, after, read = OF_STREAMS[change]
    run(world, stream_topology(before))
    built = check_as_fresh(world, stream_topology(after))
    assert set(built.positions) == read
    for topic in read:
        ends = {number: len(records) for number, records in enumerate(world.wire(topic))}
        assert built.positions[topic][topic] == ends


def with_global(joiner: Any, *, streams: bool = False) -> cs.Topology:
    builder = cs.StreamsBuilder()
    held: Any = builder.global_table("customers", cs.Consumed(key=TEXT, value=JSON))
    if streams:
        records = builder.stream("orders", key=str, value=dict).filter(is_there)
        named = records.join(held, joiner, key_selector=lambda key, order: order["customer"])
        named.group_by(lambda key, row: row["who"], key=str).count(store="n").to_stream().to(
            "out", key=str, value=JSON
        )
    else:
        orders = builder.table("orders", key=str, value=dict)
        orders.join(held, joiner, foreign_key=customer_of).to_stream().to("out", key=str, value=JSON)
    return builder.build()


@pytest.mark.parametrize("streams", [False, True])
def test_global_tables_are_there_before_all_other_rows(world: World, streams: bool) -> None:
    run(world, with_global(names, streams=streams))
    check_as_fresh(world, with_global(names_and_amounts, streams=streams))


def test_a_source_that_began_with_the_newest_records_is_read_again_from_there(world: World) -> None:
    def latest(size: str) -> cs.Topology:
        builder = cs.StreamsBuilder()
        consumed = cs.Consumed(key=TEXT, value=JSON, offset_reset="latest")
        windows = (
            builder.stream("orders", consumed)
            .filter(is_there)
            .group_by_key()
            .windowed_by(cs.TimeWindows(size=size))
        )
        windows.count(store="n").to_stream().to("out", value=serdes.int64())
        return builder.build()

    process(latest("10 ms"), world.config())
    given = [(f"o{i}", {"customer": "c1", "city": "t1", "amount": i}, 5000 + 7 * i) for i in range(9)]
    world.append("orders", given, value=JSON)
    process(latest("10 ms"), world.config())
    built = rebuilt(world, latest("20 ms"))
    plan = plan_topology(latest("20 ms"))
    rows = contents(built.root, plan, "n", built.versions["n"])
    assert len(rows) == len(given)


def test_a_pattern_is_read_again_as_far_as_it_matched(world: World) -> None:
    def counted_by(size: str) -> cs.Topology:
        builder = cs.StreamsBuilder()
        source = builder.stream(re.compile("orders.*"), key=str, value=dict).filter(is_there)
        source.group_by_key().windowed_by(cs.TimeWindows(size=size)).count(store="n").to_stream().to(
            "out", value=serdes.int64()
        )
        return builder.build()

    process(counted_by("10 ms"), world.config())
    world.create(orders_new=1)
    world.append("orders_new", [("later", {"customer": "c1"}, 9000)], value=JSON)
    built = rebuilt(world, counted_by("20 ms"))
    plan = plan_topology(counted_by("20 ms"))
    assert len(contents(built.root, plan, "n", built.versions["n"])) == 50
    ((_, read),) = built.positions.items()
    assert {topic: sum(at.values()) for topic, at in read.items()} == {"orders": 50, "orders_new": 0}
    assert not matches(re.compile(".*"), topic_of("n"))


def test_actions_are_not_called_again(world: World) -> None:
    seen: list[str] = []

    def looked_at(joiner: Any) -> cs.Topology:
        def make(orders: Any, customers: Any, cities: Any) -> Any:
            return joined(joiner)(orders, customers, cities)

        builder = cs.StreamsBuilder()
        tables = [builder.table(topic, key=str, value=dict) for topic in ("orders", "customers", "cities")]
        stream = make(*tables).to_stream().peek(lambda key, value: seen.append(key))
        stream.foreach(lambda key, value: seen.append(key))
        stream.to("out", key=str, value=JSON)
        return builder.build()

    run(world, looked_at(names))
    seen.clear()
    (result,) = rebuilt(world, looked_at(names_and_amounts)).results
    assert rows_of(result.after)
    assert not seen


def sent_on(function: Callable[[Order], Order]) -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", key=str, value=dict).filter(is_there)
    customers = builder.table("customers", key=str, value=dict)
    joined = orders.select_key(by_customer).join(customers, names_and_amounts)
    joined.map_values(function).to("out", key=str, value=JSON)
    return builder.build()


def test_events_are_made_again_if_that_is_asked_for(world: World) -> None:
    def twice(order: Order) -> Order:
        return {**order, "amount": 2 * order["amount"]}

    run(world, sent_on(dict))
    before = world.wire("out")
    assert not rebuilt(world, sent_on(twice)).events
    built = rebuilt(world, sent_on(twice), decided(world, sent_on(twice), replay_from=0))
    ((sink, topic),) = built.events.items()
    assert sink.endswith("to(out)")
    beside = World(built.root.here)
    once = sorted((one.key, one.value["who"], one.ts) for one in world.read("out", value=JSON))
    found = beside.read(topic, value=JSON)
    assert [one for one in found if one.value["amount"] % 2] == []
    assert sorted((one.key, one.value["who"], one.ts) for one in found) == once
    assert world.wire("out") == before
