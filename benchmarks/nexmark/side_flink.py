"""Flink SQL as a side of Nexmark: state on the heap, or in RocksDB."""

from __future__ import annotations

from benchmarks.nexmark.topics import Topics
from benchmarks.peers.flink import nexmark, peer
from benchmarks.peers.flink.peer import FlinkPeer, available

__all__ = ["QUERIES", "available", "side"]

QUERIES = frozenset(nexmark.QUERIES)


def side(name: str, query: str, servers: str, topics: Topics, warm: Topics) -> FlinkPeer:
    """One run of one query."""
    return peer.side(name, nexmark.statements(query, servers, topics, warm))
