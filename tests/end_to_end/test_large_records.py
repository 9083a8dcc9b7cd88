"""Bad records about as large as their topic allows: dead letters have headers besides, and must fit all the same."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import crossstream as cs
from crossstream import serdes
from crossstream.dev.broker import BrokerInfo
from crossstream.kafka.log import KafkaLog
from tests.end_to_end.clients import consume_table, messages, produce

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

LARGE = random.Random(1).randbytes(1_048_400)
"""No JSON, and 188 bytes less than a record may have; it cannot be compressed."""


def passing_on(source: str, target: str) -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.stream(source, cs.Consumed(key=serdes.string(), value=serdes.json())).to(target)
    return builder.build()


@pytest.mark.parametrize("spills", [False, True])
def test_a_bad_record_as_large_as_its_topic_allows(
    spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path, spills: bool
) -> None:
    """The dead letters have a topic of the same limit, the default one."""
    servers, name = broker_info.bootstrap_servers, f"large-{spills}"
    for topic in (name, f"{name}-out", f"{name}-dead"):
        log.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 2_000_000})
    producer.produce(name, LARGE, b"big", timestamp=7, headers=[("trace", b"t1")])
    assert producer.flush(30) == 0
    produce(servers, name, [("small", {"n": 1})])
    spill = tmp_path / "spilled" if spills else None
    config = cs.StreamsConfig(
        application_id=name,
        bootstrap_servers=servers,
        state_dir=tmp_path / "state",
        deserialization_errors=cs.DeadLetter(f"{name}-dead", spill=spill)
        if spills
        else cs.DeadLetter(f"{name}-dead"),
    )
    with cs.SparkStreams(passing_on(name, f"{name}-out"), config, spark) as app:
        app.process_available()
    assert consume_table(servers, f"{name}-out") == {"small": {"n": 1}}

    [letter] = messages(servers, f"{name}-dead")
    headers = dict(letter.headers())
    assert (letter.key(), letter.timestamp()[1], headers["trace"]) == (b"big", 7, b"t1")
    assert LARGE.startswith(letter.value())
    assert len(letter.value()) > 1_000_000
    assert headers["crossstream.value-truncated"] == b"1048400"
    assert headers["crossstream.offset"] == b"0"
    if spill is None:
        assert "crossstream.spilled" not in headers
        return
    [file] = spill.iterdir()
    assert headers["crossstream.spilled"].decode() == str(file)
    assert (spill.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    whole = json.loads(file.read_bytes())
    assert base64.b64decode(whole["value"]) == LARGE
    assert base64.b64decode(whole["key"]) == b"big"
