"""An application's life: starting, stopping, waiting, progress; sources that appear while it runs."""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import crossstream as cs
from crossstream.application import inputs
from crossstream.storage.commit_log import BatchLog
from tests.application.engines import Engine, on_spark_too
from tests.application.waiting import in_background, wait_for
from tests.spark.marketplace import JSON, TEXT, joined, marketplace, merchants, products
from tests.spark.world import World


def slowly(product: Any) -> Any:
    """A foreign key that takes its time."""
    time.sleep(0.01)
    return product["merchant"]


def failing(product: Any) -> Any:
    raise ValueError("no such thing")


@pytest.fixture
def stocked(world: World) -> World:
    """Merchants and products are there."""
    world.create(products=2, merchants=2, offers=1)
    world.append("merchants", merchants(5), TEXT, JSON)
    world.append("products", products(40, 5), TEXT, JSON)
    return world


@on_spark_too
def test_start_process_stop_and_start_again(engine: Engine, stocked: World) -> None:
    app = engine.streams(marketplace(), stocked.config())
    assert app.status == "created"
    app.start()
    assert app.status == "running"
    app.process_available()
    assert len(dict(app.store("offers").all())) == 40
    stocked.append("products", products(10, 5, first=100), TEXT, JSON)
    app.process_available()
    assert stocked.table("offers", TEXT, JSON) == joined(
        products(40, 5) + products(10, 5, first=100), merchants(5)
    )
    app.stop()
    assert app.status == "stopped"
    stocked.append("products", products(10, 5, first=200), TEXT, JSON)
    app.start()
    app.process_available()
    assert app.status == "running"
    app.stop()
    assert app.status == "stopped"
    assert len(stocked.table("offers", TEXT, JSON)) == 60
    if engine.session is not None:
        assert engine.session.range(3).count() == 3  # the session is the user's


def test_start_and_stop_twice_do_no_harm(engine: Engine, stocked: World) -> None:
    app = engine.streams(marketplace(), stocked.config())
    app.stop()
    app.start()
    app.start()
    app.stop()
    app.stop()
    assert app.status == "stopped"


def test_records_that_come_while_it_runs(engine: Engine, stocked: World) -> None:
    with engine.streams(marketplace(), stocked.config()) as app:
        app.start()
        for number in range(5):
            stocked.append("products", products(10, 5, first=100 * number, name="N"), TEXT, JSON)
            time.sleep(0.1)
        app.process_available()
        assert len(dict(app.store("offers").all())) == 40 + 40
        assert app.progress.lag == 0


def test_stop_waits_for_the_running_batch(engine: Engine, stocked: World) -> None:
    app = engine.streams(marketplace(foreign_key=slowly), stocked.config())
    log = BatchLog(stocked.state_dir)
    app.start()
    wait_for(lambda: log.last_batch() is not None)
    assert log.last_commit() is None
    app.stop()
    last, commit = log.last_batch(), log.last_commit()
    assert last is not None
    assert commit is not None
    assert commit.id == last.id
    assert len(stocked.table("offers", TEXT, JSON)) == 40


def test_whoever_waits_for_records_is_told_of_a_stop(engine: Engine, stocked: World) -> None:
    config = stocked.config(max_records_per_batch=4)
    app = engine.streams(marketplace(foreign_key=slowly), config)
    app.start()
    waiting, results = in_background(app.process_available)
    wait_for(lambda: app.progress.batch >= 0)
    app.stop()
    waiting.join(30)
    assert not waiting.is_alive()
    (error,) = results
    assert isinstance(error, cs.ConfigError)
    assert error.code == "CS-233"
    assert error.where == {"application": config.application_id}


