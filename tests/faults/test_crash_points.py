"""A crash between any two steps of a batch, and a restart: nothing lost, nothing twice.

The steps of a batch: plan it and write it ahead (the log), run it, publish its records, commit it, retire old
state. A crash is an exception that nothing catches, right before or after one of them; what a killed process
leaves behind is the same, since every step ends in one atomic write.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.engine.log import BatchLog
from crossstream.engine.retirement import Retirement
from crossstream.files import FilePublisher
from crossstream.files.appending import Appender
from crossstream.spark.rounds import SparkRounds
from crossstream.topics import TopicPartition
from tests.spark.marketplace import JSON, TEXT, joined, marketplace, merchants, products
from tests.spark.world import World

pytestmark = pytest.mark.spark


class Crash(BaseException):
    """The process is gone: no handler of the library may catch it."""


def before(owner: Any, name: str, count: int = 1) -> Callable[[pytest.MonkeyPatch], None]:
    """Crashes instead of the ``count``-th call of a method."""
    return crashing(owner, name, count, after=False)


def after(owner: Any, name: str, count: int = 1) -> Callable[[pytest.MonkeyPatch], None]:
    """Crashes at the end of the ``count``-th call of a method."""
    return crashing(owner, name, count, after=True)


def crashing(owner: Any, name: str, count: int, *, after: bool) -> Callable[[pytest.MonkeyPatch], None]:
    def arm(patch: pytest.MonkeyPatch) -> None:
        method, calls = getattr(owner, name), [0]

        def crash(self: Any, *arguments: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == count and not after:
                raise Crash
            result = method(self, *arguments, **more)
            if calls[0] == count:
                raise Crash
            return result

        patch.setattr(owner, name, crash)

    return arm


POINTS = {
    "before the batch is logged": before(BatchLog, "write_batch"),
    "after the batch is logged": after(BatchLog, "write_batch"),
    "after it ran": after(SparkRounds, "run"),
    "before anything is published": before(FilePublisher, "publish"),
    "after the first frame is published": after(Appender, "append"),
    "after the second frame is published": after(Appender, "append", 2),
    "after everything is published": after(FilePublisher, "publish"),
    "before the commit": before(BatchLog, "write_commit"),
    "after the commit": after(BatchLog, "write_commit"),
    "before old state is deleted": before(Retirement, "add"),
    "after old state is deleted": after(Retirement, "add"),
}


@pytest.fixture
def stocked(world: World) -> World:
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(20, 5), TEXT, JSON)
    return world


def run_once(spark: Any, world: World, **settings: Any) -> None:
    with cs.SparkStreams(marketplace(), world.config(partitions=2, **settings), spark) as app:
        app.process_available()


def crash_once(spark: Any, world: World, arm: Callable[[pytest.MonkeyPatch], None]) -> None:
    app = cs.SparkStreams(marketplace(), world.config(partitions=2), spark)
    with pytest.MonkeyPatch.context() as patch:
        arm(patch)
        with pytest.raises(Crash):
            app.process_available()
    app.stop()


@pytest.mark.parametrize("point", POINTS)
def test_crash_and_restart(spark: Any, stocked: World, point: str) -> None:
    run_once(spark, stocked)
    expected = World(stocked.root, "app")
    renamed = products(20, 5, name="N")
    stocked.append("products", renamed, TEXT, JSON)
    crash_once(spark, stocked, POINTS[point])
    # Records that come after the crash must not get into the batch that is repeated, nor be lost.
    late = products(5, 5, first=100)
    stocked.append("products", late, TEXT, JSON)
    run_once(spark, stocked)
    records = expected.read("offers", TEXT, JSON)
    assert len(records) == 20 + 20 + 5, "each change once"
    wanted = joined(renamed + late, merchants(5))
    assert stocked.table("offers", TEXT, JSON) == wanted
    assert dict(cs.open_store(stocked.state_dir, "offers").all()) == wanted


@pytest.mark.parametrize("point", ["after the batch is logged", "after the first frame is published"])
def test_a_repeated_batch_takes_what_it_took(spark: Any, stocked: World, point: str) -> None:
    crash_once(spark, stocked, POINTS[point])
    stocked.append("products", products(20, 5, name="N"), TEXT, JSON)
    log = BatchLog(stocked.state_dir)
    planned = log.batch(0)
    run_once(spark, stocked)
    assert log.batch(0) == planned
    assert log.commits() == [0, 1]
    names = [output.value["name"][0] for output in stocked.read("offers", TEXT, JSON)]
    assert sorted(names) == ["N"] * 20 + ["P"] * 20


def test_crash_after_crash(spark: Any, stocked: World) -> None:
    for point in POINTS.values():
        crash_once(spark, stocked, point) if has_work(stocked) else run_once(spark, stocked)
        stocked.append("products", products(5, 5, name="C"), TEXT, JSON)
    run_once(spark, stocked)
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


def test_nothing_is_left_behind(spark: Any, stocked: World) -> None:
    for point in ("after it ran", "after everything is published"):
        crash_once(spark, stocked, POINTS[point])
    for number in range(4):
        stocked.append("products", products(5, 5, first=100 * number), TEXT, JSON)
        run_once(spark, stocked, retain_batches=1)
    log = BatchLog(stocked.state_dir)
    assert len(log.commits()) <= 3
    used = files_in_use(stocked, log)
    there = {path for path in (stocked.state_dir / "stores").rglob("*") if path.is_file()}
    assert there == used
    assert not list(stocked.state_dir.rglob("*.staged"))
    assert not list(stocked.state_dir.rglob("*.tmp"))


def files_in_use(world: World, log: BatchLog) -> set[Path]:
    """Manifests of the kept commits, and the runs they list."""
    from crossstream.engine.stores import store_folder
    from crossstream.state.manifest import read_manifest
    from crossstream.state.storage import Folder

    used: set[Path] = set()
    for number in log.commits():
        for store, names in log.commit(number).versions.items():
            for partition, name in names.items():
                folder = store_folder(world.state_dir, store) / str(partition)
                used |= {folder / name} | {
                    folder / file for file in read_manifest(Folder(folder), name).files()
                }
    return used
