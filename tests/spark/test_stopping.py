"""Calls that meet where DataFrames are read or given to a function: their batches run in threads of Spark's.

All others: ``tests/application/test_stopping.py``, on both engines.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.application.test_stopping import batches, stopped_early, ten
from tests.spark.world import TEXT, World

__all__ = ["ten"]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("started", [False, True])
def test_a_function_of_batches_stops_the_application(spark: Any, ten: World, started: bool) -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    given: list[int] = []

    def write(records: Any, batch: int) -> None:
        given.append(records.count())
        app.stop()

    stream.for_each_batch(write)
    app = cs.SparkStreams(builder.build(), ten.config(max_records_per_batch=4), spark)
    for number in range(3):
        if started:
            app.start()
            assert app.await_termination(60)
        elif number < 2:
            stopped_early(app.process_available)
        else:
            app.process_available()
        assert app.status == "stopped"
    assert sum(given) == 10
    assert len(given) == 3
    assert BatchLog(ten.state_dir).newest().id == 2


@pytest.mark.parametrize("asked", ["process_available", "await_termination"])
def test_what_a_function_of_batches_must_not_ask_for(spark: Any, ten: World, asked: str) -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    stream.for_each_batch(lambda records, batch: getattr(app, asked)())
    app = cs.SparkStreams(builder.build(), ten.config(), spark)
    with pytest.raises(cs.ConfigError, match=asked + r"\(\) was called by") as caught:
        app.process_available()
    assert caught.value.code == "CS-233"
    assert str(caught.value.where["line"]).startswith(__file__)
    app.stop()


def test_a_batch_of_rows_must_not_wait_for_the_end(spark: Any, world: World) -> None:
    """It runs in a thread of Spark's, not in the one that would end."""
    app = cs.SparkStreams(frames(spark, world), world.config(), spark)
    app.on_progress(lambda progress: app.await_termination(60) and None)
    app.start()
    with pytest.raises(cs.ProcessingError, match=r"CS-233.*await_termination\(\) was called by"):
        app.await_termination(60)
    with suppress(cs.CrossStreamError):
        app.stop()


def frames(spark: Any, world: World, topics: tuple[str, ...] = ()) -> cs.Topology:
    """Three micro-batches of a row each, and perhaps a topic, to ``out``."""
    world.create(out=1, **dict.fromkeys(topics, 1))
    folder = world.root / "rows"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.json").write_text(f'{{"key": "k{number}", "value": "v{number}"}}\n')
    reader = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
    builder = cs.StreamsBuilder()
    stream = builder.stream_from(reader.json(str(folder)), cs.Consumed(name="rows", key=TEXT, value=TEXT))
    for topic in topics:
        stream = stream.merge(builder.stream(topic, cs.Consumed(key=TEXT, value=TEXT)))
    stream.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@pytest.mark.parametrize("started", [False, True])
def test_a_listener_stops_what_reads_a_frame(spark: Any, world: World, started: bool) -> None:
    app = cs.SparkStreams(frames(spark, world), world.config(), spark)
    numbers = batches(app)
    app.on_progress(lambda progress: app.stop() if progress.batch == 0 else None)
    if started:
        app.start()
        assert app.await_termination(60)
    else:
        stopped_early(app.process_available)
        assert len(world.table("out")) == 1
    assert app.status == "stopped"
    app.process_available()
    app.stop()
    assert world.table("out") == {f"k{number}": f"v{number}" for number in range(3)}
    assert len(world.read("out")) == 3
    assert numbers == [0, 1, 2]


def test_a_topic_that_grows_while_frames_are_read(spark: Any, world: World) -> None:
    app = cs.SparkStreams(frames(spark, world, ("words",)), world.config(), spark)
    app.on_progress(lambda progress: world.append("words", [(f"w{progress.batch}", "v", 1)]))
    app.process_available()
    assert {f"k{number}" for number in range(3)} == world.table("out").keys()
    app.process_available()
    assert {"w0", "w1", "w2"} <= world.table("out").keys()
    app.stop()


@pytest.mark.parametrize("interval", ["60 seconds", None])
def test_who_stops_keeps_the_state_until_the_rows_are_through(
    spark: Any, world: World, interval: str | None
) -> None:
    """A batch of DataFrame rows runs beside the thread that is stopped; nobody else may have the state meanwhile."""
    begun, go_on = threading.Event(), threading.Event()

    def write(records: Any, batch: int) -> None:
        begun.set()
        go_on.wait(60)

    folder = world.root / "slow"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"key": "a", "value": "x"}))
    rows = spark.readStream.schema("key string, value string").json(str(folder))
    builder = cs.StreamsBuilder()
    read = builder.stream_from(rows, cs.Consumed(name="rows", key=TEXT, value=TEXT))
    read.for_each_batch(write)
    read.to("out", cs.Produced(key=TEXT, value=TEXT))
    world.create(out=1)
    settings = {} if interval is None else {"trigger": interval}
    app = cs.SparkStreams(builder.build(), world.config(**settings), spark)
    app.start()
    assert begun.wait(60)
    stopping = threading.Thread(target=app.stop)
    stopping.start()
    time.sleep(0.5)
    other = cs.SparkStreams(builder.build(), world.config(), spark)
    with pytest.raises(cs.StateError) as caught:
        other.process_available()
    assert caught.value.code == "CS-720"
    assert stopping.is_alive()
    go_on.set()
    stopping.join(60)
    assert (app.status, app.progress.batch) == ("stopped", 0)
    assert world.table("out") == {"a": "x"}
