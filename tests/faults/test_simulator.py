"""Lives of an application that a seed decides (`simulator.py`); a failure names its seed.

SEED=… repeats one life.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from shutil import rmtree

import pytest

from tests.faults import simulator

CASES = 120
NIGHTLY = 10_000
FOUND = (738_958_790,)
"""Lives that failed once: killed while `application.json` was written for the first time."""


def live(seeds: Iterable[int], folder: Path) -> None:
    for seed in seeds:
        simulator.simulate(seed, folder / str(seed))
        rmtree(folder / str(seed))


@pytest.mark.parametrize("part", range(4))
def test_lives(tmp_path: Path, part: int) -> None:
    seeds = [int(os.environ["SEED"])] if "SEED" in os.environ else range(part, CASES, 4)
    live(seeds, tmp_path)


def test_lives_that_failed_once(tmp_path: Path) -> None:
    live(FOUND, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_lives_for_long(tmp_path: Path, fresh: int) -> None:
    live(range(fresh, fresh + NIGHTLY), tmp_path)


def test_the_test_bites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where published frames are not looked for, some life shows results twice."""
    from crossstream.filetopics import writer

    append = writer._append_missing
    monkeypatch.setattr(
        writer, "_append_missing", lambda appender, log, frames, first: append(appender, log, frames, log.end)
    )
    with pytest.raises(AssertionError, match="seed"):
        live(range(CASES), tmp_path)
