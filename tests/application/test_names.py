"""Topics and stores called like what operators have inside them, as in the test driver; and over a restart."""

from __future__ import annotations

import re
from typing import Any

import crossstream as cs
from crossstream.query.verification import verify_state
from tests.application.engines import Engine
from tests.spark.marketplace import JSON, TEXT
from tests.spark.world import World

CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=JSON), cs.Produced(key=TEXT, value=JSON)
INNER = ("left.records", "promo.subscriptions", "promo.answers", "bill.rows", "bill.asks", "bill.answers")
RESULTS = ("rows", "promoted", "billed", "met", "events")


def namesakes() -> cs.Topology:
    """Joins, and streams and stores that are called like their parts."""
    builder = cs.StreamsBuilder()
    left, right = builder.table("left", CONSUMED), builder.table("right", CONSUMED)
    left.to_stream().to("rows", PRODUCED)
    promo = left.join(
        right,
        lambda row, other: [row, other],
        foreign_key=lambda row: row,
        table_joined=cs.TableJoined(name="promo"),
        materialized=cs.Materialized(store="bill.referrers"),
    )
    promo.to_stream().to("promoted", PRODUCED)
    bill = left.join_many(
        {"other": (right, lambda row: row)}, lambda row, rows: [row, rows["other"]], named=cs.Named("bill")
    )
    bill.to_stream().to("billed", PRODUCED)
    streams = [builder.stream(topic, CONSUMED) for topic in INNER]
    for stream in streams:
        stream.to("events", PRODUCED)
    met = streams[0].join(
        streams[1],
        lambda one, other: [one, other],
        cs.JoinWindows.of(1000),
        cs.StreamJoined(name="met", store="promo.references", other_store="met.left"),
    )
    met.to("met", PRODUCED)
    return builder.build()


def batches() -> list[dict[str, list[tuple[str, Any, int]]]]:
    events = {topic: [("e", topic, 1)] for topic in INNER}
    first = {"left": [("l", "r", 1)], "right": [("r", 1, 2)], **events}
    return [first, {"right": [("r", 2, 3)], "left.records": [("e", "again", 4)]}]


def test_nothing_is_taken_for_its_namesake(engine: Engine, world: World) -> None:
    world.create(**dict.fromkeys(("left", "right", *INNER), 1), **dict.fromkeys(RESULTS, 1))
    with cs.TopologyTestDriver(namesakes(), commit_every=100) as driver:
        for batch in batches():
            for topic, records in batch.items():
                driver.create_input_topic(topic, TEXT, JSON).pipe_records(records)
                world.append(topic, records, TEXT, JSON)
            driver.commit()
            with engine.streams(namesakes(), world.config(partitions=2)) as app:
                app.process_available()
                kept = dict(app.store("bill.referrers").all())
            assert kept == dict(driver.get_key_value_store("bill.referrers").all())
        wanted = {topic: driver.create_output_topic(topic, TEXT, JSON).read_key_values() for topic in RESULTS}
    found = {topic: [(one.key, one.value) for one in world.read(topic, TEXT, JSON)] for topic in RESULTS}
    assert {topic: sorted(map(str, rows)) for topic, rows in found.items()} == {
        topic: sorted(map(str, rows)) for topic, rows in wanted.items()
    }
    assert found["billed"] == found["promoted"] == [("l", ["r", 1]), ("l", ["r", 2])]
    assert found["rows"] == [("l", "r")]
    assert len(found["events"]) == len(INNER) + 1
    assert verify_state(world.state_dir).problems == []


def test_a_pattern_reads_what_the_topology_writes(engine: Engine, world: World) -> None:
    """As in the test driver, see ``tests/driver/test_driver.py``."""
    builder = cs.StreamsBuilder()
    builder.stream("src", CONSUMED).to(lambda key, value: f"evt-{value}", PRODUCED)
    builder.stream(re.compile("evt-.*"), CONSUMED).to("all", PRODUCED)
    world.create(**{"src": 1, "evt-a": 1, "all": 1})
    world.append("src", [("k", "a", 1)], TEXT, JSON)
    with engine.streams(builder.build(), world.config()) as app:
        app.process_available()
        app.process_available()
    assert world.table("all", TEXT, JSON) == {"k": "a"}
