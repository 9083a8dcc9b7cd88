"""murmur2 on columns is murmur2 of each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.partitioning import (
    default_partitions,
    murmur2,
    murmur2_column,
    murmur2_partitions,
    split_by_partition,
)

KEYS = st.lists(st.none() | st.binary(max_size=40), max_size=60)


def column(keys: list[bytes | None]) -> pa.LargeBinaryArray:
    return pa.array(keys, pa.large_binary())


@given(KEYS)
@example([])
@example([None])
@example([b""])
@example([b"abc", b"x" * 5000])
@example([b"x" * n for n in range(100)])
def test_each_hash_is_that_of_the_key_alone(keys: list[bytes | None]) -> None:
    assert murmur2_column(column(keys)).tolist() == [0 if key is None else murmur2(key) for key in keys]


@given(KEYS, st.integers(1, 9))
def test_partitions_agree_with_the_definition(keys: list[bytes | None], count: int) -> None:
    assert default_partitions(column(keys), count).tolist() == murmur2_partitions(keys, count)


@given(KEYS, st.integers(0, 5), st.integers(0, 5))
def test_a_slice_of_a_column_hashes_like_its_rows(keys: list[bytes | None], first: int, length: int) -> None:
    whole = murmur2_column(column(keys)).tolist()
    assert murmur2_column(column(keys).slice(first, length)).tolist() == whole[first : first + length]


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # from UtilsTest.testMurmur2 of Apache Kafka
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_kafka(key: bytes, hashed: int) -> None:
    assert murmur2_column(column([key])).view(np.int32).tolist() == [hashed]


@given(st.lists(st.integers(0, 3), max_size=40))
def test_split_keeps_the_order_within_each_partition(chosen: list[int]) -> None:
    records = pa.record_batch({"row": pa.array(range(len(chosen)), pa.int64())})
    parts = {
        partition: part.column("row").to_pylist()
        for partition, part in split_by_partition(records, np.array(chosen, np.int32))
    }
    assert parts == {p: [row for row, of in enumerate(chosen) if of == p] for p in sorted(set(chosen))}
