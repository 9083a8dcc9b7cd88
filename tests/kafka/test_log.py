"""The driver's side: topics, offsets, commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from crossstream.dev.broker import BrokerInfo
from crossstream.errors import SinkError, SourceError
from crossstream.kafka import KafkaConnection
from crossstream.kafka import log as log_module
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.producer import KafkaWriter
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition
from tests.kafka.fixtures import delete, frozen, guarded, new_topic, numbered, records, whole

pytestmark = pytest.mark.kafka


def committed(servers: str, group: str) -> dict[TopicPartition, int]:
    """What kafka-consumer-groups would show as current offsets."""
    admin = AdminClient({"bootstrap.servers": servers})
    [found] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    marks = found.result().topic_partitions
    return {TopicPartition(mark.topic, mark.partition): mark.offset for mark in marks}


def test_topics_and_their_partitions(log: KafkaLog) -> None:
    topic = new_topic(log, 3)
    log.commit_offsets("some-group", {TopicPartition(topic, 0): 0})  # makes __consumer_offsets
    found = log.topics()
    assert found[topic] == 3
    assert "__consumer_offsets" in found


def test_a_topic_made_anew_has_another_id(log: KafkaLog, broker_info: BrokerInfo) -> None:
    topic, other = new_topic(log), new_topic(log)
    first = log.topic_ids([topic, other])
    assert len({first[topic], first[other]}) == 2
    assert log.topic_ids([topic, "no-such-topic"]) == {topic: first[topic]}
    delete(broker_info.bootstrap_servers, topic)
    log.create_topic(topic, 1)
    again = log.topic_ids([topic, other])
    assert again[topic] != first[topic]
    assert again[other] == first[other]
    assert log.topic_ids([]) == {}


def test_ids_that_are_not_told(
    log: KafkaLog, broker_info: BrokerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For lack of rights, of an answer, and by brokers before Kafka 2.8: these give the same id to all topics."""
    topic = new_topic(log)
    alice = guarded(broker_info, "right").log()
    assert alice.topic_ids([topic]) == {}
    alice.close()
    monkeypatch.setattr(log_module, "LOOK_SECONDS", 0.5)
    assert KafkaConnection("127.0.0.1:1").log().topic_ids([topic]) == {}
    monkeypatch.setattr(log_module, "NO_ID", log.topic_ids([topic])[topic])
    assert log.topic_ids([topic]) == {}


def test_offsets(log: KafkaLog, writer: KafkaWriter) -> None:
    topic = new_topic(log, 2)
    writer.write(topic, numbered(0, 30), [0] * 30)
    writer.flush()
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert log.begin_offsets(places) == dict.fromkeys(places, 0)
    assert log.end_offsets(places) == {places[0]: 30, places[1]: 0}
    assert log.end_offsets([]) == {}


def test_offsets_by_time(log: KafkaLog, writer: KafkaWriter) -> None:
    topic = new_topic(log)
    place = TopicPartition(topic, 0)
    times = [100, 300, 200, 300, 400]
    for moment in times:  # a batch of its own for each
        writer.write(topic, records((b"k", b"v", moment)), [0])
        writer.flush()
    for timestamp, offset in (
        (0, 0),
        (100, 0),
        (101, 1),
        (201, 1),
        (300, 1),
        (301, 4),
        (400, 4),
        (401, None),
    ):
        expected = None if offset is None else OffsetAndTimestamp(offset, times[offset])
        assert log.offsets_for_times([whole(log, topic)], timestamp, 9) == {place: expected}
        assert log.offsets_for_times([OffsetRange(topic, 0, 5, 5)], timestamp, 9) == {place: None}
    assert log.offsets_for_times([], 1, 9) == {}


def test_a_topic_is_made_once_with_its_settings(log: KafkaLog) -> None:
    topic = new_topic(log, 2, cleanup_policy="compact")
    with pytest.raises(SinkError, match="exists already") as caught:
        log.create_topic(topic, 2)
    assert caught.value.code == "CS-656"
    with pytest.raises(SinkError) as caught:
        log.create_topic("bad name!", 1)
    assert caught.value.code == "CS-656"
    with pytest.raises(SinkError) as caught:
        log.create_topic("bad-settings", 1, {"no.such.setting": "1"})
    assert caught.value.code == "CS-656"


