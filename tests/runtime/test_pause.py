"""`pause` and `resume`: no batch begins in between (KIP-834)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.inputs import TopicInputs
from tests.application.waiting import wait_for
from tests.faults.one_process import streams
from tests.spark.world import World

TEXT = serdes.string()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create(words=1, loud=1)
    append(made, "a")
    return made


def append(world: World, *keys: str) -> None:
    world.append("words", [(key, "v", 1) for key in keys])


def loud() -> cs.Topology:
    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    counts = words.group_by_key().count(materialized=cs.Materialized(store="counts"))
    counts.to_stream().to("loud", cs.Produced(key=TEXT, value=serdes.int64()))
    return builder.build()


def keys(world: World) -> list[str]:
    return [record.key for record in world.read("loud", TEXT, serdes.int64())]


def refused(app: cs.SparkStreams) -> None:
    with pytest.raises(cs.ConfigError, match=r"paused") as caught:
        app.process_available()
    assert (caught.value.code, caught.value.next) == ("CS-233", "call resume(), then process_available()")


def test_a_started_application_is_paused_and_resumed(world: World) -> None:
    with streams(loud(), world.config()) as app:
        app.start()
        app.process_available()
        app.pause()
        assert (app.status, app.is_paused) == ("paused", True)
        batch = app.progress.batch
        append(world, "b")
        refused(app)
        assert not app.await_termination(0.3)
        assert (app.progress.batch, keys(world), app.store("counts").get("a")) == (batch, ["a"], 1)
        app.resume()
        assert (app.status, app.is_paused) == ("running", False)
        app.process_available()
        assert keys(world) == ["a", "b"]


def test_nothing_written_after_a_pause_is_read_however_the_loop_stands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = TopicInputs.refresh
    pauses = [True]

    def pausing(inputs: TopicInputs) -> None:
        if app.progress.batch == 0 and pauses:  # the loop has looked for a pause just before
            pauses.clear()
            app.pause()
            append(world, "b")
        refresh(inputs)

    monkeypatch.setattr(TopicInputs, "refresh", pausing)
    with streams(loud(), world.config()) as app:
        app.start()
        wait_for(lambda: app.is_paused)
        assert not app.await_termination(0.3)
        assert (app.progress.batch, keys(world)) == (0, ["a"])
        app.resume()
        wait_for(lambda: keys(world) == ["a", "b"])


def test_a_paused_application_starts_paused_and_stops(world: World) -> None:
    with streams(loud(), world.config()) as app:
        app.pause()
        assert (app.status, app.is_paused) == ("created", True)
        app.start()
        assert app.status == "paused"
        app.stop()
        assert (app.status, app.is_paused, keys(world)) == ("stopped", True, [])
        app.resume()
        app.process_available()
        assert keys(world) == ["a"]


def test_a_call_that_processes_what_there_is_ends_with_a_pause(world: World) -> None:
    append(world, "b", "c")
    with streams(loud(), world.config(max_records_per_batch=1)) as app:
        app.on_progress(lambda progress: app.pause() if progress.batch == 1 else None)
        refused(app)
        assert (keys(world), app.status) == (["a", "b"], "created")
        app.resume()
        app.process_available()
        assert keys(world) == ["a", "b", "c"]


def test_who_waits_for_a_started_application_hears_of_a_pause(world: World) -> None:
    begun, go = threading.Event(), threading.Event()

    def listen(progress: object) -> None:
        begun.set()
        go.wait(10)

    with streams(loud(), world.config()) as app:
        app.on_progress(listen)
        app.start()
        assert begun.wait(10)
        append(world, "b")
        waiting = threading.Thread(target=lambda: refused(app))
        waiting.start()
        wait_for(lambda: app._runner.life.waiters > 0)
        app.pause()
        waiting.join(10)
        assert not waiting.is_alive()
        go.set()


@pytest.mark.parametrize("paused", [True, False])
def test_a_pause_is_no_silence(world: World, paused: bool) -> None:
    """Records that wait for stream time to move wait on after a pause."""
    with streams(loud(), world.config(idle_after="1 hour")) as app:
        app.start()
        app.process_available()
        engine = app._runner.loop
        assert engine is not None
        engine._listener.since = before = 7
        if paused:
            app.pause()
            wait_for(lambda: engine._listener.since > before)
        assert (engine._listener.since > before) == paused
