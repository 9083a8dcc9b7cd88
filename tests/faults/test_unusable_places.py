"""Places for state that cannot be used: an error of ours that says why."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.cli.cases import call
from tests.faults.one_process import process
from tests.spark.world import ALONE, SPREAD, World

TEXT = serdes.string()


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    rows = builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    rows.to_stream().to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@pytest.fixture(params=[SPREAD, ALONE], ids=["spread", "alone"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A batch has been committed, a record waits."""
    made = World(tmp_path, single_task_rows=request.param)
    made.create(rows=1, out=1)
    made.append("rows", [("a", "v", 1)])
    process(topology(), made.config())
    made.append("rows", [("b", "v", 2)])
    return made


def a_file(world: World) -> Path:
    place = world.root / "file"
    place.write_text("something else")
    return place


def below_a_file(world: World) -> Path:
    return a_file(world) / "state"


def with_a_lock_that_cannot_be_opened(world: World) -> Path:
    (world.state_dir / "lock").unlink()
    (world.state_dir / "lock").mkdir()
    return world.state_dir


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_file, "a file is there, and no folder"),
        (below_a_file, "Not a directory"),
        (with_a_lock_that_cannot_be_opened, "Is a directory"),
    ],
)
def test_the_application_does_not_start(world: World, make: Callable[[World], Path], why: str) -> None:
    place = make(world)
    with pytest.raises(cs.StateError) as caught:
        process(topology(), world.config(state_dir=place))
    assert caught.value.code == "CS-723"
    assert caught.value.what == f"the place of the state cannot be opened: {why}"
    assert caught.value.where == {"folder": str(place)}


@pytest.mark.parametrize("make", [a_file, below_a_file])
def test_there_is_no_store_to_open(world: World, make: Callable[[World], Path]) -> None:
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(make(world), "rows")
    assert caught.value.code == "CS-713"


def test_rescaling_is_refused(capsys: Any, world: World) -> None:
    place = with_a_lock_that_cannot_be_opened(world)
    outcome = call(capsys, "state", "rescale", place, "--partitions", "3")
    assert outcome.code == 1
    assert "CS-723" in outcome.err


def test_a_file_system_without_locks_is_not_another_application(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(cs.StateError, match="No locks available") as caught:
        process(topology(), world.config())
    assert caught.value.code == "CS-723"


@pytest.mark.parametrize("full", ["/stores/", "/batches/", "/commits/"])
def test_a_full_disk(world: World, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    replace = os.replace

    def put(source: Any, target: Any) -> None:
        if full in str(target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", put)
        with pytest.raises(cs.StateError, match="No space left on device") as caught:
            process(topology(), world.config())
        assert caught.value.code == "CS-706"
        assert str(caught.value.where["folder"]).startswith(str(world.state_dir))
    process(topology(), world.config())
    assert dict(cs.open_store(world.state_dir, "rows").all()) == {"a": "v", "b": "v"}
    assert [record.key for record in world.read("out")] == ["a", "b"]


def test_a_log_that_cannot_be_read(world: World) -> None:
    (world.state_dir / "application.json").unlink()
    (world.state_dir / "application.json").mkdir()
    with pytest.raises(cs.StateError, match="Is a directory") as caught:
        process(topology(), world.config())
    assert caught.value.code == "CS-701"
