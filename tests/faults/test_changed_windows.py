"""A join of streams whose kind or window changes: what is kept stays what it was, and each record has one fate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.faults.one_process import process
from tests.spark.world import World

TEXT, JSON = serdes.string(), serdes.json()
TEXTS = cs.Consumed(key=TEXT, value=TEXT)
Record = tuple[str, str, str, int]
Result = tuple[str, list[str | None], int]
Step = Callable[..., list[Result]]


def joined(kind: str, windows: cs.JoinWindows) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left, right = (builder.stream(topic, TEXTS) for topic in ("left", "right"))
    joiner = lambda one, other: [one, other]  # noqa: E731
    result = getattr(left, kind)(right, joiner, windows, cs.StreamJoined(name="seen"))
    result.to("out", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


@pytest.fixture(params=[0, 100], ids=["spread", "single task"])
def step(request: pytest.FixtureRequest, tmp_path: Path) -> Step:
    """Runs the join with these windows on more records, and gives the new results."""
    world = World(tmp_path, single_task_rows=request.param)
    world.create(left=1, right=1, out=1)
    seen = 0

    def run(kind: str, windows: cs.JoinWindows, *records: Record) -> list[Result]:
        nonlocal seen
        for topic, key, value, ts in records:
            world.append(topic, [(key, value, ts)])
        process(joined(kind, windows), world.config(partitions=1))
        rows: list[Any] = [(row.key, row.value, row.ts) for row in world.read("out", TEXT, JSON)]
        new, seen = rows[seen:], len(rows)
        return new

    return run


def test_a_row_that_came_out_alone_has_no_partner_after_a_longer_grace(step: Step) -> None:
    short, long = (cs.JoinWindows(before=100, after=10, grace=grace) for grace in (0, 500))
    assert step("left_join", short, ("left", "k", "l1", 200)) == []
    assert step("left_join", short, ("right", "x", "r0", 211)) == [("k", ["l1", None], 200)]
    assert step("left_join", long, ("right", "k", "r1", 205)) == []
    assert step("left_join", long, ("right", "y", "r2", 3000), ("left", "z", "l2", 3000)) == []


def test_a_right_row_that_came_out_alone_has_no_partner_in_a_left_join(step: Step) -> None:
    windows = cs.JoinWindows(before=10, after=100)
    assert step("outer_join", windows, ("right", "k", "r1", 200)) == []
    assert step("outer_join", windows, ("left", "x", "l0", 211)) == [("k", [None, "r1"], 200)]
    assert step("left_join", windows, ("left", "k", "l1", 195)) == []
    late = step("left_join", windows, ("left", "y", "l2", 2000), ("left", "z", "l3", 4000))
    assert sorted(late) == [("k", ["l1", None], 195), ("x", ["l0", None], 211), ("y", ["l2", None], 2000)]


def test_late_records_come_out_alone_after_a_longer_grace(step: Step) -> None:
    short, long = (cs.JoinWindows(before=10, after=10, grace=grace) for grace in (0, 100))
    given = step("left_join", short, ("left", "a", "l1", 200))
    given += step("left_join", long, ("left", "b", "l2", 150))
    given += step("left_join", long, ("left", "c", "l3", 1000))
    given += step("left_join", long, ("left", "d", "l4", 5000))
    assert sorted(given) == [("a", ["l1", None], 200), ("b", ["l2", None], 150), ("c", ["l3", None], 1000)]


def test_late_right_records_come_out_alone_after_left_became_outer(step: Step) -> None:
    windows = cs.JoinWindows(before=100, after=0)
    given = step("left_join", windows, ("left", "a", "l1", 200))
    given += step("outer_join", windows, ("right", "b", "r1", 150))
    given += step("outer_join", windows, ("left", "c", "l2", 1000))
    given += step("outer_join", windows, ("left", "d", "l3", 5000))
    assert sorted(given) == [("a", ["l1", None], 200), ("b", [None, "r1"], 150), ("c", ["l2", None], 1000)]


def test_right_records_that_wait_come_out_though_the_join_was_left_in_between(step: Step) -> None:
    windows = cs.JoinWindows(before=100, after=0)
    given = step("outer_join", windows, ("right", "k", "r1", 200))
    given += step("left_join", windows, ("left", "x", "l1", 250))
    given += step("outer_join", windows, ("left", "y", "l2", 1000))
    given += step("outer_join", windows, ("left", "z", "l3", 5000))
    assert sorted(given) == [("k", [None, "r1"], 200), ("x", ["l1", None], 250), ("y", ["l2", None], 1000)]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_not_kept_any_more_has_no_partners_in_any_batching(step: Step, at_once: bool) -> None:
    short, long = (cs.JoinWindows(before=10, after=10, grace=grace) for grace in (0, 1000))
    step("join", short, ("left", "x", "l0", 1000), ("right", "y", "r0", 1000))
    records = [("left", "k", "l1", 500), ("right", "k", "r1", 505)]
    cuts = [records] if at_once else [[one] for one in records]
    assert [row for cut in cuts for row in step("join", long, *cut)] == []
