"""Topics that were deleted and recreated, with as many records as before or more: offsets do not tell, ids do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import crossstream as cs
from crossstream import serdes
from crossstream.application import inputs
from crossstream.application.local import LocalRounds
from crossstream.storage.commit_log import BatchLog
from tests.faults.one_process import application, process
from tests.spark.world import World

TEXT = serdes.string()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create(orders=1, shops=1, out=1)
    made.append("orders", [("o1", "s1", 1), ("o2", "s1", 1)])
    made.append("shops", [("s1", "old", 1)])
    return made


def copying(topics: Any = "orders", **consumed: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    stream = builder.stream(topics, cs.Consumed(key=TEXT, value=TEXT, **consumed))
    stream.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def looking_up() -> cs.Topology:
    """Orders with what a global table has of their shops."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=TEXT)
    shops = builder.global_table("shops", consumed)
    orders = builder.stream("orders", consumed)
    joined = orders.join(shops, lambda order, shop: shop, key_selector=lambda key, order: order)
    joined.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def make_anew(world: World, topic: str, *keys: str, value: str = "s1") -> None:
    shutil.rmtree(world.topics_dir / topic)
    world.create(**{topic: 1})
    world.append(topic, [(key, value, 2) for key in keys])


def keys(world: World) -> list[str]:
    return [record.key for record in world.read("out")]


def refused(topology: cs.Topology, config: cs.StreamsConfig) -> cs.SourceError:
    with pytest.raises(cs.SourceError, match="deleted and recreated") as caught:
        process(topology, config)
    assert caught.value.code == "CS-603"
    assert "on_lost_records='skip'" in (caught.value.next or "")
    return caught.value


@pytest.mark.parametrize("topics", ["orders", re.compile("ord.*")], ids=["name", "pattern"])
def test_an_error_after_a_restart(world: World, topics: Any) -> None:
    process(copying(topics), world.config())
    make_anew(world, "orders", "n1", "n2", "n3")
    error = refused(copying(topics), world.config())
    assert error.where["topic"] == "orders"
    assert keys(world) == ["o1", "o2"]


def test_an_error_while_running(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "REFRESH_SECONDS", 0)
    with application(copying(), world.config()) as running:
        assert running.run_next()
        make_anew(world, "orders", "n1", "n2", "n3")
        with pytest.raises(cs.SourceError) as caught:
            running.run_next()
        assert caught.value.code == "CS-603"
    assert keys(world) == ["o1", "o2"]


