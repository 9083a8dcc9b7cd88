"""Dead letters that are cut: the broker takes them, whatever its topic's limit."""

from __future__ import annotations

import random

import pytest

from crossstream.kafka import KafkaConnection
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.records import REASON
from crossstream.task.dead_letters import Letter, as_records
from tests.kafka.fixtures import new_topic, rows_of, whole

pytestmark = pytest.mark.kafka

PLACE = [("crossstream.operator", b"orders"), ("crossstream.topic", b"orders")]


def noise(size: int) -> bytes:
    """What cannot be compressed."""
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("limit", [None, 1_000, 20_000, 3_000_000])
@pytest.mark.parametrize("part", ["key", "value", "headers", "reason", "all"])
def test_the_broker_takes_what_was_cut(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection, limit: int | None, part: str
) -> None:
    """Also where it is cut to the last byte that the topic allows."""
    topic = new_topic(log, **({} if limit is None else {"max_message_bytes": str(limit)}))
    writer = broker.writer()
    room = writer.record_limit(topic)
    assert room == (limit or 1_048_588)

    def size(name: str) -> int:
        return 2 * room if part in (name, "all") else 10

    parts = [noise(size(name)) for name in ("key", "value", "headers", "reason")]
    own = [("own", parts[2]), ("small", b"s")]
    letter = Letter(parts[0], parts[1], 7, own, (REASON, parts[3]), PLACE)
    cut = letter.within(room, None)
    for _ in range(2):
        writer.write(topic, as_records([cut]))
    writer.flush()
    writer.close()
    for _, key, value, timestamp, headers in rows_of(list(reader.read(whole(log, topic), 10))):
        assert (key, value, timestamp) == (cut.key, cut.value, 7)
        assert list(headers) == cut.all_headers


def test_a_record_that_just_fits_is_not_cut(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection
) -> None:
    topic, writer = new_topic(log), broker.writer()
    room = writer.record_limit(topic)
    spare = room - Letter(b"k", b"", 7, [], (REASON, b"bad"), PLACE).size
    letter = Letter(b"k", noise(spare), 7, [], (REASON, b"bad"), PLACE)
    assert letter.within(room, None) is letter
    writer.write(topic, as_records([letter]))
    writer.flush()
    writer.close()
    [(_, _, value, _, _)] = rows_of(list(reader.read(whole(log, topic), 10)))
    assert value == letter.value


@pytest.mark.parametrize(("own", "wanted"), [("500000", 500_000), (5_000_000, 1_048_588)])
def test_the_client_has_a_limit_too(log: KafkaLog, broker: KafkaConnection, own: object, wanted: int) -> None:
    topic = new_topic(log)
    writer = KafkaConnection(broker.bootstrap_servers, {"message.max.bytes": own}).writer()
    assert writer.record_limit(topic) == wanted
    writer.close()
