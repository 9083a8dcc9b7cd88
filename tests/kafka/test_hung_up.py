"""What a client says of brokers that hang up depends on the moment at which they do."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from crossstream.kafka import errors

HUNG_UP = [
    "127.0.0.1:9092/bootstrap: Disconnected: connection closed by peer: receive 0 after POLLIN (after 0ms in state UP)",
    "127.0.0.1:9092/bootstrap: Send failed: Broken pipe (after 0ms in state UP)",
    "127.0.0.1:9092/bootstrap: Receive failed: Connection reset by peer (after 0ms in state APIVERSION_QUERY)",
    "127.0.0.1:9092/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect "
    "security.protocol configuration (connecting to a SSL listener?) or broker version is < 0.10",
    "1/1 brokers are down",
]
NOBODY = "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)"
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)


@pytest.mark.parametrize("complaint", HUNG_UP)
def test_the_next_step_suspects_the_protocol(complaint: str) -> None:
    written = errors.undelivered(TIMED_OUT, "any", 0, b"k", complaint=complaint)
    for error in (errors.away(2.0, complaint), written):
        assert "security.protocol" in (error.next or "")


@pytest.mark.parametrize("complaint", [NOBODY, None])
def test_where_nobody_listens_it_does_not(complaint: str | None) -> None:
    written = errors.undelivered(TIMED_OUT, "any", 0, b"k", complaint=complaint)
    for error in (errors.away(2.0, complaint), written):
        assert "security.protocol" not in (error.next or "")
