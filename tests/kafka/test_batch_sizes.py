"""Topics that take small batches only, and records about as large as a broker takes."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from crossstream.errors import SinkError
from crossstream.kafka import KafkaConnection
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.producer import KafkaWriter
from tests.kafka.edges import both_edges
from tests.kafka.fixtures import new_topic, records, whole

pytestmark = [pytest.mark.kafka, *both_edges]


def noise(count: int, size: int, seed: int = 0) -> pa.RecordBatch:
    """Records whose values cannot be compressed."""
    chance = random.Random(seed)
    return records(*((b"%d" % number, chance.randbytes(size)) for number in range(count)))


def values(reader: KafkaReader, log: KafkaLog, topic: str) -> list[bytes]:
    batches = reader.read(whole(log, topic), 10_000)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def write_and_flush(writer: KafkaWriter, topic: str, batch: pa.RecordBatch) -> None:
    writer.write(topic, batch)
    writer.flush()


@pytest.mark.parametrize(("limit", "size"), [(100_000, 500), (2_000, 10), (2_000, 1_900), (1_000_000, 100)])
def test_a_backlog_for_a_topic_of_small_batches(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection, limit: int, size: int
) -> None:
    """No record is too large; Java's producer splits batches that are."""
    topic, writer = new_topic(log, max_message_bytes=str(limit)), broker.writer()
    rows = noise(min(20_000, 4_000_000 // size), size)
    for start in range(0, rows.num_rows, 5_000):
        writer.write(topic, rows.slice(start, 5_000))
    writer.flush()
    assert values(reader, log, topic) == rows.column("value").to_pylist()
    writer.close()


def test_records_for_other_topics_are_stored_once_and_in_order(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection
) -> None:
    """The topic of small batches comes while records of others are on their way."""
    wide, narrow = new_topic(log), new_topic(log, max_message_bytes="50000")
    writer, sent = broker.writer(), {wide: [], narrow: []}
    for turn, topic in enumerate([wide, narrow, wide, narrow]):
        rows = noise(2_000, 500, seed=turn)
        writer.write(topic, rows)
        sent[topic] += rows.column("value").to_pylist()
    writer.flush()
    assert {topic: values(reader, log, topic) for topic in sent} == sent
    writer.close()


def test_the_broker_judges_how_large_a_record_may_be(
    log: KafkaLog, reader: KafkaReader, writer: KafkaWriter
) -> None:
    """Its limit is 1,048,588 bytes by default, that of Java's producers 1,048,576."""
    topic, large = new_topic(log), new_topic(log, max_message_bytes="5000000")
    write_and_flush(writer, topic, noise(1, 1_048_000))
    write_and_flush(writer, large, noise(2, 4_000_000))
    assert [len(value) for value in values(reader, log, topic)] == [1_048_000]
    assert [len(value) for value in values(reader, log, large)] == [4_000_000, 4_000_000]
    with pytest.raises(SinkError, match=r"max\.message\.bytes") as caught:
        write_and_flush(writer, topic, noise(1, 1_048_588))
    assert caught.value.code == "CS-654"


def test_a_batch_size_of_the_user_is_kept(log: KafkaLog, broker: KafkaConnection) -> None:
    topic = new_topic(log, max_message_bytes="100000")
    writer = KafkaConnection(broker.bootstrap_servers, {"batch.size": 1_000_000}).writer()
    with pytest.raises(SinkError, match=r"batch\.size") as caught:
        write_and_flush(writer, topic, noise(5_000, 500))
    assert caught.value.code == "CS-654"
    assert caught.value.where["topic"] == topic
    writer.close()
