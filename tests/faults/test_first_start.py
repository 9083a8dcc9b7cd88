"""Where sources with ``offset_reset="latest"`` begin is settled at their first start, whatever is committed."""

from __future__ import annotations

import re
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash

import crossstream as cs
from crossstream import serdes
from crossstream.storage.commit_log import BatchLog, Sealed
from crossstream.storage.log_entries import Application, Starts
from tests.faults.one_process import application, process
from tests.spark.world import World

TEXT = serdes.string()
LATEST = {"offset_reset": "latest"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two partitions with a record of before each."""
    made = World(tmp_path)
    made.create(orders=2, bills=1, out=1)
    append(made, "before0", "before1")
    made.append("bills", [("bill", "v", 1)])
    return made


def test_a_start_at_a_time_is_remembered(world: World) -> None:
    """Where nothing is committed, the next start begins where the first one did, however long ago that was."""
    since = datetime.fromtimestamp(0.005, timezone.utc)
    world.append("orders", [("from0", "v", 5), ("bad0", "bad", 2)], partitions=[0, 0])
    with pytest.raises(cs.ProcessingError):
        process(reading(offset_reset=since), world.config())
    world.append("orders", [("more1", "v", 0)], partitions=[1])
    now = datetime.now(timezone.utc)
    process(reading(offset_reset=now), world.config(processing_errors="skip"))
    assert keys(world) == ["from0", "more1"]


def append(world: World, *keys: str) -> None:
    """Each to the partition that its last letter is."""
    world.append("orders", [(key, "v", 1) for key in keys], partitions=[int(key[-1]) for key in keys])


def reading(topics: Any = "orders", name: str = "a", **consumed: Any) -> cs.Topology:
    return both((topics, {"name": name, **LATEST, **consumed}))


def both(*sources: tuple[Any, dict[str, Any]]) -> cs.Topology:
    """Sources, each to the topic "out"; a record with the value "bad" fails its batch."""
    builder = cs.StreamsBuilder()
    for topics, consumed in sources:
        stream = builder.stream(topics, cs.Consumed(key=TEXT, value=TEXT, **consumed))
        stream.map_values(refusing).to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def refusing(value: str) -> str:
    if value == "bad":
        raise ValueError("bad")
    return value


def keys(world: World) -> list[str]:
    return sorted(record.key for record in world.read("out"))


def start(world: World, topology: cs.Topology, **settings: Any) -> None:
    """The application starts, and stops before any record has come."""
    with application(topology, world.config(**settings)) as running:
        assert not running.run_next()


def stored(world: World) -> Application:
    found = BatchLog(world.state_dir).application()
    assert found is not None
    return found


def test_records_that_come_after_a_start_without_any(world: World) -> None:
    start(world, reading())
    append(world, "n0", "n1")
    process(reading(), world.config())
    append(world, "m0")
    process(reading(), world.config())
    assert keys(world) == ["m0", "n0", "n1"]


def test_records_beside_those_that_fail_the_first_batch(world: World) -> None:
    with application(reading(), world.config()) as running:
        world.append("orders", [("bad0", "bad", 1)], partitions=[0])
        with pytest.raises(cs.ProcessingError, match="CS-501"):
            running.run_next()
    append(world, "n1")
    process(reading(), world.config(processing_errors="skip"))
    assert keys(world) == ["n1"]


@pytest.mark.parametrize("committed", [False, True])
def test_a_topic_that_is_new_at_the_second_start_of_a_pattern(world: World, committed: bool) -> None:
    """Also where other sources have committed meanwhile."""
    pattern = (re.compile("new.*"), LATEST)
    topology = both(pattern, ("bills", {})) if committed else both(pattern)
    process(topology, world.config())
    assert (BatchLog(world.state_dir).last_commit() is not None) is committed
    world.create(new=1)
    world.append("new", [("n", "v", 1)])
    process(topology, world.config())
    assert keys(world) == (["bill", "n"] if committed else ["n"])


def test_a_source_that_is_added_later(world: World) -> None:
    """It begins at its own first start; so it does where nothing of it was committed."""
    process(both(("bills", {})), world.config())
    added = both(("bills", {}), ("orders", LATEST))
    start(world, added)
    append(world, "n0", "n1")
    process(added, world.config())
    assert keys(world) == ["bill", "n0", "n1"]


def test_a_source_that_is_renamed_or_left_out_before_anything_is_committed(world: World) -> None:
    start(world, reading())
    append(world, "n0")
    start(world, reading("bills", "b"))
    world.append("bills", [("later", "v", 1)])
    process(both(("orders", {"name": "c", **LATEST}), ("bills", {"name": "a", **LATEST})), world.config())
    assert keys(world) == ["later", "n0"]


def test_everything_may_change_until_something_is_committed(world: World) -> None:
    """Stores, the number of partitions, and where to begin."""
    start(world, reading(), partitions=2)
    append(world, "n0")
    builder = cs.StreamsBuilder()
    builder.table("orders", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="orders"))
    with application(builder.build(), world.config(partitions=3)):
        assert stored(world).stores
    with application(reading(name="b"), world.config(partitions=3)) as running:
        assert not stored(world).stores
        assert running.sources.positions == {"b": {"orders": {0: 1, 1: 1}}}
    process(reading(offset_reset="earliest"), world.config())
    assert keys(world) == ["before0", "before1", "n0"]


def test_a_topic_that_is_made_anew_meanwhile_is_read_from_its_beginning(world: World) -> None:
    start(world, reading())
    shutil.rmtree(world.topics_dir / "orders")
    world.create(orders=2)
    append(world, "n0", "n1", "m0", "m1")
    process(reading(), world.config())
    assert keys(world) == ["m0", "m1", "n0", "n1"]


def test_state_without_them_begins_at_the_next_start(world: World) -> None:
    """As versions before wrote it."""
    start(world, reading())
    path = world.state_dir / "application.json"
    content = msgspec.json.decode(msgspec.json.decode(path.read_bytes(), type=Sealed).content)
    assert content.pop("starts")
    old = msgspec.json.encode(content)
    path.write_bytes(msgspec.json.encode(Sealed(xxhash.xxh3_64_hexdigest(old), msgspec.Raw(old))))
    append(world, "n0")
    start(world, reading())
    append(world, "m0")
    process(reading(), world.config())
    assert keys(world) == ["m0"]


def test_sources_that_begin_at_the_beginning_leave_nothing(world: World) -> None:
    with application(reading(offset_reset="earliest"), world.config()):
        assert stored(world).starts == Starts()
