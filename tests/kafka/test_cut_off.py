"""Clients that were told once that there are no brokers, as by a broker that just starts, and never look again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from crossstream.dev.broker import BrokerInfo
from crossstream.kafka import KafkaConnection
from crossstream.kafka.log import KafkaLog
from crossstream.partitioning import murmur2_partitions
from crossstream.topics import TopicPartition
from tests.kafka.fixtures import await_end, new_topic, numbered, proxied, records, rows_of, whole
from tests.kafka.proxy import FORGETFUL, Proxy

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def connection(broker_info: BrokerInfo) -> KafkaConnection:
    return KafkaConnection(f"127.0.0.1:{proxied(broker_info)[0]}", FORGETFUL, patience_seconds=30)


def test_clients_are_cut_off_for_ever(broker_info: BrokerInfo, log: KafkaLog, proxy: Proxy) -> None:
    """What the others are about: if this fails, Kafka's client has mended it, and they show nothing any more."""
    topic = new_topic(log)
    admin = AdminClient({**FORGETFUL, "bootstrap.servers": f"127.0.0.1:{proxied(broker_info)[0]}"})
    admin.list_topics(topic, timeout=5)
    with proxy.without_brokers():
        admin.list_topics(topic, timeout=5)
    with pytest.raises(KafkaException, match="transport failure"):
        admin.list_topics(topic, timeout=5)


def test_the_log_goes_on(log: KafkaLog, proxy: Proxy, connection: KafkaConnection) -> None:
    place = TopicPartition(new_topic(log), 0)
    own = connection.log()
    own.commit_offsets("cut-off", {place: 0})
    assert own.end_offsets([place]) == {place: 0}
    proxy.lie(1)
    assert own.end_offsets([place]) == {place: 0}
    own.commit_offsets("cut-off", {place: 0})
    own.close()


def test_the_reader_goes_on(log: KafkaLog, proxy: Proxy, connection: KafkaConnection) -> None:
    topic, writer, reader = new_topic(log), connection.writer(), connection.reader()
    writer.write(topic, numbered(0, 1_000))
    writer.flush()
    span = whole(log, topic)
    found = []
    for batch in reader.read(span, 100):
        found += rows_of([batch])
        if len(found) == 100:
            proxy.lie(1)
    assert [row[2] for row in found] == [b"%d" % number for number in range(1_000)]
    assert len(rows_of(list(reader.read(span, 100)))) == 1_000
    writer.close()
    reader.close()


def test_the_writer_goes_on(log: KafkaLog, proxy: Proxy, connection: KafkaConnection) -> None:
    """Nothing is lost, and the records of a partition keep their order, their headers and their timestamps."""
    topic, writer = new_topic(log, 2), connection.writer()
    headers = (("trace", b"\x00\xff"), ("nothing", None))
    given = records(*((b"k", b"%d" % number, number + 1, headers) for number in range(1_000)))
    writer.write(topic, given.slice(0, 100), [number % 2 for number in range(100)])
    writer.flush()
    proxy.lie(1)
    writer.write(topic, given.slice(100), [number % 2 for number in range(900)])
    writer.flush()
    await_end(log, topic, 500)
    reader = connection.reader()
    for partition in (0, 1):
        found = rows_of(list(reader.read(whole(log, topic, partition), 1_000)))
        assert [row[2:] for row in found] == [
            (b"%d" % number, number + 1, headers) for number in range(partition, 1_000, 2)
        ]
    writer.close()
    reader.close()


def test_records_without_a_partition_go_where_their_keys_belong(
    log: KafkaLog, proxy: Proxy, connection: KafkaConnection
) -> None:
    topic, writer, reader = new_topic(log, 2), connection.writer(), connection.reader()
    writer.open().list_topics(topic, timeout=5)
    proxy.lie(1)
    writer.write(topic, numbered(0, 100))
    writer.flush()
    assert sum(whole(log, topic, partition).end for partition in (0, 1)) == 100
    found = [reader.read(whole(log, topic, partition), 100) for partition in (0, 1)]
    for partition, batches in enumerate(found):
        keys = [bytes(row[1]) for row in rows_of(list(batches))]  # type: ignore[call-overload]
        assert set(murmur2_partitions(keys, 2)) == {partition}
    writer.close()
    reader.close()
