"""Which batches can be run again, and what is said of the others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import crossstream as cs
from crossstream.application.inputs import connection_of
from crossstream.application.local import LocalRounds
from crossstream.catalog.planners import plan_topology
from crossstream.filetopics import FileTopics
from crossstream.recompute.again import run_past
from crossstream.recompute.bundle_packing import Packing
from crossstream.recompute.bundles import open_bundle
from crossstream.recompute.parted_records import compare_results
from crossstream.recompute.parted_rows import compare_stores
from crossstream.recompute.partings import together
from crossstream.recompute.past_batch import past_batch
from crossstream.runtime.rescaling import rescale
from crossstream.storage.commit_log import BatchLog
from tests.faults.one_process import application
from tests.laws.shapes import IN, TEXT
from tests.recompute.replay.lives import Life
from tests.spark.world import World, record_batch


@pytest.fixture
def life(tmp_path: Path) -> Life:
    builder = cs.StreamsBuilder()
    table = builder.table("left", IN, cs.Materialized(store="left")).map_values(lambda v: v + "!")
    table.to_stream().to("out", cs.Produced(key=TEXT, value=TEXT))
    return Life(World(tmp_path), builder.build(), {"left": 1}, {"partitions": 2})


def refused(life: Life, number: int) -> cs.CrossStreamError:
    with pytest.raises(cs.StateError) as caught:
        past_batch(life.world.state_dir, number)
    return caught.value


def records(*values: str) -> list[Any]:
    return [("left", f"k{number}", value, number, 0) for number, value in enumerate(values)]


def test_retained(life: Life) -> None:
    few = life
    log = BatchLog(few.world.state_dir)
    few.world.create(left=1)
    config = few.world.config(partitions=2, retain_batches=2)
    with application(few.topology, config) as running:
        for number in range(6):
            few.world.append("left", [("a", str(number), number)])
            running.run_until(running.inputs.end_offsets())
    assert log.commits() == [3, 4, 5]
    for number, words in ((0, "not retained any more"), (3, "the state before it"), (9, "no batch 9 yet")):
        error = refused(few, number)
        assert error.code == "CS-714"
        assert words in error.what
        assert "those that can be run again: 4 to 5;" in str(error.next)
    assert few.again(4)[1].is_same


def test_of_a_rescale(life: Life) -> None:
    life.live([records("a", "b"), records("c")])
    log = BatchLog(life.world.state_dir)
    log.lock("app")
    rescale(log, 3, {})
    log.unlock()
    life.settings["partitions"] = 3
    life.live([records("d", "e")])
    error = refused(life, 2)
    assert (error.code, "it changed the state itself" in error.what) == ("CS-715", True)
    assert "0, 1, 3" in str(error.next)
    for number, partitions in ((0, 2), (1, 2), (3, 3)):
        rerun, found = life.again(number)
        assert (found.is_same, rerun.batch.partitions) == (True, partitions)


def test_begun_and_not_committed(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a function fails on can be looked at, before it is committed."""
    life.live([records("a")])
    with monkeypatch.context() as patch:
        patch.setattr(LocalRounds, "run", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            life.live([records("b", "c")])
    past = past_batch(life.world.state_dir, 1)
    assert (past.after, past.before.id) == (None, 0)
    connection = connection_of(life.config)
    assert connection is not None
    rerun = run_past(past, plan_topology(life.topology), connection.reader(), connection.log().topics())
    found = together(compare_stores(rerun), compare_results(rerun, None))
    assert {name.name: rows for name, rows in found.rows.items()} == {"left": 2, "out": 2}
    assert (found.is_same, found.notes) == (True, ())


def test_records_that_are_gone(life: Life) -> None:
    life.world.create(left=1)
    small = FileTopics(str(life.world.topics_dir), durable=False, segment_bytes=1)
    with application(life.topology, life.config) as running:
        for number in range(3):
            writer = small.writer()
            writer.write("left", record_batch([(b"a", str(number).encode(), number)]))
            writer.close()
            running.run_until(running.inputs.end_offsets())
    target = life.world.root / "kept.bundle"
    Packing.of(life.world.state_dir, 1).write(target, connection_of(life.config), life.topology)
    for segment in sorted((life.world.topics_dir / "left" / "0").glob("*.seg"))[:2]:
        segment.unlink()
    with pytest.raises(cs.StateError) as caught:
        life.again(1)
    assert caught.value.code == "CS-714"
    assert "bundle" in str(caught.value.next)
    with open_bundle(target, 1) as bundle:
        assert run_past(bundle.past, plan_topology(life.topology), bundle.reader, bundle.counts).written()


@pytest.mark.parametrize("what", ["runs", "bundled"])
def test_retired_while_it_is_read(life: Life, what: str) -> None:
    life.live([records("a"), records("b")])
    past, packing = past_batch(life.world.state_dir, 1), Packing.of(life.world.state_dir, 1)
    for name in (*(life.world.state_dir / "stores").rglob("000000000000-*"), *_log_of_batch(life, 0)):
        name.unlink()
    connection = connection_of(life.config)
    assert connection is not None
    target, counts = life.world.root / "x.bundle", connection.log().topics()
    acts: dict[str, Callable[[], object]] = {
        "runs": lambda: run_past(past, plan_topology(life.topology), connection.reader(), counts),
        "bundled": lambda: packing.write(target, connection, life.topology),
    }
    with pytest.raises(cs.StateError) as caught:
        acts[what]()
    assert (caught.value.code, "was retired while it was read" in caught.value.what) == ("CS-714", True)
    assert not list(life.world.root.glob("x.bundle*"))


def _log_of_batch(life: Life, number: int) -> list[Path]:
    return [life.world.state_dir / folder / f"{number:012d}.json" for folder in ("batches", "commits")]


def test_of_another_topology(life: Life) -> None:
    life.live([records("a")])
    builder = cs.StreamsBuilder()
    builder.table("left", IN, cs.Materialized(store="other")).to_stream().to(
        "out", cs.Produced(key=TEXT, value=TEXT)
    )
    with pytest.raises(cs.StateError) as caught:
        life.again(0, builder.build())
    assert caught.value.code == "CS-750"


def test_without_state(tmp_path: Path) -> None:
    with pytest.raises(cs.StateError) as caught:
        past_batch(tmp_path / "nothing", 0)
    assert caught.value.code == "CS-713"


def test_rows_of_dataframes(life: Life) -> None:
    life.live([records("a")])
    log = BatchLog(life.world.state_dir)
    log.write_batch(structs.replace(log.batch(0), epoch=0))
    error = refused(life, 0)
    assert (error.code, "rows of DataFrames" in error.what) == ("CS-715", True)


def test_a_backup_has_its_batch_no_more(life: Life) -> None:
    life.live([records("a"), records("b")])
    shutil.rmtree(life.world.state_dir / "commits")
    assert refused(life, 1).code in ("CS-714", "CS-701")
