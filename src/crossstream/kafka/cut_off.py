"""Clients that have lost all brokers for good (decision 0028).

A broker that has just started may answer that there are no brokers. Kafka's C client believes it, forgets all it knew,
and at the wrong moment never looks again (librdkafka issue 5301): only another client finds the cluster. So a client
that gets no answer for some seconds is replaced, while the patience lasts. One that reads or asks may be replaced at
any time. One that writes knows which of its records are stored: it is replaced only if another client is answered.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer

from crossstream.kafka import errors as faults
from crossstream.kafka.client import Complaints, logger, open_admin

if TYPE_CHECKING:
    from crossstream.kafka.settings import KafkaSettings

SILENT_SECONDS = 5.0
"""Without an answer for so long a client is taken for cut off."""
LOOK_SECONDS = 2.0
UNANSWERED = frozenset({*faults.TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD})
"""What a client says that finds no broker."""


class Silence:
    """Whether as many records as before are left to be stored, every few seconds."""

    def __init__(self) -> None:
        self._left, self._since = -1, monotonic()

    def lasts(self, left: int) -> bool:
        lasts = left == self._left and monotonic() - self._since >= SILENT_SECONDS
        if lasts or left != self._left:
            self._left, self._since = left, monotonic()
        return lasts


def is_cut_off(producer: Producer, connection: KafkaSettings) -> bool:
    """Whether another client finds brokers, and this one still does not."""
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
