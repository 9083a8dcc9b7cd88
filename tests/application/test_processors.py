"""Suppression, deduplication and processors of an application: the results of the test driver, over several runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import crossstream as cs
from crossstream import serdes
from crossstream.query.verification import verify_state
from tests.application.engines import Engine
from tests.spark.world import World

TEXT, NUMBER, JSON = serdes.string(), serdes.int64(), serdes.json()
WINDOWED = serdes.windowed(TEXT, 10)
RECORDS = [(f"k{n * 7 % 5}", n * 3 % 11, n + n * 13 % 6) for n in range(120)]
OUTPUTS = {"closed": (WINDOWED, NUMBER), "first": (TEXT, NUMBER), "sums": (TEXT, NUMBER)}


class Sums:
    """The sum of each key; every 25 ms of stream time the number of keys."""

    def init(self, context: cs.ProcessorContext) -> None:
        self.context, self.sums = context, context.store("totals")
        context.schedule(25, "stream-time", self.report)

    def process(self, record: cs.Record) -> None:
        total = (self.sums.get(record.key) or 0) + record.value
        self.sums.put(record.key, total)
        self.context.forward(record.key, total)

    def report(self, now: int) -> None:
        self.context.forward(f"keys of {self.context.partition}", len(list(self.sums.all())))


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER))
    counts = stream.group_by_key().windowed_by(cs.TimeWindows(size=10, grace=5)).count()
    counts.suppress(cs.Suppressed.until_window_closes()).to_stream().to("closed")
    stream.deduplicate(7).to("first")
    totals = cs.KeyValueStore("totals", key=TEXT, value=NUMBER)
    stream.process(Sums, [totals]).to("sums", cs.Produced(key=TEXT, value=NUMBER))
    return builder.build()


def by_key(records: Iterable[tuple[Any, Any, int]]) -> dict[Any, list[tuple[Any, int]]]:
    found: dict[Any, list[tuple[Any, int]]] = {}
    for key, value, ts in records:
        found.setdefault(key, []).append((value, ts))
    return found


def expected(partitions: int) -> tuple[dict[str, Any], dict[str, int]]:
    """What the driver gives, one record after the other."""
    with cs.TopologyTestDriver(topology(), partitions) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for key, value, ts in RECORDS:
            topic.pipe_input(key, value, timestamp=ts, partition=0)
        results = {
            name: by_key(
                (one.key, one.value, one.timestamp)
                for one in driver.create_output_topic(name, *both).read_records()
            )
            for name, both in OUTPUTS.items()
        }
        return results, dict(driver.get_key_value_store("totals").all())


def test_restarts_change_nothing(engine: Engine, either_world: World) -> None:
    world = either_world
    world.create(**{"in": 1, "closed": 1, "first": 1, "sums": 1})
    for start in range(0, len(RECORDS), 40):
        world.append("in", RECORDS[start : start + 40], TEXT, NUMBER)
        with engine.streams(topology(), world.config(partitions=2, max_records_per_batch=17)) as app:
            app.process_available()
    results, totals = expected(2)
    found = {
        name: by_key((one.key, one.value, one.ts) for one in world.read(name, *both))
        for name, both in OUTPUTS.items()
    }
    assert found == results
    assert dict(cs.open_store(world.state_dir, "totals").all()) == totals


def test_state_is_cut_into_other_partitions(engine: Engine, world: World) -> None:
    world.create(**{"in": 1, "closed": 1, "first": 1, "sums": 1})
    for start, partitions in ((0, 2), (60, 3)):
        world.append("in", RECORDS[start : start + 60], TEXT, NUMBER)
        with engine.streams(topology(), world.config(partitions=partitions)) as app:
            app.process_available()
    totals: dict[str, int] = {}
    for key, value, _ in RECORDS:
        totals[key] = totals.get(key, 0) + value
    assert dict(cs.open_store(world.state_dir, "totals").all()) == totals
    assert verify_state(world.state_dir).problems == []
    assert len({(one.key, one.ts) for one in world.read("closed", *OUTPUTS["closed"])}) == len(
        world.read("closed", *OUTPUTS["closed"])
    )
