"""A change on Spark: differences are read in workers, functions and sinks cross to them."""

from __future__ import annotations

import re
from typing import Any

import pytest

import crossstream as cs
from crossstream.evolution.revert import Code, revert
from crossstream.spark.streams import rounds_of
from tests.application.engines import Engine, on_spark_too
from tests.evolution.test_evolve import MERCHANTS, PRODUCTS, joined, loud, plain, rows
from tests.spark.world import World


@pytest.fixture
def begun(either_world: World, engine: Engine) -> World:
    world = either_world
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", MERCHANTS)
    world.append("products", PRODUCTS)
    with engine.streams(joined(plain), world.config(partitions=2)) as app:
        app.process_available()
    return world


@on_spark_too
def test_a_start_takes_the_state_over_and_it_is_taken_back(engine: Engine, begun: World) -> None:
    before = len(begun.read("offers"))
    config = begun.config(partitions=2, on_change="evolve")
    with engine.streams(joined(loud), config) as app:
        app.process_available()
        assert dict(app.store("offers").all()) == rows(loud)
    assert begun.table("offers") == rows(loud)
    assert len(begun.read("offers")) - before == 10

    def make_rounds(topology: Any, settings: Any) -> Any:
        return rounds_of(topology, settings, engine.session)

    settings = cs.StreamsConfig(
        application_id="app",
        topics_dir=begun.topics_dir,
        state_dir=begun.state_dir,
        engine=engine.name,
        durable=False,
    )
    done = revert(begun.state_dir, Code(joined(loud), settings, make_rounds))
    assert sum(done.sent.values()) == 10
    assert begun.table("offers") == rows(plain)


@on_spark_too
def test_a_start_takes_the_state_over_and_goes_on(
    engine: Engine, begun: World, caplog: pytest.LogCaptureFixture
) -> None:
    """New records are read by the application that took over, in batches after the change; the log says what it did."""
    batches: list[cs.Progress] = []
    with (
        caplog.at_level("INFO", "crossstream"),
        engine.streams(joined(loud), begun.config(partitions=2, on_change="evolve")) as app,
    ):
        app.on_progress(batches.append)
        app.process_available()
        assert begun.table("offers") == rows(loud)
        begun.append("merchants", [("m1", "other", 9_000)])
        begun.append("products", [("p107", "m2-107", 9_001)])
        app.process_available()
        assert dict(app.store("offers").all()) == begun.table("offers")
    (said,) = [one.getMessage() for one in caplog.records if "took over" in one.getMessage()]
    assert re.fullmatch(r"app: took over changed state in batch 1, in \d+\.\d s; sent rows: 10", said)
    assert [one.batch for one in batches] == [2], "the change is no batch of records"
    offers = begun.table("offers")
    assert offers["p107"] == "m2-107 BY shop 2"
    assert (offers["p1"], offers["p11"]) == ("m1-1 by other", "m1-11 by other")
    assert offers["p7"] == rows(loud)["p7"]
