"""The engine law: Spark and the test driver give the same, whatever the partitions and batches.

The small cases of `test_conformance` pin every record; here are thousands of rows that collide in one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.laws.engine import Way, as_taken
from tests.spark.marketplace import JSON, TEXT, Change, joined, marketplace, offer, random_changes
from tests.spark.world import ALONE, SPREAD, World

pytestmark = pytest.mark.spark

BATCHES = 4


@pytest.mark.parametrize("rows", [SPREAD, ALONE])
@pytest.mark.parametrize("partitions", [1, 3])
def test_driver_and_spark_give_the_same_table(spark: Any, tmp_path: Path, partitions: int, rows: int) -> None:
    rng, world = Random(partitions), World(tmp_path, single_task_rows=rows)
    world.create(products=3, merchants=2, offers=2)
    topology = marketplace(foreign_key=lambda product: product["merchant"])
    all_changes: dict[str, list[Change]] = {"products": [], "merchants": []}
    with (
        cs.SparkStreams(topology, world.config(partitions=partitions), spark) as app,
        cs.TopologyTestDriver(topology, partitions=partitions, commit_every=10**9) as driver,
    ):
        inputs = {name: driver.create_input_topic(name, TEXT, JSON) for name in all_changes}
        for _ in range(BATCHES):
            for topic, changes in random_changes(rng, 1500, 400, 40).items():
                all_changes[topic] += changes
                world.append(topic, changes, TEXT, JSON)
                inputs[topic].pipe_records(changes)
            app.process_available()
            driver.commit()
            wanted = joined(all_changes["products"], all_changes["merchants"])
            assert dict(app.store("offers").all()) == wanted
            assert dict(driver.get_key_value_store("offers").all()) == wanted
            assert world.table("offers", TEXT, JSON) == wanted
        assert app.progress.batch == BATCHES - 1


@pytest.mark.parametrize("history", [None, "1 hour"])
def test_versions_of_a_result_are_those_of_one_record_at_a_time(
    spark: Any, world: World, history: str | None
) -> None:
    """``history``: of the tables that are joined."""
    rng, topology = Random(1), versioned_marketplace(history)
    world.create(products=1, merchants=1)
    with (
        cs.SparkStreams(topology, world.config(partitions=3), spark) as app,
        cs.TopologyTestDriver(topology, partitions=3, commit_every=1) as driver,
    ):
        inputs = {name: driver.create_input_topic(name, TEXT, JSON) for name in ("products", "merchants")}
        for _ in range(BATCHES):
            batch = random_changes(rng, 200, 20, 4)
            for topic, changes in batch.items():
                world.append(topic, changes, TEXT, JSON)
            app.process_available()
            for topic, *record in one_by_one(batch):
                inputs[topic].pipe_input(*record)
            assert versions(app.store("offers")) == versions(driver.get_versioned_store("offers"))


def versioned_marketplace(history: str | None) -> cs.Topology:
    builder, hour = (
        cs.StreamsBuilder(),
        cs.Materialized(store="offers", value=JSON, history_retention="1 hour"),
    )
    products, merchants = (
        builder.table(
            name,
            cs.Consumed(key=TEXT, value=JSON),
            cs.Materialized(store=name, history_retention=history),
        )
        for name in ("products", "merchants")
    )
    products.join(merchants, offer, foreign_key=lambda product: product["merchant"], materialized=hour)
    return builder.build()


def versions(store: Any) -> Any:
    """The rows with their timestamps, and the values that were valid at some times."""
    valid = {time: [store.get(f"p{n}", as_of_time=time) for n in range(20)] for time in range(0, 10_000, 500)}
    return store.to_arrow().to_pylist(), valid


def one_by_one(batch: Mapping[str, list[Change]]) -> list[tuple[Any, ...]]:
    """The changes in the order in which a batch takes them: topic, key, value, timestamp."""
    names = ("side", "key", "value", "ts")
    inputs = [dict(zip(names, (topic, *one), strict=True)) for topic in batch for one in batch[topic]]
    taken = as_taken({"inputs": inputs}, Way(every=len(inputs)), list(batch))["inputs"]
    return [tuple(one[name] for name in names) for one in taken]


def test_records_of_a_partition_keep_their_order_through_a_big_batch(spark: Any, world: World) -> None:
    count = 80_000
    builder = cs.StreamsBuilder()
    numbers = cs.Consumed(key=TEXT, value=serdes.int64())
    stream = builder.stream("numbers", numbers).map_values(lambda number: -number)
    stream.to("negatives", cs.Produced(key=TEXT, value=serdes.int64()))
    world.create(numbers=1, negatives=1)
    world.append("numbers", [("k", number, 0) for number in range(count)], TEXT, serdes.int64())
    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        app.process_available()
    found = [output.value for output in world.read("negatives", TEXT, serdes.int64())]
    assert found == [-number for number in range(count)]
