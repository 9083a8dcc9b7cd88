"""Rows of a snapshot that loads first: in a table with versions they hold from the beginning of time on.

law    in every batch size and after restarts anywhere, an order finds the version of its own time, where the rows
       of the first snapshot have the time 0: those before the first other event of their partition
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.recompute.verify import verify_results
from tests.faults.one_process import application, process
from tests.laws.crashes import Crash, crashing
from tests.laws.effort import cases
from tests.spark.world import World

TEXT, BYTES, NUMBER = serdes.string(), serdes.bytes(), serdes.int64()


@dataclass
class Customer:
    id: int
    name: str


class Event(NamedTuple):
    """``op``: r, u or d. ``time``: of the record, in ms. ``mark``, ``lsn``: of a row of a snapshot."""

    op: str
    id: int
    name: str
    time: int
    mark: str = "true"
    lsn: int | None = None


class Order(NamedTuple):
    customer: int
    number: str
    time: int


def topology(load: Any = "first", history: str | None = "1 day", **settings: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    customers = builder.table(
        "customers",
        cs.Consumed(load=load),
        cs.Materialized(store="customers", history_retention=history),
        source=cs.debezium(Customer, **settings),
    )
    orders = builder.stream("orders", cs.Consumed(key=NUMBER, value=TEXT))
    orders.left_join(customers, lambda order, row: f"{order},{row and row.name}").to(
        "placed", cs.Produced(key=NUMBER, value=TEXT)
    )
    return builder.build()


def made(root: Path) -> World:
    world = World(root)
    world.create(orders=1, customers=2, placed=1)
    return world


def put(world: World, events: Sequence[Event]) -> None:
    for op, id_, name, time, mark, lsn in events:
        row = None if op == "d" else {"id": id_, "name": name}
        source = {"snapshot": mark if op == "r" else "false", "name": "shop", "lsn": lsn}
        event = {"op": op, "before": None, "after": row, "source": source, "ts_ms": time}
        record = (json.dumps({"id": id_}).encode(), json.dumps(event).encode(), time)
        world.append("customers", [record], BYTES, BYTES, [id_ % 2])


def order(world: World, orders: Sequence[Order]) -> None:
    world.append("orders", orders, NUMBER, TEXT)


def found(world: World) -> list[tuple[str, int]]:
    return [(record.value, record.ts) for record in world.read("placed", NUMBER, TEXT)]


def expected(events: Sequence[Event], orders: Sequence[Order], *, whole: bool) -> list[tuple[str, int]]:
    """Applies the events one by one: the version of an order is the last one of those with the latest time up to it.

    ``whole``: it is kept which rows there are, and deletes of others are left out.
    """
    versions: dict[int, list[tuple[int, str | None]]] = {}
    changed = set()
    for op, id_, name, time, *_ in events:
        if op != "r":
            changed.add(id_ % 2)
        since = time if id_ % 2 in changed else 0
        if whole and op == "d" and versions.get(id_, [(0, None)])[-1][1] is None:
            continue
        versions.setdefault(id_, []).append((since, None if op == "d" else name))
    results = []
    for customer, number, time in orders:
        valid = [one for one in versions.get(customer, ()) if one[0] <= time]
        newest = max((since for since, _ in valid), default=0)
        names = [name for since, name in valid if since == newest]
        results.append((f"{number},{names[-1] if names else None}", time))
    return results


some_events = st.lists(
    st.tuples(
        st.sampled_from("rrrud"), st.integers(1, 4), st.sampled_from(["x", "y"]), st.integers(5, 40)
    ).map(lambda parts: Event(*parts)),
    max_size=10,
)
some_orders = st.lists(
    st.builds(Order, st.integers(1, 4), st.sampled_from("123"), st.integers(0, 45)), max_size=8
)
stops = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=3)
"""Batch sizes of starts, and batches before each end."""
AGAIN = [Event("r", 1, "x", 20), Event("u", 1, "y", 30), Event("r", 1, "x", 40)]
"""A second snapshot after a change: its rows have their own time."""
GONE = [Event("u", 1, "x", 6), Event("d", 1, "x", 5), Event("d", 1, "x", 6)]
"""The second delete is of a row that is not there: where that is known, it is no version."""


@cases(0.6)
@given(some_events, some_orders, stops, st.lists(st.integers(0, 30), max_size=2), st.booleans())
@example(AGAIN, [Order(1, "1", time) for time in (10, 35, 45)], [(1, 1), (1, 2)], [], True)
@example(GONE, [Order(1, "1", 6)], [], [], False)
@example(GONE, [Order(1, "1", 6)], [], [], True)
def test_an_order_finds_the_version_of_its_time(
    events: list[Event], orders: list[Order], stops: list[tuple[int, int]], crashes: list[int], whole: bool
) -> None:
    built = topology() if whole else topology(unavailable_value=None, snapshots="partial")
    with TemporaryDirectory() as folder:
        world = made(Path(folder))
        put(world, events)
        order(world, orders)
        with application(built, world.config()):
            pass
        for size, count in stops:
            with application(built, world.config(max_records_per_batch=size)) as running:
                for _ in range(count):
                    running.run_next()
        for last in crashes:
            with suppress(Crash), crashing(last):
                process(built, world.config(max_records_per_batch=2))
        process(built, world.config(max_records_per_batch=3))
        assert sorted(found(world)) == sorted(expected(events, orders, whole=whole))


def test_the_rows_are_verified(tmp_path: Path, monkeypatch: Any) -> None:
    """With their times: those of the second snapshot are not 0, also where records are read in one batch."""
    world = made(tmp_path)
    put(world, [*AGAIN, Event("r", 2, "w", 60)])
    order(world, [Order(1, "1", 35)])
    process(topology(), world.config(max_records_per_batch=1, retain_batches=2))
    put(world, [Event("r", 1, "z", 50)])
    process(topology(), world.config(retain_batches=2))
    built = plan_topology(topology())
    assert verify_results(world.state_dir, built, world.topics).different == 0
    monkeypatch.setattr("crossstream.storage.log_entries.Starts.snapshots", lambda self, ids: {})
    assert verify_results(world.state_dir, built, world.topics).different > 0


SHOP = [Event("r", 1, "x", 5_000), Event("u", 3, "y", 100_000)]


def test_an_order_from_before_the_snapshot_finds_its_customer(tmp_path: Path) -> None:
    """Also where the history is shorter; without the setting it finds none."""
    for load, name in (("first", "x"), (None, None)):
        world = made(tmp_path / str(load))
        put(world, SHOP)
        order(world, [Order(1, "1", 10)])
        process(topology(load, "10 s"), world.config())
        assert found(world) == [(f"1,{name}", 10)]


def test_in_a_table_without_versions_rows_keep_their_time(tmp_path: Path) -> None:
    """An order finds the row anyway, and results of joins of tables are not from 1970."""
    builder = cs.StreamsBuilder()
    source = cs.debezium(Customer)
    builder.table("customers", cs.Consumed(load="first"), source=source).to_stream().to("placed")
    world = made(tmp_path)
    put(world, SHOP)
    process(builder.build(), world.config())
    assert sorted(record.ts for record in world.read("placed", BYTES, BYTES)) == [5_000, 100_000]


def test_a_table_made_of_the_rows_keeps_their_versions(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    source = cs.debezium(Customer)
    customers = builder.table("customers", cs.Consumed(load="first"), source=source)
    kept = customers.filter(
        lambda row: True, materialized=cs.Materialized(store="kept", history_retention="1 day")
    )
    kept.to_stream().to("placed")
    world = made(tmp_path)
    put(world, SHOP)
    process(builder.build(), world.config())
    assert sorted(record.ts for record in world.read("placed", BYTES, BYTES)) == [0, 100_000]


def test_what_comes_after_the_load_keeps_its_time(tmp_path: Path) -> None:
    """As the rows of an incremental snapshot that is taken later."""
    world = made(tmp_path)
    put(world, SHOP[:1])
    process(topology(), world.config())
    put(world, [Event("r", 3, "z", 7_000)])
    order(world, [Order(3, "1", 6_000), Order(3, "2", 8_000)])
    process(topology(), world.config())
    assert sorted(found(world)) == [("1,None", 6_000), ("2,z", 8_000)]


def test_a_row_that_the_second_snapshot_does_not_show_is_deleted(tmp_path: Path) -> None:
    """Its end is in a partition without changes, whose rows have the time 0; the delete has the time of its record."""
    world = made(tmp_path)
    first = [Event("r", 1, "x", 10, "first", 100), Event("r", 2, "y", 11, "last", 100)]
    put(world, [*first, Event("u", 1, "z", 30), Event("r", 2, "y", 50, "last", 200)])
    order(world, [Order(1, "1", 40), Order(1, "2", 60), Order(2, "3", 5)])
    process(topology(), world.config())
    assert sorted(found(world)) == [("1,z", 40), ("2,None", 60), ("3,y", 5)]
