"""A crash while a global table is filled, or while it changes: the restart goes on where the batch log ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.application.engines import Engine, on_spark_too
from tests.faults.crash_points import POINTS, Arm, at_each_point, crash, crashing, files_in_use
from tests.spark.orders import JSON, TEXT, found, ordering, orders, shops
from tests.spark.world import World

IN_THE_SECOND_BATCH: dict[str, Arm] = {
    "after it is logged": crashing(BatchLog, "write_batch", 2, after=True),
    "before its commit": crashing(BatchLog, "write_commit", 2, after=False),
    "after its commit": crashing(BatchLog, "write_commit", 2, after=True),
}


@pytest.fixture
def stocked(either_world: World) -> World:
    world = either_world
    world.create(orders=1, shops=2, told=2)
    world.append("shops", shops(60), TEXT, JSON)
    world.append("orders", orders(20, 70), TEXT, JSON)
    return world


def started(engine: Engine, world: World, **settings: Any) -> cs.SparkStreams:
    config = world.config(**{"max_records_per_batch": 25, "partitions": 2, **settings})
    return engine.streams(ordering(), config)


@on_spark_too
@pytest.mark.parametrize("point", IN_THE_SECOND_BATCH)
def test_crash_while_the_table_is_filled(engine: Engine, stocked: World, point: str) -> None:
    crash(started(engine, stocked), IN_THE_SECOND_BATCH[point])
    assert stocked.read("told", TEXT, JSON) == []
    committed = BatchLog(stocked.state_dir).newest().positions["shops"]["shops"]
    # What comes after the crash is there before the first order is taken, too.
    stocked.append("shops", [("s3", {"city": "New"}, 9000)], TEXT, JSON)
    stocked.append("orders", orders(5, 70, first=100), TEXT, JSON)
    with started(engine, stocked) as app:
        app.process_available()
    held = {key: value for key, value, _ in shops(60)} | {"s3": {"city": "New"}}
    assert dict(cs.open_store(stocked.state_dir, "shops").all()) == held
    given = orders(20, 70) + orders(5, 70, first=100)
    assert stocked.table("told", TEXT, JSON) == found(given, held)
    assert len(stocked.read("told", TEXT, JSON)) == 25, "each order once"
    assert app.progress.total_rows == 61 - sum(committed.values()) + 25, (
        "what was committed is not read again"
    )


@at_each_point
def test_crash_while_the_table_changes(engine: Engine, stocked: World, point: str) -> None:
    """The batch is repeated with the very changes and records it had, whatever has come since."""
    app = started(engine, stocked)
    app.process_available()
    stocked.append("shops", shops(5, "Odd", ts=19_000), TEXT, JSON)
    stocked.append("orders", orders(5, 5, first=200, ts=20_000), TEXT, JSON)
    crash(app, POINTS[point])
    stocked.append("shops", shops(5, "Late", ts=19_000), TEXT, JSON)
    with started(engine, stocked) as again:
        again.process_available()
    told = [output for output in stocked.read("told", TEXT, JSON) if output.ts >= 20_000]
    assert len(told) == 5, "each order once"
    begun = point != "before the batch is logged"
    city = "Odd" if begun else "Late"  # a start that has nothing to repeat reads the table to its end
    assert {output.value["city"] for output in told} == {f"{city}{number}" for number in range(5)}
    assert cs.open_store(stocked.state_dir, "shops").get("s0") == {"city": "Late0"}


@on_spark_too
def test_nothing_is_left_behind(engine: Engine, stocked: World) -> None:
    """Changes that a batch keeps for its records are deleted with the batch, those of a crashed one at the start."""
    with started(engine, stocked, retain_batches=2, max_records_per_batch=None) as app:
        app.process_available()
        for number in range(5):
            stocked.append("shops", shops(5, f"C{number}", ts=5000 + number), TEXT, JSON)
            stocked.append("orders", orders(5, 5, first=100 * number, ts=6000), TEXT, JSON)
            app.process_available()
            assert 1 <= len(histories(stocked)) <= 2 * 2
        stocked.append("shops", shops(5), TEXT, JSON)
        stocked.append("orders", orders(5, 5), TEXT, JSON)
        crash(app, POINTS["after it ran"])
    assert histories(stocked)
    with started(engine, stocked, retain_batches=1, max_records_per_batch=None) as app:
        app.process_available()
        stocked.append("orders", orders(5, 5), TEXT, JSON)
        app.process_available()
    assert histories(stocked) == set()
    there = {path for path in (stocked.state_dir / "stores").rglob("*") if path.is_file()}
    assert there == files_in_use(stocked, BatchLog(stocked.state_dir))


def histories(world: World) -> set[Path]:
    return set(world.state_dir.rglob("*.history"))
