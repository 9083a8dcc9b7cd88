"""Kafka's default partitioner, against the vectors of Kafka's own tests."""

from __future__ import annotations

import pytest

from crossstream.partitioning import murmur2, murmur2_partitions

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("data", "signed"), VECTORS)
def test_murmur2_is_kafkas(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_partition_is_the_positive_hash_modulo_the_count(count: int) -> None:
    expected = [(signed & 0x7FFFFFFF) % count for _, signed in VECTORS]
    assert murmur2_partitions([data for data, _ in VECTORS], count) == expected


def test_null_and_empty_keys_have_a_partition() -> None:
    assert murmur2_partitions([None, b""], 7) == [0, (murmur2(b"") & 0x7FFFFFFF) % 7]


@pytest.mark.parametrize("length", range(1, 9))
def test_every_tail_length_counts(length: int) -> None:
    data = bytes(range(1, length + 1))
    assert len({murmur2(data), murmur2(data[:-1]), murmur2(data[:-1] + b"\xff")}) == 3
