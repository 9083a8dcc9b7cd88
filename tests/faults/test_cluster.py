"""Two executors in processes of their own, with topics and state in a folder that both see; one is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyspark
import pytest

from crossstream.storage.commit_log import BatchLog
from crossstream.topics import TopicPartition
from tests.faults.lives import TOPICS, check_remains, make_market, records_keep_coming, started
from tests.spark.fixtures import importable_in_workers
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

MASTER = "local-cluster[2,1,1024]"


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """PySpark's own Spark, in a folder where the cluster may put its work."""
    home = tmp_path / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


def test_an_executor_is_killed(spark: Any, tmp_path: Path, spark_home: Path) -> None:
    importable_in_workers()
    world = make_market(World(tmp_path / "shared"))
    log = tmp_path / "stderr"
    with started(world, log, MASTER, records=1000, SPARK_HOME=str(spark_home)) as process:
        driver = psutil.Process(process.pid)
        with records_keep_coming(world, Random(5), pause=0.1) as given:
            wait_for_batches(world, 3)
            first = executors(driver)
            assert len(first) == 2
            wait_until(lambda: in_flight(world), "no batch runs")
            first[0].kill()
            wait_for_batches(world, len(BatchLog(world.state_dir).commits()) + 3)
        wait_until(lambda: caught_up(world), "the rest was not processed")
        assert process.poll() is None, log.read_text()[-3000:]
        assert {one.pid for one in executors(driver)} != {one.pid for one in first}
    entries = check_remains(spark, world, given, World(tmp_path / "undisturbed"))
    assert len(entries) >= 6


def executors(driver: psutil.Process) -> list[psutil.Process]:
    """The JVMs that run tasks."""
    found = []
    for child in driver.children(recursive=True):
        try:
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue  # gone while we looked
    return found


def wait_for_batches(world: World, count: int) -> None:
    wait_until(lambda: len(BatchLog(world.state_dir).commits()) >= count, f"no {count} batches")


def wait_until(what: Callable[[], bool], otherwise: str, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, otherwise
        time.sleep(0.005)


def in_flight(world: World) -> bool:
    """Whether a batch has been begun and not committed."""
    log = BatchLog(world.state_dir)
    begun, done = log.last_batch(), log.last_commit()
    return begun is not None and (done is None or begun.id > done.id)


def caught_up(world: World) -> bool:
    """Whether every record has been processed and committed."""
    commit = BatchLog(world.state_dir).last_commit()
    log = world.topics.log()
    counts = log.topics()
    ends = log.end_offsets([TopicPartition(topic, p) for topic in TOPICS for p in range(counts[topic])])
    return commit is not None and all(
        commit.positions[tp.topic][tp.topic][tp.partition] == end for tp, end in ends.items()
    )
