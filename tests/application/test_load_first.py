"""Tables that load first in a running application, on every engine."""

from __future__ import annotations

from typing import Any

from crossstream.storage.commit_log import BatchLog
from tests.application.engines import Engine, on_spark_too
from tests.application.waiting import wait_for
from tests.faults.test_snapshots_load_first import Event, Order, found, order, put, topology
from tests.spark.world import World


def customers(count: int, time: int) -> list[Event]:
    return [Event("r", number, f"n{number}", time) for number in range(1, count + 1)]


@on_spark_too
def test_orders_of_before_find_the_customers_of_a_snapshot(engine: Engine, either_world: World) -> None:
    """Loaded in bounded batches. What comes meanwhile waits; progress says how far the load is."""
    world = either_world
    world.create(orders=2, customers=2, placed=1)
    put(world, [*customers(40, 5_000), Event("u", 3, "late", 9_000)])
    order(world, [Order(number, "1", 10) for number in range(1, 41)])
    config = world.config(partitions=3, max_records_per_batch=15, retain_batches=1000)
    seen: list[tuple[str, ...]] = []

    def arrive(progress: Any) -> None:
        seen.append(progress.waits)
        if len(seen) == 1:
            put(world, [Event("u", 1, "new", 20_000)])
            order(world, [Order(3, "2", 9_500), Order(1, "3", 15_000)])

    app = engine.streams(topology(), config)
    app.on_progress(arrive)
    with app:
        app.start()
        wait_for(lambda: len(found(world)) == 42)
    expected = [(f"1,n{number}", 10) for number in range(1, 41)]
    assert sorted(found(world)) == sorted([*expected, ("2,late", 9_500), ("3,n1", 15_000)])
    assert seen[0][0].startswith("loads customers: ")
    assert seen[0][0].endswith(" of 41")
    assert () in seen
    log = BatchLog(world.state_dir)
    read = [{span.node for span in log.batch(number).ranges} for number in log.batches()]
    assert all(sources == {"customers"} for sources in read[:3])
    assert "orders" in read[3]
