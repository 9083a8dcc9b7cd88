"""Which client is opened: the native one where it is installed and takes the settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from crossstream.errors import ConfigError
from crossstream.kafka import KafkaConnection
from crossstream.kafka.client import Complaints, open_consumer, open_producer
from crossstream.kafka.messages import MessageConsumer, MessageProducer
from crossstream.kafka.native import library
from crossstream.kafka.native.client import takes
from crossstream.kafka.native.consumer import NativeConsumer
from crossstream.kafka.native.producer import NativeProducer
from crossstream.serdes import native_part
from tests.kafka.edges import NATIVE, needs_native

NOWHERE = "127.0.0.1:1"


def opened(settings: Mapping[str, object]) -> tuple[type, type]:
    connection = KafkaConnection(NOWHERE, settings)
    consumer, producer = open_consumer(connection, Complaints()), open_producer(connection, Complaints())
    consumer.close()
    return type(consumer), type(producer)


@needs_native
@pytest.mark.parametrize("settings", [{}, {"socket.keepalive.enable": True, "statistics.interval.ms": 0}])
def test_texts_and_numbers_suit_the_native_client(settings: Mapping[str, object]) -> None:
    assert opened(settings) == (NativeConsumer, NativeProducer)


def test_settings_with_functions_are_left_to_pythons_client() -> None:
    assert opened({"stats_cb": print}) == (MessageConsumer, MessageProducer)
    assert takes({"sasl.mechanism": "PLAIN", "sasl.password": "secret"})
    assert not takes({"sasl.mechanisms": "OAUTHBEARER"})


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native_part.SWITCH, "off")
    assert opened({}) == (MessageConsumer, MessageProducer)


@needs_native
@pytest.mark.parametrize("setting", [{"linger.ms": "soon"}, {"no.such.setting": 1}, {"sasl.mechanism": None}])
def test_both_refuse_the_same_settings(setting: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    said = []
    for switch in ("on", "off"):
        monkeypatch.setenv(native_part.SWITCH, switch)
        try:
            open_producer(KafkaConnection(NOWHERE, setting), Complaints())
            said.append("")
        except ConfigError as refused:
            said.append(str(refused))
    assert said[0] == said[1]


@needs_native
def test_a_version_that_does_not_fit_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native_part, "INTERFACE", native_part.INTERFACE + 1)
    for cached in (native_part.load, library._load):
        cached.cache_clear()
    try:
        assert library.library() is None
        assert "the native part is not used: it is of another version" in caplog.text
    finally:
        monkeypatch.undo()
        for cached in (native_part.load, library._load):
            cached.cache_clear()
    assert (library.library() is not None) == NATIVE
