"""A function that gives other results than it did is found: the rows that differ, and the operators that may be why."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.recompute.partings import Found, Name, Parting
from crossstream.recompute.suspects import suspects
from crossstream.recompute.unsteady import unsteady
from tests.laws.shapes import IN, TEXT
from tests.recompute.replay.lives import Life
from tests.spark.world import World

COUNT = itertools.count()
OUT = cs.Produced(key=TEXT, value=TEXT)


def varying(value: Any, *others: Any) -> str:
    return f"{value} {next(COUNT)}"


def steady(value: Any, *others: Any) -> str:
    return f"{value}!"


def mapped(function: Callable[..., Any]) -> cs.Topology:
    builder = cs.StreamsBuilder()
    made = builder.stream("left", IN).map_values(steady, named=cs.Named("first"))
    made = made.map_values(function, named=cs.Named("second")).filter(lambda v: True, named=cs.Named("third"))
    made.to("out", OUT)
    return builder.build()


def joined(function: Callable[..., Any]) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left = builder.table("left", IN, cs.Materialized(store="left"))
    kept = left.map_values(steady, materialized=cs.Materialized(store="kept"), named=cs.Named("kept-values"))
    right = builder.table("right", IN)
    found = kept.join(
        right,
        function,
        foreign_key=lambda value: value[0],
        materialized=cs.Materialized(store="found", key=TEXT, value=TEXT),
        table_joined=cs.TableJoined(name="both"),
    )
    found.to_stream().to("out", OUT)
    return builder.build()


def lived(root: Path, topology: cs.Topology) -> Life:
    life = Life(
        World(root), topology, {topic: 2 for node in topology for topic in node.topics}, {"partitions": 2}
    )
    topics = sorted(life.topics)
    life.live(
        [
            [(topic, key, f"{key}1", 1, 0) for topic in topics for key in "ab"],
            [(topic, "a", "b2", 5, 0) for topic in topics],
        ]
    )
    return life


def names_of(found: Found, life: Life, topology: cs.Topology) -> list[str]:
    rerun, _ = life.again(1, topology)
    names = suspects(rerun.plan, found.different.keys(), found.rows.keys() - found.different.keys())
    return [name.partition(" ")[0] for name in names]


def test_of_a_stream(tmp_path: Path) -> None:
    """Any operator on the way may be why: streams keep no rows in between that would be the same."""
    life = lived(tmp_path, mapped(varying))
    _, found = life.again(1)
    (one,) = found.partings
    assert (one.place, one.key) == (Name("topic", "out"), "a")
    assert one.theirs.startswith("b2! ")
    assert one.ours.startswith("b2! ")
    assert found.different == {Name("topic", "out"): 1}
    assert names_of(found, life, life.topology) == ["first", "second", "third"]


def test_of_a_join(tmp_path: Path) -> None:
    """The rows of the tables that it joins are the same, so it is the join."""
    life = lived(tmp_path, joined(varying))
    _, found = life.again(1)
    assert found.different == {Name("store", "found"): 1, Name("topic", "out"): 1}
    assert {one.place for one in found.partings} == set(found.different)
    assert names_of(found, life, life.topology) == ["both"]


def test_of_a_table_above(tmp_path: Path) -> None:
    life = lived(tmp_path, joined(steady))
    changed = joined(lambda value, other: f"{value}?")
    _, found = life.again(1, changed)
    assert {(one.theirs, one.ours) for one in found.partings} == {("b2!!", "b2!?")}
    assert names_of(found, life, changed) == ["both"]


@pytest.mark.parametrize("fewer", [True, False])
def test_fewer_and_more_results(tmp_path: Path, fewer: bool) -> None:
    def kept(all_of_them: bool) -> cs.Topology:
        builder = cs.StreamsBuilder()
        stream = builder.stream("left", IN).filter(lambda v: all_of_them, named=cs.Named("some"))
        stream.to("out", OUT)
        return builder.build()

    life = lived(tmp_path, kept(fewer))
    _, found = life.again(0, kept(not fewer))
    assert found.different == {Name("topic", "out"): 2}
    sides = [(one.theirs, one.ours) for one in found.partings]
    assert [now is None for _, now in sides] == [fewer] * 2
    assert [then is None for then, _ in sides] == [not fewer] * 2


def runs_of(life: Life) -> Callable[[cs.Topology], object]:
    return lambda topology: life.again(1, topology)


def test_other_results_each_time(tmp_path: Path) -> None:
    """Two runs say which function it is, and what it gave."""
    life = lived(tmp_path / "a", mapped(varying))
    (one,) = unsteady(life.topology, runs_of(life))
    assert one.operator.startswith("second (")
    assert one.key == '"a"'
    assert one.first.startswith('"b2! ')
    assert one.first != one.second
    other = lived(tmp_path / "b", joined(varying))
    assert [one.operator.partition(" ")[0] for one in unsteady(other.topology, runs_of(other))] == ["both"]


def test_results_that_stay_as_they_are(tmp_path: Path) -> None:
    life = lived(tmp_path, joined(steady))
    assert unsteady(life.topology, runs_of(life)) == []


def test_times_alone(tmp_path: Path) -> None:
    """Values that are the same show with what is not."""

    def timed(later: int) -> cs.Topology:
        builder = cs.StreamsBuilder()
        at = cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=lambda k, v, t: t + later)
        builder.stream("left", at).to("out", OUT)
        return builder.build()

    life = lived(tmp_path, timed(0))
    _, found = life.again(1, timed(1))
    (one,) = found.partings
    assert (one.theirs, one.ours) == ({"value": "b2", "timestamp": 5}, {"value": "b2", "timestamp": 6})


def test_others_write_to_the_topic_too(tmp_path: Path) -> None:
    """Records of others between those of the batch are no difference; they are where nobody else is known to write."""
    life = lived(tmp_path, mapped(steady))
    life.world.append("out", [("x", "of others", 9)])
    _, found = life.again(1)
    assert found.partings == (Parting(Name("topic", "out"), 0, "x", "of others", None),)
    builder = cs.StreamsBuilder()
    builder.stream("out", IN).map_values(steady).to("more", OUT)
    builder.stream("left", IN).map_values(steady).map_values(steady).to("out", OUT)
    other = Life(World(tmp_path / "b"), builder.build(), {"left": 1, "out": 1})
    other.live([[("left", "a", "1", 1, 0), ("out", "x", "of others", 1, 0)]])
    assert other.again(0)[1].is_same


def test_nothing_is_written(tmp_path: Path) -> None:
    life = lived(tmp_path, joined(varying))
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    life.again(1)
    assert before == {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
