"""`why` follows keys through change events and through tables that are grouped, and shows no row of another key."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.recompute.pool import Pool
from crossstream.recompute.reason import Step, Why
from crossstream.recompute.why import minimised
from tests.recompute.world import BOTH, JSON, TEXT, Item, World

GROUPED = cs.Grouped(key=TEXT, value=JSON)
ORDERS = 30
"""Of six customers; every fifth order moves to the next customer."""


@dataclass
class Order:
    id: int
    customer: int
    amount: int
    note: str | None = None


@dataclass
class Customer:
    id: int
    name: str


def event(topic: str, row: dict[str, Any] | None, before: dict[str, Any] | None = None, lsn: int = 1) -> Item:
    """A change event; its key is JSON."""
    op = "c" if before is None else "d" if row is None else "u"
    return topic, json.dumps({"id": (row or before or {})["id"]}), _envelope(op, before, row, lsn), 1


def _envelope(op: str, before: Any, after: Any, lsn: int) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}


def order(number: int, customer: int) -> dict[str, Any]:
    return {"id": number, "customer": customer, "amount": number + 1, "note": None}


def changes() -> list[Item]:
    found = [event("customers", {"id": number, "name": f"c{number}"}) for number in range(6)]
    found += [event("orders", order(number, number % 6)) for number in range(ORDERS)]
    moved = range(0, ORDERS, 5)
    return found + [event("orders", order(n, (n + 1) % 6), order(n, n % 6)) for n in moved]


CUSTOMER = 2
OF_CUSTOMER = sorted(n for n in range(ORDERS) if (n + 1 if n % 5 == 0 else n) % 6 == CUSTOMER)


def events(builder: cs.StreamsBuilder, **settings: Any) -> tuple[cs.KTable, cs.KTable]:
    kept = cs.Materialized(store="orders")
    orders = builder.table("orders", source=cs.debezium(Order, **settings), materialized=kept)
    return orders, builder.table("customers", source=cs.debezium(Customer))


def plain(builder: cs.StreamsBuilder) -> tuple[cs.KTable, cs.KTable]:
    """The same rows, as records of topics."""
    return builder.table("orders", BOTH), builder.table("customers", BOTH)


def of_stream(builder: cs.StreamsBuilder) -> tuple[cs.KTable, cs.KTable]:
    return builder.stream("orders", BOTH).to_table(), builder.table("customers", BOTH)


SOURCES: dict[str, Any] = {"change events": events, "rows": plain, "records": of_stream}


def get(row: Any, name: str) -> Any:
    return row[name] if isinstance(row, dict) else getattr(row, name)


def by_customer(orders: cs.KTable) -> Any:
    return orders.group_by(lambda key, row: (str(get(row, "customer")), get(row, "amount")), GROUPED)


def counted(orders: cs.KTable, customers: cs.KTable) -> None:
    by_customer(orders).count(materialized=cs.Materialized(store="out"))


def reduced(orders: cs.KTable, customers: cs.KTable) -> None:
    kept = cs.Materialized(store="out", key=TEXT, value=JSON)
    by_customer(orders).reduce(
        lambda total, one: total + one, lambda total, one: total - one, materialized=kept
    )


def aggregated(orders: cs.KTable, customers: cs.KTable) -> None:
    groups = orders.map_values(
        lambda row: {"customer": str(get(row, "customer")), "amount": get(row, "amount")}
    )
    typed = serdes.json({"customer": pl.String, "amount": pl.Int64})
    by_field = groups.group_by(lambda key, row: (row["customer"], row), cs.Grouped(key=TEXT, value=typed))
    by_field.agg(total=cs.agg.sum("amount"), most=cs.agg.max("amount"), store="out")


def filtered(orders: cs.KTable, customers: cs.KTable) -> None:
    counted(orders.filter(lambda row: get(row, "amount") > 0), customers)


AGGREGATES: dict[str, Any] = {"count": counted, "reduce": reduced, "agg": aggregated, "filter": filtered}


def world_of(
    folder: Path, source: str, build: Any, items: Iterable[Item] | None = None, **settings: Any
) -> World:
    builder = cs.StreamsBuilder()
    build(*SOURCES[source](builder, **settings))
    world = World(folder, builder.build())
    found = changes() if items is None else list(items)
    if source != "change events":
        found = [
            (topic, str(json.loads(key or "")["id"]), value["after"], at) for topic, key, value, at in found
        ]
    middle = len(found) // 2
    world.process(found[:middle], found[middle:])
    return world


def about(record: Any) -> int:
    """The number of the row that a record is about."""
    value = json.loads(record.value) if isinstance(record.value, bytes) else record.value
    return int((value.get("after") or value.get("before") or value)["id"])


def numbers(found: Why, topic: str = "orders") -> list[int]:
    return sorted(about(record) for record in found.records if record.topic == topic)


def steps(step: Step) -> Iterator[Step]:
    yield step
    for one in step.inputs:
        yield from steps(one)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes each run of the topology."""
    found, replayed = list[int](), Pool.replayed

    def counting(pool: Pool, *rest: Any) -> Any:
        found.append(len(pool))
        return replayed(pool, *rest)

    monkeypatch.setattr(Pool, "replayed", counting)
    return found


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("source", SOURCES)
def test_of_a_group_of_rows_the_records_that_made_it(
    source: str, aggregate: str, tmp_path: Path, runs: list[int]
) -> None:
    world = world_of(tmp_path, source, AGGREGATES[aggregate])
    found = world.why("out", str(CUSTOMER))
    assert (found.exact, numbers(found)) == (True, OF_CUSTOMER)
    assert len(runs) < 12, "it is not searched for"
    given = {key for step in steps(found.step) if step.kind == "Aggregate" for key, _ in step.rows}
    assert given == {str(CUSTOMER)}


