"""Hashes of serialised keys: XXH64 with seed 42, a whole column at a time.

The number decides where a row lives (`partition_of`) and how runs are sorted; the bytes decide whether
two keys are equal. It is the hash that Spark's `xxhash64` gives for the same bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SMALL = 64
"""Below this many keys the C function called key by key beats a dozen numpy calls."""

_COUNTED = 1 << 16
"""Up to this length of the longest key the lengths that occur are found by counting."""


def hash_keys(keys: pa.LargeBinaryArray, bits: int = 64) -> np.ndarray:
    """XXH64 (seed 42) of every key, as uint64; null keys give 0.

    ``bits`` keeps only that many high bits: tests force collisions with it.
    """
    if len(keys) < _SMALL:
        digest = xxhash.xxh64_intdigest
        hashes = np.array([0 if k is None else digest(k, SEED) for k in keys.to_pylist()], np.uint64)
    else:
        hashes = _hash_column(keys)
        if keys.null_count:
            hashes[np.asarray(keys.is_null())] = 0
    return hashes if bits == 64 else hashes >> np.uint64(64 - bits) << np.uint64(64 - bits)


def partition_of(hashes: np.ndarray, partitions: int) -> np.ndarray:
    """The state partition of each hash: equal ranges of the upper 32 bits."""
    return ((hashes >> np.uint64(32)) * np.uint64(partitions) >> np.uint64(32)).astype(np.int64)


def partition_bounds(partitions: int) -> list[int]:
    """The lowest hash of each state partition, and 2**64 at the end: where the partition after the last would begin."""
    return [-(-(place << 32) // partitions) << 32 for place in range(partitions + 1)]


def _hash_column(keys: pa.LargeBinaryArray) -> np.ndarray:
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    end = int(offsets[-1])
    data = np.zeros(end + 8, np.uint8)
    if end:
        data[:end] = np.frombuffer(keys.buffers()[2], np.uint8, end)
    if len(lengths) and (lengths == lengths[0]).all():
        return _hash_equal_length(data, starts, int(lengths[0]))
    hashes = np.empty(len(keys), np.uint64)
    for length in _different(lengths):
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _hash_equal_length(data, starts[rows], int(length))
    return hashes


def _different(lengths: np.ndarray) -> np.ndarray:
    """Each length once; counting is many times faster than sorting."""
    if not len(lengths) or lengths.max() > _COUNTED:
        return np.unique(lengths)
    return np.flatnonzero(np.bincount(lengths))


def _hash_equal_length(data: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    halves = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    with np.errstate(over="ignore"):
        at = 0
        if length >= 32:
            h, at = _stripes(words, starts, length)
        else:
            h = np.full(len(starts), np.uint64(SEED) + _P5, np.uint64)
        h += np.uint64(length)
        while at + 8 <= length:
            h = _rotate(h ^ _round(np.uint64(0), words[starts + at]), 27) * _P1 + _P4
            at += 8
        if at + 4 <= length:
            h = _rotate(h ^ halves[starts + at].astype(np.uint64) * _P1, 23) * _P2 + _P3
            at += 4
        while at < length:
            h = _rotate(h ^ data[starts + at].astype(np.uint64) * _P5, 11) * _P1
            at += 1
        h = (h ^ (h >> np.uint64(33))) * _P2
        h = (h ^ (h >> np.uint64(29))) * _P3
        return np.asarray(h ^ (h >> np.uint64(32)))


def _stripes(words: np.ndarray, starts: np.ndarray, length: int) -> tuple[np.ndarray, int]:
    seed = np.uint64(SEED)
    lanes = [np.full(len(starts), v, np.uint64) for v in (seed + _P1 + _P2, seed + _P2, seed, seed - _P1)]
    at = 0
    while at + 32 <= length:
        for lane in range(4):
            lanes[lane] = _round(lanes[lane], words[starts + at + 8 * lane])
        at += 32
    h = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    for accumulator in lanes:
        h = (h ^ _round(np.uint64(0), accumulator)) * _P1 + _P4
    return h, at


def _round(accumulator: np.ndarray | np.uint64, lane: Any) -> np.ndarray:
    return _rotate(accumulator + lane * _P2, 31) * _P1


def _rotate(x: np.ndarray, bits: int) -> np.ndarray:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))
