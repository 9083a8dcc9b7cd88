"""Where a key lives: stream times are kept per state partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.reference.records import PartitionOf


def one_partition(key: Any) -> int:
    return 0


def hash_partition(partitions: int, serialize: Callable[[Any], bytes]) -> PartitionOf:
    """The state partition of a key: its xxh64 (seed 42) hash, by ranges. Null keys: partition 0."""
    import xxhash

    def partition_of(key: Any) -> int:
        if key is None:
            return 0
        return (xxhash.xxh64_intdigest(serialize(key), seed=42) >> 32) * partitions >> 32

    return partition_of
