"""Built-in aggregates on disk: read again by the next process, and in another number of partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from tests.faults.one_process import process
from tests.operators.aggregate.law.test_agg import ALL, CONSUMED, TEXT, VALUE, at_end, of_table
from tests.spark.world import World

COLUMNS: Any = ALL
ROWS: list[dict[str, Any]] = [
    {"n": 1, "x": 0.1, "s": "a", "d": None, "g": "u", "u": 1},
    {"n": 3, "x": 1e16, "s": None, "d": None, "g": "v", "u": 2**62},
    {"n": -2, "x": 0.2, "s": "b", "d": None, "g": "u", "u": 0},
    {"n": 3, "x": None, "s": "a", "d": None, "g": "v", "u": None},
]


def topology() -> Any:
    builder = cs.StreamsBuilder()
    records = builder.stream("s", CONSUMED)
    records.group_by_key().agg(cs.Materialized(store="records"), **COLUMNS)
    rows = builder.table("t", CONSUMED)
    by_group = rows.group_by(lambda key, row: (row["g"], row), cs.Grouped(key=TEXT, value=VALUE))
    by_group.agg(cs.Materialized(store="rows"), **COLUMNS)
    records.group_by_key().windowed_by(cs.SessionWindows(gap=9)).agg(
        cs.Materialized(store="sessions"), **COLUMNS
    )
    return builder.build()


@pytest.mark.slow
def test_state_outlives_the_process_and_moves(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(s=2, t=2)
    given: list[Any] = []
    for number, partitions in enumerate([2, 2, 3, 1]):
        added: list[Any] = [(key, row) for key in "abc" for row in ROWS[number : number + 2]]
        added.append(("abc"[number % 3], None))
        for topic in "st":
            records = [(key, row, len(given) + n) for n, (key, row) in enumerate(added)]
            world.append(topic, records, TEXT, VALUE, [0] * len(records))
        given += added
        process(topology(), world.config(partitions=partitions))
        found = {
            name: dict(cs.open_store(world.state_dir, name).all()) for name in ("records", "rows", "sessions")
        }
        assert found["records"] == at_end(given)
        assert found["rows"] == of_table(given)
        assert {key.key: value for key, value in found["sessions"].items()} == at_end(given)
