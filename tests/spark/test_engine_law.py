"""The engine law: Spark and the test driver give the same, whatever the partitions and batches.

The small cases of `test_conformance` pin every record; here are thousands of rows that collide in one table.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.spark.marketplace import JSON, TEXT, Change, joined, marketplace, random_changes
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
