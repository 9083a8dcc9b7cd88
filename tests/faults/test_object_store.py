"""State on an object store: the application runs, is killed, is refused, loses the store, and goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.errors import CrossStreamError
from crossstream.query.files import inspect_state
from crossstream.query.verification import verify_state
from crossstream.storage import lease
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.remote import RemoteRoot
from tests.application.engines import Engine, only_on_spark
from tests.faults.lives import started
from tests.object_store import SECRET, ObjectStore, object_server, object_store
from tests.spark.fixtures import Sessions, importable_in_workers
from tests.spark.marketplace import JSON, TEXT, joined, marketplace, merchants, products
from tests.spark.world import ALONE, World

__all__ = ["object_server", "object_store"]

pytestmark = pytest.mark.usefixtures("_in_haste")


@dataclass(frozen=True, slots=True)
class RemoteWorld(World):
    """File topics in a folder, state at a URI; small batches are done by one task."""

    uri: str = ""

    def config(self, **settings: Any) -> cs.StreamsConfig:
        return World.config(self, **{"state_dir": self.uri, **settings})


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of this machine; one for all tests, for another one would need new workers."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSSTREAM_CACHE", str(folder))
        yield folder


@pytest.fixture
def spark(sessions: Sessions, cache: Path) -> Iterator[Any]:
    """The session that tests share, with that cache also in its workers."""
    session = sessions.running()
    session.sparkContext.environment["CROSSSTREAM_CACHE"] = str(cache)
    yield session
    session.sparkContext.environment.pop("CROSSSTREAM_CACHE", None)


@pytest.fixture
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 3.0)


@pytest.fixture
def empty(object_store: ObjectStore, tmp_path: Path) -> RemoteWorld:
    world = RemoteWorld(tmp_path, uri=object_store.uri(tmp_path.name), single_task_rows=ALONE)
    world.create(products=2, merchants=1, offers=1)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(10, 5), TEXT, JSON)
    return world


@pytest.fixture
def stocked(engine: Engine, empty: RemoteWorld) -> RemoteWorld:
    """Two batches have been committed, a third one waits."""
    process(engine, empty)
    empty.append("products", products(5, 5, first=50), TEXT, JSON)
    process(engine, empty)
    empty.append("products", products(30, 5, first=100), TEXT, JSON)
    return empty


def process(engine: Engine, world: World, **settings: Any) -> None:
    config = world.config(**{"partitions": 2, **settings})
    with engine.streams(marketplace(), config) as app:
        app.process_available()


def failure(engine: Engine, world: World, **settings: Any) -> CrossStreamError:
    with pytest.raises(CrossStreamError) as caught:
        process(engine, world, **settings)
    assert caught.value.next
    assert SECRET not in str(caught.value)
    return caught.value


def check_goes_on(engine: Engine, world: RemoteWorld) -> None:
    """The waiting batch is done, nothing is lost, and nothing is left of what was staged."""
    process(engine, world)
    given = products(10, 5) + products(5, 5, first=50) + products(30, 5, first=100)
    check_table(world, joined(given, merchants(5)))


def check_table(world: RemoteWorld, wanted: dict[str, Any]) -> None:
    assert world.table("offers", TEXT, JSON) == wanted
    assert dict(cs.open_store(world.uri, "offers").all()) == wanted
    assert [path for path in world.root.rglob("*.staged") if path.is_file()] == []
    assert not world.state_dir.exists(), "nothing is where state would be without a URI"


def test_state_lives_there(engine: Engine, stocked: RemoteWorld, object_store: ObjectStore) -> None:
    check_goes_on(engine, stocked)
    names = object_store.names(stocked.root.name)
    assert {"application.json", "commits/000000000002.json"} <= names
    assert "lease.json" not in names, "it was given back"
    found = inspect_state(stocked.uri)
    assert (found.application.application_id, found.commit.id) == ("app", 2)
    assert verify_state(stocked.uri).problems == []
    assert dict(cs.open_store(stocked.uri, "offers", as_of=0).all()) == joined(products(10, 5), merchants(5))


@pytest.mark.nightly
@only_on_spark
def test_killed_and_started_again(engine: Engine, empty: RemoteWorld, tmp_path: Path) -> None:
    importable_in_workers()
    given = products(10, 5)
    with started(empty, tmp_path / "stderr", records=20, STATE_URI=empty.uri) as running:
        assert running.stdout is not None
        for number in range(10):
            more = products(30, 5, first=100 + 30 * number)
            given += more
            empty.append("products", more, TEXT, JSON)
        while running.stdout.readline() != "batch 2\n":
            pass
        time.sleep(0.2)  # into the next batch
    began = time.monotonic()
    process(engine, empty, retain_batches=100_000, partitions=None)
    assert time.monotonic() - began < 30
    check_table(empty, joined(given, merchants(5)))
    log = BatchLog(empty.uri)
    assert log.commits() == list(range(len(log.commits())))


def test_two_applications(engine: Engine, stocked: RemoteWorld) -> None:
    with engine.streams(marketplace(), stocked.config()) as app:
        app.start()
        error = failure(engine, stocked)
        assert error.code == "CS-720"
        assert "app, process" in str(error.where["owner"])
        app.process_available()
    check_goes_on(engine, stocked)


def test_an_application_that_lost_its_lease_commits_nothing(
    engine: Engine, stocked: RemoteWorld, object_store: ObjectStore
) -> None:
    folder = stocked.root.name
    app = engine.streams(marketplace(), stocked.config())
    app.process_available()
    stocked.append("products", products(1, 5, first=900), TEXT, JSON)
    before = object_store.names(folder)
    object_store.put(folder, "lease.json", b'{"owner": "somebody", "token": "else", "beat": 1}')
    with pytest.raises(cs.StateError) as caught:
        app.process_available()
    app.stop()
    assert caught.value.code == "CS-720"
    assert caught.value.where["owner"] == "somebody"
    after = object_store.names(folder)
    assert {name for name in after - before if name.startswith("commits/")} == set()
    assert "lease.json" in after, "it is not ours to delete"
    assert "p900" not in dict(cs.open_store(stocked.uri, "offers").all())
    process(engine, stocked)
    assert [row.key for row in stocked.read("offers", TEXT, JSON)].count("p900") == 1
    assert "p900" in dict(cs.open_store(stocked.uri, "offers").all())


# Reads the store all the time, and prints its size whenever that changes.
READER = """
import sys, time
import crossstream as cs
store, sizes = cs.open_store(sys.argv[1], "offers"), []
until = time.monotonic() + 60
while time.monotonic() < until and sizes[-1:] != [45]:
    size = len(store.to_arrow())
    if sizes[-1:] != [size]:
        sizes.append(size)
        print(size, flush=True)
