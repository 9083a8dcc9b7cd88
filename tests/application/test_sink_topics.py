"""Which file topics a sink makes: the one it names, with one partition; never one that a record names."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.application.engines import Engine
from tests.spark.world import World

TEXT = serdes.string()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)
LAST = cs.Produced(key=TEXT, value=TEXT, partitioner=lambda topic, key, value, count: count - 1)


def run(engine: Engine, world: World, *sinks: Any, settings: dict[str, Any] | None = None) -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", CONSUMED)
    for topic, produced in sinks:
        stream.to(topic, produced)
    world.create(**{"in": 1})
    world.append("in", [("k", "made", 1)], TEXT, TEXT)
    with engine.streams(builder.build(), world.config(**settings or {})) as app:
        app.process_available()


@pytest.mark.parametrize("produced", [PRODUCED, LAST], ids=["by key", "by a partitioner"])
@pytest.mark.parametrize(
    ("name", "code", "topic"), [("missing", "CS-652", "missing"), ("a b", "CS-656", "in")]
)
def test_a_topic_that_a_record_names_must_exist(
    engine: Engine, world: World, name: str, code: str, topic: str, produced: cs.Produced
) -> None:
    with pytest.raises(cs.SinkError) as caught:
        run(engine, world, (lambda key, value: name, produced))
    assert caught.value.code == code
    assert (caught.value.where["operator"], caught.value.where["topic"]) == ("in.to", topic)
    assert caught.value.where["line"].startswith(__file__)
    if topic == "in":  # the record's own place
        assert [caught.value.where[part] for part in ("partition", "offset", "key")] == [0, 0, "k"]
    assert not (world.topics_dir / name).exists()


def test_a_topic_that_a_sink_names_is_made(engine: Engine, world: World) -> None:
    world.create(there=2)
    run(engine, world, ("out", PRODUCED), ("last", LAST), (lambda key, value: "there", LAST))
    for topic, partitions in {"out": 1, "last": 1, "there": 2}.items():
        assert world.table(topic, TEXT, TEXT) == {"k": "made"}
        assert len(world.wire(topic)) == partitions
