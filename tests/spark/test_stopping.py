"""Calls that meet: `stop`, `start` and `process_available` from several threads, and from what a batch itself calls."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.spark.test_running import in_background, wait_for
from tests.spark.world import TEXT, World

pytestmark = pytest.mark.spark


def slowly(value: str) -> str:
    time.sleep(0.05)
    return value.upper()


def upper(function: Callable[[str], str] = str.upper) -> cs.Topology:
    """``words``, in capitals, to ``loud``."""
    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    words.map_values(function).to("loud", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def words(count: int, first: int = 0) -> list[tuple[str, str, int]]:
    return [(f"k{n}", f"v{n}", n) for n in range(first, first + count)]


def loud(count: int) -> list[tuple[str, str]]:
    return [(f"k{n}", f"V{n}") for n in range(count)]


def found(world: World) -> list[tuple[Any, Any]]:
    return sorted(
        ((record.key, record.value) for record in world.read("loud")), key=lambda row: int(row[0][1:])
    )


@pytest.fixture
def ten(world: World) -> World:
    """Ten records wait."""
    world.create(words=1, loud=1)
    world.append("words", words(10))
    return world


def batches(app: cs.SparkStreams) -> list[int]:
    """The numbers of the batches that are told of from now on."""
    numbers: list[int] = []
    app.on_progress(lambda progress: numbers.append(progress.batch))
    return numbers


def stopped_early(act: Callable[[], None]) -> None:
    with pytest.raises(cs.ConfigError) as caught:
        act()
    assert caught.value.code == "CS-233"


def test_a_listener_stops_an_application_that_was_not_started(spark: Any, ten: World) -> None:
    app = cs.SparkStreams(upper(), ten.config(max_records_per_batch=2), spark)
    numbers = batches(app)
    app.on_progress(lambda progress: app.stop() if progress.batch == 1 else None)
    stopped_early(app.process_available)
    assert app.status == "stopped"
    assert numbers == [0, 1]
    assert found(ten) == loud(4)
    app.process_available()
    assert found(ten) == loud(10)
    app.stop()
    assert app.status == "stopped"
    with cs.SparkStreams(upper(), ten.config(), spark) as other:
        other.process_available()  # nobody holds the state
    assert found(ten) == loud(10)


def test_a_stop_in_the_last_batch_interrupts_nothing(spark: Any, ten: World) -> None:
    app = cs.SparkStreams(upper(), ten.config(), spark)
    app.on_progress(lambda progress: app.stop())
    app.process_available()
    assert app.status == "stopped"
    assert found(ten) == loud(10)


def test_a_listener_stops_a_started_application(spark: Any, ten: World) -> None:
    app = cs.SparkStreams(upper(), ten.config(max_records_per_batch=2), spark)
    numbers = batches(app)
    app.on_progress(lambda progress: app.stop() if progress.batch == 1 else None)
    app.start()
    stopped_early(app.process_available)
    assert app.await_termination(60)
    assert app.status == "stopped"
    assert numbers == [0, 1]
    app.process_available()
    app.start()
    app.process_available()
    app.stop()
    assert numbers == [0, 1, 2, 3, 4]
    assert found(ten) == loud(10)


def test_what_a_listener_stops_is_started_again_at_once(spark: Any, ten: World) -> None:
    app = cs.SparkStreams(upper(), ten.config(max_records_per_batch=2), spark)
    numbers = batches(app)
    seen: list[str] = []

    def stop_once(progress: Any) -> None:
        if not seen:
            app.stop()
            seen.append(app.status)
            time.sleep(0.2)

    app.on_progress(stop_once)
    app.start()
    wait_for(lambda: bool(seen))
    app.start()
    assert (seen, app.status) == (["stopping"], "running")
    app.process_available()
    app.stop()
    assert found(ten) == loud(10)
    assert numbers == [0, 1, 2, 3, 4]


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


def test_another_thread_stops_an_application_that_was_not_started(spark: Any, ten: World) -> None:
    app = cs.SparkStreams(upper(slowly), ten.config(max_records_per_batch=2), spark)
    log = BatchLog(ten.state_dir)
    numbers = batches(app)
    working, results = in_background(app.process_available)
    waiting, others = in_background(app.process_available)
    wait_for(lambda: log.last_batch() is not None)
    app.stop()
    for thread in (working, waiting):
        thread.join(60)
        assert not thread.is_alive()
    assert [error.code for error in results + others] == ["CS-233", "CS-233"]
    assert app.status == "stopped"
    last, commit = log.last_batch(), log.last_commit()
    assert last is not None
    assert commit is not None
    assert last.id == commit.id
    assert numbers == list(range(len(numbers)))
    assert len(numbers) < 5
    app.process_available()
    app.stop()
    assert found(ten) == loud(10)
    assert numbers == [0, 1, 2, 3, 4]


def test_threads_that_process_the_same_records(spark: Any, ten: World) -> None:
    app = cs.SparkStreams(upper(), ten.config(max_records_per_batch=3), spark)
    numbers = batches(app)

    def at_once() -> None:
        calls = [in_background(app.process_available) for _ in range(3)]
        for thread, _ in calls:
            thread.join(120)
        assert [results for _, results in calls] == [[None]] * 3

    at_once()  # each would open the state
    ten.append("words", words(20, first=10))
    at_once()
    app.stop()
    assert found(ten) == loud(30)
    assert numbers == list(range(len(numbers)))


def test_an_application_is_started_while_it_processes(spark: Any, ten: World) -> None:
    app = cs.SparkStreams(upper(slowly), ten.config(max_records_per_batch=2), spark)
    numbers = batches(app)
    working, results = in_background(app.process_available)
    wait_for(lambda: bool(numbers))
    starts = [in_background(app.start) for _ in range(2)]
    for thread, _ in starts:
        thread.join(120)
    assert app.status == "running"
    working.join(60)
    ten.append("words", words(2, first=10))
    calls = [in_background(app.process_available) for _ in range(3)]
    for thread, _ in calls:
        thread.join(120)
    app.stop()
    assert results == [None]
    assert [given for _, given in starts + calls] == [[None]] * 5
    assert found(ten) == loud(12)
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("asked", ["process_available", "start", "await_termination"])
def test_what_a_listener_must_not_ask_for(spark: Any, ten: World, asked: str, started: bool) -> None:
    app = cs.SparkStreams(upper(), ten.config(), spark)
    app.on_progress(lambda progress: getattr(app, asked)())

    def run() -> None:
        if started:
            app.start()
        app.process_available()
        app.stop()

    if started and asked == "start":
        run()  # it runs, so there is nothing to do
    else:
        with pytest.raises(cs.ProcessingError, match=r"CS-233.*\(\) was called by"):
            run()
    assert found(ten) == loud(10)
    app.stop()


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
