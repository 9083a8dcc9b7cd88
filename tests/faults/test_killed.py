"""The application is killed with all its processes, again and again, while records keep coming.

Afterwards its batches lie end to end, and its state and its output topic are, byte for byte, those of an
application that took the same batches undisturbed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

import crossstream as cs
from crossstream.engine.log import BatchEntry, BatchLog
from crossstream.topics import OffsetRange
from tests.faults.application import PARTITIONS
from tests.spark.fixtures import importable_in_workers
from tests.spark.marketplace import JSON, TEXT, Change, joined, marketplace, random_changes
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = 10
TOPICS = ("products", "merchants")


@pytest.fixture
def market(tmp_path: Path) -> World:
    importable_in_workers()
    world = World(tmp_path / "killed")
    world.create(products=2, merchants=2, offers=2)
    return world


@contextmanager
def started(world: World, log: Path) -> Iterator[subprocess.Popen[str]]:
    """The application, running, in a session (and so a process group) of its own."""
    command = [sys.executable, "-m", "tests.faults.application", str(world.root)]
    with open(log, "a") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n", log.read_text()[-3000:]
        yield process
    finally:
        kill(process)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def wait_for_a_moment(process: subprocess.Popen[str], rng: Random) -> None:
    """Some batches, and then a part of the next one: its plan, its run, its commit."""
    assert process.stdout is not None
    batch = 1.0
    for _ in range(rng.randrange(6)):
        began = time.monotonic()
        assert process.stdout.readline().startswith("batch ")
        batch = time.monotonic() - began
    time.sleep(rng.uniform(0, 1.5 * min(batch, 1.0)))


def kill(process: subprocess.Popen[str]) -> None:
    """Kills the whole group: driver, JVM and workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


@contextmanager
def records_keep_coming(world: World, rng: Random) -> Iterator[dict[str, list[Change]]]:
    """Appends changes all the time; gives what has been appended."""
    given: dict[str, list[Change]] = {topic: [] for topic in TOPICS}
    stop = threading.Event()

    def feed() -> None:
        while not stop.wait(0.03):
            for topic, changes in random_changes(rng, 6, 60, 10).items():
                if changes:
                    world.append(topic, changes, TEXT, JSON)
                    given[topic] += changes

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield given
    finally:
        stop.set()
        thread.join()


def test_killed_ten_times(spark: Any, market: World, tmp_path: Path) -> None:
    rng = Random(2024)
    last = [-1]
    with records_keep_coming(market, Random(7)) as given:
        for number in range(KILLS):
            with started(market, tmp_path / "stderr") as process:
                wait_for_a_moment(process, rng)
                if number == KILLS // 2:  # only the driver: the JVM and the workers have to notice
                    process.kill()
                    process.wait()
            last.append(len(BatchLog(market.state_dir).commits()) - 1)
    assert last == sorted(last)
    assert last[-1] > KILLS, "the application got nowhere"
    with cs.SparkStreams(marketplace(), market.config(retain_batches=100_000), spark) as app:
        app.process_available()
    entries = check_batches(market)
    wanted = joined(given["products"], given["merchants"])
    assert market.table("offers", TEXT, JSON) == wanted
    assert dict(cs.open_store(market.state_dir, "offers").all()) == wanted
    undisturbed = replayed(spark, market, World(tmp_path / "undisturbed"), entries)
    assert market.wire("offers") == undisturbed.wire("offers")


def check_batches(world: World) -> list[BatchEntry]:
    """Every batch was committed, and together they hold every record once; gives them in order."""
    log = BatchLog(world.state_dir)
    ids = log.commits()
    assert ids == list(range(len(ids)))
    entries = [log.batch(number) for number in ids]
    positions: dict[tuple[str, int], int] = {}
    for entry in entries:
        for span in entry.ranges:
            place = (span.topic, span.partition)
            assert span.start == positions.get(place, 0), f"batch {entry.id} of {place}"
            positions[place] = span.end
    held = {(topic, p): len(rows) for topic in TOPICS for p, rows in enumerate(world.wire(topic)) if rows}
    assert positions == held
    return entries


def replayed(spark: Any, world: World, fresh: World, entries: list[BatchEntry]) -> World:
    """The same batches in another world, without any disturbance."""
    fresh.create(products=2, merchants=2, offers=2)
    reader, writer = world.topics.reader(), fresh.topics.writer()
    with cs.SparkStreams(marketplace(), fresh.config(partitions=PARTITIONS), spark) as app:
        for entry in entries:
            for span in entry.ranges:
                for records in reader.read(
                    OffsetRange(span.topic, span.partition, span.start, span.end), 10_000
                ):
                    writer.write(span.topic, records, [span.partition] * records.num_rows)
            writer.flush()
            app.process_available()
            assert app.progress.batch == entry.id
    return fresh


def test_nothing_outlives_a_killed_driver(market: World, tmp_path: Path) -> None:
    with started(market, tmp_path / "stderr") as process:
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("java" in child.name() for child in children)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
