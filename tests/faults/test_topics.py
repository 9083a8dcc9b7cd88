"""Topics that are not there, or not what they were; settings that contradict each other."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

import crossstream as cs
from crossstream.errors import CrossStreamError
from tests.application.engines import Engine
from tests.spark.marketplace import JSON, TEXT, joined, marketplace, merchants, products
from tests.spark.world import World, record_batch


@pytest.fixture
def stocked(world: World) -> World:
    world.create(products=2, merchants=1, offers=1)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(10, 5), TEXT, JSON)
    return world


def process(engine: Engine, world: World, **settings: Any) -> Any:
    with engine.streams(marketplace(), world.config(partitions=2, **settings)) as app:
        app.process_available()
        return app.progress


def failure(engine: Engine, world: World, **settings: Any) -> CrossStreamError:
    with pytest.raises(CrossStreamError) as caught:
        process(engine, world, **settings)
    assert caught.value.next
    return caught.value


def test_a_missing_topic(engine: Engine, world: World) -> None:
    world.create(merchants=1)
    world.append("merchants", merchants(5), TEXT, JSON)
    app = engine.streams(marketplace(), world.config())
    for begin in (app.start, app.process_available):
        with pytest.raises(cs.SourceError, match="the topic 'products' does not exist") as caught:
            begin()
        assert caught.value.code == "CS-602"
        assert caught.value.where["operator"] == "products"
        assert "marketplace.py" in str(caught.value.where["line"])
    # Once it is there the same application can go on.
    world.create(products=1)
    world.append("products", products(10, 5), TEXT, JSON)
    app.process_available()
    app.stop()
    assert world.table("offers", TEXT, JSON) == joined(products(10, 5), merchants(5))


def test_a_topic_that_goes_away_while_running(
    engine: Engine, stocked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossstream.application import inputs

    monkeypatch.setattr(inputs, "REFRESH_SECONDS", 0.1)
    aside = stocked.root / "aside"
    app = engine.streams(marketplace(), stocked.config())
    app.start()
    app.process_available()
    (stocked.topics_dir / "merchants").rename(aside)
    with pytest.raises(cs.SourceError) as caught:
        app.await_termination(60)
    assert caught.value.code == "CS-602"
    app.stop()
    aside.rename(stocked.topics_dir / "merchants")
    stocked.append("products", products(10, 5, first=100), TEXT, JSON)
    process(engine, stocked)
    assert len(stocked.table("offers", TEXT, JSON)) == 20


def test_a_topic_made_anew(engine: Engine, stocked: World) -> None:
    process(engine, stocked)
    shutil.rmtree(stocked.topics_dir / "products")
    stocked.create(products=2)
    stocked.append("products", products(1, 5), TEXT, JSON)
    error = failure(engine, stocked)
    assert isinstance(error, cs.SourceError)
    assert error.code == "CS-603"
    assert error.where["topic"] == "products"
    assert "state_dir" in (error.next or "")


def test_records_deleted_before_they_were_read(engine: Engine, stocked: World) -> None:
    """Old segments of a file topic are deleted by hand, as Kafka's retention does."""
    process(engine, stocked)
    writer = replace(stocked.topics, segment_bytes=1).writer()  # a segment for every frame
    for number in range(3):
        rows = [(TEXT.serialize(k), JSON.serialize(v), t) for k, v, t in products(4, 5, first=100 * number)]
        writer.write("products", record_batch(rows), [1] * 4)
        writer.flush()
    read, lost, left, _ = sorted((stocked.topics_dir / "products" / "1").glob("*.seg"))
    read.unlink()
    lost.unlink()
    first, begin = int(lost.stem), int(left.stem)
    error = failure(engine, stocked)
    assert isinstance(error, cs.SourceError)
    assert error.code == "CS-601"
    assert f"offsets {first} to {begin - 1}" in error.what
    assert (error.where["topic"], error.where["partition"]) == ("products", 1)
    assert "on_lost_records" in (error.next or "")
    progress = process(engine, stocked, on_lost_records="skip")
    assert progress.dropped == {"lost by retention": 4}
    kept = [row for number in (1, 2) for row in products(4, 5, first=100 * number)]
    assert stocked.table("offers", TEXT, JSON) == joined(products(10, 5) + kept, merchants(5))


class TestSettings:
    def test_no_topics_at_all(self, engine: Engine, world: World) -> None:
        config = cs.StreamsConfig(application_id="app", state_dir=world.state_dir)
        with pytest.raises(cs.ConfigError) as caught:
            engine.streams(marketplace(), config).process_available()
        assert caught.value.code == "CS-203"
        assert caught.value.where == {"application": "app"}

    def test_settings_that_cannot_be(self, world: World) -> None:
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("CS-203", {"bootstrap_servers": "localhost:9092"}),
            ("CS-201", {"partitions": 0}),
            ("CS-201", {"processing_errors": "ignore"}),
            ("CS-210", {"trigger": "soon"}),
            ("CS-201", {"number_of_partitions": 3}),
        ]
        for code, settings in wrong:
            with pytest.raises(cs.ConfigError) as caught:
                world.config(**settings)
            assert caught.value.code == code
            assert caught.value.next

    def test_a_session_that_is_none(self, world: World) -> None:
        with pytest.raises(cs.ConfigError) as caught:
            cs.SparkStreams(marketplace(), world.config(), object())  # type: ignore[arg-type]
        assert caught.value.code == "CS-232"
