"""A crash at any step, as often as you like, changes neither tables nor the topics that are written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.one_process import process
from tests.laws.crashes import (
    PARTITIONS,
    Crash,
    config,
    crashing,
    given_to,
    some_crashes,
    some_places,
    some_rows,
    weathered,
    what_is_left,
)
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
)
from tests.laws.strategies import case as made
from tests.spark.world import ALONE, SPREAD, World

STORED = frozenset(range(3))

any_case = (
    table_cases() | foreign_key_cases() | chain_cases() | stream_table_cases(busy=True) | stream_cases()
)


@law
@given(any_case, some_places, st.integers(1, 6), some_crashes, some_rows)
def test_crashes_change_nothing(
    case: Case, places: list[int], size: int, crashes: list[int], rows: int
) -> None:
    topology = build(case, Way(PARTITIONS, stored=STORED))
    with weathered(topology, case, places, size, crashes, rows) as (calm, stormy):
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


@pytest.mark.slow
@pytest.mark.parametrize("rows", [SPREAD, ALONE])
def test_every_step_of_a_run(rows: int) -> None:
    """One crash before each step there is, each in a run of its own."""
    inputs = [
        {"side": side, "key": key, "value": value, "ts": ts} for ts, (side, key, value) in enumerate(ROWS)
    ]
    case = made("table-table-fk", "left", inputs, fk_extractor=EXTRACTOR)
    topology = build(case, Way(PARTITIONS, stored=STORED))
    with TemporaryDirectory() as folder:
        calm = World(Path(folder) / "calm", single_task_rows=rows)
        given_to(calm, case, [0, 1])
        with crashing(10**9) as steps:
            process(topology, config(calm, 2))
        assert steps.count > 40
        for last in range(steps.count):
            stormy = World(Path(folder) / f"{last}", single_task_rows=rows)
            given_to(stormy, case, [0, 1])
            with pytest.raises(Crash), crashing(last):
                process(topology, config(stormy, 2))
            process(topology, config(stormy, 2))
            assert what_is_left(stormy, case) == what_is_left(calm, case), f"after a crash before step {last}"
