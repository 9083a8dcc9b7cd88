"""How many partitions there are, for those who choose one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from crossstream.dev.broker import BrokerInfo
from crossstream.errors import SinkError
from crossstream.kafka import KafkaConnection, partition_counts
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.producer import KafkaWriter
from crossstream.runtime.delivery import TaskId
from crossstream.topics import TopicPartition
from tests.kafka.fixtures import frozen, guarded, new_topic, numbered

pytestmark = pytest.mark.kafka


def widen(connection: KafkaConnection, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": connection.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()


def within(seconds: float, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_partitions_that_are_added_are_found(
    log: KafkaLog, broker: KafkaConnection, writer: KafkaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(log, 2)
    assert writer.partition_count(topic) == 2
    widen(broker, topic, 5)
    assert writer.partition_count(topic) == 2  # not asked for each time
    monkeypatch.setattr(partition_counts, "REFRESH_SECONDS", 0.1)
    within(10, lambda: writer.partition_count(topic) == 5)


def test_the_default_partitioner_finds_them_too(log: KafkaLog, broker: KafkaConnection) -> None:
    """Kafka's C client asks every five minutes, as Java's does; here more often."""
    topic = new_topic(log)
    writer = KafkaConnection(
        broker.bootstrap_servers,
        {"topic.metadata.refresh.interval.ms": 300, "topic.metadata.refresh.sparse": True},
    ).writer()
    writer.write(topic, numbered(0, 10))
    writer.flush()
    widen(broker, topic, 2)
    added = TopicPartition(topic, 1)

    def is_used() -> bool:
        writer.write(topic, numbered(0, 10))
        writer.flush()
        return log.end_offsets([added])[added] > 0

    within(10, is_used)
    writer.close()


def test_topics_that_are_not_in_lists_have_partitions_too(log: KafkaLog, writer: KafkaWriter) -> None:
    log.commit_offsets("some-group", {TopicPartition(new_topic(log), 0): 0})
    assert writer.partition_count("__consumer_offsets") == 1


@pytest.mark.parametrize(
    ("topic", "code"), [("no-such-topic", "CS-652"), ("no topic!", "CS-656"), ("", "CS-656")]
)
def test_a_topic_that_is_missing_or_cannot_be(
    broker: KafkaConnection, monkeypatch: pytest.MonkeyPatch, topic: str, code: str
) -> None:
    """So a partitioner is not asked; a worker passes the error on."""
    monkeypatch.setattr(partition_counts, "SETTLE_SECONDS", 0.5)
    delivery = broker.delivery(None)  # type: ignore[arg-type]
    with pytest.raises(SinkError) as caught:
        delivery.writer(TaskId(0, 0, 0)).partition_count(topic)
    assert caught.value.code == code
    assert caught.value.where["topic"] == topic
    assert caught.value.next
    delivery.close()


@pytest.mark.parametrize("password", ["wrong", "right"])
def test_a_topic_that_may_not_be_described(log: KafkaLog, broker_info: BrokerInfo, password: str) -> None:
    writer = guarded(broker_info, password).writer()
    with pytest.raises(SinkError) as caught:
        writer.partition_count(new_topic(log))
    assert caught.value.code == "CS-653"
    writer.close()


def test_a_broker_that_is_away(
    log: KafkaLog, broker_info: BrokerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known serves on: the records wait for the broker anyhow."""
    monkeypatch.setattr(partition_counts, "REFRESH_SECONDS", 0.0)
    known, unknown = new_topic(log, 3), new_topic(log, 3)
    writer = KafkaConnection(broker_info.bootstrap_servers, patience_seconds=2).writer()
    assert writer.partition_count(known) == 3
    with frozen(broker_info):
        assert writer.partition_count(known) == 3
        with pytest.raises(SinkError) as caught:
            writer.partition_count(unknown)
    assert caught.value.code == "CS-651"
    assert writer.partition_count(unknown) == 3
    writer.close()
