"""Which batches one task does alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.runtime.sizing import FIXED_SECONDS, USUAL_SECONDS, Fan, Sizing, fans_of
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import SourceRange
from tests.faults.one_process import process
from tests.spark.marketplace import JSON, TEXT, marketplace, merchants, products
from tests.spark.world import ALONE, SPREAD, World


def records(count: int, source: str = "orders") -> list[SourceRange]:
    return [SourceRange(source, source, 0, 10, 10 + count, 0)]


def test_by_the_number_of_records() -> None:
    sizing = Sizing(100, {})
    assert sizing.is_small(records(60) + records(40), {})
    assert not sizing.is_small(records(60) + records(41), {})
    assert sizing.is_small([], {}), "the clock moves"


def test_nothing_is_small_where_no_rows_are() -> None:
    assert not Sizing(0, {}).is_small([], {})


def test_a_right_record_counts_with_the_results_it_may_change() -> None:
    sizing = Sizing(100, {"customers": (Fan("subscriptions", "customers"),)})
    held = {"subscriptions": 1000, "customers": 100}
    assert sizing.is_small(records(9, "customers"), held)
    assert not sizing.is_small(records(10, "customers"), held)
    assert sizing.is_small(records(100, "orders"), held)
    assert sizing.is_small(records(100, "customers"), {}), "nothing refers to them yet"


def test_slow_functions_make_a_batch_large_until_they_are_fast() -> None:
    sizing = Sizing(10_000, {})
    assert sizing.is_small(records(100), {})
    sizing.learn(seconds=2.0)
    assert not sizing.is_small(records(100), {})
    assert sizing.is_small(records(5), {})
    for _ in range(30):
        sizing.is_small(records(100), {})
        sizing.learn(seconds=FIXED_SECONDS)
    assert sizing.row_seconds == USUAL_SECONDS
    assert sizing.is_small(records(10_000), {})


def test_what_a_large_batch_takes_is_not_less_than_usual() -> None:
    sizing = Sizing(10_000, {})
    sizing.is_small(records(10_000_000), {})
    sizing.learn(seconds=1.0)
    assert not sizing.is_small(records(10_001), {})


def test_a_batch_that_was_not_asked_about_tells_nothing() -> None:
    """One that is repeated, or has rows of a DataFrame."""
    sizing = Sizing(10_000, {})
    sizing.learn(seconds=100.0)
    assert sizing.is_small(records(10_000), {})


def fans(*build: Any) -> dict[str, set[str]]:
    builder = cs.StreamsBuilder()
    for add in build:
        add(builder)
    return {
        source: {fan.right for fan in found}
        for source, found in fans_of(plan_topology(builder.build())).items()
    }


def table(builder: cs.StreamsBuilder, topic: str, made: Any = cs.StreamsBuilder.table) -> Any:
    return made(builder, topic, cs.Consumed(key=TEXT, value=JSON))


def first(left: Any, right: Any) -> Any:
    return left


def test_the_joins_of_a_topology_where_a_source_comes_in_on_the_right() -> None:
    """Through what is between, and through other joins; a primary-key join changes one result for a record."""

    def chain(builder: cs.StreamsBuilder) -> None:
        orders, customers, cities = (table(builder, name) for name in ("orders", "customers", "cities"))
        known = customers.filter(lambda row: True).join(cities, first, foreign_key=lambda row: row["city"])
        orders.join(known, first, foreign_key=lambda row: row["customer"]).to_stream().to(
            "told", cs.Produced(key=TEXT, value=JSON)
        )
        orders.join(table(builder, "notes"), first)

    found = fans(chain)
    assert {source: len(rights) for source, rights in found.items()} == {"customers": 1, "cities": 2}


def test_joins_of_many_and_with_global_tables_fan_out() -> None:
    def many(builder: cs.StreamsBuilder) -> None:
        orders, customers, shops = (table(builder, name) for name in ("orders", "customers", "shops"))
        rights = {"customer": (customers, lambda row: row["c"]), "shop": (shops, lambda row: row["s"])}
        orders.join_many(rights, lambda order, found: order)
        cities = table(builder, "cities", cs.StreamsBuilder.global_table)
        orders.join(cities, first, foreign_key=lambda row: row["city"])

    assert fans(many).keys() == {"customers", "shops", "cities"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "shares"), [(SPREAD, [2, 2, 2]), (ALONE, [0, 0, 0]), (150, [2, 2, 0])], ids=str
)
def test_an_application_chooses(tmp_path: Path, rows: int, shares: list[int]) -> None:
    """A merchant has 40 products, so five merchants make the second batch a large one for 150 rows."""
    world = World(tmp_path, single_task_rows=rows)
    world.create(products=2, merchants=2, offers=1)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(200, 5), TEXT, JSON)
    process(marketplace(), world.config(partitions=2))
    world.append("merchants", merchants(5, "New"), TEXT, JSON)
    process(marketplace(), world.config(partitions=2))
    world.append("products", products(20, 5, name="New"), TEXT, JSON)
    process(marketplace(), world.config(partitions=2))
    log = BatchLog(world.state_dir)
    assert [log.batch(number).shares for number in log.commits()] == shares
    assert len(world.read("offers", TEXT, JSON)) == 200 + 200 + 20


def test_a_repeated_batch_is_done_as_it_was(tmp_path: Path) -> None:
    """What its tasks had published is told by their numbers, whatever the settings are now."""
    world = World(tmp_path, single_task_rows=ALONE)
    builder = cs.StreamsBuilder()
    numbers = builder.stream("numbers", cs.Consumed(key=TEXT, value=serdes.int64()))
    numbers.map_values(lambda number: -number).to("told", cs.Produced(key=TEXT, value=serdes.int64()))
    topology = builder.build()
    world.create(numbers=3, told=1)
    world.append("numbers", [(f"k{n}", n, n) for n in range(50)], TEXT, serdes.int64())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchLog, "write_commit", failing)
        with pytest.raises(OSError, match="no"):
            process(topology, world.config())
    process(topology, world.config(single_task_rows=SPREAD))
    assert sorted(output.value for output in world.read("told", TEXT, serdes.int64())) == list(range(-49, 1))
    assert BatchLog(world.state_dir).batch(0).shares == 0


def failing(*_: object) -> None:
    raise OSError("no")