"""


def test_another_process_reads_while_it_runs(engine: Engine, stocked: RemoteWorld) -> None:
    importable_in_workers()
    command = [sys.executable, "-c", READER, stocked.uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "15\n"
        with engine.streams(marketplace(), stocked.config(retain_batches=1)) as app:
            app.start()
            assert reader.stdout.readline() == "45\n"
        assert reader.wait() == 0


def test_what_no_batch_needs_is_deleted_there_and_here(
    engine: Engine, stocked: RemoteWorld, object_store: ObjectStore
) -> None:
    root = RemoteRoot(stocked.uri)
    object_store.put(stocked.root.name, "stores/offers/0/leftover.arrow", b"of an attempt that failed")
    with engine.streams(marketplace(), stocked.config(retain_batches=1)) as app:
        for number in range(4):
            stocked.append("products", products(3, 5, first=200 + number), TEXT, JSON)
            app.process_available()
    there = {name for name in object_store.names(stocked.root.name) if name.startswith("stores/")}
    here = {
        path.relative_to(root.here).as_posix() for path in (root.here / "stores").rglob("*") if path.is_file()
    }
    log = BatchLog(stocked.uri)
    assert log.commits() == [4, 5]
    assert verify_state(stocked.uri).leftovers == []
    assert there == here
    assert sorted(root.names("batches")) == ["000000000004.json", "000000000005.json"]


def newest_run(world: RemoteWorld) -> str:
    """A run of partition 1 of the store, in use after the last commit."""
    return [
        f"stores/offers/1/{name}"
        for name in RemoteRoot(world.uri).names("stores/offers/1")
        if name.endswith(".arrow")
    ][-1]


def test_a_damaged_object_is_told(engine: Engine, stocked: RemoteWorld, object_store: ObjectStore) -> None:
    """On a machine that has no copy of it; and found out by a check on one that has."""
    folder, name = stocked.root.name, newest_run(stocked)
    whole = object_store.objects(folder)[name]
    object_store.put(folder, name, whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    found = verify_state(stocked.uri).problems
    assert [(one.store, one.partition, one.file) for one in found] == [("offers", 1, name)]
    assert found[0].batches[-1] == 1
    (RemoteRoot(stocked.uri).here / name).unlink()
    error = failure(engine, stocked)
    assert error.code == "CS-701"
    assert (error.where["store"], int(error.where["partition"])) == ("offers", 1)
    assert name.rpartition("/")[2] in str(error)
    with pytest.raises(cs.StateError) as caught:
        dict(cs.open_store(stocked.uri, "offers").all())
    assert caught.value.code == "CS-701"
    object_store.put(folder, name, whole)
    check_goes_on(engine, stocked)


def test_damaged_copies_are_healed(engine: Engine, stocked: RemoteWorld) -> None:
    copies = [
        path for path in RemoteRoot(stocked.uri).here.rglob("*") if path.suffix in (".arrow", ".manifest")
    ]
    assert len(copies) > 4
    for number, path in enumerate(sorted(copies)):
        whole = path.read_bytes()
        path.write_bytes((b"", whole[: len(whole) // 2], whole[:100] + b"!" + whole[101:])[number % 3])
    check_goes_on(engine, stocked)
    assert verify_state(stocked.uri).problems == []


@pytest.mark.slow
def test_the_store_is_away(engine: Engine, stocked: RemoteWorld, object_store: ObjectStore) -> None:
    app = engine.streams(marketplace(), stocked.config(partitions=2))
    app.process_available()
    stocked.append("products", products(1, 5, first=900), TEXT, JSON)
    object_store.stop()
    try:
        with pytest.raises(cs.StateError) as caught:
            app.process_available()
        app.stop()
    finally:
        object_store.start()
    assert caught.value.code == "CS-707"
    assert caught.value.where == {"folder": f"s3://bucket/{stocked.root.name}"}
    assert "repeats the batch" in str(caught.value.next)
    assert SECRET not in str(caught.value)
    process(engine, stocked)
    assert "p900" in stocked.table("offers", TEXT, JSON)


@only_on_spark
def test_a_dataframe_of_files_there(engine: Engine, empty: RemoteWorld, object_store: ObjectStore) -> None:
    """Workers write them there and read them there; no machine keeps a copy."""
    builder, root = cs.StreamsBuilder(), RemoteRoot(empty.uri)
    seen: list[tuple[int, int, bool, bool]] = []

    def write(frame: Any, batch: int) -> None:
        is_there = any(name.startswith("frame-0-") for name in root.names("staged"))
        seen.append((batch, frame.count(), is_there, (root.here / "staged").exists()))

    builder.stream("products", cs.Consumed(key=TEXT, value=JSON)).for_each_batch(write, parallel=True)
    with engine.streams(builder.build(), empty.config()) as app:
        app.process_available()
    assert seen == [(0, 10, True, False)]
    assert not [name for name in object_store.names(empty.root.name) if name.startswith("staged/")]


@only_on_spark
def test_dataframes_need_a_folder(engine: Engine, empty: RemoteWorld) -> None:
    builder = cs.StreamsBuilder()
    rate = engine.session.readStream.format("rate").load()
    frame = rate.selectExpr("cast(value as string) as key", "'x' as value", "timestamp")
    builder.stream_from(frame, cs.Consumed(key=TEXT, value=TEXT)).to(
        "offers", cs.Produced(key=TEXT, value=TEXT)
    )
    with pytest.raises(cs.ConfigError) as caught:
        engine.streams(builder.build(), empty.config()).process_available()
    assert caught.value.code == "CS-201"
