"""`verify`, `why` and `shadow` of applications whose tables load first: records are read again in that order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.catalog.planners import plan_topology
from crossstream.recompute.shadow import compare_topics
from tests.recompute.world import BOTH, JSON, TEXT, Item, World

CITIES: list[Item] = [("customers", f"c{number}", f"city {number % 2}", 100 + number) for number in range(6)]
ORDERS: list[Item] = [("orders", f"c{number % 6}", number, number) for number in range(20)]
MORE: list[Item] = [("customers", "c1", "city 5", 300), ("orders", "c1", 50, 400), ("orders", "c9", 60, 50)]


def counting(load: Any = "first", **kept: Any) -> cs.Topology:
    """Orders by the city of their customer: what an order finds is in the store for ever."""
    builder = cs.StreamsBuilder()
    loads = cs.Consumed(key=TEXT, value=JSON, load=load)
    customers = builder.table("customers", loads, cs.Materialized(store="customers", **kept))
    orders = builder.stream("orders", BOTH)
    placed = orders.left_join(customers, lambda order, city: city or "unknown")
    cities = placed.group_by(lambda key, city: city, cs.Grouped(key=TEXT, value=JSON))
    cities.count(store="cities").to_stream().to("counts")
    return builder.build()


@pytest.fixture(params=[{}, {"history_retention": "1 day"}], ids=["rows", "versions"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    made = World(tmp_path, counting(**request.param))
    made.process(CITIES + ORDERS, MORE)
    return made


def forget_batches(world: World) -> None:
    """Only the last batch is in the log."""
    for file in sorted((world.state / "batches").iterdir())[:-1]:
        file.unlink()


def test_results_are_verified(world: World) -> None:
    assert world.verify().different == 0
    forget_batches(world)
    found = world.verify()
    assert (found.different, found.batch) == (0, 2)


def test_without_what_was_loaded_the_results_would_differ(tmp_path: Path, monkeypatch: Any) -> None:
    """So the comparison says something. Rows with versions are found by their times anyway."""
    world = World(tmp_path, counting())
    world.process(CITIES + ORDERS, MORE)
    monkeypatch.setattr("crossstream.storage.log_entries.Starts.loaded", lambda self, ids: {})
    forget_batches(world)
    assert world.verify().different > 0


def test_the_records_that_made_a_row_are_found(world: World) -> None:
    forget_batches(world)
    found = world.why("cities", "city 5")
    assert found.value == 1
    records = {(record.topic, record.key, record.value) for record in found.records}
    assert records == {("customers", "c1", "city 5"), ("orders", "c1", 50)}


def test_the_output_is_compared_with_that_of_an_application_that_begins_now(tmp_path: Path) -> None:
    made = World(tmp_path, counting())
    made.topics.log().create_topic("counts", 2)
    made.process(CITIES + ORDERS)
    assert compare_topics(plan_topology(made.topology), made.topics, "counts").found.different == 0
    found = compare_topics(plan_topology(counting(None)), made.topics, "counts").found
    assert found.different > 0
