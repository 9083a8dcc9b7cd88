"""The order of arrival is that of Kafka's PartitionGroup; groups by key are exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.order import (
    arrival_of,
    by_arrival,
    by_key,
    last_per_key,
    minor_of,
    place_of,
    running_maximum,
)
from crossstream.columns.values import Values
from crossstream.serdes import bytes as bytes_serde
from tests.laws.effort import cases
from tests.storage.rows import binary

law = cases(2.5)
timestamps = st.lists(st.integers(0, 9), max_size=8)


def partition_group(partitions: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(partition, offset) in the order in which a task takes records: the smallest head first, ties by rank.

    A partition's head time is the largest timestamp it has given or shows (`RecordQueue` in Kafka).
    """
    taken, offsets, times = [], [0] * len(partitions), [-1] * len(partitions)
    while any(offset < len(rows) for offset, rows in zip(offsets, partitions, strict=True)):
        heads = []
        for rank, rows in enumerate(partitions):
            if offsets[rank] < len(rows):
                times[rank] = max(times[rank], rows[offsets[rank]])
                heads.append((times[rank], rank))
        _, rank = min(heads)
        taken.append((rank, offsets[rank]))
        offsets[rank] += 1
    return taken


def changes_of(rank: int, times: Sequence[int], start: int = 0, before: int = -(2**63)) -> Changes:
    ts = np.array(times, np.int64)
    offsets = np.arange(start, start + len(times))
    keys = Values(bytes_serde(), wire=binary([b"%d" % t for t in times]))
    return Changes(keys, keys, ts, running_maximum(ts, before), minor_of(rank, offsets, 0))


@law
@given(st.lists(timestamps, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_arrival_is_the_order_of_a_partition_group(partitions: list[list[int]], random: object) -> None:
    parts = [changes_of(rank, times) for rank, times in enumerate(partitions)]
    random.shuffle(parts)  # type: ignore[attr-defined]
    merged = by_arrival(concat_changes(parts))
    assert [place_of(minor) for minor in merged.minor.tolist()] == partition_group(partitions)


@law
@given(timestamps, st.integers(0, 8))
def test_a_range_may_be_read_in_pieces(times: list[int], cut: int) -> None:
    whole = changes_of(3, times)
    first = changes_of(3, times[:cut])
    newest = int(first.major[-1]) if first.rows else -(2**63)
    pieces = concat_changes([first, changes_of(3, times[cut:], start=len(times[:cut]), before=newest)])
    assert pieces.major.tolist() == whole.major.tolist()
    assert pieces.minor.tolist() == whole.minor.tolist()


def test_rows_of_one_record_keep_their_order() -> None:
    keys = Values(bytes_serde(), wire=binary([b"a", b"b", b"c", b"d"]))
    same = np.array([5, 5, 1, 5])
    ordered = by_arrival(Changes(keys, keys, same, same, np.array([7, 7, 7, 7])))
    assert ordered.key.wire().to_pylist() == [b"c", b"a", b"b", b"d"]


def test_places_are_exact() -> None:
    offsets = np.array([0, 1, 2**40 - 1]) + 17
    for rank in (0, 1, 5000):
        assert [place_of(m) for m in minor_of(rank, offsets, 17).tolist()] == [
            (rank, 0), (rank, 1), (rank, 2**40 - 1),
        ]  # fmt: skip


@law
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 1)), max_size=12))
def test_keys_with_one_hash_are_told_apart(rows: list[tuple[bytes, int]]) -> None:
    """Hashes are any function of the key here; often there is one for two keys."""
    names = [key for key, _ in rows]
    hash_of = dict(rows)
    values = Values(bytes_serde(), wire=binary(names))
    numbers = np.arange(len(rows))
    changes = Changes(values, values, numbers, numbers, numbers)
    hashes = np.array([hash_of[key] for key in names], np.uint64)
    order, begins = by_key(changes, hashes)
    assert sorted(order.tolist()) == numbers.tolist()
    assert (np.diff(hashes[order].astype(int)) >= 0).all()
    groups: list[list[int]] = []
    for row, first in zip(order.tolist(), begins.tolist(), strict=True):
        groups = [*groups, [row]] if first else [*groups[:-1], [*groups[-1], row]]
    assert sorted(groups) == sorted([n for n, key in enumerate(names) if key == one] for one in set(names))
    last = {key: n for n, key in enumerate(names)}
    assert sorted(last_per_key(changes, hashes).tolist()) == sorted(last.values())
    backwards = numbers[::-1]
    mixed = changes.take(backwards)
    picked = last_per_key(mixed, hashes[backwards], arrival_of(mixed))
    assert sorted(backwards[picked].tolist()) == sorted(last.values())