@pytest.mark.parametrize("number", [1, 3])
def test_one_that_is_replaced_while_running(
    world: World, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders wait for what there is in a global table, also in one that was recreated."""
    monkeypatch.setattr(inputs, "REFRESH_SECONDS", 0)
    world.append("shops", [("s2", "old", 1)])
    with application(looking_up(), world.config(on_lost_records="skip")) as running:
        while running.run_next():
            pass
        make_anew(world, "shops", *["s3", "s2", "s1"][-number:], value="new")
        make_anew(world, "orders", "n1")
        while running.run_next():
            pass
    found = [(record.key, record.value) for record in world.read("out")]
    assert found == [("o1", "old"), ("o2", "old"), ("n1", "new")]


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_is_replaced_under_a_batch(
    world: World, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is shorter, so the batch cannot read its range: it is planned anew. Nobody waits for what is gone."""
    run, new = LocalRounds.run, ["n1", "n2"][:number]

    def running(self: LocalRounds, batch: Any, frame: Any) -> Any:
        monkeypatch.undo()
        make_anew(world, "orders", *new)
        return run(self, batch, frame)

    monkeypatch.setattr(LocalRounds, "run", running)
    topology = copying(["orders", "shops"])
    with application(topology, world.config(on_lost_records="skip")) as app:
        known, ends = dict(app.sources.topic_ids), app.inputs.end_offsets_from_outside()[0]
        assert app.run_until(app.inputs.end_offsets())
        assert keys(world) == ["s1"]
        assert app.inputs.reached(ends, {}, known)
        app.run_next()
    assert keys(world) == ["s1", *new]
    process(topology, world.config())


def test_an_error_under_a_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = LocalRounds.run

    def running(self: LocalRounds, batch: Any, frame: Any) -> Any:
        make_anew(world, "orders", "n1")
        return run(self, batch, frame)

    monkeypatch.setattr(LocalRounds, "run", running)
    with pytest.raises(cs.SourceError) as caught:
        process(copying(), world.config())
    assert caught.value.code == "CS-603"


def test_a_batch_that_was_planned_before_it_was_seen(world: World) -> None:
    """The ids of a commit are those of before: the batch may have begun in the middle of another topic."""
    with application(copying(), world.config()) as running:
        running.run_until(running.inputs.end_offsets())
        make_anew(world, "orders", "n1", "n2", "n3")
        assert running.run_next()
        assert keys(world) == ["o1", "o2", "n3"]
    refused(copying(), world.config())


def test_read_from_its_beginning_where_records_may_be_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    latest = copying(offset_reset="latest")
    process(copying(), world.config())
    make_anew(world, "orders", "n1", "n2", "n3")
    process(latest, world.config(on_lost_records="skip"))
    assert keys(world) == ["o1", "o2", "n1", "n2", "n3"]
    assert [record.getMessage() for record in caplog.records if record.name == "crossstream.sources"] == [
        "the topic 'orders' was deleted and recreated: it is read from its beginning"
    ]
    # From then on it is the topic that is known.
    world.append("orders", [("n4", "s1", 3)])
    process(copying(), world.config())
    assert keys(world)[-1] == "n4"


def test_one_of_which_nothing_was_read(world: World) -> None:
    """Also where a batch was begun with records of the one before."""
    world.create(later=1)
    process(copying(["orders", "later"]), world.config())
    make_anew(world, "later")
    world.append("later", [("l1", "s1", 3)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalRounds, "run", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            process(copying(["orders", "later"]), world.config())
    make_anew(world, "later", "l2", "l3")
    process(copying(["orders", "later"]), world.config())
    assert keys(world) == ["o1", "o2", "l2", "l3"]


def test_fewer_records_than_were_read_are_read_as_well(world: World) -> None:
    process(copying(), world.config())
    make_anew(world, "orders", "n1")
    refused(copying(), world.config())
    process(copying(), world.config(on_lost_records="skip"))
    assert keys(world) == ["o1", "o2", "n1"]


def test_a_global_table(world: World) -> None:
    process(looking_up(), world.config())
    make_anew(world, "shops", "s1", "s2", value="new")
    assert refused(looking_up(), world.config()).where["topic"] == "shops"
    world.append("orders", [("o3", "s1", 3)])
    process(looking_up(), world.config(on_lost_records="skip"))
    assert [(record.key, record.value) for record in world.read("out")] == [
        ("o1", "old"),
        ("o2", "old"),
        ("o3", "new"),
    ]


def test_a_batch_that_was_begun_with_records_that_are_gone(world: World) -> None:
    """It cannot be repeated; another one takes its number."""
    process(copying(["orders", "shops"]), world.config())
    world.append("orders", [("o3", "s1", 2)])
    world.append("shops", [("s2", "old", 2)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalRounds, "run", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            process(copying(["orders", "shops"]), world.config())
    make_anew(world, "orders", "n1", "n2", "n3", "n4")
    refused(copying(["orders", "shops"]), world.config())
    process(copying(["orders", "shops"]), world.config(on_lost_records="skip"))
    assert sorted(keys(world)) == ["n1", "n2", "n3", "n4", "o1", "o2", "s1", "s2"]
    assert BatchLog(world.state_dir).commits() == [0, 1]


def test_a_topic_that_no_source_reads_for_a_while(world: World) -> None:
    process(copying(["orders", "shops"]), world.config())
    make_anew(world, "orders", "n1", "n2", "n3")
    world.append("shops", [("s2", "old", 2)])
    process(copying("shops"), world.config())
    refused(copying(["orders", "shops"]), world.config())


def test_state_of_before_ids_were_kept_takes_them_on(world: World) -> None:
    write = BatchLog.write_commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            BatchLog, "write_commit", lambda log, commit: write(log, structs.replace(commit, topic_ids={}))
        )
        process(copying(), world.config())
    world.append("orders", [("o3", "s1", 2)])
    process(copying(), world.config())
    assert keys(world) == ["o1", "o2", "o3"]
    make_anew(world, "orders", "n1", "n2", "n3", "n4")
    refused(copying(), world.config())


def test_another_number_of_partitions_keeps_the_ids(world: World) -> None:
    process(looking_up(), world.config(partitions=2))
    process(looking_up(), world.config(partitions=3))
    make_anew(world, "orders", "n1", "n2", "n3")
    refused(looking_up(), world.config(partitions=3))
