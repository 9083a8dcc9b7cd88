"""A debugger sees each call of a function, with the key of its row, and changes nothing by looking."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream.recompute.stops import has_stops, with_stops
from tests.laws.shapes import IN, TEXT, grouped, placed
from tests.recompute.replay.lives import OPERATORS, Life, drawn, folder
from tests.spark.world import World


@pytest.mark.parametrize("operator", OPERATORS)
def test_looking_changes_nothing(operator: str) -> None:
    for number, build in enumerate(OPERATORS[operator]):
        seen: list[Any] = []

        def called(node: Any, key: Any, call: Any, arguments: Any, seen: list[Any] = seen) -> Any:
            seen.append((node.name, key))
            return call(*arguments)

        with folder() as root:
            life, batches = drawn(Random(f"{operator} {number}"), build, root)
            life.live(batches)
            for batch in life.batches():
                assert life.again(batch, with_stops(life.topology, called))[1].is_same
        assert seen


class Doubled:
    """A processor whose class has slots."""

    __slots__ = ("context",)

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.forward(record.key, record.value * 2)


def calls_of(tmp_path: Path, build: Any, at: str | None = None) -> list[Any]:
    builder = cs.StreamsBuilder()
    made = build(builder)
    (made.to_stream() if isinstance(made, cs.KTable) else made).to("out", key=TEXT, value=TEXT)
    topology = builder.build()
    topics = {topic: 1 for node in topology for topic in node.topics}
    life = Life(World(tmp_path), topology, topics, {"partitions": 2})
    life.live([[(topic, key, f"{key}1", 1, 0) for topic in topics for key in "ab"]])
    seen: list[Any] = []

    def called(node: Any, key: Any, call: Any, arguments: Any) -> Any:
        seen.append((key, arguments))
        return call(*arguments)

    life.again(0, with_stops(topology, called, at))
    return sorted(seen, key=repr)


def test_of_a_mapper(tmp_path: Path) -> None:
    def build(builder: cs.StreamsBuilder) -> Any:
        return builder.stream("left", IN).map_values(lambda v: v)

    assert calls_of(tmp_path, build) == [("a", ("a1",)), ("b", ("b1",))]


def test_of_one_with_the_key(tmp_path: Path) -> None:
    def build(builder: cs.StreamsBuilder) -> Any:
        return builder.stream("left", IN).map(lambda k, v: (k, v))

    assert calls_of(tmp_path, build) == [("a", ("a", "a1")), ("b", ("b", "b1"))]


def test_of_an_aggregate(tmp_path: Path) -> None:
    def build(builder: cs.StreamsBuilder) -> Any:
        return grouped(builder.stream("left", IN)).aggregate(
            str, lambda seen, v: seen + v, materialized=cs.Materialized(key=TEXT, value=TEXT)
        )

    assert calls_of(tmp_path, build) == [("a", ("", "a1")), ("b", ("", "b1"))]


def test_of_a_joiner_by_its_place(tmp_path: Path) -> None:
    def build(builder: cs.StreamsBuilder) -> Any:
        left, right = builder.table("left", IN), builder.table("right", IN)
        return left.join(right, lambda one, other: one + other, foreign_key=lambda v: v[0])

    assert calls_of(tmp_path, build, "joiner") == [("a", ("a1", "a1")), ("b", ("b1", "b1"))]


def test_of_a_processor(tmp_path: Path) -> None:
    def build(builder: cs.StreamsBuilder) -> Any:
        return placed(builder.stream("left", IN)).process(Doubled)

    assert [(key, record[0].value) for key, record in calls_of(tmp_path, build, "process")] == [
        ("a", "a1"),
        ("b", "b1"),
    ]


@pytest.mark.parametrize("at", [None, "nowhere"])
def test_nothing_to_stop_in(at: str | None) -> None:
    """Polars runs expressions, and names of fields are looked up by this package."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("left", IN).filter(pl.col("value") > "a")
    stream.to("out", key=TEXT, value=TEXT)
    topology = builder.build()
    assert not has_stops(topology)
    with pytest.raises(cs.ConfigError) as caught:
        with_stops(topology, lambda node, key, call, arguments: call(*arguments), at)
    assert caught.value.code == "CS-281"
    assert caught.value.next == "Polars runs expressions: no debugger stops there"
