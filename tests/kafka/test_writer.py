"""Writing: partitions, order, failures."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from crossstream.dev.broker import BrokerInfo
from crossstream.errors import SinkError
from crossstream.kafka import KafkaConnection
from crossstream.kafka import producer as writer_module
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.producer import KafkaWriter
from crossstream.partitioning import murmur2_partitions
from tests.kafka.edges import both_edges
from tests.kafka.fixtures import frozen, new_topic, numbered, offsets_of, records, rows_of, whole

pytestmark = [pytest.mark.kafka, *both_edges]


def read_all(reader: KafkaReader, log: KafkaLog, topic: str, partition: int) -> list[tuple[object, ...]]:
    return rows_of(list(reader.read(whole(log, topic, partition), 10_000)))


def write_and_flush(
    writer: KafkaWriter, topic: str, batch: pa.RecordBatch, partitions: list[int] | None = None
) -> None:
    writer.write(topic, batch, partitions)
    writer.flush()


def test_keys_go_where_murmur2_sends_them(log: KafkaLog, reader: KafkaReader, writer: KafkaWriter) -> None:
    topic = new_topic(log, 5)
    keys = [b"", b"a", *(b"customer-%d" % number for number in range(500))]
    writer.write(topic, records(*((key, b"v") for key in keys)))
    writer.flush()
    for partition in range(5):
        expected = [
            key for key, home in zip(keys, murmur2_partitions(keys, 5), strict=True) if home == partition
        ]
        assert [key for _, key, *_ in read_all(reader, log, topic, partition)] == expected


def test_given_partitions_are_kept(log: KafkaLog, reader: KafkaReader, writer: KafkaWriter) -> None:
    topic = new_topic(log, 3)
    writer.write(topic, numbered(0, 300), [number % 3 for number in range(300)])
    writer.flush()
    for partition in range(3):
        found = [value for _, _, value, *_ in read_all(reader, log, topic, partition)]
        assert found == [b"%d" % number for number in range(partition, 300, 3)]


def test_order_is_kept_across_batches_with_and_without_headers(
    log: KafkaLog, reader: KafkaReader, writer: KafkaWriter
) -> None:
    topic = new_topic(log)
    for start in range(0, 3_000, 100):
        writer.write(topic, numbered(start, start + 99))
        writer.write(topic, records((b"k", b"%d" % (start + 99), 1, (("n", b"x"),))))
    writer.flush()
    found = read_all(reader, log, topic, 0)
    assert [value for _, _, value, *_ in found] == [b"%d" % number for number in range(3_000)]
    assert [headers for *_, headers in found[98:101]] == [(), (("n", b"x"),), ()]


def test_timestamp_zero_does_not_become_now(log: KafkaLog, reader: KafkaReader, writer: KafkaWriter) -> None:
    topic = new_topic(log)
    writer.write(topic, records((b"k", b"v", 0)))
    writer.flush()
    assert read_all(reader, log, topic, 0) == [(0, b"k", b"v", 1, ())]


def test_a_full_queue_is_waited_for(log: KafkaLog, reader: KafkaReader, broker: KafkaConnection) -> None:
    topic = new_topic(log)
    small = KafkaConnection(broker.bootstrap_servers, {"queue.buffering.max.messages": "50"})
    writer = small.writer()
    writer.write(topic, numbered(0, 1_000))
    writer.flush()
    assert offsets_of(list(reader.read(whole(log, topic), 10_000))) == list(range(1_000))
    writer.close()


def test_partitions_must_fit_the_records(log: KafkaLog, writer: KafkaWriter) -> None:
    with pytest.raises(ValueError, match="2 partitions were given for 1 records"):
        writer.write(new_topic(log), records((b"k", b"v")), [0, 0])


def test_a_missing_topic_or_partition_is_an_error(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection
) -> None:
    topic = new_topic(log, 2)
    settings = {"topic.metadata.propagation.max.ms": "300"}
    writer = KafkaConnection(broker.bootstrap_servers, settings).writer()
    for target, partition in (("no-such-topic", None), (topic, [7])):
        with pytest.raises(SinkError) as caught:
            write_and_flush(writer, target, records((b"the key", b"v")), partition)
        assert caught.value.code == "CS-652"
        assert caught.value.where["topic"] == target
        assert caught.value.where["key"] == b"the key"
    writer.write(topic, records((b"k", b"v")), [0])
    writer.flush()
    assert len(read_all(reader, log, topic, 0)) == 1
    writer.close()


@pytest.mark.parametrize("name", ["no topic!", "", "..", "x" * 250, "ä"])
def test_a_name_that_no_topic_can_have(writer: KafkaWriter, name: str) -> None:
    """As a function may give it: no broker is asked."""
    with pytest.raises(SinkError) as caught:
        write_and_flush(writer, name, records((b"k", b"v")))
    assert caught.value.code == "CS-656"
    assert caught.value.where["topic"] == name


@pytest.mark.parametrize("headers", [(), (("n", b"x"),)])
def test_a_record_that_is_too_large_for_the_client_is_an_error(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection, headers: tuple[tuple[str, bytes], ...]
) -> None:
    topic = new_topic(log)
    writer = KafkaConnection(broker.bootstrap_servers, {"message.max.bytes": 1_000_000}).writer()
    with pytest.raises(SinkError, match=r"message\.max\.bytes") as caught:
        write_and_flush(writer, topic, records((b"big", bytes(2_000_000), 1, headers)))
    assert caught.value.code == "CS-654"
    assert caught.value.where["key"] == b"big"
    writer.write(topic, records((b"small", b"v")))
    writer.flush()
    assert len(read_all(reader, log, topic, 0)) == 1
    writer.close()


def test_a_broker_that_stays_away_is_an_error(
    log: KafkaLog, reader: KafkaReader, broker_info: BrokerInfo
) -> None:
    topic = new_topic(log)
    writer = KafkaConnection(broker_info.bootstrap_servers, patience_seconds=4).writer()
    writer.write(topic, numbered(0, 5))
    writer.flush()
    with frozen(broker_info), pytest.raises(SinkError) as caught:
        write_and_flush(writer, topic, numbered(5, 10))
    assert caught.value.code == "CS-651"
    assert caught.value.where == {"topic": topic, "partition": 0, "key": b"key-5"}
    writer.write(topic, numbered(10, 15))
    writer.flush()
    found = [value for _, _, value, *_ in read_all(reader, log, topic, 0)]
    assert found[:5] == [b"%d" % number for number in range(5)]
    assert found[-5:] == [b"%d" % number for number in range(10, 15)]
    writer.close()


def test_closing_forgets_what_was_not_flushed(log: KafkaLog, writer: KafkaWriter) -> None:
    writer.write(new_topic(log), numbered(0, 10))
    writer.close()
    writer.flush()
    assert writer_module.BY_KEY == -1


def test_the_first_records_of_a_writer_do_not_wait(log: KafkaLog, broker: KafkaConnection) -> None:
    """The client looks for its producer id every half second: there is a connection when it first does."""
    topic, took = new_topic(log), [1.0]
    for _ in range(10):
        if took[-1] < 0.4:  # a busy broker may be late once
            break
        fresh = broker.writer()
        began = time.perf_counter()
        fresh.write(topic, records((b"k", b"v")))
        fresh.flush()
        took.append(time.perf_counter() - began)
        fresh.close()
    assert min(took) < 0.4, took
