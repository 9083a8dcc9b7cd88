"""An application on Kafka and Spark that is killed again and again writes each result once.

The results of a join of streams do not depend on how its input is cut into batches, so an undisturbed run has the same.
KILLS=200 makes it long.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crossstream.kafka.broker import BrokerInfo
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.producer import KafkaWriter
from crossstream.topics import OffsetRange, TopicPartition
from tests.faults.lives import kill, started
from tests.kafka.fixtures import records, rows_of
from tests.spark.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("KILLS", "12"))
KEYS = 200
TOPICS = ("views", "clicks", "visits")


@pytest.mark.parametrize("rows", [0, 10_000], ids=["shared", "alone"])
def test_killed_again_and_again(
    broker_info: BrokerInfo,
    log: KafkaLog,
    reader: KafkaReader,
    writer: KafkaWriter,
    tmp_path: Path,
    rows: int,
) -> None:
    for topic in TOPICS:
        log.create_topic(topic, 2)
    rng = Random(rows + 1)
    servers = {"SERVERS": broker_info.bootstrap_servers, "GUARANTEE": "exactly_once"}
    servers["APPLICATION"] = f"killed-{rows}"
    world = World(tmp_path / "killed")
    world.root.mkdir()
    now = 0
    try:
        for _ in range(KILLS):
            now = feed(writer, rng, now)
            with started(
                world, tmp_path / "log", records=400, topology="visits", rows=rows, **servers
            ) as process:
                assert process.stdout is not None
                for _ in range(rng.randrange(4)):
                    process.stdout.readline()
                time.sleep(rng.random() * 0.3)
                kill(process)
        feed(writer, rng, now + 60_000)  # closes the windows
        until_read(world, tmp_path, rows, servers, log)
        found = committed(reader, log)
        remake(log, broker_info, "visits")
        other = World(tmp_path / "undisturbed")
        other.root.mkdir()
        servers["APPLICATION"] = f"undisturbed-{rows}"
        until_read(other, tmp_path, rows, servers, log)
        expected = committed(reader, log)
    finally:
        for topic in TOPICS:
            remake(log, broker_info, topic, gone=True)
    assert found == expected
    assert max(found.values()) == 1
    assert len(found) > 100


def feed(writer: KafkaWriter, rng: Random, now: int) -> int:
    """A thousand records of both streams; each value once."""
    for topic in ("views", "clicks"):
        rows = []
        for number in range(500):
            at = now + number * 10
            rows.append((b"k%d" % rng.randrange(KEYS), b"%s-%d" % (topic[0].encode(), at), at))
        writer.write(topic, records(*rows))
    writer.flush()
    return now + 5_000


def until_read(world: World, folder: Path, rows: int, servers: dict[str, str], log: KafkaLog) -> None:
    """Runs the application until it has read everything."""
    ends = sum(log.end_offsets([TopicPartition(t, p) for t in TOPICS[:2] for p in range(2)]).values())
    with started(world, folder / "log", records=5_000, topology="visits", rows=rows, **servers) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + 120
        while consumed(world) < ends:
            assert time.monotonic() < deadline, (consumed(world), ends)
            time.sleep(0.2)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def consumed(world: World) -> int:
    from crossstream.storage.commit_log import BatchLog

    commit = BatchLog(world.state_dir).last_commit()
    if commit is None:
        return 0
    return sum(o for topics in commit.positions.values() for ps in topics.values() for o in ps.values())


def committed(reader: KafkaReader, log: KafkaLog) -> Counter[Sequence[Any]]:
    """Every result that readers of committed records see, and how often. No transaction is left open."""
    owners = [TopicPartition("visits", partition) for partition in range(2)]
    ends = log.end_offsets(owners)
    spans = [OffsetRange("visits", owner.partition, 0, ends[owner]) for owner in owners]
    rows = [row for span in spans for row in rows_of(list(reader.read(span, 10_000)))]
    return Counter((key, value, timestamp) for _, key, value, timestamp, _ in rows)


def remake(log: KafkaLog, info: BrokerInfo, topic: str, *, gone: bool = False) -> None:
    from tests.kafka.fixtures import delete

    delete(info.bootstrap_servers, topic)
    if not gone:
        log.create_topic(topic, 2)
