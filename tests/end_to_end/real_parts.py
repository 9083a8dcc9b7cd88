"""A real Postgres, Debezium in Kafka Connect, a registry and a broker, once for all tests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from crossstream.dev import broker, cdc, servers
from crossstream.dev.background import find_java
from crossstream.dev.cdc import Parts, find_postgres
from crossstream.errors import SourceError
from tests.kafka.fixtures import quick_java


@pytest.fixture(scope="session")
def parts() -> Iterator[Parts]:
    try:
        find_postgres()
        find_java()
        broker.fetch_kafka_jars()
        servers.REGISTRY_JARS.fetch()
        servers.CONNECT_JARS.fetch()
    except SourceError as error:
        pytest.skip(f"no Postgres with Debezium can be started here: {error}")
    with quick_java(), cdc.parts() as started:
        yield started


def await_saved(parts: Parts, connector: str) -> None:
    """Returns when Connect has saved that a connector follows the changes."""
    deadline = time.monotonic() + 60
    while "messageType" not in str(servers.request(f"{parts.connect.url}/connectors/{connector}/offsets")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
