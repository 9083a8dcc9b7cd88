"""Applications that crash: at the steps that others can see, as often as you like.

Such a step puts a file in place, appends a frame to a topic, or deletes a file. The application dies before one of
them and is started again, until it gets through.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import strategies as st

import crossstream as cs
from crossstream.filetopics.partition_log import Appender
from tests.conformance.runner import Serdes, is_table, is_used
from tests.faults.one_process import process
from tests.laws.strategies import Case, with_headers
from tests.reference.chain import SIDES, headers_of, joins_of
from tests.spark.world import ALONE, SPREAD, World

PARTITIONS = 2
some_places = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=4)
some_rows = st.sampled_from([SPREAD, ALONE])
some_crashes = st.lists(st.integers(0, 40), min_size=1, max_size=5)


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


@contextmanager
def weathered(
    topology: cs.Topology, case: Case, places: list[int], size: int, crashes: list[int], rows: int
) -> Iterator[tuple[World, World]]:
    """Two worlds that took the same inputs: one without crashes, one with those before the numbered steps.

    ``rows``: what one task does alone.
    """
    with TemporaryDirectory() as folder:
        calm, stormy = (World(Path(folder) / name, single_task_rows=rows) for name in ("calm", "stormy"))
        for world in (calm, stormy):
            given_to(world, case, places)
        process(topology, config(calm, size))
        for last in crashes:
            with suppress(Crash), crashing(last):
                process(topology, config(stormy, size))
        process(topology, config(stormy, size))
        yield calm, stormy
