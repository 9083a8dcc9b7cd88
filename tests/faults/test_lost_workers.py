"""A worker that is killed does not end the application: the batch runs again, and its results are there once."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application import rounds
from crossstream.application.local import LocalRounds
from crossstream.spark.errors import heart, is_lost_worker, is_temporary
from tests.faults.one_process import streams
from tests.spark.world import World

TEXT, NUMBER = serdes.string(), serdes.int64()
FAILED = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: "
JOB = f"{FAILED}org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0 (TID 4): "
KILLED = f"{JOB}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
DAEMON = f"{JOB}org.apache.spark.SparkException: EOFException occurred while reading the port number"
EXECUTOR = f"{JOB}ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"
RAISED = (
    f"{JOB}org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    "ValueError: Python worker exited, says a record"
)
MEMORY = f"{JOB}java.lang.OutOfMemoryError: Java heap space"


def topology(world: World, value: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT)).map_values(value)
    counts = words.group_by_key().count(materialized=cs.Materialized(store="counts"))
    counts.to_stream().to("counts", cs.Produced(key=TEXT, value=NUMBER))
    return builder.build()


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path / "world")
    found.create(words=2, counts=2)
    found.append("words", [(f"k{n % 5}", "x", n) for n in range(40)])
    return found


def said_by_spark(self: Any, error: Exception) -> str | None:
    return heart(error) if is_lost_worker(error, "token") else None


def killed(patch: pytest.MonkeyPatch, times: int, text: str = KILLED) -> list[int]:
    """Lets the first ``times`` runs of a batch fail at their end; gives the batches that were run."""
    ran: list[int] = []
    run = LocalRounds.run

    def run_and_fail(self: Any, batch: Any, frame: Any = None) -> Any:
        done = run(self, batch, frame)
        ran.append(batch.id)
        if len(ran) <= times:
            raise RuntimeError(text)
        return done

    patch.setattr(LocalRounds, "run", run_and_fail)
    patch.setattr(LocalRounds, "lost_worker", said_by_spark)
    patch.setattr(rounds, "_PAUSES", (0.0, 0.0, 0.0))
    return ran


@pytest.mark.parametrize("text", [KILLED, DAEMON, EXECUTOR])
def test_the_batch_runs_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    ran = killed(monkeypatch, 3, text)
    with caplog.at_level(logging.WARNING), streams(topology(world, str), world.config()) as app:
        app.process_available()
        assert dict(app.store("counts").all()) == {f"k{n}": 8 for n in range(5)}
    assert (ran, caplog.text.count("is run again")) == ([0, 0, 0, 0], 3)
    assert sum(map(len, world.wire("counts"))) == 5, "each result is in the topic once"


def test_a_batch_that_ends_its_workers_each_time_fails_at_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = killed(monkeypatch, 100)
    with (
        pytest.raises(cs.ProcessingError, match="CS-590") as found,
        streams(topology(world, str), world.config()) as app,
    ):
        app.process_available()
    assert ran == [0, 0, 0, 0]
    assert is_temporary(found.value)


@pytest.mark.parametrize(("text", "temporary"), [(RAISED, False), (MEMORY, True)])
def test_other_errors_are_not_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch, text: str, temporary: bool
) -> None:
    ran = killed(monkeypatch, 100, text)
    with (
        pytest.raises(cs.ProcessingError, match="CS-590") as found,
        streams(topology(world, str), world.config()) as app,
    ):
        app.process_available()
    assert ran == [0]
    assert not is_lost_worker(RuntimeError(text), "token")
    assert is_temporary(found.value) == temporary


def killer(folder: Path) -> Any:
    """A function that kills the worker it runs in, once."""

    def value(text: str) -> str:
        try:
            (folder / "killed").touch(exist_ok=False)
        except FileExistsError:
            return text
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    return value


@pytest.mark.spark
def test_a_killed_worker_on_spark(spark: Any, world: World) -> None:
    with cs.SparkStreams(topology(world, killer(world.root)), world.config(), spark) as app:
        app.process_available()
        assert dict(app.store("counts").all()) == {f"k{n}": 8 for n in range(5)}
    assert (world.root / "killed").exists()
    assert sum(map(len, world.wire("counts"))) == 5
