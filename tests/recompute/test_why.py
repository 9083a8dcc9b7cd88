"""`why`: what it says of rows that are there, of rows that are missing, and of what it cannot follow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.recompute.pool import Pool
from crossstream.recompute.reason import Step
from crossstream.recompute.why import minimised
from tests.faults.one_process import process, streams
from tests.recompute.world import BOTH, JSON, TEXT, Item, World, promotions, to_batch

PRODUCT = {"price": 5, "merchant": "m1"}
SHOP = {"name": "Bell"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, promotions())


def step_of(step: Step, operator: str) -> Step:
    """The step of an operator in a tree."""
    found = [step] if step.operator == operator else []
    return (found + [step_of(one, operator) for one in step.inputs if operator in names(one)])[0]


def names(step: Step) -> set[str]:
    return {step.operator}.union(*map(names, step.inputs))


def test_the_records_of_a_row_with_their_places(world: World) -> None:
    world.process(
        [("products", "p1", {**PRODUCT, "price": 9}, 5), ("products", "p2", PRODUCT, 6)],
        [("merchants", "m1", SHOP, 7)],
        [("products", "p1", PRODUCT, 8)],
    )
    found = world.why("promotions", "p1")
    assert (found.value, found.exact, found.ended, found.batch) == (
        {"price": 5, "shop": "Bell"},
        True,
        None,
        2,
    )
    places = [(one.topic, one.key, one.timestamp, one.batch) for one in found.records]
    assert places == [("merchants", "m1", 7, 1), ("products", "p1", 8, 2)]
    (product,) = step_of(found.step, "products").records
    assert product == found.records[1]
    assert product.value == PRODUCT
    assert product.offset > 0
    assert step_of(found.step, "products.filter").rows == (("p1", PRODUCT),)
    assert "world.py:" in str(step_of(found.step, "products.filter").line)


def test_a_row_as_it_was(world: World) -> None:
    world.process(
        [("products", "p1", PRODUCT, 5), ("merchants", "m1", SHOP, 7)],
        [("merchants", "m1", {"name": "B"}, 9)],
    )
    found = world.why("promotions", "p1", as_of=0)
    assert found.value == {"price": 5, "shop": "Bell"}
    assert [one.timestamp for one in found.records] == [5, 7]
    assert [one.timestamp for one in world.why("promotions", "p1").records] == [5, 9]


ENDS: list[tuple[list[Item], str]] = [
    ([("merchants", "m1", SHOP, 1)], "products: no record with the key p1 has arrived"),
    (
        [("products", "p1", PRODUCT, 1)],
        "no partner for key m1: merchants: no record with the key m1 has arrived",
    ),
    (
        [("products", "p1", {**PRODUCT, "price": 0}, 1), ("merchants", "m1", SHOP, 1)],
        "filtered by products.filter",
    ),
    ([("products", "p1", {"price": 3, "merchant": None}, 1)], "the key of the partner is null"),
    (
        [("products", "p1", PRODUCT, 1), ("merchants", "m1", SHOP, 1), ("merchants", "m1", None, 2)],
        "no partner for key m1: merchants: deleted by the record at offset 1",
    ),
    (
        [("products", "p1", PRODUCT, 1), ("products", "p1", None, 2)],
        "products: deleted by the record at offset 1",
    ),
]


@pytest.mark.parametrize(("items", "said"), ENDS, ids=[said for _, said in ENDS])
def test_where_a_missing_row_ended(world: World, items: list[Item], said: str) -> None:
    world.process(items)
    found = world.why("promotions", "p1")
    assert found.value is None
    assert found.ended is not None
    assert said in found.ended
    assert f"ended: {found.ended}" in str(found)


def test_a_record_with_a_null_key_is_counted_where_it_was_dropped(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    events = builder.stream("events", BOTH)
    groups = events.group_by(lambda value: value["user"], cs.Grouped(key=TEXT, value=JSON))
    groups.count(materialized=cs.Materialized(store="counts"))
    world = World(tmp_path, builder.build())
    world.process([("events", None, {"user": "u1"}, 1), ("events", None, {"user": None}, 2)])
    found = world.why("counts", "u1")
    assert (found.value, found.exact, [one.timestamp for one in found.records]) == (1, True, [1])
    assert "has arrived" in str(world.why("counts", "u2").ended)


def test_windows(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    events = builder.stream("events", BOTH).group_by_key(cs.Grouped(key=TEXT, value=JSON))
    events.windowed_by(cs.TimeWindows(size=10, grace=100)).count(materialized=cs.Materialized(store="counts"))
    world = World(tmp_path, builder.build())
    world.process([("events", "u1", 1, ts) for ts in (1, 2, 11)])
    found = world.why("counts", cs.Windowed("u1", 0, 10))
    assert (found.value, found.exact, [one.timestamp for one in found.records]) == (2, True, [1, 2])
    found = world.why("counts", "u1")
    assert (found.value, found.exact) == ([(0, 2), (10, 1)], True)


GROUPED = cs.Grouped(key=TEXT, value=JSON)
KEPT = cs.Materialized(store="out", key=TEXT, value=JSON)


def counted(builder: cs.StreamsBuilder) -> None:
    builder.stream("events", BOTH).group_by(lambda value: value["user"], GROUPED).count(materialized=KEPT)


def counted_in_windows(builder: cs.StreamsBuilder) -> None:
    groups = builder.stream("events", BOTH).group_by(lambda value: value["user"], GROUPED)
    groups.windowed_by(cs.TimeWindows(size=10_000, grace=0)).count(materialized=KEPT)


def summed(builder: cs.StreamsBuilder) -> None:
    groups = builder.stream("events", BOTH).group_by(lambda value: value["user"], GROUPED)
    groups.aggregate(lambda: 0, lambda key, total, value: total + len(key), materialized=KEPT)


def counted_rows(builder: cs.StreamsBuilder) -> None:
    table = builder.table("events", BOTH).filter(lambda value: value["user"] is not None)
    table.group_by(lambda key, value: (value["user"], value), GROUPED).count(materialized=KEPT)


MANY = {"counted": counted, "counted in windows": counted_in_windows, "summed": summed, "rows": counted_rows}


@pytest.mark.parametrize("name", MANY)
def test_a_row_of_many_records_takes_few_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = cs.StreamsBuilder()
    MANY[name](builder)
    world = World(tmp_path, builder.build(), topic_partitions=1)
    count = 300
    users = ["u1", "u2", None] if name != "summed" else ["u1", "u2"]
    items = [(f"k{n}", {"user": users[n % len(users)]}, n) for n in range(count * len(users))]
    writer = world.topics.writer()
    writer.write("events", to_batch(items))
    writer.flush()
    writer.close()
    process(world.topology, world.config)
    runs, replayed = [], Pool.replayed

    def counting(*arguments: Any) -> Any:
        runs.append(1)
        return replayed(*arguments)

    monkeypatch.setattr(Pool, "replayed", counting)
    monkeypatch.setattr("crossstream.recompute.why.SECONDS", 600.0)  # on a busy machine
    key = cs.Windowed("u1", 0, 10_000) if "windows" in name else "u1"
    found = world.why("out", key)
    assert (found.exact, len(found.records), found.notes) == (True, count, ())
    assert len(runs) < 20


def test_the_newest_record_of_each_row_counts(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    counted_rows(builder)
    world = World(tmp_path, builder.build())
    moved = [("k1", "u1"), ("k2", "u2"), ("k1", "u2"), ("k3", "u1"), ("k2", "u1"), ("k4", "u2"), ("k2", "u1")]
    world.process([("events", key, {"user": user}, n) for n, (key, user) in enumerate(moved)])
    found = world.why("out", "u1")
    assert (found.value, found.exact) == (2, True)
    assert sorted((one.key, one.timestamp) for one in found.records) == [("k2", 6), ("k3", 3)]


class Counter:
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.store("seen").put(record.key, record.value)
        self.context.forward(record.key, record.value)

    def close(self) -> None: ...


def test_it_stops_at_a_processor_and_says_so(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    store = cs.KeyValueStore("seen", key=TEXT, value=JSON)
    made = builder.stream("events", BOTH).process(Counter, stores=[store])
    made.to_table(materialized=cs.Materialized(store="table", key=TEXT, value=JSON))
    world = World(tmp_path, builder.build())
    world.process([("events", "u1", 1, 1)])
    for name in ("table", "seen"):
        found = world.why(name, "u1")
        assert (found.value, found.exact, found.records) == (1, False, ())
        assert found.notes == ("a processor cannot be traced: what it keeps may come from any record",)
        assert step_of(found.step, "events.process").inputs == ()


def test_a_view_over_global_tables(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    products, merchants = builder.global_table("products", BOTH), builder.global_table("merchants", BOTH)
    view = products.join(
        merchants,
        lambda one, other: [one["price"], other["name"]],
        key_selector=lambda key, value: value["merchant"],
    )
    events = builder.stream("events", BOTH)
    events.join(view, lambda one, other: other, key_selector=lambda key, value: key).to_table(
        materialized=cs.Materialized(store="found", key=TEXT, value=JSON)
    )
    world = World(tmp_path, builder.build())
    world.process([("products", "p1", PRODUCT, 1), ("merchants", "m1", SHOP, 2)], [("events", "p1", 1, 3)])
    found = world.why("found", "p1")
    assert (found.value, found.exact) == ([5, "Bell"], True)
    assert {one.topic for one in found.records} == {"products", "merchants", "events"}


@dataclass
class Customer:
    id: int
    name: str


def test_change_events_of_a_database(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    source = cs.debezium(Customer)
    builder.table("customers", source=source, materialized=cs.Materialized(store="customers"))
    world = World(tmp_path, builder.build(), topic_partitions=1)
    names = ["Ada", "Bob", "Ada Lovelace"]
    rows = [{"id": 1 + number % 2, "name": name} for number, name in enumerate(names)]
    world.process(
        [
            (
                "customers",
                f'{{"id": {row["id"]}}}',
                {"op": "c", "before": None, "after": row, "source": {"lsn": 1}},
                1,
            )
            for row in rows
        ]
    )
    found = world.why("customers", 1)
    assert (found.value, found.exact) == (Customer(1, "Ada Lovelace"), True)
    assert [record.offset for record in found.records] == [2]
    assert "Ada Lovelace" in str(found.records[0])


def test_a_row_that_a_snapshot_did_not_show(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    source = cs.debezium(Customer)
    builder.table("customers", source=source, materialized=cs.Materialized(store="customers"))
    world = World(tmp_path, builder.build(), topic_partitions=1)

    def shown(key: int, mark: str, lsn: int, time: int) -> tuple[str, str, dict[str, Any], int]:
        source = {"snapshot": mark, "lsn": lsn, "table": "customers"}
        row = {"id": key, "name": f"name {key}"}
        return "customers", f'{{"id": {key}}}', {"op": "r", "after": row, "source": source}, time

    world.process([shown(1, "first", 5, 10), shown(2, "true", 5, 10), shown(3, "last", 5, 10)])
    world.process([shown(3, "last", 9, 20)])
    found = world.why("customers", 1)
    assert found.value is None
    assert found.ended == "customers: deleted by the record at offset 3, partition 0 of customers"
    assert [record.offset for record in world.why("customers", 3).records] == [3]


def test_what_is_refused(world: World) -> None:
    world.process([("products", "p1", PRODUCT, 1)])
    with pytest.raises(cs.StateError) as raised:
        world.why("other", "p1")
    assert raised.value.code == "CS-710"
    with pytest.raises(cs.StateError) as raised:
        world.why("promotions", "p1", as_of=9)
    assert raised.value.code == "CS-713"


def test_it_shows_itself(world: World) -> None:
    world.process([("products", "p1", {"price": 1, "merchant": "<m>"}, 5), ("merchants", "<m>", SHOP, 7)])
    found = world.why("promotions", "p1")
    text = str(found)
    assert text.splitlines()[0] == 'promotions p1: {"price":1,"shop":"Bell"}  (after batch 0)'
    assert "1970-01-01 00:00:00.005, batch 0" in text
    assert "&lt;m&gt;" in found._repr_html_()
    assert "<m>" not in found._repr_html_()
    plain = found.to_dict()
    assert plain["records"][0]["topic"] in ("products", "merchants")
    assert plain["step"]["operator"] == found.step.operator


def test_an_application_is_asked(world: World) -> None:
    with streams(world.topology, world.config) as app:
        world.write([("products", "p1", PRODUCT, 5), ("merchants", "m1", SHOP, 7)])
        app.process_available()
        found = app.why("promotions", "p1")
        assert found == world.why("promotions", "p1")
        assert len(found.records) == 2


@given(st.sets(st.integers(0, 40), max_size=6), st.integers(41, 60))
def test_minimised_finds_what_is_needed(needed: set[int], count: int) -> None:
    rows, exact = minimised(np.arange(count), lambda rows: needed <= set(rows.tolist()))
    assert (set(rows.tolist()), exact) == (needed, True)


@given(st.integers(1, 20), st.integers(20, 60))
def test_minimised_leaves_nothing_that_can_go(least: int, count: int) -> None:
    rows, exact = minimised(np.arange(count), lambda rows: len(rows) >= least)
    assert (len(rows), exact) == (least, True)
