"""Code that changed after a batch was killed between its publication and its commit: its own results come out, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.engine.log import BatchLog
from tests.faults.crash_points import Crash
from tests.faults.one_process import process
from tests.spark.world import ALONE, SPREAD, TEXT, World

NUMBER = serdes.int64()
IN, OUT = cs.Consumed(key=TEXT, value=NUMBER), cs.Produced(key=TEXT, value=NUMBER)


@pytest.fixture(params=[SPREAD, ALONE], ids=["spread", "alone"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    made = World(tmp_path, single_task_rows=request.param)
    made.create(l=1, r=1, out=1)
    made.append("l", [("a", 1, 1)], value=NUMBER)
    made.append("r", [("a", 2, 2)], value=NUMBER)
    return made


def joined(joiner: Callable[[int, int], int], *, lefts: bool = False, results: bool = True) -> cs.Topology:
    """A join of two tables. ``lefts``, ``results``: whether the left table, and the join, are written."""
    builder = cs.StreamsBuilder()
    left, right = builder.table("l", IN), builder.table("r", IN)
    if lefts:
        left.filter(bool).to_stream().to("out", OUT)
    kept = cs.Materialized(store="sums", key=TEXT, value=NUMBER)
    rows = left.join(right, joiner, named=cs.Named("sums"), materialized=kept)
    if results:
        rows.to_stream().map(lambda key, value: (f"sum-{key}", value)).to("out", OUT)
    return builder.build()


def crash_before_the_commit(world: World, topology: cs.Topology) -> None:
    def crash(*arguments: Any) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchLog, "write_commit", crash)
        with pytest.raises(Crash):
            process(topology, world.config(partitions=1))


def written(world: World) -> list[tuple[str, int]]:
    return [(record.key, record.value) for record in world.read("out", value=NUMBER)]


def test_a_joiner_that_was_mended(world: World) -> None:
    crash_before_the_commit(world, joined(lambda left, right: left - right))
    process(joined(lambda left, right: left + right), world.config(partitions=1))
    assert written(world) == [("sum-a", -1), ("sum-a", 3)]
    assert dict(cs.open_store(world.state_dir, "sums").all()) == {"a": 3}


def test_results_that_are_written_to_the_same_topic_from_now_on(world: World) -> None:
    crash_before_the_commit(world, joined(lambda left, right: left + right, lefts=True, results=False))
    process(joined(lambda left, right: left + right, lefts=True), world.config(partitions=1))
    assert dict(written(world)) == {"a": 1, "sum-a": 3}


def test_code_that_did_not_change_writes_once(world: World) -> None:
    topology = joined(lambda left, right: left + right, lefts=True)
    crash_before_the_commit(world, topology)
    process(topology, world.config(partitions=1))
    assert sorted(written(world)) == [("a", 1), ("sum-a", 3)]
