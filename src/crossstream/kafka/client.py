"""confluent-kafka's clients: settings, what their threads complain about, and clients that get no answer.

While brokers are away a reader waits quietly, up to the patience. What waiting cannot cure (a topic
that is gone, a range that was deleted, a refused login) is reported at once.

A broker that has just started may answer that there are no brokers. Kafka's C client believes it, forgets all it knew,
and at the wrong moment never looks again (librdkafka issue 5301): only another client finds the cluster. So a client
that gets no answer for some seconds is replaced, while the patience lasts (decision 0028). One that reads or asks may
be replaced at any time. One that writes knows which of its records are stored: it is replaced only if another client is
answered.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from crossstream.error_codes import refuse
from crossstream.kafka import errors
from crossstream.kafka.messages import MessageConsumer, MessageProducer
from crossstream.kafka.native.client import takes
from crossstream.kafka.native.consumer import NativeConsumer
from crossstream.kafka.native.library import library as native_library
from crossstream.kafka.native.producer import NativeProducer
from crossstream.kafka.ports import Client, ReadingClient, WritingClient
from crossstream.kafka.settings import KafkaSettings
from crossstream.topics import OffsetRange

Opened = TypeVar("Opened")

logger = logging.getLogger("crossstream.kafka")
logger.addHandler(logging.NullHandler())


class Outages(logging.Filter):
    """What clients say of connections, once a minute while it lasts, and not before it has lasted for ten seconds.

    Each of them says it again with every attempt, several times a second. What ends before, nothing has to be done
    about; what stops the application is in its error.
    """

    LASTING, APART = 10.0, 60.0

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[
            str, tuple[float, float, float]
        ] = {}  # since when, the last time, and when it is shown

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.startswith(("FAIL [", "ERROR [")):
            return True
        kind, now = re.sub(r"#producer-\d+|#consumer-\d+|\(after .*", "", text), monotonic()
        since, last, shown = self._said.get(kind, (now, now, -self.APART))
        if now - last > self.LASTING:  # another outage
            since = now
        is_due = now - since >= self.LASTING and now - shown >= self.APART
        self._said[kind] = (since, now, now if is_due else shown)
        return is_due


logger.addFilter(Outages())

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


class Complaints:
    """What a client's own threads reported: kept for the thread that waits for a result."""

    def __init__(self) -> None:
        self.last: str | None = None
        self.denied: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if errors.is_denial(error):
            self.denied = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self.last is None:
            self.last = error.str()


def open_consumer(connection: KafkaSettings, complaints: Complaints) -> ReadingClient:
    """A consumer of assigned partitions, in no group."""
    settings = {**CLIENT, **FETCH, **connection.settings, **CONSUMER}
    return _open(_kinds(settings).consumer, connection, settings, complaints)


def open_producer(
    connection: KafkaSettings,
    complaints: Complaints,
    sizes: Sizes = SIZES,
    transaction: Mapping[str, object] = MappingProxyType({}),
) -> WritingClient:
    """An idempotent producer that gives up on a record after the connection's patience.

    ``transaction``: its settings, of one that writes in transactions.
    """
    patience_ms = round(min(max(100, connection.patience_seconds * 1000), LONGEST_MS))
    tuning = {**BATCHING, **sizes.settings()}
    settings = {**CLIENT, **tuning, **connection.settings, **PRODUCER, **transaction}
    settings["message.timeout.ms"] = patience_ms
    return _open(_kinds(settings).producer, connection, settings, complaints)


def open_committer(
    connection: KafkaSettings, group: str, complaints: Complaints, on_commit: object
) -> Consumer:
    """A consumer that commits to ``group`` without joining it."""
    own = {**CONSUMER, **COMMITTER, "group.id": group, "on_commit": on_commit}
    return _open(Consumer, connection, {**CLIENT, **connection.settings, **own}, complaints)


def find_brokers(client: Client, topic: str, connection: KafkaSettings) -> bool:
    """Connects a client and makes it look for the brokers of a topic; whether it could.

    By itself a client looks for the brokers of new topics once a second (librdkafka, issue 3202).
    """
    try:
        client.list_topics(topic, timeout=min(ASK_SECONDS, connection.patience_seconds))
    except KafkaException as failed:
        logger.info("cannot ask for the brokers of %s yet: %s", topic, failed)
        return False
    return True


class Kinds(NamedTuple):
    """How records pass between Kafka and Arrow."""

    consumer: Callable[..., ReadingClient]
    producer: Callable[..., WritingClient]


def _kinds(settings: Mapping[str, object]) -> Kinds:
    """Native clients where they are to be had, and take such settings."""
    library = native_library()
    if library is None or not takes(settings):
        return Kinds(MessageConsumer, MessageProducer)
    return Kinds(partial(NativeConsumer, library), partial(NativeProducer, library))


def open_admin(connection: KafkaSettings, complaints: Complaints) -> AdminClient:
    """A client for topics and offsets."""
    return _open(AdminClient, connection, {**CLIENT, **connection.settings, **ASKING}, complaints)


def _open(
    kind: Callable[..., Opened],
    connection: KafkaSettings,
    settings: Mapping[str, object],
    complaints: Complaints,
) -> Opened:
    addressed = {**settings, "bootstrap.servers": connection.bootstrap_servers, "error_cb": complaints}
    try:
        return kind(addressed, logger=logger)
    except (KafkaException, TypeError, ValueError) as refused:
        reason = refused.args[0].str() if isinstance(refused, KafkaException) else str(refused)
        step = (
            "use librdkafka's names and values (for TLS: ssl.ca.location, not ssl.truststore.location): "
            "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md"
        )
        raise refuse("CS-201", f"the Kafka client does not accept its settings: {reason}", step) from refused


