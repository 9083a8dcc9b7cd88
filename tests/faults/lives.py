"""What tests of killed processes share: starting and killing an application, feeding it, judging its remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import crossstream as cs
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import BatchEntry
from crossstream.topics import OffsetRange
from tests.faults.application import PARTITIONS
from tests.spark.marketplace import JSON, TEXT, Change, joined, marketplace, random_changes
from tests.spark.meanwhile import meanwhile
from tests.spark.world import SPREAD, World

TOPICS = ("products", "merchants")


def make_market(world: World) -> World:
    """The topics of the marketplace, empty."""
    world.create(products=2, merchants=2, offers=2)
    return world


@contextmanager
def started(
    world: World,
    log: Path,
    master: str = "local[2]",
    records: int = 100,
    topology: str = "marketplace",
    rows: int = SPREAD,
    **environment: str,
) -> Iterator[subprocess.Popen[str]]:
    """The application, running, in a session (and so a process group) of its own.

    ``records``: in a batch; ``rows``: what one task does alone.
    """
    module = ["-m", "tests.faults.application"]
    command = [sys.executable, *module, str(world.root), master, str(records), topology, str(rows)]
    with launched(command, log, **environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n", log.read_text()[-3000:]
        yield process


@contextmanager
def launched(command: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, whose errors are added to ``log``. All of it is killed in the end."""
    with open(log, "a") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **environment},
        )
    try:
        yield process
    finally:
        kill(process)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def kill(process: subprocess.Popen[str]) -> None:
    """Kills the whole group: driver, JVM and workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


@contextmanager
def records_keep_coming(world: World, rng: Random, pause: float = 0.03) -> Iterator[dict[str, list[Change]]]:
    """Appends some changes every ``pause`` seconds; gives what has been appended."""
    given: dict[str, list[Change]] = {topic: [] for topic in TOPICS}

    def feed() -> None:
        for topic, changes in random_changes(rng, 6, 60, 10).items():
            if changes:
                world.append(topic, changes, TEXT, JSON)
                given[topic] += changes

    with meanwhile(feed, pause):
        yield given


def check_remains(
    spark: Any, world: World, given: Mapping[str, list[Change]], undisturbed: World
) -> list[BatchEntry]:
    """No record is lost; state and output are those of an application that took the same batches undisturbed."""
    entries = check_batches(world)
    wanted = joined(given["products"], given["merchants"])
    assert world.table("offers", TEXT, JSON) == wanted
    assert dict(cs.open_store(world.state_dir, "offers").all()) == wanted
    replay(spark, world, undisturbed, entries)
    assert world.wire("offers") == undisturbed.wire("offers")
    return entries


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


def replay(spark: Any, world: World, fresh: World, entries: list[BatchEntry]) -> None:
    """The same batches in another world, without any disturbance."""
    make_market(fresh)
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
