"""Opening confluent-kafka's clients: settings, log lines, and what their threads complain about."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from crossstream.errors import ConfigError

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient
except ModuleNotFoundError as missing:
    raise ConfigError(
        "reading and writing Kafka needs the package confluent-kafka, which is not installed",
        code="CS-230",
        next="pip install confluent-kafka",
    ) from missing

if TYPE_CHECKING:
    from crossstream.kafka.settings import KafkaSettings

Client = TypeVar("Client")

logger = logging.getLogger("crossstream.kafka")
logger.addHandler(logging.NullHandler())

ASKING: Mapping[str, object] = {"allow.auto.create.topics": False}

CLIENT: Mapping[str, object] = {
    "client.id": "crossstream",
    "reconnect.backoff.max.ms": 2000,
    "socket.keepalive.enable": True,
    # Brokers make topics for clients that ask for them, with one partition each, unless the clients say no.
    # It counts for all kinds of clients, though the documentation of this setting has it for consumers only.
    **ASKING,
}

CONSUMER: Mapping[str, object] = {
    "group.id": "crossstream",  # required by the client; never joined nor committed to
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    **ASKING,
}

LONGEST_MS = (1 << 31) - 1
"""The longest time, 24 days, that the client takes in a setting."""

COMMITTER: Mapping[str, object] = {
    # A commit that found no coordinator is kept for this long, also by a client that is being closed,
    # and a core with it. The client is in no session; the default is 45 s.
    "session.timeout.ms": 1000,
}

FETCH: Mapping[str, object] = {
    # A client has one fetch under way per broker. A fetch at the end of one partition holds up the
    # fetch of the next for this long. Ranges exist already when they are read: nothing waits in vain.
    "fetch.wait.max.ms": 3,
    # The default, 1000, stalls a reader that drains its queue faster than a second.
    "fetch.queue.backoff.ms": 2,
    # Records fetched past the end of a range may be fetched in vain.
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 65_536,
}

PRODUCER: Mapping[str, object] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}

LARGEST_RECORD_BYTES = 100_000_000
"""Brokers do not answer requests above 100 MiB (socket.request.max.bytes)."""


class Sizes(NamedTuple):
    """The most bytes of a batch and of a record.

    ``record``: the default of brokers, which is more than the client's; no more than is needed, for the client takes so
    much memory for each request.
    """

    batch: int = 1_000_000
    record: int = 1_048_588

    def fitting(self, limit: int) -> Sizes:
        """These, for a topic of this ``max.message.bytes`` too: batches as small, records as large."""
        return Sizes(min(self.batch, max(1, limit)), max(self.record, min(limit, LARGEST_RECORD_BYTES)))

    def settings(self) -> dict[str, object]:
        return {"batch.size": self.batch, "message.max.bytes": self.record}


SIZES = Sizes()
"""Those that suit a topic of the brokers' defaults."""

BATCHING: Mapping[str, object] = {
    # Flush does not linger. With less, large batches go out in many small requests: half of what the
    # broker spends on them.
    "linger.ms": 50,
    "compression.type": "lz4",
    "batch.num.messages": 50_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "topic.metadata.propagation.max.ms": 10_000,
}

ASK_SECONDS = 1.0
"""How long a client may be asked for a topic."""

SETTLE_SECONDS = 5.0
"""How long brokers may not know a topic before it is taken for missing: they learn one after the other."""

DENIED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Errors that waiting does not cure. (Groups are left out: readers need no right to any.)"""


class Complaints:
    """What a client's own threads reported: kept for the thread that waits for a result."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.denied: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if is_denial(error):
            self.denied = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.last is None:
            self.last = error.str()


def is_denial(error: KafkaError) -> bool:
    """Whether the broker refused us, or we it: no use in trying again."""
    untrusted = error.code() == KafkaError._SSL and "certificate" in error.str()
    return untrusted or error.code() in DENIED


def open_consumer(connection: KafkaSettings, complaints: Complaints) -> Consumer:
    """A consumer of assigned partitions, in no group."""
    settings = {**CLIENT, **FETCH, **connection.settings, **CONSUMER}
    return _open(Consumer, connection, settings, complaints)


def open_producer(
    connection: KafkaSettings, complaints: Complaints, on_delivery: object, sizes: Sizes = SIZES
) -> Producer:
    """An idempotent producer that gives up on a record after the connection's patience."""
    patience_ms = round(min(max(100, connection.patience_seconds * 1000), LONGEST_MS))
    tuning = {**BATCHING, **sizes.settings()}
    own = {**PRODUCER, "message.timeout.ms": patience_ms, "on_delivery": on_delivery}
    return _open(Producer, connection, {**CLIENT, **tuning, **connection.settings, **own}, complaints)


def open_committer(
    connection: KafkaSettings, group: str, complaints: Complaints, on_commit: object
) -> Consumer:
    """A consumer that commits to ``group`` without joining it."""
    own = {**CONSUMER, **COMMITTER, "group.id": group, "on_commit": on_commit}
    return _open(Consumer, connection, {**CLIENT, **connection.settings, **own}, complaints)


def find_brokers(client: Consumer | Producer, topic: str, connection: KafkaSettings) -> bool:
    """Connects a client and makes it look for the brokers of a topic; whether it could.

    By itself a client looks for the brokers of new topics once a second (librdkafka, issue 3202).
    """
    try:
        client.list_topics(topic, timeout=min(ASK_SECONDS, connection.patience_seconds))
    except KafkaException as failed:
        logger.info("cannot ask for the brokers of %s yet: %s", topic, failed)
        return False
    return True


def open_admin(connection: KafkaSettings, complaints: Complaints) -> AdminClient:
    """A client for topics and offsets."""
    return _open(AdminClient, connection, {**CLIENT, **connection.settings, **ASKING}, complaints)


def _open(
    kind: Callable[..., Client],
    connection: KafkaSettings,
    settings: Mapping[str, object],
    complaints: Complaints,
) -> Client:
    addressed = {**settings, "bootstrap.servers": connection.bootstrap_servers, "error_cb": complaints}
    try:
        return kind(addressed, logger=logger)
    except (KafkaException, TypeError, ValueError) as refused:
        reason = refused.args[0].str() if isinstance(refused, KafkaException) else str(refused)
        raise ConfigError(
            f"the Kafka client does not accept its settings: {reason}",
            code="CS-201",
            next="use librdkafka's names and values (for TLS: ssl.ca.location, not ssl.truststore.location): "
            "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md",
        ) from refused