@pytest.mark.parametrize("source", SOURCES)
def test_of_a_joined_row_the_record_of_each_side(source: str, tmp_path: Path, runs: list[int]) -> None:
    def joined(orders: cs.KTable, customers: cs.KTable) -> None:
        orders.join(customers, named, foreign_key=customer_of, materialized=KEPT)

    world = world_of(tmp_path, source, joined)
    found = world.why("out", 5 if source == "change events" else "5")
    assert (found.exact, numbers(found), numbers(found, "customers")) == (True, [5], [0])
    assert max(runs) <= 4, "only records of the keys were read"


KEPT = cs.Materialized(store="out", value=JSON)


def named(order: Any, customer: Any) -> Any:
    return {"name": get(customer, "name"), "amount": get(order, "amount")}


def customer_of(order: Any) -> Any:
    customer = get(order, "customer")
    return customer if isinstance(order, Order) else str(customer)


@pytest.mark.parametrize("source", SOURCES)
def test_of_joined_rows_that_are_grouped_those_of_the_group(source: str, tmp_path: Path) -> None:
    def grouped(orders: cs.KTable, customers: cs.KTable) -> None:
        joined = orders.join(customers, named, foreign_key=customer_of, value=JSON)
        joined.group_by(lambda key, row: (row["name"], row), GROUPED).count(materialized=KEPT)

    world = world_of(tmp_path, source, grouped)
    found = world.why("out", f"c{CUSTOMER}")
    assert (found.exact, numbers(found), numbers(found, "customers")) == (True, OF_CUSTOMER, [CUSTOMER])
    keys = {str(key) for step in steps(found.step) if step.kind == "ForeignKeyJoin" for key, _ in step.rows}
    assert keys == set(map(str, OF_CUSTOMER))


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_not_exact_shows_no_row_of_another_group(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossstream.recompute.why.SECONDS", 0.0)
    monkeypatch.setattr("crossstream.recompute.why.group_of", lambda *_: None)
    world = world_of(tmp_path, source, reduced)
    found = world.why("out", str(CUSTOMER))
    assert not found.exact
    assert str(found).startswith("not exact: there are many records")
    ever = {n for n in range(ORDERS) if n % 6 == CUSTOMER} | set(OF_CUSTOMER)
    assert set(OF_CUSTOMER) <= set(numbers(found)) <= ever
    rows = [(step.kind, row) for step in steps(found.step) for row in step.rows]
    assert {key for kind, (key, _) in rows if kind == "Aggregate"} == {str(CUSTOMER)}
    table = "ToTable" if source == "records" else "Source"
    assert {get(value, "customer") for kind, (_, value) in rows if kind == table} == {CUSTOMER}


def test_records_of_other_keys_that_had_to_be_read_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record without a partner comes out when time is past its window, by a record of any key."""
    monkeypatch.setattr("crossstream.recompute.why.SECONDS", 0.0)
    builder = cs.StreamsBuilder()
    asks, answers = builder.stream("asks", BOTH), builder.stream("answers", BOTH)
    serdes_ = cs.StreamJoined(key=TEXT, value=JSON, other_value=JSON)
    joined = asks.left_join(
        answers, lambda ask, answer: [ask, answer], cs.JoinWindows.of(4, grace=0), serdes_
    )
    joined.to_table(materialized=cs.Materialized(store="out", key=TEXT, value=JSON))
    world = World(tmp_path, builder.build(), partitions=1, topic_partitions=1)
    world.process([("asks", f"u{number}", number, 10 * number) for number in range(9)])
    found = world.why("out", "u1")
    assert (found.value, found.exact) == ([1, None], False)
    assert [record.key for record in found.records] == ["u1"]
    assert {key for step in steps(found.step) for key, _ in step.rows} == {"u1"}


def test_of_a_window_that_was_asked_for_no_other_is_shown(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    groups = builder.stream("events", BOTH).group_by_key(GROUPED)
    windows = cs.TimeWindows(size=10, advance=5, grace=100)
    groups.windowed_by(windows).count(materialized=cs.Materialized(store="out"))
    world = World(tmp_path, builder.build())
    world.process([("events", "u1", {}, number) for number in range(12)])
    asked = cs.Windowed("u1", 5, 15)
    assert world.why("out", asked).step.rows == ((asked, 7),)


def test_of_many_words_of_a_line_the_one_that_was_asked_for(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    words = builder.stream("lines", BOTH).flat_map_values(lambda line: line["text"].split())
    words.group_by(lambda word: word, GROUPED).count(materialized=cs.Materialized(store="out"))
    world = World(tmp_path, builder.build())
    lines = ["to be or not", "to be that is", "the question"]
    world.process([("lines", f"l{number}", {"text": line}, number) for number, line in enumerate(lines)])
    found = world.why("out", "be")
    assert (found.value, found.exact, len(found.records)) == (2, True, 2)
    (given,) = [step.rows for step in steps(found.step) if step.kind == "FlatMapValues"]
    assert given == (("l0", "be"), ("l1", "be"))


def test_keys_that_are_written_in_several_ways_are_one_key(tmp_path: Path, runs: list[int]) -> None:
    builder = cs.StreamsBuilder()
    builder.table("events", cs.Consumed(key=JSON, value=JSON), materialized=cs.Materialized(store="out"))
    world = World(tmp_path, builder.build(), topic_partitions=1)
    keys = ['{"a":1,"b":2}', '{ "a": 1, "b": 2 }', '{"a":7}', '{"a": 1,"b":2}']
    world.process([("events", key, {"n": number}, number) for number, key in enumerate(keys)])
    found = world.why("out", {"a": 1, "b": 2})
    assert (found.value, found.exact, [record.offset for record in found.records]) == ({"n": 3}, True, [3])
    assert max(runs) <= 3, "only records of the key were read"


def test_a_row_whose_value_was_left_out_needs_the_event_that_had_it(tmp_path: Path) -> None:
    whole, left_out = {**order(1, 1), "note": "long"}, {**order(1, 2), "note": "__debezium_unavailable_value"}
    world = world_of(tmp_path, "change events", counted, [event("orders", whole), event("orders", left_out)])
    found = world.why("orders", 1)
    assert found.value == Order(1, 2, 2, "long")
    assert (found.exact, len(found.records)) == (True, 2)


def test_where_a_deleted_row_ended_and_what_emptied_the_table(tmp_path: Path) -> None:
    rows = [order(number, 1) for number in range(3)]
    items = [event("orders", row) for row in rows] + [event("orders", None, rows[1], 2)]
    world = world_of(tmp_path, "change events", counted, items)
    gone, never = world.why("orders", 1), world.why("orders", 7)
    assert "orders: deleted by the record at offset" in str(gone.ended)
    assert numbers(gone) == [1, 1]
    assert (never.records, never.ended) == ((), "orders: no record with the key 7 has arrived")


def test_a_truncate_is_about_every_row(tmp_path: Path) -> None:
    items = [event("orders", order(1, 1)), event("orders", order(2, 1))]
    items += [("orders", None, _envelope("t", None, None, 5), 1), event("orders", order(2, 1), lsn=6)]
    settings = {"ordered_by": "source.lsn", "truncate": "delete"}
    builder = cs.StreamsBuilder()
    counted(*events(builder, **settings))
    world = World(tmp_path, builder.build(), topic_partitions=1)
    world.process(items)
    assert [record.offset for record in world.why("orders", 1).records] == [0, 2]
    found = world.why("orders", 2)
    assert (found.exact, [record.offset for record in found.records]) == (True, [3])


def test_the_ten_seconds_are_of_the_processor() -> None:
    def slowly(rows: np.ndarray) -> bool:
        time.sleep(0.02)  # as on a machine that has other work
        return 7 in rows

    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("crossstream.recompute.why.SECONDS", 0.1)
        rows, exact = minimised(np.arange(64), slowly)
    assert (rows.tolist(), exact) == ([7], True)
    assert time.monotonic() - began > 0.1
