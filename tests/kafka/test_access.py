"""Brokers that refuse us are told at once, not waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.dev.broker import BrokerInfo
from crossstream.errors import CrossStreamError, SinkError
from crossstream.kafka import KafkaConnection
from crossstream.kafka.log import KafkaLog
from crossstream.runtime.scheduler import SourcePlanner
from crossstream.topics import TopicPartition
from tests.kafka.acts import read, write
from tests.kafka.fixtures import guarded, new_topic, records

pytestmark = pytest.mark.kafka


def ask(connection: KafkaConnection, topic: str) -> None:
    connection.log().end_offsets([TopicPartition(topic, 0)])


def commit(connection: KafkaConnection, topic: str) -> None:
    connection.log().commit_offsets("app", {TopicPartition(topic, 0): 1})


def create(connection: KafkaConnection, topic: str) -> None:
    connection.log().create_topic(topic + "-new", 1)


def plan(connection: KafkaConnection, topic: str) -> None:
    builder = cs.StreamsBuilder()
    builder.stream(topic, cs.Consumed(key=serdes.string(), value=serdes.string()))
    SourcePlanner(builder.build(), connection.log(), {}).refresh()


@pytest.mark.parametrize("password", ["wrong", "right"])
@pytest.mark.parametrize(
    ("act", "code"),
    [
        (read, "CS-605"),
        (write, "CS-653"),
        (ask, "CS-605"),
        (commit, "CS-608"),
        (create, "CS-605"),
        (plan, "CS-605"),
    ],
)
def test_refused(
    log: KafkaLog,
    broker_info: BrokerInfo,
    act: Callable[[KafkaConnection, str], None],
    code: str,
    password: str,
) -> None:
    """With a wrong password nobody gets in; with the right one, alice has no right to anything."""
    expected = "CS-605" if code == "CS-608" and password == "wrong" else code
    topic, began = new_topic(log), time.monotonic()
    with pytest.raises(CrossStreamError) as caught:
        act(guarded(broker_info, password), topic)
    assert caught.value.code == expected
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize(("act", "code"), [(read, "CS-604"), (write, "CS-651"), (ask, "CS-604")])
def test_another_protocol_than_the_port_wants(
    broker_info: BrokerInfo, act: Callable[[KafkaConnection, str], None], code: str, protocol: str
) -> None:
    """The broker hangs up and says nothing; it may as well be away, so it is waited for."""
    port = guarded(broker_info, "right").bootstrap_servers
    with pytest.raises(CrossStreamError) as caught:
        act(KafkaConnection(port, {"security.protocol": protocol}, patience_seconds=2), "any")
    assert caught.value.code == code
    assert "security.protocol" in (caught.value.next or "")


@pytest.mark.parametrize("act", [read, write, ask])
def test_where_nobody_listens_no_protocol_is_suspected(act: Callable[[KafkaConnection, str], None]) -> None:
    with pytest.raises(CrossStreamError) as caught:
        act(KafkaConnection("127.0.0.1:1", patience_seconds=2), "any")
    assert "security.protocol" not in (caught.value.next or "")


def test_refused_group_is_left_soon(log: KafkaLog, broker_info: BrokerInfo) -> None:
    """A commit that is never answered does not hold up the end of the application."""
    topic, refused = new_topic(log), guarded(broker_info, "right").log()
    with pytest.raises(CrossStreamError):
        refused.commit_offsets("app", {TopicPartition(topic, 0): 1})
    began = time.monotonic()
    refused.close()
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("password", ["wrong", "right"])
@pytest.mark.parametrize("seconds", [0.0, 0.05, 1.0])
def test_a_writer_is_refused_whenever_it_is_told(
    log: KafkaLog, broker_info: BrokerInfo, password: str, seconds: float
) -> None:
    """The refusal comes with the topic, with the record, or before them with the producer's id."""
    topic, writer = new_topic(log), guarded(broker_info, password).writer()

    def slowly() -> None:
        writer.open()
        time.sleep(seconds)
        writer.write(topic, records((b"k", b"v")))
        time.sleep(seconds)
        writer.flush()

    with pytest.raises(SinkError) as caught:
        slowly()
    assert caught.value.code == "CS-653"
    writer.close()
