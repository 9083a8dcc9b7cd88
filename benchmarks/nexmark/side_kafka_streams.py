"""Kafka Streams as a side of Nexmark."""

from __future__ import annotations

from benchmarks import generate
from benchmarks.nexmark.topics import Topics
from benchmarks.peers.kafka_streams.peer import KafkaStreamsPeer, available

__all__ = ["QUERIES", "available", "side"]

QUERIES = frozenset({"q3", "q4", "q5", "q7", "q8", "q20"})
SETTINGS = {
    "consumer.isolation.level": "read_committed",
    # Only the last state counts here: results of a second are merged, as other sides merge those of a batch.
    "statestore.cache.max.bytes": 64 << 20,
    "commit.interval.ms": 1_000,
    # An update looks for closed windows at most once in so many milliseconds; the last one would not at the default.
    "__emit.interval.ms.kstreams.windowed.aggregation__": 0,
}


def side(name: str, query: str, servers: str, topics: Topics, warm: Topics) -> KafkaStreamsPeer:
    """One run of one query: bids are the left side, auctions the right one."""
    return KafkaStreamsPeer(
        servers,
        f"{topics.prefix}-{query}",
        _places(query, topics),
        mode=f"nexmark-{query}",
        warm_up=_places(query, warm),
        settings=SETTINGS,
        arguments={"person": topics.person, "warm-person": warm.person},
    )


def _places(query: str, topics: Topics) -> generate.Topics:
    return generate.Topics(topics.bid, topics.auction, topics.result(query))
