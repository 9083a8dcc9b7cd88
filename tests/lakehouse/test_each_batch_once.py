"""Each batch is in a table once: an application is stopped between two steps of a batch, and started again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.publishing import Publishing
from crossstream.lakehouse.delta import DeltaSink
from crossstream.lakehouse.iceberg import IcebergSink
from crossstream.lakehouse.tables import Tables
from crossstream.storage import lease as leases
from crossstream.storage.commit_log import BatchLog
from tests.faults.crash_points import Arm, Crash, after, before
from tests.faults.one_process import application, process, streams
from tests.lakehouse.lake import FORMATS, Lake
from tests.object_store import ObjectStore, cache, object_server, object_store
from tests.spark.world import World
from tests.storage.test_lease import stopped

__all__ = ["cache", "object_server", "object_store"]

TEXT, NUMBER = serdes.string(), serdes.int64()
WRITERS: dict[str, Any] = {"delta": DeltaSink, "iceberg": IcebergSink}


class Lives:
    """An application that counts words into a table, and appends them to another one."""

    def __init__(self, root: Path, form: Any) -> None:
        self.lake = Lake(root, form)
        self.writer = WRITERS[form]
        self.world = World(root)
        self.world.create(words=2, counts=2)
        self.calls = 0

    def topology(self, change: Callable[[str], str] = str, name: str = "events") -> cs.Topology:
        builder = cs.StreamsBuilder()
        words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
        counts = words.group_by_key().count()
        counts.to("counts", cs.Produced(key=TEXT, value=NUMBER))
        self.lake.sink(counts, "counts", named=cs.Named("table"))
        changed = words.map_values(change).repartition(cs.Repartitioned(key=TEXT, value=TEXT))
        self.lake.sink(changed, "events", named=cs.Named(name))
        return builder.build()

    def append(self, *words: str) -> None:
        self.world.append("words", [(word, "x", at) for at, word in enumerate(words)])

    def run(self, arm: Arm | None = None, topology: cs.Topology | None = None, **settings: Any) -> None:
        config = self.world.config(**settings)
        if arm is None:
            process(topology or self.topology(), config)
            return
        with pytest.MonkeyPatch.context() as patch:
            arm(patch)
            with pytest.raises(Crash):
                process(topology or self.topology(), config)

    def events(self) -> list[str]:
        return sorted(row[0] for row in self.lake.tuples("events"))

    def counts(self) -> dict[str, int]:
        return dict(self.lake.tuples("counts"))

    def in_topic(self) -> list[tuple[str, int]]:
        return sorted((one.key, one.value) for one in self.world.read("counts", value=NUMBER))


@pytest.fixture(params=FORMATS)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    return Lives(tmp_path, request.param)


STEPS: dict[str, Callable[[Lives], Arm]] = {
    "before the rows are staged": lambda lives: before(Publishing, "_stage"),
    "before the note": lambda lives: before(BatchLog, "write_publication"),
    "after the note": lambda lives: after(BatchLog, "write_publication"),
    "before the first table": lambda lives: before(lives.writer, "write"),
    "after the first table": lambda lives: after(lives.writer, "write"),
    "before the second table": lambda lives: before(lives.writer, "write", 2),
    "after the second table": lambda lives: after(lives.writer, "write", 2),
    "before the commit": lambda lives: before(BatchLog, "write_commit"),
    "after the commit": lambda lives: after(BatchLog, "write_commit"),
    "before the files are removed": lambda lives: before(Publishing, "forget"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_leaves_each_batch_once(lives: Lives, step: str) -> None:
    lives.append("a", "b", "a")
    lives.run()
    lives.append("a", "c")
    lives.run(STEPS[step](lives))
    lives.run(STEPS[step](lives) if step.startswith("before the note") else None)  # and again
    lives.append("d")
    lives.run()
    assert lives.events() == ["a", "a", "a", "b", "c", "d"]
    assert lives.counts() == {"a": 3, "b": 1, "c": 1, "d": 1}
    assert lives.in_topic() == [("a", 2), ("a", 3), ("b", 1), ("c", 1), ("d", 1)]
    assert [lives.lake.commits(table) for table in ("events", "counts")] == [3, 3]
    assert not list((lives.world.state_dir / "staged").iterdir())


def test_without_the_mark_a_batch_comes_twice(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test before bites."""
    lives.append("a")
    lives.run(after(lives.writer, "write", 2))
    monkeypatch.setattr(Tables, "_found", lambda *_: None)
    lives.run()
    assert lives.events() == ["a", "a"]


def test_functions_that_vary(lives: Lives) -> None:
    """What was noted is written: tables and stores have the same, though the function gives another value later."""
    lives.append("a", "b")

    def vary(value: str) -> str:
        lives.calls += 1
        return f"{value}{lives.calls}"

    lives.run(before(lives.writer, "write", 2), lives.topology(vary))
    first = lives.calls
    lives.run(topology=lives.topology(vary))
    assert lives.calls == first
    assert sorted(row[1] for row in lives.lake.tuples("events")) == ["x1", "x2"]


def test_new_state_begins_again(lives: Lives) -> None:
    """Batch numbers begin again with it, and what is written is new."""
    lives.append("a")
    lives.run()
    shutil.rmtree(lives.world.state_dir)
    lives.run()
    assert lives.events() == ["a", "a"]
    assert lives.counts() == {"a": 1}


