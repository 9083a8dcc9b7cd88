"""Global tables of a running application: filled before the first other record, followed afterwards, restored."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.application.engines import Engine
from tests.application.waiting import wait_for
from tests.spark.orders import JSON, TEXT, found, ordering, orders, shops, told
from tests.spark.world import World


@pytest.fixture
def stocked(either_world: World) -> World:
    """Shops that are younger than every order."""
    world = either_world
    world.create(orders=2, shops=3, told=1)
    world.append("shops", shops(50), TEXT, JSON)
    world.append("orders", orders(20, 60), TEXT, JSON)
    return world


def run_once(engine: Engine, world: World, kind: str = "left", **settings: Any) -> cs.SparkStreams:
    app = engine.streams(ordering(kind), world.config(partitions=3, **settings))
    with app:
        app.process_available()
    return app


def sources(world: World, batch: int) -> set[str]:
    """The sources that a batch read from."""
    return {span.node for span in BatchLog(world.state_dir).batch(batch).ranges}


def test_the_table_is_there_before_the_first_record(engine: Engine, stocked: World) -> None:
    run_once(engine, stocked)
    held = {key: value for key, value, _ in shops(50)}
    assert stocked.table("told", TEXT, JSON) == found(orders(20, 60), held)
    assert sorted(output.ts for output in stocked.read("told", TEXT, JSON)) == list(range(20))
    assert dict(cs.open_store(stocked.state_dir, "shops").all()) == held
    assert [sources(stocked, batch) for batch in BatchLog(stocked.state_dir).commits()] == [
        {"shops"},
        {"orders"},
    ]


def test_an_inner_join_gives_what_finds_a_row(engine: Engine, stocked: World) -> None:
    with engine.streams(ordering("inner"), stocked.config(partitions=3)) as app:
        app.process_available()
        stocked.append("orders", [("none", {"item": "?", "shop": None}, 30), ("gone", None, 31)], TEXT, JSON)
        stocked.append("orders", [("unknown", {"item": "?", "shop": "x"}, 32)], TEXT, JSON)
        app.process_available()
        dropped = app.progress.total_dropped
    held = {key: value for key, value, _ in shops(50)}
    assert stocked.table("told", TEXT, JSON) == found(orders(20, 60), held)
    join = "orders.join(shops)"
    assert dropped == {f"{join}: null-value": 1, f"{join}: null-selected-key": 1}


def test_the_table_is_filled_in_bounded_batches_while_records_wait(engine: Engine, stocked: World) -> None:
    """Records that arrive meanwhile wait, and shops that do belong to the batches like all others."""
    config = stocked.config(partitions=3, max_records_per_batch=10, retain_batches=1000)
    app = engine.streams(ordering(), config)
    once = []

    def arrive(progress: Any) -> None:
        if not once:
            once.append(progress.batch)
            stocked.append("orders", orders(5, 60, first=100), TEXT, JSON)
            stocked.append("shops", shops(50, "New", ts=9000), TEXT, JSON)

    app.on_progress(arrive)
    with app:
        app.start()
        wait_for(lambda: len(stocked.read("told", TEXT, JSON)) == 25)
        app.process_available()
    log = BatchLog(stocked.state_dir)
    filling = [batch for batch in log.commits() if "orders" not in sources(stocked, batch)]
    assert filling[:5] == [0, 1, 2, 3, 4]
    first = next(batch for batch in log.commits() if "orders" in sources(stocked, batch))
    read = log.commit(first - 1).positions["shops"]["shops"]
    assert sum(read.values()) == 50, "up to where the topic ended at the start, no further"
    assert all(output.value["city"] is not None for output in stocked.read("told", TEXT, JSON))
    assert dict(cs.open_store(stocked.state_dir, "shops").all()) == {
        key: value for key, value, _ in shops(50, "New")
    }


def test_a_restart_reads_only_what_is_new(engine: Engine, stocked: World) -> None:
    first = run_once(engine, stocked)
    assert first.progress.total_rows == 70
    stocked.append("shops", shops(3, "New", ts=9000), TEXT, JSON)
    stocked.append("orders", orders(6, 6, first=100), TEXT, JSON)
    second = run_once(engine, stocked)
    assert second.progress.total_rows == 9
    held = {key: value for key, value, _ in shops(50) + shops(3, "New")}
    assert stocked.table("told", TEXT, JSON).items() >= found(orders(6, 6, first=100), held).items()
    assert second.progress.rows_in == {"orders": 6, "orders.left_join(shops)": 6}


def test_within_a_batch_records_see_the_changes_before_them(engine: Engine, stocked: World) -> None:
    """A cut into batches changes nothing: the order of arrival decides, as it does record by record."""
    with engine.streams(ordering(), stocked.config(partitions=3)) as app:
        app.process_available()
        stocked.append(
            "shops",
            [("s0", {"city": "A"}, 2000), ("s0", {"city": "B"}, 2010), ("s0", None, 2020)],
            TEXT,
            JSON,
        )
        late = [(f"t{ts}", {"item": "I", "shop": "s0"}, ts) for ts in (1999, 2005, 2015, 2025, 2006)]
        stocked.append("orders", late, TEXT, JSON, partitions=[0] * 5)
        app.process_available()
    cities = {
        output.key: output.value["city"]
        for output in stocked.read("told", TEXT, JSON)
        if output.key.startswith("t")
    }
    # the one at 2006 arrives behind the one at 2025
    assert cities == {"t1999": "C0", "t2005": "A", "t2015": "B", "t2025": None, "t2006": None}
    assert cs.open_store(stocked.state_dir, "shops").get("s0") is None


def test_batches_without_changes_of_the_table_leave_it_alone(engine: Engine, stocked: World) -> None:
    with engine.streams(ordering(), stocked.config(partitions=3)) as app:
        app.process_available()
        before = BatchLog(stocked.state_dir).newest().versions
        stocked.append("orders", orders(5, 5, first=200), TEXT, JSON)
        app.process_available()
        assert BatchLog(stocked.state_dir).newest().versions == before
        assert app.progress.rows_in.keys() == {"orders", "orders.left_join(shops)"}
        assert app.progress.state_rows == {"shops": 50}


def test_a_table_that_nobody_joins_is_kept_and_can_be_queried(engine: Engine, stocked: World) -> None:
    builder = cs.StreamsBuilder()
    builder.global_table("shops", cs.Consumed(key=TEXT, value=JSON), cs.Materialized(store="all-shops"))
    with engine.streams(builder.build(), stocked.config(partitions=2)) as app:
        app.process_available()
        assert app.store("all-shops").get("s7") == {"city": "C7"}
        stocked.append("shops", [("s7", None, 5000), (None, {"city": "?"}, 5001)], TEXT, JSON)
        app.process_available()
        assert app.store("all-shops").get("s7") is None
        assert app.progress.dropped == {"shops: null-key": 1}


def test_records_after_a_re_keying_find_their_rows(engine: Engine, stocked: World) -> None:
    """Two joins in two rounds, and in any partition: the table is whole in each."""
    builder = cs.StreamsBuilder()
    given = builder.stream("orders", cs.Consumed(key=TEXT, value=JSON))
    held = builder.global_table("shops", cs.Consumed(key=TEXT, value=JSON))
    once = given.join(held, lambda order, shop: {**order, **shop}, key_selector=lambda order: order["shop"])
    moved = once.select_key(lambda order: order["city"]).repartition(cs.Repartitioned(key=TEXT, value=JSON))
    twice = moved.left_join(
        held, lambda order, shop: {**order, "again": shop["city"]}, key_selector=lambda order: order["shop"]
    )
    twice.to("told", cs.Produced(key=TEXT, value=JSON))
    with engine.streams(builder.build(), stocked.config(partitions=3)) as app:
        app.process_available()
    got = {output.key: output.value for output in stocked.read("told", TEXT, JSON)}
    assert got == {
        f"C{number}": {
            "item": f"I{number}",
            "shop": f"s{number}",
            "city": f"C{number}",
            "again": f"C{number}",
        }
        for number in range(20)
    }


def test_a_table_joined_with_a_global_table_follows_both(engine: Engine, stocked: World) -> None:
    """KIP-314: results change with either side; a restart goes on; nothing is moved to another partition."""
    builder = cs.StreamsBuilder()
    given = builder.table("orders", cs.Consumed(key=TEXT, value=JSON))
    held = builder.global_table("shops", cs.Consumed(key=TEXT, value=JSON))
    result = given.left_join(
        held, told, foreign_key=lambda order: order["shop"], materialized=cs.Materialized(store="told")
    )
    result.to_stream().to("told", cs.Produced(key=TEXT, value=JSON))
    topology = builder.build()
    assert topology.plan().count("shuffle") == 2, "each input to the partition of its key"
    state = {key: value for key, value, _ in shops(50)}
    with engine.streams(topology, stocked.config(partitions=3)) as app:
        app.process_available()
        assert dict(app.store("told").all()) == found(orders(20, 60), state)
        assert len(stocked.read("told", TEXT, JSON)) == 20, "rows that come after their shops have one result"
        change(
            stocked,
            state,
            ("s3", {"city": "Moved"}, 9000),
            ("s4", None, 9001),
            ("s55", {"city": "New"}, 9002),
        )
        app.process_available()
        assert dict(app.store("told").all()) == found(orders(20, 60), state)
        assert len(stocked.read("told", TEXT, JSON)) == 22, "one for each row whose shop changed"
    change(stocked, state, ("s5", {"city": "While stopped"}, 9003), ("s6", {"city": "Both"}, 9004))
    stocked.append("orders", [("o6", {"item": "Other", "shop": "s6"}, 9005), ("o7", None, 9006)], TEXT, JSON)
    with engine.streams(topology, stocked.config(partitions=3)) as app:
        app.process_available()
        rest = [order for order in orders(20, 60) if order[0] not in ("o6", "o7")]
        expected = found([*rest, ("o6", {"item": "Other", "shop": "s6"}, 0)], state)
        assert dict(app.store("told").all()) == expected
    assert {k: v for k, v in stocked.table("told", TEXT, JSON).items() if v is not None} == expected


def change(world: World, state: dict[str, Any], *changes: tuple[str, Any, int]) -> None:
    """Changes shops in their topic, and in ``state``."""
    world.append("shops", changes, TEXT, JSON)
    for key, value, _ in changes:
        state[key] = value
