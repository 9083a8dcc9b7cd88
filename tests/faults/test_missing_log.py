"""A state folder that lacks files of its log: an error that names them, never other partitions or a fresh start."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog, batch_file, commit_file
from crossstream.storage.root import LocalRoot
from tests.faults.one_process import process
from tests.spark.world import World

TEXT = serdes.string()
BATCHES = 3


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    rows = builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    rows.to_stream().to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three batches have been committed, a record waits."""
    made = World(tmp_path)
    made.create(rows=1, out=1)
    for number in range(BATCHES):
        made.append("rows", [(f"k{number}", "v", number)])
        process(topology(), made.config(partitions=4))
    made.append("rows", [("late", "v", 9)])
    return made


def no_application(folder: Path) -> None:
    (folder / "application.json").unlink()


def no_application_before_the_first_commit(folder: Path) -> None:
    no_application(folder)
    shutil.rmtree(folder / "commits")
    for number in range(1, BATCHES):
        (folder / batch_file(number)).unlink()


def no_commits(folder: Path) -> None:
    shutil.rmtree(folder / "commits")


def no_log(folder: Path) -> None:
    no_commits(folder)
    shutil.rmtree(folder / "batches")


def an_empty_log(folder: Path) -> None:
    no_log(folder)
    for name in ("commits", "batches"):
        (folder / name).mkdir()


def no_newer_commits(folder: Path) -> None:
    for number in range(1, BATCHES):
        (folder / commit_file(number)).unlink()


LAST_COMMIT = commit_file(BATCHES - 2)


@pytest.mark.parametrize("partitions", [None, 2, 4])
@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (no_application, "application.json"),
        (no_application_before_the_first_commit, "application.json"),
        (no_commits, LAST_COMMIT),
        (no_newer_commits, LAST_COMMIT),
        (no_log, "commits"),
        (an_empty_log, "commits"),
    ],
)
def test_the_application_does_not_start(
    world: World, harm: Callable[[Path], None], named: str, partitions: int | None
) -> None:
    kept = shutil.copytree(world.state_dir, world.root / "kept")
    harm(world.state_dir)
    before = sorted(path for path in world.state_dir.rglob("*") if path.name != "lock")
    with pytest.raises(cs.StateError) as caught:
        process(topology(), world.config(partitions=partitions))
    assert caught.value.code == "CS-701"
    assert caught.value.where == {"file": f"{world.state_dir}/{named}"}
    assert named in caught.value.what
    assert sorted(path for path in world.state_dir.rglob("*") if path.name != "lock") == before
    shutil.rmtree(world.state_dir)
    shutil.copytree(kept, world.state_dir)
    process(topology(), world.config(partitions=partitions))
    keys = sorted([*(f"k{number}" for number in range(BATCHES)), "late"])
    assert sorted(dict(cs.open_store(world.state_dir, "rows").all())) == keys
    assert sorted(record.key for record in world.read("out")) == keys


@pytest.mark.parametrize(
    ("harm", "named"),
    [(no_application, "application.json"), (no_commits, LAST_COMMIT), (no_log, "commits")],
)
def test_a_store_is_not_taken_for_an_empty_one(
    world: World, harm: Callable[[Path], None], named: str
) -> None:
    harm(world.state_dir)
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(world.state_dir, "rows")
    assert (caught.value.code, named in caught.value.what) == ("CS-701", True)


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (no_application, "application.json"),
        (no_commits, LAST_COMMIT),
        (no_newer_commits, LAST_COMMIT),
        (no_log, "commits"),
    ],
)
def test_it_is_found_when_the_state_is_verified(
    world: World, harm: Callable[[Path], None], named: str
) -> None:
    assert not verify_state(world.state_dir).problems
    harm(world.state_dir)
    assert [(one.file, "missing" in one.what) for one in verify_state(world.state_dir).problems] == [
        (named, True)
    ]


def test_an_application_that_has_read_nothing_yet_has_no_log(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(rows=1, out=1)
    process(topology(), world.config())
    assert not (world.state_dir / "commits").exists()
    assert not verify_state(world.state_dir).problems
    assert dict(cs.open_store(world.state_dir, "rows").all()) == {}
    world.append("rows", [("a", "v", 1)])
    process(topology(), world.config())
    assert dict(cs.open_store(world.state_dir, "rows").all()) == {"a": "v"}


def test_a_first_commit_that_is_written_while_the_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits and batches were listed before, what is known of the application is read after it."""
    world = World(tmp_path)
    world.create(rows=1, out=1)
    world.append("rows", [("a", "v", 1)])
    process(topology(), world.config())
    log, names = BatchLog(world.state_dir), LocalRoot.names
    listed: list[str] = []

    def early(root: LocalRoot, folder: str) -> list[str]:
        listed.append(folder)
        return [] if listed.count(folder) == 1 else names(root, folder)

    monkeypatch.setattr(LocalRoot, "names", early)
    commit = log.last_commit()
    assert commit is not None
    assert commit.id == 0


def test_a_first_batch_that_was_begun_is_no_sign_of_a_missing_commit(
    tmp_path: Path, monkeypatch: Any
) -> None:
    world = World(tmp_path)
    world.create(rows=1, out=1)
    world.append("rows", [("a", "v", 1)])
    with monkeypatch.context() as patch:
        patch.setattr(BatchLog, "write_commit", lambda self, commit: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            process(topology(), world.config())
    assert not verify_state(world.state_dir).problems
    assert dict(cs.open_store(world.state_dir, "rows").all()) == {}
    process(topology(), world.config())
    assert dict(cs.open_store(world.state_dir, "rows").all()) == {"a": "v"}
