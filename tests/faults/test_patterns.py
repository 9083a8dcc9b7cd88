"""Topics that only a pattern brings in: they come and go while an application runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.engine.log import BatchLog
from crossstream.spark import engine
from tests.faults.one_process import application, process
from tests.spark.world import World

TEXT = serdes.string()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(engine, "REFRESH_SECONDS", 0)
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
    assert caught.value.code == "CS-124"
    assert all("test_patterns.py" in str(caught.value.where[place]) for place in ("line", "first read at"))
    assert "(?!a1$)" in (caught.value.next or "")
    assert keys(world) == []


def test_one_that_comes_later_is_an_error_before_anything_is_repeated(world: World) -> None:
    with application(matching("a.*", "b.*|.*2"), world.config()) as running:
        assert running.run_next()
        world.create(a2=1)
        world.append("a2", [("c", "v", 2)])
        with pytest.raises(cs.TopologyError, match="'a2'") as caught:
            running.run_next()
        assert caught.value.code == "CS-124"
    assert keys(world) == ["a", "b"]
    positions = BatchLog(world.state_dir).newest().positions
    assert sorted(topic for topics in positions.values() for topic in topics) == ["a1", "b1"]
