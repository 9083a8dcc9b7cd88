"""Topics that only a pattern brings in: they come and go while an application runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application import inputs
from crossstream.application.local import LocalRounds
from crossstream.application.loop import Loop
from crossstream.storage.commit_log import BatchLog
from tests.faults.one_process import application, process
from tests.spark.world import World

TEXT = serdes.string()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(inputs, "REFRESH_SECONDS", 0)
    made = World(tmp_path)
    made.create(a1=1, b1=1, out=1)
    made.append("a1", [("a", "v", 1)])
    made.append("b1", [("b", "v", 1)])
    return made


def matching(*patterns: str) -> cs.Topology:
    """A source of each pattern, to the topic "out"."""
    builder = cs.StreamsBuilder()
    for pattern in patterns:
        stream = builder.stream(re.compile(pattern), cs.Consumed(key=TEXT, value=TEXT))
        stream.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def keys(world: World) -> list[str]:
    return sorted(record.key for record in world.read("out"))


def test_a_topic_that_two_patterns_match_is_an_error(world: World) -> None:
    """Java: "Topic … is already matched for another regex pattern"."""
    with pytest.raises(cs.TopologyError, match="'a1'") as caught:
        process(matching("a.*", ".1"), world.config())
    assert caught.value.code == "CS-122"
    assert all("test_patterns.py" in str(caught.value.where[place]) for place in ("line", "first read at"))
    assert "exclude 'a1'" in (caught.value.next or "")
    assert keys(world) == []


def test_one_that_comes_later_is_an_error_before_anything_is_repeated(world: World) -> None:
    with application(matching("a.*", "b.*|.*2"), world.config()) as running:
        assert running.run_next()
        world.create(a2=1)
        world.append("a2", [("c", "v", 2)])
        with pytest.raises(cs.TopologyError, match="'a2'") as caught:
            running.run_next()
        assert caught.value.code == "CS-122"
    assert keys(world) == ["a", "b"]
    positions = BatchLog(world.state_dir).newest().positions
    assert sorted(topic for topics in positions.values() for topic in topics) == ["a1", "b1"]


def delete(world: World, topic: str) -> None:
    shutil.rmtree(world.topics_dir / topic)


def drain(running: Loop) -> None:
    while running.run_next():
        pass


@pytest.mark.parametrize("seconds", [0, 1000])
def test_one_that_is_deleted_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Whether or not a look for topics comes first. What was read of it is known on."""
    monkeypatch.setattr(inputs, "REFRESH_SECONDS", seconds)
    world.create(a2=1)
    with application(matching("a.*", "b.*"), world.config()) as running:
        drain(running)
        known = running.sources.topic_ids["a1"]
        delete(world, "a1")
        world.append("a2", [("c", "v", 2)])
        drain(running)
        assert keys(world) == ["a", "b", "c"]
        assert running.sources.positions["pattern(a.*)"] == {"a1": {0: 1}, "a2": {0: 1}}
        assert running.sources.topic_ids["a1"] == known
    world.append("b1", [("d", "v", 2)])
    process(matching("a.*", "b.*"), world.config())
    world.create(a1=1)
    with pytest.raises(cs.SourceError) as caught:
        process(matching("a.*", "b.*"), world.config())
    assert caught.value.code == "CS-603"


def test_one_that_is_away_for_a_moment_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers learn of topics one after the other."""
    with application(matching("a.*", "b.*"), world.config()) as running:
        drain(running)
        world.append("a1", [("c", "v", 2)])
        away = world.topics_dir / "a1"
        away.rename(world.root / "a1")
        world.append("b1", [("d", "v", 2)])
        drain(running)
        (world.root / "a1").rename(away)
        drain(running)
    assert keys(world) == ["a", "b", "c", "d"]


def test_one_that_is_deleted_under_a_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is planned anew without it."""
    run = LocalRounds.run

    def running(self: LocalRounds, batch: Any, frame: Any) -> Any:
        if (world.topics_dir / "a1").exists():
            delete(world, "a1")
            raise cs.SourceError("there is no such file topic", code="CS-602", where={"topic": "a1"})
        return run(self, batch, frame)

    monkeypatch.setattr(LocalRounds, "run", running)
    process(matching("a.*", "b.*"), world.config())
    assert keys(world) == ["b"]
    assert BatchLog(world.state_dir).commits() == [0]


def test_whoever_waits_for_everything_does_not_wait_for_one_that_is_gone(world: World) -> None:
    with application(matching("a.*", "b.*"), world.config()) as running:
        drain(running)
        world.append("a1", [("c", "v", 2)])
        ends = running.inputs.end_offsets_from_outside()[0]
        assert not running.inputs.reached(ends, {}, {})
        delete(world, "a1")
        drain(running)
        assert running.inputs.reached(ends, {}, {})


def test_an_internal_one_is_read_where_it_is_named(world: World) -> None:
    """Patterns pass over it, also in the driver; and the command line does."""
    world.topics.log().create_topic("__heartbeat.x", 1)
    world.append("__heartbeat.x", [("beat", "v", 1)])
    builder = cs.StreamsBuilder()
    builder.stream("__heartbeat.x", cs.Consumed(key=TEXT, value=TEXT)).to(
        "beats", cs.Produced(key=TEXT, value=TEXT)
    )
    pattern = re.compile("a.*|.*x")
    builder.stream(pattern, cs.Consumed(key=TEXT, value=TEXT)).to("out", cs.Produced(key=TEXT, value=TEXT))
    world.create(beats=1)
    process(builder.build(), world.config())
    assert keys(world) == ["a"]
    assert [record.key for record in world.read("beats")] == ["beat"]
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("__heartbeat.x", TEXT, TEXT).pipe_input("beat", "v")
        assert driver.produced_topic_names() == {"beats"}


@pytest.mark.parametrize("name", ["a1", ["b1", "a1"]])
def test_one_that_is_named_is_missed(world: World, monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    monkeypatch.setattr(inputs, "REFRESH_SECONDS", 1000)
    builder = cs.StreamsBuilder()
    builder.stream(name, cs.Consumed(key=TEXT, value=TEXT)).to("out", cs.Produced(key=TEXT, value=TEXT))
    with application(builder.build(), world.config()) as running:
        drain(running)
        delete(world, "a1")
        with pytest.raises(cs.SourceError) as caught:
            running.run_next()
        assert caught.value.code == "CS-602"
