"""A crash between any two steps of a batch, and a restart: nothing lost, nothing twice.

The steps of a batch: plan it and write it ahead (the log), run it, publish its records, commit it, retire old
state.
"""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from crossstream.topics import TopicPartition
from tests.application.engines import Engine, on_spark_too
from tests.faults.crash_points import POINTS, Arm, at_each_point, crash, files_in_use
from tests.spark.marketplace import JSON, TEXT, joined, marketplace, merchants, products
from tests.spark.world import World


@pytest.fixture
def stocked(either_world: World) -> World:
    world = either_world
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(20, 5), TEXT, JSON)
    return world


def run_once(engine: Engine, world: World, **settings: Any) -> None:
    with engine.streams(marketplace(), world.config(partitions=2, **settings)) as app:
        app.process_available()


def crash_once(engine: Engine, world: World, arm: Arm) -> None:
    crash(engine.streams(marketplace(), world.config(partitions=2)), arm)


@at_each_point
def test_crash_and_restart(engine: Engine, stocked: World, point: str) -> None:
    run_once(engine, stocked)
    expected = World(stocked.root, "app")
    renamed = products(20, 5, name="N")
    stocked.append("products", renamed, TEXT, JSON)
    crash_once(engine, stocked, POINTS[point])
    # Records that come after the crash must not get into the batch that is repeated, nor be lost.
    late = products(5, 5, first=100)
    stocked.append("products", late, TEXT, JSON)
    run_once(engine, stocked)
    records = expected.read("offers", TEXT, JSON)
    assert len(records) == 20 + 20 + 5, "each change once"
    wanted = joined(renamed + late, merchants(5))
    assert stocked.table("offers", TEXT, JSON) == wanted
    assert dict(cs.open_store(stocked.state_dir, "offers").all()) == wanted


@on_spark_too
@pytest.mark.parametrize("point", ["after the batch is logged", "after the first frame is published"])
def test_a_repeated_batch_takes_what_it_took(engine: Engine, stocked: World, point: str) -> None:
    crash_once(engine, stocked, POINTS[point])
    stocked.append("products", products(20, 5, name="N"), TEXT, JSON)
    log = BatchLog(stocked.state_dir)
    planned = log.batch(0)
    run_once(engine, stocked)
    assert log.batch(0) == planned
    assert log.commits() == [0, 1]
    names = [output.value["name"][0] for output in stocked.read("offers", TEXT, JSON)]
    assert sorted(names) == ["N"] * 20 + ["P"] * 20


def test_crash_after_crash(engine: Engine, stocked: World) -> None:
    for point in POINTS.values():
        crash_once(engine, stocked, point) if has_work(stocked) else run_once(engine, stocked)
        stocked.append("products", products(5, 5, name="C"), TEXT, JSON)
    run_once(engine, stocked)
    wanted = joined(products(20, 5) + products(5, 5, name="C"), merchants(5))
    assert dict(cs.open_store(stocked.state_dir, "offers").all()) == wanted
    assert stocked.table("offers", TEXT, JSON) == wanted


def has_work(world: World) -> bool:
    """Whether a run would have a batch to do."""
    log = BatchLog(world.state_dir)
    commit, last = log.last_commit(), log.last_batch()
    positions = {} if commit is None else commit.positions["products"]["products"]
    ends = world.topics.log().end_offsets([TopicPartition("products", p) for p in range(2)])
    planned = last is not None and (commit is None or last.id > commit.id)
    return planned or any(positions.get(tp.partition, 0) < end for tp, end in ends.items())


@on_spark_too
def test_nothing_is_left_behind(engine: Engine, stocked: World) -> None:
    for point in ("after it ran", "after everything is published"):
        crash_once(engine, stocked, POINTS[point])
    for number in range(4):
        stocked.append("products", products(5, 5, first=100 * number), TEXT, JSON)
        run_once(engine, stocked, retain_batches=1)
    log = BatchLog(stocked.state_dir)
    assert len(log.commits()) <= 3
    used = files_in_use(stocked, log)
    there = {path for path in (stocked.state_dir / "stores").rglob("*") if path.is_file()}
    assert there == used
    assert not list(stocked.state_dir.rglob("*.staged"))
    assert not list(stocked.state_dir.rglob("*.tmp"))
