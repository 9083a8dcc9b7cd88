"""Hashes equal those of the xxhash library, whatever the column looks like; partitions are equal ranges of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.columns.hashing import hash_keys, partition_of
from tests.laws.effort import cases
from tests.storage.rows import binary

keys = st.lists(st.none() | st.binary(max_size=70), max_size=20)
law = cases(1.67)


def expected(values: Sequence[bytes | None]) -> list[int]:
    return [0 if value is None else xxhash.xxh64_intdigest(value, seed=42) for value in values]


@law
@given(keys, st.integers(0, 10), st.integers(0, 10))
@example([b"x" * n for n in range(70)], 0, 0)
@example([b""] * 100, 3, 5)
@example([None] * 100, 0, 0)
def test_columns_of_any_length_and_their_slices(values: list[bytes | None], start: int, end: int) -> None:
    """As they are, and so many that they are hashed together."""
    for column in (values, values * 10):
        whole = binary(column)
        assert hash_keys(whole).tolist() == expected(column)
        part = whole.slice(start, max(0, len(whole) - start - end))
        assert hash_keys(part).tolist() == expected(part.to_pylist())


def test_every_length_hashed_together() -> None:
    values = [bytes(range(n % 256)) * (1 + n // 256) for n in range(400)] * 2
    assert hash_keys(binary(values)).tolist() == expected(values)


def test_a_column_without_buffers() -> None:
    assert hash_keys(pa.nulls(100, pa.large_binary())).tolist() == [0] * 100
    assert hash_keys(pa.array([], pa.large_binary())).dtype == np.uint64


@pytest.mark.parametrize("bits", [1, 4, 8, 63])
def test_fewer_bits_are_the_upper_ones(bits: int) -> None:
    values = [b"%d" % n for n in range(200)]
    found = hash_keys(binary(values), bits)
    assert found.tolist() == [h >> 64 - bits << 64 - bits for h in expected(values)]
    assert len(set(found.tolist())) <= 2**bits


@law
@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 5000))
@example([0, 2**64 - 1, 2**63, 2**63 - 1, 2**32 - 1, 2**32], 3)
def test_partitions_are_ranges_in_order(hashes: list[int], partitions: int) -> None:
    hashes.sort()
    found = partition_of(np.array(hashes, np.uint64), partitions).tolist()
    assert found == [(h >> 32) * partitions >> 32 for h in hashes]
    assert found == sorted(found)
    assert all(0 <= pid < partitions for pid in found)


def test_partitions_are_even() -> None:
    hashes = hash_keys(binary([b"key %d" % n for n in range(10_000)]))
    for partitions in (2, 3, 7):
        counts = np.bincount(partition_of(hashes, partitions), minlength=partitions)
        assert abs(counts - 10_000 / partitions).max() < 0.1 * 10_000 / partitions
