"""How many partitions the topics have that are written to, for partitioners of the user's.

Partitions may be added while an application runs. The producer that writes is asked, so that its own partitioner,
which by itself looks every five minutes as Java's does, hears of them too.
"""

from __future__ import annotations

from time import monotonic, sleep

from confluent_kafka import KafkaError, KafkaException, Producer

from crossstream.kafka import faults
from crossstream.kafka.client import ASK_SECONDS, SETTLE_SECONDS, Complaints, is_denial

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
