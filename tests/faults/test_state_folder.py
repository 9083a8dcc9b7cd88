"""State that cannot be used: foreign, locked, of another topology, damaged; and how to go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import crossstream as cs
from crossstream import serdes
from crossstream.errors import CrossStreamError
from crossstream.storage.commit_log import BatchLog
from tests.application.engines import Engine
from tests.spark.fixtures import importable_in_workers
from tests.spark.marketplace import JSON, TEXT, joined, marketplace, merchants, products
from tests.spark.world import World


@pytest.fixture
def stocked(engine: Engine, world: World) -> World:
    """Two batches have been committed, a third one waits."""
    world.create(products=2, merchants=1, offers=1)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(10, 5), TEXT, JSON)
    process(engine, world)
    world.append("products", products(5, 5, first=50), TEXT, JSON)
    process(engine, world)
    world.append("products", products(30, 5, first=100), TEXT, JSON)
    return world


def process(engine: Engine, world: World, topology: Any = None, **settings: Any) -> None:
    config = world.config(**{"partitions": 2, **settings})
    with engine.streams(topology or marketplace(), config) as app:
        app.process_available()


def failure(engine: Engine, world: World, topology: Any = None, **settings: Any) -> CrossStreamError:
    with pytest.raises(CrossStreamError) as caught:
        process(engine, world, topology, **settings)
    assert caught.value.next
    return caught.value


def check_goes_on(engine: Engine, world: World) -> None:
    """After the mending: the waiting batch is done, nothing is lost."""
    process(engine, world)
    stored = products(10, 5) + products(5, 5, first=50)
    wanted = joined(stored + products(30, 5, first=100), merchants(5))
    assert world.table("offers", TEXT, JSON) == wanted
    assert dict(cs.open_store(world.state_dir, "offers").all()) == wanted


# Holds the lock of the folder until it is killed.
HOLDER = """
import sys
from pathlib import Path
from crossstream.storage.commit_log import BatchLog
log = BatchLog(Path(sys.argv[1]))
log.lock("app")
print("locked", flush=True)
sys.stdin.read()
"""


class TestOwner:
    def test_the_folder_of_another_application(self, engine: Engine, stocked: World) -> None:
        error = failure(engine, stocked, application_id="other")
        assert isinstance(error, cs.StateError)
        assert error.code == "CS-720"
        assert "'app'" in error.what
        assert error.where == {"folder": str(stocked.state_dir), "application": "other"}
        check_goes_on(engine, stocked)

    def test_two_applications_in_one_process(self, engine: Engine, stocked: World) -> None:
        with engine.streams(marketplace(), stocked.config()) as app:
            app.start()
            error = failure(engine, stocked)
            assert isinstance(error, cs.StateError)
            assert error.code == "CS-720"
            assert error.where["folder"] == str(stocked.state_dir)
            assert "app, process" in str(error.where["owner"])
            app.process_available()
        check_goes_on(engine, stocked)

    def test_an_application_in_another_process(self, engine: Engine, stocked: World) -> None:
        importable_in_workers()
        command = [sys.executable, "-c", HOLDER, str(stocked.state_dir)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "locked\n"
            error = failure(engine, stocked)
            assert error.code == "CS-720"
            assert f"process {other.pid}" in str(error.where["owner"])
            other.kill()
        check_goes_on(engine, stocked)


def of_tables(one: str, two: str) -> cs.Topology:
    """orders with the rows of two tables, by what the joiner calls them → store "bills"."""
    builder = cs.StreamsBuilder()
    tables = {name: builder.table(name, cs.Consumed(key=TEXT, value=JSON)) for name in ("orders", "a", "b")}
    tables["orders"].join_many(
        {"one": (tables[one], lambda row: row["one"]), "two": (tables[two], lambda row: row["two"])},
        lambda row, rows: dict(rows),
        named=cs.Named("J"),
        materialized=cs.Materialized(store="bills", value=JSON),
    )
    return builder.build()


class TestTopologyThatChanged:
    def test_the_serde_of_a_store(self, engine: Engine, stocked: World) -> None:
        builder = cs.StreamsBuilder()
        builder.table(
            "products", cs.Consumed(key=TEXT, value=serdes.string()), cs.Materialized(store="offers")
        )
        error = failure(engine, stocked, builder.build())
        assert isinstance(error, cs.IncompatibleStateError)
        assert error.code == "CS-750"
        assert "store offers: was key-value/string/json" in error.what
        assert "string/string" in error.what
        assert error.where["folder"] == str(stocked.state_dir)
        check_goes_on(engine, stocked)

    def test_another_join(self, engine: Engine, stocked: World) -> None:
        builder = cs.StreamsBuilder()
        left = builder.table("products", cs.Consumed(key=TEXT, value=JSON))
        right = builder.table("merchants", cs.Consumed(key=TEXT, value=JSON))
        left.left_join(right, lambda a, b: a, materialized=cs.Materialized(store="offers"))
        error = failure(engine, stocked, builder.build())
        assert error.code == "CS-750"
        assert "is new" in error.what
        assert "is gone" in error.what
        check_goes_on(engine, stocked)

    def test_functions_may_change(self, engine: Engine, stocked: World) -> None:
        process(engine, stocked, marketplace(lambda product, merchant: {"only": product["name"]}))
        table = stocked.table("offers", TEXT, JSON)
        assert table["p100"] == {"only": "P100"}
        assert table["p50"] == {"name": "P50", "shop": "shop0"}

    def test_tables_of_a_join_that_change_places(self, engine: Engine, world: World) -> None:
        """What is kept of their rows is known by their number among the tables."""
        world.create(orders=1, a=1, b=1)
        process(engine, world, of_tables("b", "a"))  # of which there is no state
        world.append("orders", [("o", {"one": "x", "two": "x"}, 1)], TEXT, JSON)
        for topic in ("a", "b"):
            world.append(topic, [("x", topic, 0)], TEXT, JSON)
        process(engine, world, of_tables("a", "b"))
        error = failure(engine, world, of_tables("b", "a"))
        assert error.code == "CS-750"
        assert "store J.partners: was of a@2, b@2, is of b@2, a@2" in error.what
        process(engine, world, of_tables("a", "b"))
        assert dict(cs.open_store(world.state_dir, "bills").all()) == {"o": {"one": "a", "two": "b"}}

    def test_a_partitioner(self, engine: Engine, stocked: World) -> None:
        table_joined = cs.TableJoined(other_partitioner=lambda key, count: len(key) % count)
        error = failure(engine, stocked, marketplace(table_joined=table_joined))
        assert error.code == "CS-750"
        assert "was placed by hash, is placed by a partitioner" in error.what
        check_goes_on(engine, stocked)


class TestDamage:
    """Every kind of file, flipped, cut, emptied and gone; then put back."""

    @pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "gone"])
    @pytest.mark.parametrize("kind", [".arrow", ".manifest"])
    def test_state(self, engine: Engine, stocked: World, kind: str, damage: str) -> None:
        path = newest(stocked, kind)
        whole = path.read_bytes()
        harm(path, damage)
        error = failure(engine, stocked)
        assert isinstance(error, cs.StateError)
        assert error.code == "CS-701"
        assert error.where["store"] == "offers"
        assert int(error.where["partition"]) == 1
        assert path.name in str(error)
        with pytest.raises(cs.StateError) as caught:
            dict(cs.open_store(stocked.state_dir, "offers").all())
        assert caught.value.code == error.code
        path.write_bytes(whole)
        check_goes_on(engine, stocked)

    @pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
    @pytest.mark.parametrize("name", ["application.json", "commits/000000000001.json"])
    def test_log(self, engine: Engine, stocked: World, name: str, damage: str) -> None:
        path = stocked.state_dir / name
        whole = path.read_bytes()
        harm(path, damage)
        error = failure(engine, stocked)
        assert isinstance(error, cs.StateError)
        assert error.code == "CS-701"
        assert error.where["file"] == str(path)
        path.write_bytes(whole)
        check_goes_on(engine, stocked)

    def test_state_of_a_later_version(self, engine: Engine, stocked: World) -> None:
        log = BatchLog(stocked.state_dir)
        found = log.application()
        assert found is not None
        log.write_application(structs.replace(found, format=99))
        error = failure(engine, stocked)
        assert error.code == "CS-704"
        assert "format 99" in error.what
        log.write_application(found)
        check_goes_on(engine, stocked)

    def test_a_segment_of_a_topic(self, engine: Engine, stocked: World) -> None:
        path = stocked.topics_dir / "products" / "1" / f"{0:020}.seg"
        whole = path.read_bytes()
        flip(path, len(whole) - 500)  # in the records of the last frame, which have not been read yet
        error = failure(engine, stocked)
        assert isinstance(error, cs.SourceError)
        assert error.code == "CS-606"
        assert (error.where["topic"], error.where["partition"]) == ("products", 1)
        assert error.where["file"] == str(path)
        path.write_bytes(whole)
        check_goes_on(engine, stocked)


def newest(world: World, kind: str) -> Path:
    """The newest file of a kind that the last commit needs, of partition 1 of the store "offers"."""
    commit = BatchLog(world.state_dir).last_commit()
    assert commit is not None
    folder = world.state_dir / "stores" / "offers" / "1"
    manifest = commit.versions["offers"][1]
    return folder / manifest if kind == ".manifest" else sorted(folder.glob("*.arrow"))[-1]


def harm(path: Path, damage: str) -> None:
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "flipped":
        flip(path, len(whole) // 2)
    else:
        path.write_bytes(b"" if damage == "empty" else whole[: len(whole) // 2])


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(bytes(content))
