"""Brokers that make a topic when somebody asks for it: nothing that we ask makes one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crossstream.dev.broker import BrokerInfo
from crossstream.errors import CrossStreamError
from crossstream.kafka import KafkaConnection, client
from crossstream.kafka import log as log_module
from crossstream.topics import TopicPartition
from tests.kafka.acts import read, write

pytestmark = pytest.mark.kafka

SOON = {"topic.metadata.propagation.max.ms": "1000"}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (log_module, client):
        monkeypatch.setattr(module, "SETTLE_SECONDS", 1.0)


def ask(connection: KafkaConnection, topic: str) -> None:
    connection.log().end_offsets([TopicPartition(topic, 2)])


@pytest.mark.parametrize(("act", "code"), [(ask, "CS-602"), (read, "CS-602"), (write, "CS-652")])
def test_a_missing_topic_stays_missing(
    creating: BrokerInfo, act: Callable[[KafkaConnection, str], None], code: str
) -> None:
    connection = KafkaConnection(creating.bootstrap_servers, SOON, patience_seconds=10)
    topic = f"never-made-to-{act.__name__}"
    with pytest.raises(CrossStreamError) as caught:
        act(connection, topic)
    assert caught.value.code == code
    assert topic not in connection.log().topics()


def test_a_writer_makes_topics_if_it_is_told_to(creating: BrokerInfo) -> None:
    """The setting is the user's for writing; asking and reading make none all the same."""
    connection = KafkaConnection(
        creating.bootstrap_servers, {**SOON, "allow.auto.create.topics": True}, patience_seconds=10
    )
    for act in (ask, read):
        with pytest.raises(CrossStreamError):
            act(connection, "made-by-writing")
    assert "made-by-writing" not in connection.log().topics()
    write(connection, "made-by-writing")
    assert connection.log().topics()["made-by-writing"] == 1
