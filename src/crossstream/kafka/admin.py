"""What Kafka says of topics that are written to: partitions, and how large a record may be."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from crossstream.kafka import errors as faults
from crossstream.kafka.client import ASK_SECONDS, SETTLE_SECONDS, Complaints, is_denial, logger, open_admin

if TYPE_CHECKING:
    from crossstream.kafka.settings import KafkaSettings


REFRESH_SECONDS = 5.0
PAUSE_SECONDS = 0.1


class PartitionCounts:
    """What a producer was told, and when."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._known: dict[str, tuple[int, float]] = {}

    def of(self, topic: str, producer: Producer, complaints: Complaints) -> int:
        """The number, at most `REFRESH_SECONDS` old while brokers answer.

        Raises `SinkError`: CS-651 nobody answers and none is known, CS-652 no such topic, CS-653 access refused.
        """
        known, asked = self._known.get(topic, (None, 0.0))
        if known is None or monotonic() - asked >= REFRESH_SECONDS:
            known = self._ask(topic, producer, complaints, known)
            self._known[topic] = known, monotonic()
        return known

    def _ask(self, topic: str, producer: Producer, complaints: Complaints, known: int | None) -> int:
        began = monotonic()
        while True:
            told = _ask_once(topic, producer, min(ASK_SECONDS, self._patience))
            if isinstance(told, int):
                return told
            producer.poll(0)  # brings in complaints
            error, waited = complaints.denied or told, monotonic() - began
            if is_denial(error):
                raise faults.uncounted(error, topic)
            if error.code() in faults.MISSING:
                if waited >= min(SETTLE_SECONDS, self._patience):
                    raise faults.uncounted(error, topic)
            elif known is not None:
                return known  # if the brokers stay away, the records will tell
            elif waited >= self._patience:
                raise faults.uncounted(
                    KafkaError(KafkaError._TIMED_OUT, complaints.last or error.str()), topic
                )
            sleep(PAUSE_SECONDS)


def _ask_once(topic: str, producer: Producer, seconds: float) -> int | KafkaError:
    try:
        told = producer.list_topics(topic, timeout=seconds).topics[topic]
    except KafkaException as failed:
        error: KafkaError = failed.args[0]
        return error
    return len(told.partitions) if told.error is None else told.error


SETTING = "max.message.bytes"


class BatchLimits:
    """Asks topics, with a client of its own that is open until `close`."""

    def __init__(self, connection: KafkaSettings) -> None:
        self._connection = connection
        self._client: AdminClient | None = None

    def of(self, topic: str) -> int | None:
        """The most bytes; None if they are not told: there is no such topic, no answer, or no right to it."""
        if self._client is None:
            self._client = open_admin(self._connection, Complaints())
        seconds = min(ASK_SECONDS, self._connection.patience_seconds)
        try:
            wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
            [told] = self._client.describe_configs([wanted], request_timeout=seconds).values()
            return int(told.result()[SETTING].value)
        except (KafkaException, KeyError, ValueError) as failed:
            logger.info("cannot ask for %s of %s: %s", SETTING, topic, failed)
            return None

    def close(self) -> None:
        self._client = None
