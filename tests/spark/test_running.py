"""What is Spark's own in an application's life: functions with DataFrames, functions that are copied, a session's end.

The rest of it: ``tests/application/test_running.py``, on both engines.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

import crossstream as cs
from crossstream.errors import CrossStreamError
from tests.application.test_running import stocked
from tests.spark.marketplace import JSON, TEXT, marketplace, products
from tests.spark.world import World

__all__ = ["stocked"]

pytestmark = pytest.mark.spark


def test_an_interrupted_batch_is_repeated_by_the_next_call(spark: Any, world: World) -> None:
    """Ctrl-C in a cell of a notebook, and the cell run again."""
    world.create(orders=1, out=1)
    calls: list[tuple[int, list[str]]] = []

    def write(frame: Any, batch: int) -> None:
        calls.append((batch, sorted(row.key for row in frame.collect())))
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)

    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=TEXT))
    orders.for_each_batch(write)
    orders.to("out", cs.Produced(key=TEXT, value=TEXT))
    world.append("orders", [("a", "1", 1)])
    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        with pytest.raises(KeyboardInterrupt):
            app.process_available()
        world.append("orders", [("b", "1", 2)])
        app.process_available()
        assert app.status == "created"
    assert calls == [(0, ["a"]), (0, ["a"]), (1, ["b"])]
    assert [record.key for record in world.read("out")] == ["a", "b"]


def test_a_function_that_holds_a_lock_is_refused_before_anything_happens(spark: Any, stocked: World) -> None:
    lock = threading.Lock()

    def guarded(product: Any) -> Any:
        with lock:
            return product["merchant"]

    app = cs.SparkStreams(marketplace(foreign_key=guarded), stocked.config(), spark)
    for begin in (app.start, app.process_available):
        with pytest.raises(
            cs.TopologyError, match=r"foreign key of products\.join\(merchants\).*lock"
        ) as caught:
            begin()
        assert caught.value.code == "CS-112"
        assert "marketplace.py" in caught.value.where["line"]
    assert not list(stocked.state_dir.rglob("*.json"))
    with cs.SparkStreams(marketplace(), stocked.config(), spark) as mended:
        mended.process_available()
    assert len(stocked.table("offers", TEXT, JSON)) == 40


def test_a_session_that_was_stopped(sessions: Any, world: World) -> None:
    world.create(products=1, merchants=1)
    session = sessions.running()
    app = cs.SparkStreams(marketplace(), world.config(), session)
    app.process_available()
    session.stop()
    world.append("products", products(1, 5), TEXT, JSON)
    with pytest.raises(CrossStreamError):
        app.process_available()
    app.stop()
    # The lock is gone with the application.
    with cs.SparkStreams(marketplace(), world.config(), sessions.running()) as again:
        again.process_available()
