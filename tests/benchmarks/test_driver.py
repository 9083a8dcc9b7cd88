"""The benchmark of the test drivers: all sides are piped the same records, and give the same number of results."""

from __future__ import annotations

import pytest
from benchmarks.peers.kafka_streams.peer import available

from benchmarks import driver


@pytest.mark.parametrize("join", driver.JOINS)
@pytest.mark.parametrize("style", ["callables", "expressions"])
def test_rounds_are_piped_and_their_results_counted(join: str, style: str) -> None:
    rounds = list(driver.records(join, 5, 20, 2))
    assert [len(piped) for piped in rounds] == [20, 20]
    seconds, one_by_one = driver.through_ours(join, style, rounds, 1)
    assert len(seconds) == 2
    assert one_by_one > 0
    if join.startswith("stream-stream"):
        assert driver.through_ours(join, style, rounds, 7)[1] == one_by_one


QUICK = ("fk", "stream-stream")


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize(
    "join", [*QUICK, *(pytest.param(j, marks=pytest.mark.nightly) for j in driver.JOINS if j not in QUICK)]
)
def test_the_sides_agree(join: str) -> None:
    if (reason := available()) is not None:
        pytest.skip(reason)
    figures = driver.measure(join, driver.SIDES, scale=0.01)
    assert all(figures[side] > 0 for side in driver.SIDES)
