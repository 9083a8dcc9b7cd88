"""A log with wrong bytes in it: an error or other values, with either client, and the reader reads the next topic."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crossstream.dev.broker import BrokerInfo
from crossstream.errors import SourceError
from crossstream.kafka import KafkaConnection, client
from crossstream.kafka.log import KafkaLog
from tests.kafka.edges import both_edges
from tests.kafka.fixtures import new_topic, numbered, offsets_of, whole

pytestmark = [pytest.mark.kafka, *both_edges]

BATCH_HEADER = 61
"""Bytes before the records of a batch; among them are the offsets, which are right here."""


def segment(info: BrokerInfo, topic: str) -> Path:
    [found] = (info.properties_file.parent / "data" / f"{topic}-0").glob("*.log")
    return found


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_wrong_bytes_end_nothing_but_the_read(
    log: KafkaLog,
    broker: KafkaConnection,
    broker_info: BrokerInfo,
    codec: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "STUCK_FACTOR", 2)
    chance = random.Random(codec)
    writer = KafkaConnection(broker.bootstrap_servers, {"compression.type": codec}).writer()
    reader = KafkaConnection(broker.bootstrap_servers, patience_seconds=0.4).reader()
    good, codes = new_topic(log), set()
    writer.write(good, numbered(0, 100))
    for _ in range(4):
        topic = new_topic(log)
        writer.write(topic, numbered(0, 100))
        writer.flush()
        with segment(broker_info, topic).open("r+b") as file:
            size = file.seek(0, 2)
            for _ in range(3):
                file.seek(chance.randrange(BATCH_HEADER, size))
                file.write(chance.randbytes(2))
        try:
            list(reader.read(whole(log, topic), 1_000))
        except SourceError as error:
            codes.add(error.code)
        assert offsets_of(list(reader.read(whole(log, good), 1_000))) == list(range(100))
    assert codec == "none" or "CS-606" in codes
    assert codes <= {"CS-603", "CS-604", "CS-606"}
    writer.close()
    reader.close()
