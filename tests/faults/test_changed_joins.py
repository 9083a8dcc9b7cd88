"""Joins of streams of another kind than in the last run: new code applies to new changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import crossstream as cs
from tests.faults.one_process import process
from tests.spark.world import ALONE, SPREAD, TEXT, Given, World

TEN = cs.JoinWindows.of(10)
LONG_BEFORE = cs.JoinWindows(before=100, after=0)
LONG_AFTER = cs.JoinWindows(before=0, after=100)
WINDOWS = {"even": TEN, "long before": LONG_BEFORE, "long after": LONG_AFTER}


@pytest.fixture(params=[SPREAD, ALONE], ids=["spread", "alone"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    made = World(tmp_path, single_task_rows=request.param)
    made.create(l=1, r=1, out=1)
    return made


def after(
    world: World, kind: str, windows: cs.JoinWindows, left: list[Given], right: list[Given]
) -> list[str | None]:
    """What a run of the join adds to all results, once these records have come."""
    world.append("l", left)
    world.append("r", right)
    before = len(world.read("out"))
    process(joined(kind, windows), world.config(partitions=1))
    return [record.value for record in world.read("out")[before:]]


def joined(kind: str, windows: cs.JoinWindows) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left, right = (builder.stream(topic, cs.Consumed(key=TEXT, value=TEXT)) for topic in "lr")
    kept = cs.StreamJoined(name="joined", store="left-records", other_store="right-records")
    join = getattr(left, kind)
    join(right, pair_of(kind), windows, kept).to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def pair_of(kind: str) -> Callable[..., str]:
    """A joiner that counts on what the join promises: a left join has a left record."""
    if kind == "left_join":
        return lambda left, right: left.upper() + (right or "-")
    return lambda left, right: (left or "-") + (right or "-")


@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS)
def test_what_waited_on_a_side_that_is_no_longer_outer_is_forgotten(
    world: World, windows: cs.JoinWindows
) -> None:
    assert after(world, "outer_join", windows, [], [("y", "r", 101)]) == []
    assert after(world, "left_join", windows, [("z", "late", 500)], []) == []
    assert after(world, "outer_join", windows, [], [("z", "late", 900)]) == ["late-"]
    assert after(world, "outer_join", windows, [("z", "later", 2000)], []) == ["-late"]


def test_what_waited_there_still_finds_partners_and_then_does_not_come_out_alone(world: World) -> None:
    assert after(world, "outer_join", TEN, [], [("x", "r1", 100), ("y", "r2", 101)]) == []
    assert after(world, "left_join", TEN, [("x", "l", 105)], []) == ["Lr1"]
    assert after(world, "outer_join", TEN, [("z", "late", 500)], []) == ["-r2"]


def test_what_was_kept_without_waiting_does_not_come_out_alone(world: World) -> None:
    assert after(world, "left_join", TEN, [("x", "l", 100)], [("y", "r1", 101)]) == []
    assert after(world, "outer_join", TEN, [], [("y", "r2", 105)]) == []
    assert after(world, "outer_join", TEN, [("z", "late", 500)], []) == ["l-", "-r2"]