SILENT_SECONDS = 5.0
"""A client without an answer for so long is taken for cut off."""
LOOK_SECONDS = 2.0
UNANSWERED = frozenset({*errors.TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD})
"""What a client says that finds no broker."""
PROBE_SECONDS = 1.0
STUCK_FACTOR = 10
"""Patience for a range that does not advance although brokers answer (a long aborted transaction)."""


class Stall:
    """Counts the seconds waited since the last progress and asks the cluster for the reason.

    ``waited`` counts only time spent waiting, not the time a caller takes between batches.
    """

    def __init__(self, consumer: ReadingClient, complaints: Complaints, patience_seconds: float) -> None:
        self.consumer = consumer
        self._complaints = complaints
        self._patience = patience_seconds
        self.progress()

    def progress(self) -> None:
        self.waited = 0.0
        self._unanswered = 0.0
        self._next_probe = PROBE_SECONDS
        self._next_client = SILENT_SECONDS

    def wants_another_client(self) -> bool:
        """Whether it is time to try one: less often each time, so that a slow answer gets through in the end."""
        wanted = self.waited >= self._next_client
        if wanted:
            self._next_client = 2 * self._next_client + SILENT_SECONDS
        return wanted

    def waited_for(self, seconds: float, unfinished: Iterable[tuple[OffsetRange, int]]) -> None:
        """Nothing came for ``seconds`` more; raises `SourceError` if there is no use in waiting.

        ``unfinished``: the ranges that are read, each with the offset it has come to.
        """
        self.check_access()
        self._wait(seconds)
        if self.waited >= min(self._next_probe, self._patience):
            all(self._probe(span, position) for span, position in unfinished)
            self._next_probe = self.waited + PROBE_SECONDS

    def check_access(self) -> None:
        """Raises `SourceError` (CS-605) if a broker refused us."""
        if self._complaints.denied is not None:
            raise errors.refused(self._complaints.denied.str())

    def check_range(self, span: OffsetRange, position: int, *, settled: bool) -> None:
        """Raises `SourceError` if the log begins after ``position`` (CS-601) or ends too early (CS-603).

        ``settled``: an early end is no passing state. (A new leader may lag behind for a moment.)
        """
        tp = KafkaPartition(span.topic, span.partition)
        begin, end = self.consumer.get_watermark_offsets(tp, timeout=PROBE_SECONDS, cached=False)
        if begin > position:
            raise errors.deleted(span, position, begin)
        if end < span.end and settled:
            raise errors.truncated(span, end)

    def _probe(self, span: OffsetRange, position: int) -> bool:
        """Whether the cluster answered; raises `SourceError` if its answer leaves no hope."""
        asked = monotonic()
        try:
            if self._is_known(span):
                self.check_range(span, position, settled=self.waited >= self._patience)
        except KafkaException as failed:
            self._wait(monotonic() - asked)
            if self._unanswered >= self._patience:
                reason = self._complaints.last or failed.args[0].str()
                raise errors.away(self._patience, reason, span.topic) from failed
            return False
        self._unanswered = 0.0
        if self.waited >= self._patience * STUCK_FACTOR:
            raise errors.stuck(span, position, self.waited)
        return True

    def _is_known(self, span: OffsetRange) -> bool:
        """Whether the brokers know topic and partition; raises `SourceError` if they settled on not."""
        topic = self.consumer.list_topics(span.topic, timeout=PROBE_SECONDS).topics[span.topic]
        settled = self.waited >= min(SETTLE_SECONDS, self._patience)
        if topic.error is not None and topic.error.code() not in errors.MISSING:
            if errors.is_denial(topic.error):
                raise errors.refused(topic.error.str(), span.topic)
            raise KafkaException(topic.error)
        partition = topic.partitions.get(span.partition)
        if partition is None and settled:
            raise errors.missing(span.topic, None if topic.error is not None else span.partition)
        if partition is not None and partition.leader == -1 and self.waited >= self._patience:
            raise errors.leaderless(self._patience, span.topic, span.partition)
        return partition is not None

    def _wait(self, seconds: float) -> None:
        self.waited += seconds
        self._unanswered += seconds


class FlushStall:
    """Whether as many records as before are left to be stored, every few seconds."""

    def __init__(self) -> None:
        self._left, self._since = -1, monotonic()

    def lasts(self, left: int) -> bool:
        lasts = left == self._left and monotonic() - self._since >= SILENT_SECONDS
        if lasts or left != self._left:
            self._left, self._since = left, monotonic()
        return lasts


def is_cut_off(producer: WritingClient, connection: KafkaSettings) -> bool:
    """Whether another client finds brokers, and this one still finds none."""
    if _is_answered(producer) or not _is_answered(open_admin(connection, Complaints())):
        return False
    cut_off = not _is_answered(producer)
    if cut_off:
        logger.warning("a client has lost all brokers and does not find them again; another takes its place")
    return cut_off


def _is_answered(client: object) -> bool:
    try:
        client.list_topics(timeout=LOOK_SECONDS)  # type: ignore[attr-defined]
    except KafkaException:
        return False
    return True
