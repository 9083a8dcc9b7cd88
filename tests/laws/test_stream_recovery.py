"""A crash at any step, as often as you like, changes no result of a join of streams, nor which records wait on."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.runner import build
from tests.faults.one_process import process
from tests.laws.effort import cases
from tests.laws.strategies import Case, stream_cases
from tests.laws.test_recovery import Crash, config, crashing, given_to, some_places
from tests.spark.world import World

any_case = stream_cases() | stream_cases(eager=True) | stream_cases(kinds=("outer",), self_join=True)


@cases(0.5)
@given(any_case, some_places, st.integers(1, 6), st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_crashes_change_nothing(case: Case, places: list[int], size: int, crashes: list[int]) -> None:
    topology = build(case)
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
        assert stormy.wire("results") == calm.wire("results")
