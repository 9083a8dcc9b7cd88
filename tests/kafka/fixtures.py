"""A development broker for the whole session, and what the tests put into it."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from crossstream.dev import broker
from crossstream.dev.broker import BrokerInfo, fetch_kafka_jars, find_java
from crossstream.errors import SourceError
from crossstream.kafka import KafkaConnection
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.producer import KafkaWriter
from crossstream.records import RECORDS, decode_headers, encode_headers
from crossstream.topics import OffsetRange, TopicPartition
from tests.kafka.proxy import Proxy

_topics = count()


def more_listeners(port: int) -> dict[str, str]:
    """Settings of a broker with two more ports.

    One is for users with passwords, who have no rights at all; one sends its clients to the port of a proxy.
    """
    guarded, controller, behind, proxy = (broker.free_port() for _ in range(4))
    clients = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{guarded}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listeners": f"{clients},PROXIED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"{clients},PROXIED://127.0.0.1:{proxy}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": ",".join(
            [
                "CONTROLLER:PLAINTEXT",
                "PLAINTEXT:PLAINTEXT",
                "PROXIED:PLAINTEXT",
                "SASL_PLAINTEXT:SASL_PLAINTEXT",
            ]
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} required user_alice="right";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def guarded(info: BrokerInfo, password: str) -> KafkaConnection:
    """The broker as its user alice sees it."""
    listeners = info.properties_file.read_text().partition("SASL_PLAINTEXT://")[2]
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
    }
    return KafkaConnection(listeners.partition(",")[0], settings, patience_seconds=5)


def proxied(info: BrokerInfo) -> tuple[int, int]:
    """The port of the proxy, where nobody listens unless a test does, and the broker's port behind it."""
    settings = dict(line.partition("=")[::2] for line in info.properties_file.read_text().splitlines())
    proxy, behind = (
        int(re.search(r"PROXIED://127.0.0.1:(\d+)", settings[name])[1])  # type: ignore[index]
        for name in ("advertised.listeners", "listeners")
    )
    return proxy, behind


@contextmanager
def quick_java() -> Iterator[None]:
    """Brokers that are started inside start sooner, and are slower afterwards; the machine may be busy."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BrokerInfo, "START_SECONDS", 300.0)
        patched.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
        yield


def skip_without_kafka() -> None:
    """Skips a test where no broker can be started."""
    try:
        find_java()
        fetch_kafka_jars()
    except SourceError as error:
        pytest.skip(f"no broker can be started here: {error}")


@pytest.fixture(scope="session")
def broker_info(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerInfo]:
    """A broker on a free port that compacts eagerly; see `guarded` and `proxied` for its other ports."""
    directory: Path = tmp_path_factory.mktemp("broker")
    port = broker.free_port()
    skip_without_kafka()
    try:
        with quick_java():
            info = broker.start(port, directory, {"log.cleaner.backoff.ms": "100", **more_listeners(port)})
        yield info
    finally:
        broker.stop(port)


@pytest.fixture(scope="session", name="broker")
def broker_connection(broker_info: BrokerInfo) -> KafkaConnection:
    return KafkaConnection(broker_info.bootstrap_servers, patience_seconds=20)


@pytest.fixture(scope="session")
def log(broker: KafkaConnection) -> Iterator[KafkaLog]:
    log = broker.log()
    yield log
    log.close()


@pytest.fixture(scope="module")
def reader(broker: KafkaConnection, edge: str) -> Iterator[KafkaReader]:
    """One reader for all tests of a module, as a worker has one for all batches."""
    reader = broker.reader()
    yield reader
    reader.close()


@pytest.fixture(scope="module")
def writer(broker: KafkaConnection, edge: str) -> Iterator[KafkaWriter]:
    writer = broker.writer()
    yield writer
    writer.close()


@pytest.fixture
def proxy(broker_info: BrokerInfo) -> Iterator[Proxy]:
    proxy = Proxy(*proxied(broker_info))
    yield proxy
    proxy.close()


def delete(servers: str, topic: str) -> None:
    """Deletes a topic, and returns when there is none of that name any more."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + 20
    while topic in admin.list_topics(timeout=5).topics:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def new_topic(log: KafkaLog, partitions: int = 1, **config: str) -> str:
    """A topic of this test alone; settings with ``_`` for ``.``."""
    name = f"topic-{next(_topics)}"
    log.create_topic(name, partitions, {key.replace("_", "."): value for key, value in config.items()})
    return name


def records(*rows: tuple[object, ...]) -> pa.RecordBatch:
    """Rows of (key, value[, timestamp[, headers]]) as a batch to write."""
    full = [(*row, *(None, None, 1_000, ())[len(row) :]) for row in rows]
    keys, values, timestamps, headers = ([row[column] for row in full] for column in range(4))
    return pa.RecordBatch.from_pydict(
        {
            "key": keys,
            "value": values,
            "timestamp": timestamps,
            "offset": [0] * len(full),
            "headers": [encode_headers(each) for each in headers],
        },
        schema=RECORDS,
    )


def numbered(start: int, end: int) -> pa.RecordBatch:
    """Records with the values ``start..end``."""
    return records(*((b"key-%d" % number, b"%d" % number, 1_000 + number) for number in range(start, end)))


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[tuple[object, ...]]:
    """(offset, key, value, timestamp, headers) of every record."""
    return [
        (row["offset"], row["key"], row["value"], row["timestamp"], decode_headers(row["headers"]))
        for batch in batches
        for row in batch.to_pylist()
    ]


def offsets_of(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def await_end(log: KafkaLog, topic: str, end: int, partition: int = 0) -> OffsetRange:
    """Everything in the partition, once it can be read up to ``end``: transactions end a little later."""
    deadline = time.monotonic() + 20
    while (span := whole(log, topic, partition)).end < end:
        assert time.monotonic() < deadline, f"readable up to {span.end}, not {end}"
        time.sleep(0.01)
    assert span.end == end
    return span


def whole(log: KafkaLog, topic: str, partition: int = 0) -> OffsetRange:
    """Everything in the partition now."""
    place = TopicPartition(topic, partition)
    return OffsetRange(topic, partition, log.begin_offsets([place])[place], log.end_offsets([place])[place])


@contextmanager
def frozen(info: BrokerInfo, seconds: float | None = None) -> Iterator[None]:
    """The broker does not answer inside, or for that many seconds."""
    thaw = threading.Timer(seconds or 60, os.kill, (info.pid, signal.SIGCONT))
    os.kill(info.pid, signal.SIGSTOP)
    thaw.start()
    try:
        yield
    finally:
        thaw.cancel()
        os.kill(info.pid, signal.SIGCONT)
        deadline = time.monotonic() + 30
        while not broker.answers(info.port) and time.monotonic() < deadline:
            time.sleep(0.05)


@pytest.fixture(scope="session")
def creating(tmp_path_factory: pytest.TempPathFactory, broker_info: BrokerInfo) -> Iterator[BrokerInfo]:
    """A broker that makes the topics it is asked for, as brokers do unless they are told otherwise."""
    directory: Path = tmp_path_factory.mktemp("creating")
    with quick_java():
        info = broker.start(broker.free_port(), directory, {"auto.create.topics.enable": "true"})
    yield info
    broker.stop(info.port)
