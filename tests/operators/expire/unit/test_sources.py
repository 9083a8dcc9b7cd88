"""Rows expire whatever a table is read from: change events, lake tables, DataFrames; `verify` and `why` know of it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import crossstream as cs
from crossstream import serdes
from tests.application.engines import Engine, only_on_spark
from tests.application.waiting import wait_for
from tests.recompute.world import BOTH, JSON
from tests.recompute.world import World as Recomputed
from tests.spark.world import World

TEXT, BYTES = serdes.string(), serdes.bytes()


@dataclass
class Note:
    id: int
    stars: int
    text: str


def event(op: str, key: int, stars: int, text: str = "x") -> tuple[bytes, bytes]:
    before, after = ({"id": key}, None) if op == "d" else (None, asdict(Note(key, stars, text)))
    source = {"lsn": stars}
    return (
        json.dumps({"id": key}).encode(),
        json.dumps({"op": op, "before": before, "after": after, "source": source, "ts_ms": 5}).encode(),
    )


@pytest.mark.parametrize("settings", [{}, {"unavailable_value": None}, {"ordered_by": "source.lsn"}])
def test_rows_of_change_events(settings: dict[str, Any]) -> None:
    builder = cs.StreamsBuilder()
    kept = cs.Materialized(store="notes", ttl="10 ms")
    notes = builder.table("notes", materialized=kept, source=cs.debezium(Note, **settings))
    by_text = notes.group_by("text").agg(stars=cs.agg.sum("stars"), count=cs.agg.count(), store="by-text")
    assert by_text.queryable_store_name == "by-text"
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("notes", BYTES, BYTES)
        for ts, one in enumerate([event("c", 1, 1), event("c", 2, 2), event("u", 1, 3)]):
            topic.pipe_input(*one, timestamp=4 * ts)
        store, groups = driver.get_key_value_store("notes"), driver.get_key_value_store("by-text")
        assert sorted(row.id for _, row in store.all()) == [1, 2]
        topic.pipe_input(*event("c", 3, 4), timestamp=14)
        assert sorted(row.id for _, row in store.all()) == [1, 3]
        assert [(row["stars"], row["count"]) for _, row in groups.all()] == [(7, 2)]
        topic.pipe_input(*event("d", 3, 5), timestamp=40)
        assert dict(store.all()) == {}
        assert dict(groups.all()) == {}


def test_a_value_that_is_left_out_is_found_though_the_row_has_expired() -> None:
    builder = cs.StreamsBuilder()
    kept = cs.Materialized(store="notes", ttl="10 ms")
    builder.table("notes", materialized=kept, source=cs.debezium(Note))
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("notes", BYTES, BYTES)
        topic.pipe_input(*event("c", 1, 1, "long"), timestamp=0)
        topic.pipe_input(*event("c", 2, 1), timestamp=50)
        assert [row.id for _, row in driver.get_key_value_store("notes").all()] == [2]
        topic.pipe_input(*event("u", 1, 2, "__debezium_unavailable_value"), timestamp=51)
        assert sorted((row.id, row.text) for _, row in driver.get_key_value_store("notes").all()) == [
            (1, "long"),
            (2, "x"),
        ]


def test_rows_of_a_lake_table(tmp_path: Path) -> None:
    """They have the time of their commit."""
    path = str(tmp_path / "lake" / "orders")
    write_deltalake(path, pa.table({"id": [1, 2], "amount": [1.0, 2.0]}))

    def application(ttl: str) -> cs.SparkStreams:
        builder = cs.StreamsBuilder()
        kept = cs.Materialized(store="orders", ttl=ttl, clock="wall")
        builder.table_from_delta(path, key="id", materialized=kept)
        config = cs.StreamsConfig(application_id="shop", state_dir=tmp_path / "state", engine="local")
        return cs.SparkStreams(builder.build(), config)

    with application("10 minutes") as app:
        app.process_available()
        assert sorted(dict(app.store("orders").all())) == [1, 2]
    with application("100 ms") as app:
        app.start()
        wait_for(lambda: not dict(app.store("orders").all()))


@only_on_spark
def test_rows_of_a_data_frame(engine: Engine, world: World) -> None:
    folder = world.root / "rows"
    folder.mkdir()

    def rows(name: str, *given: dict[str, Any]) -> list[int]:
        (folder / name).write_text("\n".join(map(json.dumps, given)))
        frame = engine.session.readStream.schema("id long, at long, stars long").json(str(folder))
        builder = cs.StreamsBuilder()
        kept = cs.Materialized(store="rows", ttl="10 seconds")
        builder.table_from(frame, key="id", timestamp="at", name="rows", materialized=kept)
        with engine.streams(builder.build(), world.config()) as app:
            app.process_available()
            return sorted(dict(app.store("rows").all()))

    assert rows("1.json", {"id": 1, "at": 0, "stars": 1}, {"id": 2, "at": 8_000, "stars": 1}) == [1, 2]
    assert rows("2.json", {"id": 3, "at": 12_000, "stars": 1}) == [2, 3]


def expiring(clock: Any, ttl: str) -> cs.Topology:
    builder = cs.StreamsBuilder()
    kept = cs.Materialized(store="kept", ttl=ttl, clock=clock)
    table, other = builder.table("in", BOTH, kept), builder.table("other", BOTH)
    both = cs.Materialized(store="joined", value=JSON)
    table.left_join(other, lambda one, two: f"{one}{two}", materialized=both)
    table.group_by(lambda key, value: (value, key), cs.Grouped(key=TEXT, value=JSON)).count(store="counts")
    return builder.build()


@pytest.mark.parametrize("clock", ["stream", "wall"])
def test_the_results_are_those_of_the_topics(clock: str, tmp_path: Path) -> None:
    world = Recomputed(
        tmp_path, expiring(clock, "1 minute" if clock == "stream" else "1 hour"), topic_partitions=1
    )
    newest = 1_000_000 if clock == "stream" else time.time_ns() // 1_000_000 - 60_000
    step = 2_000 if clock == "stream" else 120_000
    items = [("in", f"k{number}", "1", newest - (99 - number) * step) for number in range(100)]
    world.process(items[:50], items[50:], [("other", "k99", "x", newest)])
    found = world.verify()
    assert found.different == 0, found
    assert {one.name: one.rows for one in found.stores} == {"kept": 30, "joined": 30, "counts": 1}
    gone, there = world.why("joined", "k0"), world.why("joined", "k99")
    assert (there.value, len(there.records)) == ("1x", 2)
    assert gone.value is None
    assert gone.ended is not None
    assert "in" in gone.ended
