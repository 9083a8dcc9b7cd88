"""No record stops an application that skips, and what comes out is what the test driver gives."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from tests.application.engines import Engine
from tests.runtime.test_skipping import CALLABLES, EXPRESSIONS, JSON, NASTY, SERDES, build, settings
from tests.runtime.test_unwritable_values import JOINS, OUT, ROWS, position
from tests.spark.world import TEXT, World

BYTES = serdes.bytes()
GIVEN = [(topic, key, value) for value in NASTY for topic in ("left", "right") for key in "kl"]


@pytest.mark.parametrize("policy", ["skip", "dead letters"])
@pytest.mark.parametrize(
    ("serde", "function", "way"),
    [
        ("json", CALLABLES["passing"], "foreign key"),
        ("json", CALLABLES["exiting"], "map_values"),
        ("json", CALLABLES["recursing"], "table"),
        ("row", EXPRESSIONS["divided"], "kept"),
        ("row", pl.col("b"), "tables"),
        ("schema", EXPRESSIONS["first"], "to_table"),
    ],
    ids=["look-up", "exits", "recursion", "division", "columns", "lists"],
)
def test_nasty_records(
    engine: Engine, either_world: World, serde: str, function: Any, way: str, policy: Any
) -> None:
    topology, world = build(serde, function, way, JSON), either_world
    assert serde in SERDES
    world.create(left=1, right=1, out=1, bad=1, failed=1)
    for at, (topic, key, value) in enumerate(GIVEN):
        world.append(topic, [(key, value, at)], TEXT, BYTES)
    with engine.streams(topology, world.config(**settings(policy))) as app:
        app.process_available()
        dropped = dict(app.progress.dropped)
    with cs.TopologyTestDriver(topology, commit_every=1000, **settings(policy)) as driver:
        topics = {name: driver.create_input_topic(name, TEXT, BYTES) for name in ("left", "right")}
        for at, (topic, key, value) in enumerate(GIVEN):
            topics[topic].pipe_input(key, value, timestamp=at)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, BYTES).read_key_values_to_map()
        assert dropped == driver.metrics()["dropped"]
    assert world.table("out", TEXT, BYTES) == {key: value for key, value in out.items() if value is not None}


@pytest.mark.parametrize("join", ["join", "join_many"])
def test_a_left_row_that_cannot_be_written_is_a_dead_letter_under_its_own_key(
    engine: Engine, world: World, join: str
) -> None:
    builder = cs.StreamsBuilder()
    JOINS[join](float("nan"))(builder).to_stream().map(lambda key, value: ("", value)).to("out", OUT)
    world.create(orders=3, items=3, out=1, dead=1)
    for number, (topic, key, value) in enumerate(ROWS[:4]):
        world.append(topic, [(key, value, number)], TEXT, JSON)
    with engine.streams(builder.build(), world.config(processing_errors=cs.DeadLetter("dead"))) as app:
        app.process_available()
    (letter,) = world.read("dead", BYTES, BYTES)
    headers = dict(letter.headers)
    place = [int(headers[f"crossstream.{name}"] or b"") for name in ("partition", "offset")]
    assert (letter.key, headers["crossstream.topic"], place) == (b"new", b"orders", position(ROWS, 3, 3))