def test_who_waits_for_a_topic_that_is_deleted_is_let_go(engine: Engine, world: World) -> None:
    """Only a pattern brings it in, so the application goes on without it; there is no batch that tells."""
    world.create(a1=1, a2=1, out=1)
    builder = cs.StreamsBuilder()
    builder.stream(re.compile("a."), cs.Consumed(key=TEXT, value=TEXT)).to("out")
    with engine.streams(builder.build(), world.config(trigger="3 seconds")) as app:
        app.start()
        world.append("a1", [("k", "v", 1)], TEXT, TEXT)
        app.process_available()
        wait_for(lambda: app._runner.life.waiters == 0)
        world.append("a2", [("k", "v", 2)], TEXT, TEXT)
        waiting, results = in_background(app.process_available)
        wait_for(lambda: app._runner.life.waiters > 0)
        shutil.rmtree(world.topics_dir / "a2")
        waiting.join(30)
        assert not waiting.is_alive()
        assert results == [None]


def test_topics_are_where_they_were_when_the_process_moves(
    engine: Engine, stocked: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stocked.root)
    config = replace(stocked.config(), topics_dir=stocked.topics_dir.relative_to(stocked.root))
    app = engine.streams(marketplace(), config)
    app.process_available()
    (stocked.root / "other").mkdir()
    monkeypatch.chdir("other")
    app.stop()
    stocked.append("products", products(10, 5, first=100), TEXT, JSON)
    app.process_available()
    app.stop()
    assert len(stocked.table("offers", TEXT, JSON)) == 50


def test_await_termination(engine: Engine, stocked: World) -> None:
    app = engine.streams(marketplace(), stocked.config())
    app.start()
    for timeout in (0.2, 0, "200 ms", timedelta(seconds=0.2)):
        assert app.await_termination(timeout=timeout) is False
    with pytest.raises(cs.ConfigError, match=r"CS-210\] timeout"):
        app.await_termination("soon")
    waiting, results = in_background(app.await_termination)
    app.stop()
    waiting.join(30)
    assert results == [True]
    assert app.await_termination() is True


@on_spark_too
def test_the_error_of_a_running_application_is_raised_once(engine: Engine, stocked: World) -> None:
    app = engine.streams(marketplace(foreign_key=failing), stocked.config())
    app.start()
    with pytest.raises(cs.ProcessingError, match="no such thing") as caught:
        app.await_termination(60)
    assert caught.value.code == "CS-501"
    assert app.status == "failed"
    for again in (app.start, app.process_available):
        with pytest.raises(cs.ConfigError) as refused:
            again()
        assert refused.value.code == "CS-233"
    app.stop()
    assert app.status == "failed"
    with engine.streams(marketplace(), stocked.config()) as mended:
        mended.process_available()
    assert len(stocked.table("offers", TEXT, JSON)) == 40


def test_the_error_leaves_a_with_block(engine: Engine, stocked: World) -> None:
    def run() -> None:
        with engine.streams(marketplace(foreign_key=failing), stocked.config()) as app:
            app.start()
            wait_for(lambda: app.status == "failed")

    with pytest.raises(cs.ProcessingError, match="no such thing"):
        run()


def test_a_failed_batch_is_not_planned_anew(engine: Engine, stocked: World) -> None:
    app = engine.streams(marketplace(foreign_key=failing), stocked.config())
    with pytest.raises(cs.ProcessingError):
        app.process_available()
    stocked.append("products", products(10, 5, first=100), TEXT, JSON)
    with pytest.raises(cs.ConfigError) as refused:
        app.process_available()
    assert refused.value.code == "CS-233"
    assert refused.value.where == {"application": app.config.application_id}
    app.stop()


