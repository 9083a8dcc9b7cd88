"""Kafka's default partitioning of records, for columns and for single keys.

Every Kafka client puts a key in partition ``(murmur2(key) & 0x7fffffff) % partitions``. To be co-partitioned with
them, crossstream does the same. `murmur2` is the definition, one key at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

Hashes = np.ndarray[Any, np.dtype[np.uint32]]
Partitions = np.ndarray[Any, np.dtype[np.int32]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_FEW = 16
"""Below this number of unfinished keys, hashing one by one is faster than hashing together."""


def murmur2_column(keys: pa.LargeBinaryArray) -> Hashes:
    """`murmur2` of each key (uint32); 0 for a null key."""
    starts, lengths, content = _layout(keys)
    hashes = np.zeros(len(keys), dtype=np.uint32)
    longest_first = np.argsort(-lengths, kind="stable")
    done = _few_long_ones(lengths[longest_first] // 4)
    for row in longest_first[:done].tolist():
        start = int(starts[row])
        hashes[row] = murmur2(content[start : start + int(lengths[row])].tobytes())
    rest = longest_first[done:]
    hashes[rest] = _hash_together(content, starts[rest], lengths[rest])
    if keys.null_count:
        hashes[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def default_partitions(keys: pa.LargeBinaryArray, count: int) -> Partitions:
    """The partition (int32, below ``count``) where Kafka's default puts each key; null keys: partition 0."""
    if count == 1:
        return np.zeros(len(keys), dtype=np.int32)
    partitions = (murmur2_column(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    return partitions.astype(np.int32)


def split_by_partition(
    records: pa.RecordBatch, partitions: Partitions
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each partition that occurs, in ascending partition and unchanged order."""
    if len(partitions) == 0:
        return
    if (partitions == partitions[0]).all():
        yield int(partitions[0]), records
        return
    order = np.argsort(partitions, kind="stable")
    ordered, gathered = partitions[order], records.take(pa.array(order))
    firsts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    ends = np.append(firsts[1:], len(ordered))
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        yield int(ordered[first]), gathered.slice(first, end - first)


def _layout(keys: pa.LargeBinaryArray) -> tuple[Ints, Ints, Bytes]:
    """Start and length of each key (0 for nulls) in the bytes they lie in."""
    _, offsets, content = keys.buffers()
    if len(keys) == 0 or offsets is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, dtype=np.int64)[keys.offset : keys.offset + len(keys) + 1]
    lengths = np.diff(bounds)
    if keys.null_count:
        lengths = np.where(keys.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    content_bytes = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    return bounds[:-1], lengths, content_bytes


def _few_long_ones(words: Ints) -> int:
    """How many of the longest keys (``words`` descending) to hash one by one.

    Hashing together costs a pass for each word of the longest key: for a few keys much longer than all others, these
    passes would be almost empty. One key of 1 MB would take more than a second.
    """
    if len(words) == 0:
        return 0
    others = int(words[min(_FEW, len(words) - 1)])
    return int(np.count_nonzero(words > 2 * others + 64))


def _hash_together(content: Bytes, starts: Ints, lengths: Ints) -> Hashes:
    """`murmur2` of keys in descending length; each pass hashes the next word of all keys that have one."""
    h = _SEED ^ lengths.astype(np.uint32)
    words = lengths // 4
    if len(words) and words[0] > 0:
        unaligned = np.ndarray((len(content) - 3,), dtype="<u4", buffer=content, strides=(1,))
        # `with_word[w]`: how many of the keys, longest first, have a word w
        with_word = np.searchsorted(-words, -np.arange(int(words[0])), side="left")
        for word, active in enumerate(with_word.tolist()):
            k = unaligned[starts[:active] + 4 * word] * _M
            k = (k ^ (k >> np.uint32(24))) * _M
            h[:active] = (h[:active] * _M) ^ k
    return _finish(h, content, starts + 4 * words, lengths - 4 * words)


def _finish(h: Hashes, content: Bytes, tails: Ints, left: Ints) -> Hashes:
    """Mixes in the up to three bytes ``left`` at ``tails``, then scrambles."""
    for byte in (2, 1, 0):
        rows = np.flatnonzero(left > byte)
        h[rows] ^= content[tails[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(left > 0)
    h[rows] *= _M
    h = (h ^ (h >> np.uint32(13))) * _M
    return h ^ (h >> np.uint32(15))


def murmur2_partitions(keys: Iterable[bytes | None], count: int) -> list[int]:
    """Kafka's default partition of each serialised key (null keys: partition 0)."""
    return [0 if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in keys]


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (seed 0x9747b28c) of ``data``, as an unsigned 32-bit integer."""
    mask, m, length = 0xFFFFFFFF, 0x5BD1E995, len(data)
    h = (0x9747B28C ^ length) & mask
    for i in range(0, length & ~3, 4):
        k = (int.from_bytes(data[i : i + 4], "little") * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
    tail = data[length & ~3 :]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)
