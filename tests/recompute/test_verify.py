"""`verify_results` and `compare_topics`: what is right passes, what was changed is found, what is unknown is said."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given

import crossstream as cs
from crossstream.catalog.planners import plan_topology
from crossstream.filetopics import FileTopics
from crossstream.recompute.shadow import compare_topics
from crossstream.recompute.verify import why_not_sampled
from crossstream.storage.commit_log import BatchLog, commit_file
from crossstream.storage.compaction import Segment
from crossstream.storage.sorted_run import Run
from crossstream.task.stores import FolderStores
from tests.laws.effort import cases
from tests.recompute.test_why_law import STREAMS, TOPOLOGIES, batches
from tests.recompute.world import BOTH, JSON, TEXT, Item, World, promotions

PRODUCTS: list[Item] = [
    ("products", f"p{number}", {"price": number + 1, "merchant": f"m{number % 3}"}, number)
    for number in range(20)
]
MERCHANTS: list[Item] = [("merchants", f"m{number}", {"name": f"M{number}"}, number) for number in range(3)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, promotions())
    made.process(PRODUCTS[:10] + MERCHANTS, PRODUCTS[10:], [("merchants", "m1", {"name": "Other"}, 90)])
    return made


def changed(folder: Path, plan: Any, public: str, change: Any) -> None:
    """Changes the values of a store, and writes files with right checksums."""
    log, stores = BatchLog(folder), FolderStores(folder)
    commit = log.newest()
    store = next(one for one in plan.stores.values() if one.public == public)
    names = dict(commit.versions[store.name])
    for pid, name in names.items():
        version = stores.open(store, pid, name)
        save = stores.saver(store, pid, commit.id)
        parts = tuple(
            replace(part, segments=tuple(save(_with(segment, change)) for segment in part.segments))
            for part in version.parts
        )
        saved = stores.save(store, pid, replace(version, parts=parts))
        assert saved.name is not None
        names[pid] = saved.name
    versions = {**commit.versions, store.name: names}
    log._write(commit_file(commit.id), msgspec.structs.replace(commit, versions=versions))


def _with(segment: Segment, change: Any) -> Run:
    columns = dict(segment.run.columns)
    values = [None if one is None else change(one) for one in columns["value"].to_pylist()]
    columns["value"] = pa.array(values, pa.large_binary())
    return Run(columns, segment.run.rows)


def test_a_right_state_passes(world: World) -> None:
    found = world.verify()
    assert (found.different, found.notes, found.records) == (0, (), 24)
    assert found.partitions == (2, 3)
    assert [(store.name, store.rows) for store in found.stores] == [("promotions", 20)]


def test_a_changed_bit_is_found(world: World) -> None:
    plan = plan_topology(world.topology)
    changed(world.state, plan, "promotions", lambda data: data.replace(b'"price":7', b'"price":5'))
    (store,) = world.verify().stores
    assert store.different == 1
    (row,) = store.differences
    assert (row.key, row.theirs, row.ours) == ("p6", {"price": 5, "shop": "M0"}, {"price": 7, "shop": "M0"})


def test_a_value_in_another_spelling_is_the_same(world: World) -> None:
    changed(world.state, plan_topology(world.topology), "promotions", lambda data: data.replace(b":", b": "))
    assert world.verify().different == 0


def test_an_older_batch(world: World) -> None:
    found = world.verify(as_of=0)
    assert (found.batch, found.different, found.stores[0].rows) == (0, 0, 10)
    with pytest.raises(cs.StateError, match="batch 7 is not kept"):
        world.verify(as_of=7)


def test_state_of_another_topology_is_refused(world: World) -> None:
    builder = cs.StreamsBuilder()
    builder.table("products", BOTH, cs.Materialized(store="other"))
    with pytest.raises(cs.IncompatibleStateError) as raised:
        replace(world, topology=builder.build()).verify()
    assert raised.value.code == "CS-750"


def test_deleted_records_cannot_be_verified(tmp_path: Path) -> None:
    world = World(tmp_path, promotions(), topic_partitions=1)
    world.topics = replace(world.topics, segment_bytes=1)
    for item in MERCHANTS + PRODUCTS:
        world.write([item])  # a segment each
    world.process([])
    segments = sorted((tmp_path / "topics" / "products" / "0").glob("*.seg"))
    for segment in segments[:5]:
        segment.unlink()
    found = world.verify()
    assert found.notes == ("products, partition 0: offsets 0 to 4 were deleted from the topic",)
    (store,) = found.stores
    assert (store.different, store.unverifiable) == (0, 5)
    assert {row.key for row in store.differences} == {"p0", "p1", "p2", "p3", "p4"}


def test_a_topic_that_was_made_again_is_refused(world: World) -> None:
    folder = world.folder / "topics" / "merchants"
    folder.rename(world.folder / "gone")
    FileTopics(str(world.folder / "topics")).log().create_topic("merchants", 2)
    with pytest.raises(cs.SourceError) as raised:
        world.verify()
    assert raised.value.code == "CS-603"


def pairs(builder: cs.StreamsBuilder) -> None:
    left, right = builder.table("left", BOTH), builder.table("right", BOTH)
    left.join(right, lambda one, other: [one, other], materialized=cs.Materialized(store="out", value=JSON))


def test_a_sample(tmp_path: Path) -> None:
    builder = cs.StreamsBuilder()
    pairs(builder)
    world = World(tmp_path, builder.build())
    items = [(topic, f"k{n}", n, n) for n in range(400) for topic in ("left", "right")]
    world.process(items)
    found = world.verify(sample=0.25)
    rows = found.stores[0].rows
    assert (found.notes, found.different) == ((), 0)
    assert 50 < rows < 150
    changed(world.state, plan_topology(world.topology), "out", lambda data: b"[0,1]")
    assert world.verify(sample=0.25).different == rows


def test_a_sample_that_the_topology_does_not_allow(world: World) -> None:
    found = world.verify(sample=0.01)
    assert found.stores[0].rows == 20
    assert "all keys are compared, not a sample" in found.notes[0]
    assert "needs rows of other keys" in found.notes[0]


@pytest.mark.parametrize("name", ["windowed", "once", "pairs", "grouped", "looked up globally"])
def test_what_keeps_a_sample_from_being_right(name: str) -> None:
    builder = cs.StreamsBuilder()
    TOPOLOGIES[name](builder)
    assert why_not_sampled(plan_topology(builder.build()))


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_what_the_engine_made_passes(name: str) -> None:
    """Law: nothing differs, however the input was cut into batches."""
    builder = cs.StreamsBuilder()
    TOPOLOGIES[name](builder)
    topology = builder.build()
    topics = sorted({topic for node in topology for topic in getattr(node, "topics", ())})

    @cases(0.04)
    @given(batches(name in STREAMS, topics))
    def law(parts: list[list[Item]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            world = World(Path(folder), topology)
            world.process(*parts)
            found = world.verify()
            assert found.different == 0, found

    law()


# -- shadow ----------------------------------------------------------------------------------------------------


def test_the_same_results_of_another_application(world: World) -> None:
    found = compare_topics(plan_topology(world.topology), world.topics, "promotions")
    assert (found.as_table, found.found.rows, found.found.different) == (True, 20, 0)


def test_results_of_another_application_that_differ(world: World) -> None:
    world.write([("theirs", f"p{n}", {"shop": f"M{n % 3}", "price": n + 1}, 0) for n in range(20)])
    found = compare_topics(plan_topology(world.topology), world.topics, "theirs")
    assert found.found.different == 7  # those of the merchant that has another name since
    assert found.found.differences[0].ours == {"price": 2, "shop": "Other"}
    assert found.found.differences[0].theirs == {"price": 2, "shop": "M1"}
    world.write([("theirs", "p0", None, 0), ("theirs", "more", {}, 0)])
    found = compare_topics(plan_topology(world.topology), world.topics, "theirs")
    assert found.found.different == 9


def loud() -> cs.Topology:
    builder = cs.StreamsBuilder()
    events = builder.stream("events", BOTH)
    events.map_values(lambda value: value + 1).to("out", cs.Produced(key=TEXT, value=JSON))
    events.filter(lambda value: value > 1).to("large", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def test_streams_are_compared_record_by_record(tmp_path: Path) -> None:
    world = World(tmp_path, loud())
    plan = plan_topology(world.topology)
    world.write([("events", key, n, n) for n, key in enumerate(["a", "b", None, "a"])])
    theirs: list[Item] = [("theirs", key, n + 1, 0) for n, key in enumerate(["a", "b", None, "a"])]
    world.write(theirs)
    found = compare_topics(plan, world.topics, "theirs", "out")
    assert (found.as_table, found.found.rows, found.found.different) == (False, 4, 0)
    world.write(theirs[-1:])
    found = compare_topics(plan, world.topics, "theirs", "out")
    assert [(row.key, row.theirs, row.ours) for row in found.found.differences] == [("a", 4, None)]
    assert compare_topics(plan, world.topics, "theirs", "out", as_table=True).found.different == 0


def test_topics_that_cannot_be_compared(tmp_path: Path) -> None:
    world = World(tmp_path, loud())
    plan = plan_topology(world.topology)
    with pytest.raises(cs.SourceError, match="does not exist"):
        compare_topics(plan, world.topics, "theirs", "out")
    with pytest.raises(cs.ConfigError, match="which topic to compare") as raised:
        compare_topics(plan, world.topics, "theirs")
    assert "large, out" in str(raised.value.next)
    with pytest.raises(cs.ConfigError, match="writes no topic 'other'"):
        compare_topics(plan, world.topics, "theirs", "other")
