"""What the driver does grows with the number of state partitions, and not faster."""

from __future__ import annotations

import cProfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.scale import Application, measured

from crossstream.storage import files, root, vacuum

TOPIC_PARTITIONS = 8
BATCHES = 13
"""The last one deletes what the first ones wrote."""
FEW, MANY = 50, 200


def calls(profile: cProfile.Profile) -> int:
    """How many functions were called."""
    return sum(one.callcount for one in profile.getstats())


def figures(folder: Path, partitions: int) -> dict[str, int]:
    """Functions called in the driver for a batch and a start, and bytes of a commit."""
    made = Application(folder, partitions, TOPIC_PARTITIONS)

    def counted(work: Callable[[], object]) -> int:
        profile = cProfile.Profile()

        @contextmanager
        def aside() -> Iterator[None]:
            profile.disable()
            yield
            profile.enable()

        made.rounds.is_aside = aside
        profile.enable()
        work()
        profile.disable()
        return calls(profile)

    with made.running() as loop:
        for number in range(BATCHES):
            made.batch(loop, number)
        batch = counted(lambda: made.batch(loop, BATCHES))
        commit = max((made.state / "commits").iterdir()).stat().st_size
    with made.running() as loop:
        start = counted(lambda: (loop.close(), loop.open()))
    return {"batch": batch, "commit": commit, "start": start}


@pytest.mark.slow
def test_what_the_driver_does_is_linear_in_the_number_of_state_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (files, root, vacuum):
        monkeypatch.setattr(module, "MANY", 3 * FEW)
    few, many = (figures(tmp_path / str(count), count) for count in (FEW, MANY))
    assert {name: many[name] < 1.1 * MANY / FEW * few[name] for name in few} == dict.fromkeys(few, True)
    more = {name: (many[name] - few[name]) / (MANY - FEW) for name in few}
    assert more["commit"] < 130  # three stores
    assert more["batch"] < 400


@pytest.mark.nightly
def test_a_batch_of_10_000_state_partitions_is_planned_and_committed_in_2_seconds() -> None:
    found = measured(10_000, 500)
    assert found["batch"] < 2
