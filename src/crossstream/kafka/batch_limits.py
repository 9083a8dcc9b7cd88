"""How large a batch of records may be: its topic's ``max.message.bytes``.

A broker refuses larger ones. Java's producer then splits them; Kafka's C client gives all their records up, however
small they are. So topics are asked before they are written to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from crossstream.kafka.client import ASK_SECONDS, Complaints, logger, open_admin

if TYPE_CHECKING:
    from crossstream.kafka.connection import KafkaConnection

SETTING = "max.message.bytes"


class BatchLimits:
    """Asks topics, with a client of its own that is open until `close`."""

    def __init__(self, connection: KafkaConnection) -> None:
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