@on_spark_too
def test_progress(engine: Engine, stocked: World) -> None:
    stocked.append("products", [("lost", {"name": "L"}, 5)], TEXT, JSON)
    stocked.append_wire("merchants", [(None, b"{}", 5)])
    told: list[Any] = []
    config = stocked.config(partitions=3, processing_errors="skip")
    app = engine.streams(marketplace(), config)
    app.on_progress(told.append)
    assert app.progress.batch == -1
    app.process_available()
    first = app.progress
    assert first.batch == 0
    assert first.rows == 40 + 1 + 5 + 1
    assert first.rows_in["products"] == 41
    assert first.rows_out["products.join(merchants)"] == 40
    assert first.rows_out[next(name for name in first.rows_out if name.endswith("to(offers)"))] == 40
    assert first.dropped == {"merchants: null-key": 1, "products.join(merchants): failed": 1}
    assert first.state_rows["offers"] == 40
    assert first.state_bytes["offers"] > 40 * 20
    assert {"plan", "run", "publish", "commit", "round 0", "round 1"} <= first.phases.keys()
    assert all(milliseconds >= 0 for milliseconds in first.phases.values())
    assert first.phases["run"] <= 1000 * first.seconds
    assert first.lag == 0
    # One new row lies in one partition; the rows of the others count on.
    stocked.append("products", products(1, 5, first=500), TEXT, JSON)
    app.process_available()
    second = app.progress
    assert (second.batch, second.rows, second.total_rows) == (1, 1, 48)
    assert second.state_rows["offers"] == 41
    assert second.dropped == {}
    assert second.total_dropped == first.dropped
    app.stop()
    assert app.progress == second
    assert told == [first, second]
    with engine.streams(marketplace(), config) as again:
        stocked.append("products", products(1, 5, first=501), TEXT, JSON)
        again.process_available()
        assert again.progress.batch == 2
        assert again.progress.state_rows["offers"] == 42


def test_a_listener_that_raises_is_named(engine: Engine, stocked: World) -> None:
    app = engine.streams(marketplace(), stocked.config())
    app.on_progress(lambda progress: progress.no_such_figure)
    with pytest.raises(cs.ProcessingError, match="no_such_figure") as caught:
        app.process_available()
    assert caught.value.code == "CS-591"
    app.stop()
    assert len(stocked.table("offers", TEXT, JSON)) == 40


def test_batches_are_bounded(engine: Engine, stocked: World) -> None:
    with engine.streams(marketplace(), stocked.config(max_records_per_batch=20)) as app:
        sizes: list[int] = []
        app.on_progress(lambda progress: sizes.append(progress.rows))
        app.process_available()
    assert sum(sizes) == 45
    assert max(sizes) <= 20
    assert stocked.table("offers", TEXT, JSON) == joined(products(40, 5), merchants(5))


def test_a_trigger_paces_the_batches(engine: Engine, stocked: World) -> None:
    times: list[float] = []
    with engine.streams(marketplace(), stocked.config(trigger="1 second")) as app:
        app.on_progress(lambda progress: times.append(time.monotonic() - progress.seconds))
        app.start()
        for number in range(3):
            stocked.append("products", products(5, 5, first=100 * number), TEXT, JSON)
            app.process_available()
    assert len(times) >= 2
    assert all(later - earlier > 0.8 for earlier, later in pairwise(times))


def test_new_topics_of_a_pattern_are_picked_up(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "REFRESH_SECONDS", 0.2)
    builder = cs.StreamsBuilder()
    orders = builder.stream(
        re.compile("orders-.*"), cs.Consumed(key=TEXT, value=TEXT, name="orders", offset_reset="latest")
    )
    orders.to("all-orders", cs.Produced(key=TEXT, value=TEXT))
    world.create(**{"orders-eu": 1, "all-orders": 1, "other": 1})
    world.append("orders-eu", [("before", "the first start", 0)])
    with engine.streams(builder.build(), world.config()) as app:
        app.process_available()
        world.append("orders-eu", [("e1", "eu", 1)])
        app.process_available()
        world.create(**{"orders-us": 2})
        world.append("orders-us", [("u1", "us", 2)], partitions=[1])
        world.append("other", [("x", "not mine", 2)])
        app.process_available()  # looks for topics itself
        assert world.table("all-orders") == {"e1": "eu", "u1": "us"}
        app.start()
        world.create(**{"orders-asia": 1})
        world.append("orders-asia", [("a1", "asia", 3)])
        app.process_available()
        assert world.table("all-orders") == {"e1": "eu", "u1": "us", "a1": "asia"}
    world.create(**{"orders-africa": 1})
    world.append("orders-africa", [("af1", "africa", 4)])
    with engine.streams(builder.build(), world.config()) as app:
        app.process_available()
        assert world.table("all-orders") == {"e1": "eu", "u1": "us", "a1": "asia", "af1": "africa"}
