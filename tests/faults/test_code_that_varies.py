"""A repeated batch writes once, also where it gives something else this time; what it published first stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.filetopics.partition_log import Appender
from crossstream.storage.commit_log import BatchLog
from tests.faults.crash_points import Arm, Crash, after, before
from tests.faults.one_process import process
from tests.spark.world import ALONE, SPREAD, TEXT, World

JSON = serdes.json()
COUNT = itertools.count()
KEPT: list[Thing] = []

BEFORE_THE_COMMIT = before(BatchLog, "write_commit")


class Thing:
    """Its text says where it lies in memory."""


def numbered(value: Any) -> Any:
    return {**value, "id": next(COUNT)}


def lookup(value: Any) -> Any:
    KEPT.append(Thing())
    return {}[KEPT[-1]]


@pytest.fixture(params=[SPREAD, ALONE], ids=["spread", "alone"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    made = World(tmp_path, single_task_rows=request.param)
    made.create(**{"in": 1, "out": 1, "dlq": 1, "wide": 4})
    made.append("in", [(chr(97 + n), {"n": n}, n) for n in range(8)], value=JSON)
    return made


def mapped(function: Callable[[Any], Any], to: str = "out") -> cs.Topology:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=JSON))
    stream.map_values(function).to(to, cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def rekeyed(to: str) -> cs.Topology:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=JSON))
    stream.map(lambda key, value: (str(next(COUNT)), value)).to(to, cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def crash(world: World, topology: cs.Topology, arm: Arm, **settings: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        arm(patch)
        with pytest.raises(Crash):
            process(topology, world.config(**settings))


def keys(world: World, topic: str) -> list[str]:
    return [record.key for record in world.read(topic, value=serdes.bytes())]


LETTERS = list("abcdefgh")


@pytest.mark.parametrize("to", ["out", "wide"])
@pytest.mark.parametrize(
    "arm",
    [BEFORE_THE_COMMIT, after(Appender, "append")],
    ids=["everything is published", "one frame is published"],
)
def test_values_that_are_new_each_time(world: World, to: str, arm: Arm) -> None:
    crash(world, mapped(numbered, to), arm)
    found = world.wire(to)
    process(mapped(numbered, to), world.config())
    assert sorted(keys(world, to)) == LETTERS
    assert [part[: len(was)] for part, was in zip(world.wire(to), found, strict=True)] == found


def test_a_function_that_was_corrected_keeps_the_half_that_was_published(world: World) -> None:
    crash(world, mapped(lambda value: "wrong", "wide"), after(Appender, "append"))
    published = {record.key for record in world.read("wide", value=JSON)}
    process(mapped(lambda value: "right", "wide"), world.config())
    found = {record.key: record.value for record in world.read("wide", value=JSON)}
    assert found == {key: "wrong" if key in published else "right" for key in LETTERS}
    assert len(keys(world, "wide")) == 8
    assert set(found.values()) == {"wrong", "right"}


def test_a_function_that_was_corrected_and_lets_more_records_through_loses_none(world: World) -> None:
    def chosen(last: int) -> cs.Topology:
        builder = cs.StreamsBuilder()
        stream = builder.stream("in", cs.Consumed(key=TEXT, value=JSON))
        stream.filter(lambda value: value["n"] < last).to("out", cs.Produced(key=TEXT, value=JSON))
        return builder.build()

    crash(world, chosen(4), BEFORE_THE_COMMIT)
    process(chosen(6), world.config())
    assert keys(world, "out") == [*LETTERS[:4], *LETTERS[:6]]


def test_reasons_of_dead_letters_that_are_other_texts_each_time(world: World) -> None:
    settings = {"processing_errors": cs.DeadLetter("dlq")}
    crash(world, mapped(lookup), BEFORE_THE_COMMIT, **settings)
    process(mapped(lookup), world.config(**settings))
    assert keys(world, "dlq") == LETTERS


def test_new_keys_each_time_in_one_partition(world: World) -> None:
    crash(world, rekeyed("out"), BEFORE_THE_COMMIT)
    process(rekeyed("out"), world.config())
    assert len(keys(world, "out")) == 8


def test_no_record_is_lost_where_new_keys_choose_other_partitions(world: World) -> None:
    crash(world, rekeyed("wide"), after(Appender, "append"))
    process(rekeyed("wide"), world.config())
    written = {record.value["n"] for record in world.read("wide", value=JSON)}
    assert written == set(range(8))
