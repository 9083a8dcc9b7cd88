"""The machine loses power at any moment: what was committed is there, nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest

import crossstream as cs
from crossstream.storage import files
from crossstream.storage.commit_log import BatchLog
from tests.faults.one_process import process
from tests.faults.power import Loss, Moment, machine
from tests.spark.marketplace import JSON, TEXT, marketplace, merchants, products
from tests.spark.world import World

losses = pytest.mark.parametrize("loss", get_args(Loss))


@pytest.fixture
def stocked(tmp_path: Path) -> World:
    world = World(tmp_path / "world")
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", merchants(3), TEXT, JSON)
    world.append("products", products(12, 3), TEXT, JSON)
    world.append("products", products(6, 3, name="N"), TEXT, JSON)
    world.append("merchants", [("m1", {"shop": "new"}, 9), ("m2", None, 9)], TEXT, JSON)
    return world


def run(world: World, **settings: Any) -> None:
    """Five batches or so, with the state of the last two before the newest."""
    given = {"durable": True, "partitions": 2, "max_records_per_batch": 5, "retain_batches": 2, **settings}
    process(marketplace(), world.config(**given))


def left(world: World) -> Any:
    return world.wire("offers"), dict(cs.open_store(world.state_dir, "offers").all())


def after(moment: Moment, world: World, loss: Loss, number: int) -> World:
    found = World(world.root.parent / f"{loss} {number}")
    moment.restore(world.root, loss, found.root)
    return found


@pytest.mark.slow
@losses
def test_power_is_lost_at_any_moment(stocked: World, loss: Loss) -> None:
    with machine(stocked.root) as noted:
        run(stocked)
    wanted, batches = left(stocked), len(BatchLog(stocked.state_dir).commits())
    assert batches == 3
    assert len(noted.moments) > 100
    committed = -1
    for number, moment in enumerate(noted.moments):
        found = after(moment, stocked, loss, number)
        commit = BatchLog(found.state_dir).last_commit()
        assert commit is None or commit.id >= committed, "a commit that was there is gone"
        committed = -1 if commit is None else commit.id
        if number % 5 == 0 or number + 1 == len(noted.moments):
            run(found)
            assert left(found) == wanted, f"after the power was lost at moment {number}"
    assert committed >= 3


@losses
def test_power_is_lost_where_many_files_are_forced_at_once(
    stocked: World, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of their file system is, in one call."""
    monkeypatch.setattr(files, "MANY", 5)
    with machine(stocked.root) as noted:
        run(stocked)
    wanted = left(stocked)
    assert noted.whole >= 3
    for number, moment in enumerate(noted.moments):
        if number % 10 == 0 or number + 1 == len(noted.moments):
            found = after(moment, stocked, loss, number)
            run(found)
            assert left(found) == wanted, f"after the power was lost at moment {number}"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="syncfs is of Linux")
def test_all_of_a_file_system_is_forced_and_a_refusal_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.force_all(tmp_path)
    monkeypatch.setattr(files, "_syncfs", lambda file: -1)
    with pytest.raises(OSError, match=str(tmp_path)):
        files.force_all(tmp_path)


def test_a_batch_is_not_there_before_the_commit_that_it_follows(stocked: World) -> None:
    """However slow the disk is with the folder of the commits; the state would be refused."""
    with machine(stocked.root) as noted, pytest.MonkeyPatch.context() as patch:
        force = os.fsync

        def slow(file: int) -> None:
            if os.readlink(f"/proc/self/fd/{file}").endswith("commits"):
                time.sleep(0.1)
            force(file)

        patch.setattr(os, "fsync", slow)
        run(stocked)
    for number, moment in enumerate(noted.moments):
        BatchLog(after(moment, stocked, "strict", number).state_dir).last_commit()


def test_power_is_lost_while_a_batch_is_repeated(stocked: World) -> None:
    """The first attempt died when its results were published, but not forced: the second one must force them."""
    from crossstream.filetopics import FilePublisher
    from tests.faults.crash_points import Crash
    from tests.faults.crash_points import after as crash_after

    with machine(stocked.root) as noted:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FilePublisher, "_force", lambda self, segments: None)
            crash_after(FilePublisher, "publish")(patch)
            with pytest.raises(Crash):
                run(stocked)
        run(stocked)
    wanted = left(stocked)
    last = noted.moments[-1]
    for loss in get_args(Loss):
        found = after(last, stocked, loss, 0)
        run(found)
        assert left(found) == wanted


def test_without_durability_state_may_be_refused(stocked: World) -> None:
    """The setting is there for something."""
    with machine(stocked.root) as noted:
        run(stocked, durable=False)
        assert noted.moments == []
        noted.force(1)
    found = after(noted.moments[-1], stocked, "names ahead", 0)
    with pytest.raises(cs.StateError) as caught:
        run(found)
    assert caught.value.code == "CS-701"


def test_a_disk_that_refuses(stocked: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is not committed; the next start repeats it."""

    def refuse(path: Path) -> None:
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(files, "force", refuse)
        with pytest.raises(cs.StateError) as caught:
            run(stocked)
    assert caught.value.code == "CS-706"
    assert "Input/output error" in caught.value.what
    assert BatchLog(stocked.state_dir).last_commit() is None
    run(stocked)
    assert len(left(stocked)[1]) > 0
