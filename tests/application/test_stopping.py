"""Calls that meet: `stop`, `start` and `process_available` from several threads, and from what a batch itself calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.application.engines import Engine
from tests.application.waiting import in_background, wait_for
from tests.spark.world import TEXT, World


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


def test_a_listener_stops_an_application_that_was_not_started(engine: Engine, ten: World) -> None:
    app = engine.streams(upper(), ten.config(max_records_per_batch=2))
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
    with engine.streams(upper(), ten.config()) as other:
        other.process_available()  # nobody holds the state
    assert found(ten) == loud(10)


def test_a_stop_in_the_last_batch_interrupts_nothing(engine: Engine, ten: World) -> None:
    app = engine.streams(upper(), ten.config())
    app.on_progress(lambda progress: app.stop())
    app.process_available()
    assert app.status == "stopped"
    assert found(ten) == loud(10)


def test_a_listener_stops_a_started_application(engine: Engine, ten: World) -> None:
    app = engine.streams(upper(), ten.config(max_records_per_batch=2))
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


def test_what_a_listener_stops_is_started_again_at_once(engine: Engine, ten: World) -> None:
    app = engine.streams(upper(), ten.config(max_records_per_batch=2))
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


def test_another_thread_stops_an_application_that_was_not_started(engine: Engine, ten: World) -> None:
    app = engine.streams(upper(slowly), ten.config(max_records_per_batch=2))
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


def test_threads_that_process_the_same_records(engine: Engine, ten: World) -> None:
    app = engine.streams(upper(), ten.config(max_records_per_batch=3))
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


def test_an_application_is_started_while_it_processes(engine: Engine, ten: World) -> None:
    app = engine.streams(upper(slowly), ten.config(max_records_per_batch=2))
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
def test_what_a_listener_must_not_ask_for(engine: Engine, ten: World, asked: str, started: bool) -> None:
    app = engine.streams(upper(), ten.config())
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
