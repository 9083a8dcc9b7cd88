"""The application is killed with all its processes, again and again, while records keep coming.

Afterwards its batches lie end to end, and its state and its output topic are, byte for byte, those of an
application that took the same batches undisturbed.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from tests.faults.application import visits
from tests.faults.lives import check_remains, make_market, records_keep_coming, started
from tests.spark.fixtures import importable_in_workers
from tests.spark.marketplace import marketplace
from tests.spark.world import ALONE, SPREAD, World

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def market(tmp_path: Path) -> World:
    importable_in_workers()
    return make_market(World(tmp_path / "killed"))


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.nightly)])
def test_killed_again_and_again(spark: Any, market: World, tmp_path: Path, kills: int) -> None:
    rng = Random(2024)
    with records_keep_coming(market, Random(7)) as given:
        for number in range(kills):
            with started(market, tmp_path / "stderr") as process:
                wait_for_a_moment(process, rng)
                if number == kills // 2:  # only the driver: the JVM and the workers have to notice
                    process.kill()
                    process.wait()
    assert len(BatchLog(market.state_dir).commits()) > kills, "the application got nowhere"
    with cs.SparkStreams(marketplace(), market.config(retain_batches=100_000), spark) as app:
        app.process_available()
    check_remains(spark, market, given, World(tmp_path / "undisturbed"))


@pytest.mark.parametrize("lives", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_join_of_streams_killed(spark: Any, tmp_path: Path, lives: int) -> None:
    """Every pair and every row alone is there once, whatever was repeated: as if one batch had taken all."""
    importable_in_workers()
    world, rng = World(tmp_path / "visits"), Random(11)
    world.create(views=2, clicks=2, visits=2)
    moments = sorted(rng.randrange(400_000) for _ in range(4_000))
    given = [
        (
            rng.choice(["views", "clicks"]),
            f"k{rng.randrange(80)}",
            f"v{n}",
            max(0, moment - rng.randrange(3_000)),
        )
        for n, moment in enumerate(moments)
    ]
    for topic in ("views", "clicks"):
        world.append(topic, [(key, value, ts) for where, key, value, ts in given if where == topic])
    for rows in (SPREAD, ALONE, SPREAD, ALONE)[:lives]:
        with started(world, tmp_path / "stderr", records=150, topology="visits", rows=rows) as process:
            wait_for_a_moment(process, rng)
    assert 0 < len(BatchLog(world.state_dir).commits()) < len(given) / 150
    with cs.SparkStreams(visits(), world.config(), spark) as app:
        app.process_available()
    once = World(tmp_path / "once")
    once.create(views=2, clicks=2, visits=2)
    for topic in ("views", "clicks"):
        once.append(topic, [(key, value, ts) for where, key, value, ts in given if where == topic])
    with cs.SparkStreams(visits(), once.config(), spark) as app:
        app.process_available()
    assert results(world) == results(once)
    assert sum(value.endswith(" None") for _, value, _ in results(world)) > 50
    assert sum(not value.endswith(" None") for _, value, _ in results(world)) > 500


def results(world: World) -> list[tuple[str, str, int]]:
    return sorted((output.key, output.value, output.ts) for output in world.read("visits"))


def wait_for_a_moment(process: subprocess.Popen[str], rng: Random) -> None:
    """Some batches, and then a part of the next one: its plan, its run, its commit."""
    assert process.stdout is not None
    batch = 1.0
    for _ in range(rng.randrange(6)):
        began = time.monotonic()
        assert process.stdout.readline().startswith("batch ")
        batch = time.monotonic() - began
    time.sleep(rng.uniform(0, 1.5 * min(batch, 1.0)))


def test_nothing_outlives_a_killed_driver(market: World, tmp_path: Path) -> None:
    with started(market, tmp_path / "stderr") as process:
        children = psutil.Process(process.pid).children(recursive=True)
        assert any("java" in child.name() for child in children)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
