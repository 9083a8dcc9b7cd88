"""`sys.exit()` in a function that the application calls: it ends the thread, so the application has failed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import crossstream as cs
from crossstream import serdes
from tests.faults.one_process import streams
from tests.spark.world import World

TEXT = serdes.string()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create(rows=1, out=1)
    made.append("rows", [("a", "v", 1)])
    return made


def topology() -> cs.Topology:
    builder = cs.StreamsBuilder()
    rows = builder.stream("rows", cs.Consumed(key=TEXT, value=TEXT))
    rows.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def test_in_a_listener_of_a_running_application(world: World) -> None:
    with streams(topology(), world.config()) as app:
        app.on_progress(lambda progress: sys.exit(3))
        app.start()
        with pytest.raises(cs.ProcessingError) as caught:
            app.await_termination(60)
        assert (caught.value.code, "SystemExit: 3" in caught.value.what) == ("CS-591", True)
        assert app.status == "failed"
        with pytest.raises(cs.ConfigError):
            app.start()
    with streams(topology(), world.config()) as app:
        app.process_available()
    assert [record.key for record in world.read("out")] == ["a"]


def test_in_the_main_thread_it_ends_the_program(world: World) -> None:
    with streams(topology(), world.config()) as app:
        app.on_progress(lambda progress: sys.exit(3))
        with pytest.raises(SystemExit):
            app.process_available()
