"""Partitioners of keys (KIP-775): what they may give, and what the error says of one that gives no partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)


def repartitioned(partitioner: Callable[[Any, int], Any]) -> cs.Topology:
    builder = cs.StreamsBuilder()
    moved = builder.stream("in", CONSUMED).repartition(
        cs.Repartitioned(partitioner=partitioner, name="moved")
    )
    moved.to("out", PRODUCED)
    return builder.build()


def joined(partitioner: Callable[[Any, int], Any]) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left, right = builder.table("in", CONSUMED), builder.table("right", CONSUMED)
    option = cs.TableJoined(other_partitioner=partitioner, name="moved")
    result = left.left_join(right, lambda row, _: row, foreign_key=lambda row: row, table_joined=option)
    result.to_stream().to("out", PRODUCED)
    return builder.build()


def run(topology: cs.Topology, partitions: int) -> list[tuple[Any, Any]]:
    with cs.TopologyTestDriver(topology, partitions, commit_every=2) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, value in (("a", "x"), ("b", "y")):
            topic.pipe_input(key, value, 1, partition=0)
        return sorted(driver.create_output_topic("out", TEXT, TEXT).read_key_values())


both = pytest.mark.parametrize("build", [repartitioned, joined])


@both
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("kind", [int, np.int64, np.uint8])
def test_a_partition_may_be_a_number_of_numpys(build: Any, partitions: int, kind: Any) -> None:
    topology = build(lambda key, count: kind(ord(key) % count))
    assert run(topology, partitions) == [("a", "x"), ("b", "y")]


def dividing(key: Any, count: int) -> int:
    return 1 // 0


@both
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize(
    ("partitioner", "said"),
    [
        (lambda key, count: -1 if key in "by" else 0, "gave -1"),
        (lambda key, count: count if key in "by" else 0, "there are"),
        (lambda key, count: 0.0 if key in "by" else 0, "gave 0.0"),
        (lambda key, count: None if key in "by" else 0, "gave None"),
        (lambda key, count: dividing(key, count) if key in "by" else 0, "raised ZeroDivisionError"),
        (lambda key, count: cs.Named("") if key in "by" else 0, "raised TopologyError: [CS-102]"),
    ],
)
def test_what_is_no_partition_is_told_with_its_record(
    build: Any, partitions: int, partitioner: Any, said: str
) -> None:
    """Also where there is one partition only: a test at the driver's defaults finds it."""
    with pytest.raises(cs.ProcessingError) as caught:
        run(build(partitioner), partitions)
    error = caught.value
    assert error.code == "CS-505"
    assert said in error.what
    place = {name: error.where[name] for name in ("operator", "topic", "offset", "key")}
    key = "b" if build is repartitioned else "y"
    assert place == {"operator": "moved", "topic": "in", "offset": 1, "key": key}
    assert error.where["line"].startswith(__file__)
