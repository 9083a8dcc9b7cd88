"""Flights out of New York as topics, joined with airlines, airports and planes by foreign keys."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import crossstream as cs
from crossstream.cli.loading import execute
from tests.end_to_end.clients import Row, batch_join, fold
from tests.spark.marketplace import JSON, TEXT
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "nycflights.py"
FIELDS = ("carrier", "flight", "origin", "dest", "tailnum", "dep_delay")
JOINED = """
select f.*, a.name, d.name, d.tzone, p.manufacturer || ' ' || p.model
from flights f join airlines a on f.carrier = a.id
left join airports d on f.dest = d.id left join planes p on f.tailnum = p.id
"""

Tables = dict[str, list[Row]]


def changes(now: dict[str, dict[str, Any]], rng: Random) -> Tables:
    """Every table changes: new names, an airline and airports that are gone, flights moved and cancelled."""
    airports, planes = now["airports"], now["planes"]
    flights = rng.sample(sorted(now["flights"]), len(now["flights"]) // 16)
    some = rng.sample(sorted(planes), 500)
    return {
        "flights": [(key, None) for key in flights[: len(flights) // 4]]
        + [
            (key, {**now["flights"][key], "tailnum": rng.choice([None, *some])})
            for key in flights[len(flights) // 4 :]
        ],
        "airlines": [("AA", {"name": "American"}), ("UA", None)],
        "airports": [("LAX", None), ("ORD", {**airports["ORD"], "name": "O'Hare"}), ("SJU", airports["SFO"])],
        "planes": [
            (key, {**planes[key], "model": f"new {n}"} if n % 5 else None) for n, key in enumerate(some)
        ],
    }


def check(world: World, tables: Tables) -> None:
    """Store and topic hold what DuckDB makes of the tables."""
    wanted = batch_join(JOINED, **{name: fold(rows) for name, rows in tables.items()})
    names = (*FIELDS, "airline", "destination", "time_zone", "aircraft")
    for found in (
        dict(cs.open_store(world.state_dir, "flights").all()),
        world.table("named-flights", TEXT, JSON),
    ):
        assert sorted((key, *(row[name] for name in names)) for key, row in found.items()) == wanted


@pytest.mark.parametrize(
    ("days", "flights"), [(30, 26_076), pytest.param(365, 336_776, marks=pytest.mark.nightly)]
)
def test_flights(spark: Any, world: World, days: int, flights: int) -> None:
    example = execute(EXAMPLE)
    tables: Tables = dict(example.rows(days=days))
    assert len(tables["flights"]) == flights
    example.make_topics(str(world.topics_dir), days=days)
    for number in range(2):  # the second time with the state of the first
        if number:
            more = changes({name: fold(rows) for name, rows in tables.items()}, Random(3))
            for name, rows in more.items():
                world.append(name, [(key, row, 1) for key, row in rows], TEXT, JSON)
                tables[name] += rows
        with cs.SparkStreams(
            example.build(), world.config(max_records_per_batch=10_000 if days < 365 else 100_000), spark
        ) as app:
            app.process_available()
        check(world, tables)
