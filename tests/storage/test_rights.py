"""Files of the state are made for their user alone, or as ``state_mode`` says; whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.cli.console import SparkOutput
from crossstream.filetopics import FileTopics
from crossstream.query.verification import verify_state
from crossstream.spark.shuffle_spill import spilled
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.remote import Cache
from crossstream.storage.root import LocalRoot
from tests.cli.cases import call
from tests.faults.one_process import process
from tests.spark.world import World, record_batch

TEXT = serdes.string()


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """That of the process."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def all_rights(root: Path) -> tuple[set[int], set[int]]:
    """The rights of the folders, and of the files."""
    found = [root, *root.rglob("*")]
    return {rights(one) for one in found if one.is_dir()}, {rights(one) for one in found if one.is_file()}


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    rows = builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    rows.to_stream().to("out")
    return builder.build()


def run(world: World, batches: int = 2, **settings: object) -> None:
    for number in range(batches):
        world.append("rows", [("k", f"v{number}", number)])
        process(topology(), world.config(**settings))


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(rows=1, out=1)
    return world


MODES = [("private", 0o700, 0o600), ("group", 0o770, 0o660), ("shared", 0o755, 0o644)]


@pytest.mark.slow
@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("mode", "folder", "file"), MODES)
@pytest.mark.parametrize("durable", [False, True])
def test_every_file_and_folder(world: World, mode: str, folder: int, file: int, durable: bool) -> None:
    run(world, state_mode=mode, durable=durable)
    assert all_rights(world.state_dir) == ({folder}, {file})
    assert len([path for path in world.state_dir.rglob("*") if path.is_file()]) > 6


@pytest.mark.usefixtures("umask")
def test_nothing_said_is_private(world: World) -> None:
    run(world)
    assert all_rights(world.state_dir) == ({0o700}, {0o600})


def test_a_folder_that_the_user_made_keeps_its_rights_and_what_is_in_it_is_private(world: World) -> None:
    world.state_dir.mkdir(0o755)
    world.state_dir.chmod(0o755)
    run(world)
    assert rights(world.state_dir) == 0o755
    assert {rights(path) for path in world.state_dir.iterdir() if path.is_dir()} == {0o700}
    assert all_rights(world.state_dir)[1] == {0o600}


def test_topics_are_a_place_of_exchange(umask: int, world: World) -> None:
    run(world)
    segments = list(world.topics_dir.rglob("*.seg"))
    assert {rights(path) for path in segments} == {0o644 & ~umask}


def test_another_setting_counts_for_files_that_are_new(world: World) -> None:
    run(world, state_mode="shared")
    there = {path: rights(path) for path in world.state_dir.rglob("*.manifest")}
    run(world, 1, state_mode="private")
    assert {path: rights(path) for path in there} == there
    assert {rights(path) for path in world.state_dir.rglob("*.manifest") if path not in there} == {0o600}
    assert rights(world.state_dir / "lock") == 0o600


def test_a_second_application_that_is_refused_changes_nothing(world: World) -> None:
    run(world)
    log = BatchLog(world.state_dir)
    log.lock("first")
    with pytest.raises(cs.StateError) as caught:
        process(topology(), world.config(state_mode="shared"))
    log.unlock()
    assert (caught.value.code, rights(world.state_dir / "lock")) == ("CS-720", 0o600)


@pytest.mark.usefixtures("umask")
def test_what_rescales_gives_the_rights_that_the_state_has(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    run(world, state_mode="group")
    assert call(capsys, "state", "rescale", world.state_dir, "--partitions", "3").code == 0
    assert verify_state(world.state_dir).problems == []
    assert all_rights(world.state_dir) == ({0o770}, {0o660})


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("mode", "folder", "file"), MODES)
def test_records_that_wait_for_their_batch(tmp_path: Path, mode: str, folder: int, file: int) -> None:
    state = tmp_path / "state"
    lock = LocalRoot(state).lock("me", cs.StreamsConfig(application_id="a", state_mode=mode).state_rights)
    topics = FileTopics(str(tmp_path / "topics"), durable=False)
    topics.log().create_topic("out", 1)
    with_some = topics.staging_writer(state / "staged", b"batch 7")
    with_some.write("out", record_batch([(b"k", b"v", 1)]), [0])
    with_some.flush()
    assert all_rights(state) == ({folder}, {file})
    assert len(with_some.staged) == 1
    lock.release()


@pytest.mark.usefixtures("umask")
def test_blobs_on_their_way_between_workers(tmp_path: Path) -> None:
    sent = [(0, [(1, 0, 0, 0, bytes(1 << 20))])]
    assert list(spilled(sent, str(tmp_path / "blocks"), 7)) != sent
    assert all_rights(tmp_path / "blocks") == ({0o700}, {0o600})


@pytest.mark.usefixtures("umask")
def test_copies_of_remote_state(tmp_path: Path) -> None:
    copies = Cache(tmp_path / "cache")
    assert copies.put("stores/rows/0/x.arrow", pa.py_buffer(b"rows"))
    copies.is_due()  # notes when it has looked
    assert (tmp_path / "cache/swept").exists()
    assert all_rights(tmp_path / "cache") == ({0o700}, {0o600})


@pytest.mark.usefixtures("umask")
def test_what_spark_says(tmp_path: Path) -> None:
    output = SparkOutput(lambda line: None, tmp_path / "state/spark.log")
    output.take("26/01/31 12:00:00 ERROR Executor: the record k=v failed")
    output.close()
    assert all_rights(tmp_path / "state") == ({0o700}, {0o600})


def test_a_mode_that_there_is_not() -> None:
    with pytest.raises(cs.ConfigError) as caught:
        cs.StreamsConfig(application_id="a", state_mode="0600")  # type: ignore[arg-type]
    assert caught.value.code == "CS-201"
