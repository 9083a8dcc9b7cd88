"""How many partitions a topic has, as a producer asks the brokers."""

from __future__ import annotations

from time import monotonic, sleep

from confluent_kafka import KafkaError, KafkaException

from crossstream.errors import CrossStreamError
from crossstream.kafka import errors as faults
from crossstream.kafka.client import ASK_SECONDS, SETTLE_SECONDS, Complaints
from crossstream.kafka.ports import WritingClient

REFRESH_SECONDS = 5.0
PAUSE_SECONDS = 0.1


class PartitionCounts:
    """Numbers of partitions as a producer has learned them, and when."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self._known: dict[str, tuple[int | None, float]] = {}

    def of(self, topic: str, producer: WritingClient, complaints: Complaints) -> int:
        """The number, at most `REFRESH_SECONDS` old while brokers answer.

        Raises `SinkError`: CS-651 no answer and no number known, CS-652 no such topic, CS-653 access refused.
        """
        known, asked = self._known.get(topic, (None, 0.0))
        if known is None or monotonic() - asked >= REFRESH_SECONDS:
            known = self._ask(topic, producer, complaints, known)
            self._known[topic] = known, monotonic()
        return known

    def known(self, topic: str, producer: WritingClient) -> int | None:
        """The number as far as it is known, looked at as often; None if brokers have not answered yet."""
        known, asked = self._known.get(topic, (None, -REFRESH_SECONDS))
        if monotonic() - asked >= REFRESH_SECONDS:
            answer = _ask_once(topic, producer, min(ASK_SECONDS, self._patience))
            known = answer if isinstance(answer, int) else known
            self._known[topic] = known, monotonic()
        return known

    def _ask(self, topic: str, producer: WritingClient, complaints: Complaints, known: int | None) -> int:
        began = monotonic()
        while True:
            answer = _ask_once(topic, producer, min(ASK_SECONDS, self._patience))
            if isinstance(answer, int):
                return answer
            producer.poll(0)  # brings in complaints
            error, waited = complaints.denied or answer, monotonic() - began
            if faults.is_denial(error):
                raise _uncounted(error, topic)
            if error.code() in faults.MISSING:
                if waited >= min(SETTLE_SECONDS, self._patience):
                    raise _uncounted(error, topic)
            elif known is not None:
                return known  # if the brokers stay away, the records will fail
            elif waited >= self._patience:
                error = KafkaError(KafkaError._TIMED_OUT, complaints.last or error.str())
                raise _uncounted(error, topic)
            sleep(PAUSE_SECONDS)


def _uncounted(error: KafkaError, topic: str) -> CrossStreamError:
    what = f"the partitions of the topic cannot be counted: {error.str()}"
    return faults.not_written(what, error, topic=topic)


def _ask_once(topic: str, producer: WritingClient, seconds: float) -> int | KafkaError:
    try:
        found = producer.list_topics(topic, timeout=seconds).topics[topic]
    except KafkaException as failed:
        error: KafkaError = failed.args[0]
        return error
    return len(found.partitions) if found.error is None else found.error
