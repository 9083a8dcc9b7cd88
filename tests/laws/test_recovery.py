"""A crash at any step, as often as you like, changes neither tables nor the topics that are written.

The steps are those that others can see: a file is put in place, a frame appended to a topic, a file deleted. The
application dies before one of them and is started again, until it gets through.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.files.appending import Appender
from tests.conformance.runner import Serdes, is_table, is_used
from tests.faults.one_process import process
from tests.laws.effort import law
from tests.laws.engine import Way, build
from tests.laws.strategies import (
    EXTRACTOR,
    Case,
    chain_cases,
    foreign_key_cases,
    stream_cases,
    stream_table_cases,
    table_cases,
    with_headers,
)
from tests.laws.strategies import case as made
from tests.reference.chain import SIDES, headers_of, joins_of
from tests.spark.world import World

PARTITIONS = 2
STORED = frozenset(range(3))


class Crash(BaseException):
    """The process is gone: no handler of the library may catch it."""


@dataclass(slots=True)
class Steps:
    """Counts steps, and crashes before the one with the number ``last``."""

    last: int
    count: int = 0

    def step(self) -> None:
        if self.count == self.last:
            raise Crash
        self.count += 1


@contextmanager
def crashing(last: int) -> Iterator[Steps]:
    steps = Steps(last)

    def stepping(owner: Any, name: str) -> None:
        act = getattr(owner, name)

        def acted(*arguments: Any, **more: Any) -> Any:
            steps.step()
            return act(*arguments, **more)

        patch.setattr(owner, name, acted)

    with pytest.MonkeyPatch.context() as patch:
        stepping(os, "replace")
        stepping(Appender, "append")
        stepping(Path, "unlink")
        yield steps


def given_to(world: World, case: Case, places: list[int]) -> None:
    """Puts the inputs of a case into topics."""
    kinds = Serdes(case)
    world.create(results=PARTITIONS, **{side: PARTITIONS for side in SIDES if is_used(case, side)})
    for number, item in enumerate(with_headers(case["inputs"])):
        if is_used(case, item["side"]):
            row = (item["key"], item["value"], item["ts"], headers_of(item))
            place = places[number % len(places)]
            world.append(item["side"], [row], *kinds.of(item["side"]), partitions=[place])


def config(world: World, size: int) -> cs.StreamsConfig:
    return world.config(partitions=PARTITIONS, max_records_per_batch=size, retain_batches=2)


def what_is_left(world: World, case: Case) -> Any:
    """What came out, byte for byte, and the rows of every join of tables."""
    tables = [join["id"] for join in joins_of(case) if is_table(join)]
    stores = [dict(cs.open_store(world.state_dir, name).all()) for name in tables]
    return world.wire("results"), stores


any_case = (
    table_cases() | foreign_key_cases() | chain_cases() | stream_table_cases(busy=True) | stream_cases()
)
some_places = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=4)


@law
@given(any_case, some_places, st.integers(1, 6), st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_crashes_change_nothing(case: Case, places: list[int], size: int, crashes: list[int]) -> None:
    topology = build(case, Way(PARTITIONS, stored=STORED))
    with TemporaryDirectory() as folder:
        calm, stormy = World(Path(folder) / "calm"), World(Path(folder) / "stormy")
        for world in (calm, stormy):
            given_to(world, case, places)
        process(topology, config(calm, size))
        for last in crashes:
            try:
                with crashing(last):
                    process(topology, config(stormy, size))
            except Crash:
                continue
        process(topology, config(stormy, size))
        assert what_is_left(stormy, case) == what_is_left(calm, case)


ROWS = [
    ("right", "1", "r"),
    ("left", "a", "1;x"),
    ("left", "b", "2;x"),
    ("right", "2", "s"),
    ("left", "a", "2;y"),
    ("right", "1", None),
    ("left", "b", None),
    ("left", "c", "1;z"),
]


def test_every_step_of_a_run() -> None:
    """One crash before each step there is, each in a run of its own."""
    inputs = [
        {"side": side, "key": key, "value": value, "ts": ts} for ts, (side, key, value) in enumerate(ROWS)
    ]
    case = made("table-table-fk", "left", inputs, fk_extractor=EXTRACTOR)
    topology = build(case, Way(PARTITIONS, stored=STORED))
    with TemporaryDirectory() as folder:
        calm = World(Path(folder) / "calm")
        given_to(calm, case, [0, 1])
        with crashing(10**9) as steps:
            process(topology, config(calm, 2))
        assert steps.count > 40
        for last in range(steps.count):
            stormy = World(Path(folder) / f"{last}")
            given_to(stormy, case, [0, 1])
            with pytest.raises(Crash), crashing(last):
                process(topology, config(stormy, 2))
            process(topology, config(stormy, 2))
            assert what_is_left(stormy, case) == what_is_left(calm, case), f"after a crash before step {last}"