def test_commits_are_visible_to_lag_tools(log: KafkaLog, broker: KafkaConnection) -> None:
    places = [TopicPartition(new_topic(log, 2), partition) for partition in range(2)]
    log.commit_offsets("app", {places[0]: 5, places[1]: 7})
    log.commit_offsets("app", {places[0]: 6})
    log.commit_offsets("app", {})
    assert committed(broker.bootstrap_servers, "app") == {places[0]: 6, places[1]: 7}


def test_missing_topics_and_partitions(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "SETTLE_SECONDS", 1.0)
    topic = new_topic(log)
    for place in (TopicPartition("no-such-topic", 0), TopicPartition(topic, 4)):
        with pytest.raises(SourceError) as caught:
            log.end_offsets([place])
        assert caught.value.code == "CS-602"
        assert caught.value.where["topic"] == place.topic


PASSING = [
    "OFFSET_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR",
    "THROTTLING_QUOTA_EXCEEDED",
    "LISTENER_NOT_FOUND",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "UNKNOWN_TOPIC_ID",
]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Errors that brokers answer to questions for offsets, one after the other; then the truth."""
    left: list[int] = []
    truth = AdminClient.list_offsets

    def list_offsets(client: AdminClient, wanted: Mapping[Any, Any], **options: Any) -> Mapping[Any, Any]:
        if not left:
            return truth(client, wanted, **options)  # type: ignore[no-any-return, no-untyped-call]
        failed: Future[Any] = Future()
        failed.set_exception(KafkaException(KafkaError(left.pop(0))))
        return dict.fromkeys(wanted, failed)

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    yield left
    assert left == []


@pytest.mark.parametrize("name", PASSING)
def test_what_a_new_leader_says_for_a_while_is_waited_for(
    log: KafkaLog, answers: list[int], name: str
) -> None:
    """A leader that was just elected answers OFFSET_NOT_AVAILABLE until its high watermark is known (KIP-207)."""
    place = TopicPartition(new_topic(log), 0)
    answers.extend([getattr(KafkaError, name)] * 3)
    assert log.end_offsets([place]) == {place: 0}


def test_an_answer_that_will_not_pass_is_told_as_what_it_is(log: KafkaLog, answers: list[int]) -> None:
    topic = new_topic(log)
    answers.append(KafkaError.UNSUPPORTED_VERSION)
    with pytest.raises(SourceError, match="API version") as caught:
        log.end_offsets([TopicPartition(topic, 0)])
    assert caught.value.code == "CS-604"
    assert "no broker answered" not in str(caught.value)


def test_a_partition_that_is_known_again_is_asked_for_again(
    log: KafkaLog, answers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers may not know a topic for a moment: what is there when it is looked for is not missing."""
    monkeypatch.setattr(log_module, "SETTLE_SECONDS", 0.0)
    place = TopicPartition(new_topic(log), 0)
    answers.extend([KafkaError.UNKNOWN_TOPIC_OR_PART] * 2)
    assert log.end_offsets([place]) == {place: 0}


def test_a_broker_that_comes_back_in_time_is_waited_for(log: KafkaLog, broker_info: BrokerInfo) -> None:
    topic = new_topic(log)
    with frozen(broker_info, seconds=1):
        assert log.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}


def test_nobody_at_the_servers() -> None:
    log = KafkaConnection("127.0.0.1:1", patience_seconds=1).log()
    place = TopicPartition("any", 0)
    for ask in (log.topics, lambda: log.end_offsets([place]), lambda: log.commit_offsets("g", {place: 1})):
        with pytest.raises(SourceError) as caught:
            ask()
        assert caught.value.code == "CS-604"
    log.close()


def test_a_deleted_topic_is_gone_and_can_be_made_again(log: KafkaLog) -> None:
    topic = new_topic(log, 2)
    log.delete_topic(topic)
    assert topic not in log.topics()
    with pytest.raises(SourceError) as missing:
        log.delete_topic(topic)
    assert missing.value.code == "CS-602"
    log.create_topic(topic, 1)
    assert log.topics()[topic] == 1