def test_an_older_copy_of_the_state_is_refused(lives: Lives) -> None:
    lives.append("a")
    lives.run()
    shutil.copytree(lives.world.state_dir, copy := lives.world.root / "copy")
    lives.append("b")
    lives.run()
    shutil.rmtree(lives.world.state_dir)
    shutil.copytree(copy, lives.world.state_dir)
    with pytest.raises(cs.StateError) as caught:
        lives.run()
    assert caught.value.code == "CS-744"
    assert "has batch 1 of this state, whose last batch is 0" in caught.value.what
    assert lives.events() == ["a", "b"]
    # From the older state the batch runs again; rows of a key are there once, records twice.
    lives.append("c")
    lives.run(on_lost_state="restart")
    assert lives.events() == ["a", "b", "b", "c"]
    assert lives.counts() == {"a": 1, "b": 1, "c": 1}


def test_a_batch_for_a_sink_that_is_gone(lives: Lives) -> None:
    lives.append("a")
    lives.run(before(lives.writer, "write"))
    with pytest.raises(cs.StateError) as caught:
        lives.run(topology=lives.topology(name="others"))
    assert (caught.value.code, "'events'" in caught.value.what) == ("CS-746", True)
    lives.run()
    assert lives.events() == ["a"]


def test_another_writer_is_in_the_way(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is tried again, on the version that the other one made."""
    lives.append("a")
    lives.run()
    write, once = lives.writer.write, [True]

    def beaten(self: Any, rows: pa.Table, mark: Any) -> None:
        if once.pop() if once else False:
            other = type(self)(self.node)
            other.open()
            write(other, rows, mark)
        write(self, rows, mark)

    monkeypatch.setattr(lives.writer, "write", beaten)
    lives.append("a")
    lives.run()
    assert lives.events() == ["a", "a"]
    assert lives.counts() == {"a": 2}


def test_what_a_reader_finds_of_the_batch(lives: Lives) -> None:
    lives.append("a")
    lives.run()
    lives.append("a")
    lives.run()
    log = BatchLog(lives.world.state_dir)
    state = json.loads((lives.world.state_dir / "application.json").read_text())["content"]["state_id"]
    assert log.commits()[-1] == 1
    if lives.lake.form == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(lives.lake.path("counts"))
        assert table.transaction_version(f"crossstream/app/table/{state}") == 1
        assert table.history(1)[0]["crossstream.batch"] == "1"
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("default", **lives.lake.catalog)
        table = catalog.load_table("shop.counts")
        catalog.close()
        assert json.loads(table.properties["crossstream.app.table"]) == {"state": state, "batch": 1}
        found = [s.summary.additional_properties["crossstream.app.table.batch"] for s in table.snapshots()]
        assert found == ["0", "1"]


def test_a_refused_table_stops_the_start(lives: Lives) -> None:
    lives.lake.create("counts", pa.schema([("key", pa.string()), ("value", pa.string())]))
    with streams(lives.topology(), lives.world.config()) as app, pytest.raises(cs.SinkError) as caught:
        app.process_available()
    assert caught.value.code == "CS-657"


@pytest.mark.usefixtures("cache")
def test_state_on_an_object_store(lives: Lives, object_store: ObjectStore, tmp_path: Path) -> None:
    lives.append("a")
    lives.run(after(lives.writer, "write"), state_dir=object_store.uri(tmp_path.name))
    assert any(name.startswith("staged/table-") for name in object_store.names(tmp_path.name))
    lives.run(state_dir=object_store.uri(tmp_path.name))
    assert lives.events() == ["a"]
    assert not any(name.startswith("staged/") for name in object_store.names(tmp_path.name))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("put", "folder"), [("create", "batches"), ("replace", "batches"), ("create", "commits")]
)
def test_an_application_that_stands_still_before_a_put(
    lives: Lives,
    object_store: ObjectStore,
    tmp_path: Path,
    put: str,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one takes its place meanwhile. It continues with the put: of the entry, the note or the commit.

    The other one is killed when it has noted the batch as well: its note counts.
    """
    crash = after(BatchLog, "write_publication") if put == "replace" else None
    monkeypatch.setattr(leases, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(leases, "LEASE_SECONDS", 2.0)
    place = object_store.uri(tmp_path.name)
    lives.append("a")
    lives.run(state_dir=place)
    lives.append("a", "b")
    with application(lives.topology(), lives.world.config(state_dir=place)) as zombie:
        stopped(zombie.log, put, folder, lambda: lives.run(crash, state_dir=place), monkeypatch)

        def proceed() -> None:
            for word in "cd":
                zombie.run_until(zombie.inputs.end_offsets())
                lives.append(word)

        with pytest.raises(cs.StateError) as caught:
            proceed()
    assert caught.value.code == "CS-720"
    lives.append("e")
    lives.run(state_dir=place)
    expected = ["a", "a", "b", "e"] if put + folder != "createcommits" else ["a", "a", "b", "c", "e"]
    assert lives.events() == expected
    assert lives.counts() == {word: expected.count(word) for word in expected}
    assert lives.in_topic() == sorted((w, n + 1) for w in set(expected) for n in range(expected.count(w)))
