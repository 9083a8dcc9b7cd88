"""Stream time of source partitions: what is told is what was noted, and what follows from it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from crossstream.columns.stream_time import BY_CLOCK, Highs, Timeline, holding, merged_sources

ROWS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3)), min_size=1, max_size=30)


def highs(rows: list[tuple[int, int]], headers: bool = False) -> Highs:
    ts, partition = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    place = np.arange(len(rows), dtype=np.int64)
    texts = pa.array([str(one).encode() for one in place], pa.large_binary()) if headers else None
    return Highs(ts, place, place << 3, partition, texts)


@given(ROWS, st.booleans())
def test_what_is_packed_is_unpacked(rows: list[tuple[int, int]], headers: bool) -> None:
    one = highs(rows, headers)
    other = Highs.of_blob(one.pack())
    for name in ("ts", "major", "minor", "partition"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    assert one.headers == other.headers
    assert Highs.of_blob(one) is one


@given(ROWS, st.integers(-1, 20))
def test_stream_time_is_the_least_of_the_source_partitions(rows: list[tuple[int, int]], before: int) -> None:
    counted = {partition for _, partition in rows} | {7}
    sources = {7: (30, 5)}
    line = Timeline.of(highs(rows), before, sources, {7}, 9)
    newest, time = {**dict.fromkeys(counted, -1), 7: 30}, before
    wanted = []
    for place, (ts, partition) in enumerate(rows):
        newest[partition] = max(newest[partition], ts)
        if min(newest.values()) > time:
            time = min(newest.values())
            wanted.append((time, place))
    assert list(zip(line.time.tolist(), line.major.tolist(), strict=True)) == wanted
    assert line.last == time
    heard = {partition: (newest[partition], 9) for _, partition in rows}
    assert line.sources == {**sources, **heard}


def test_rows_by_the_clock_count_for_all_source_partitions() -> None:
    line = Timeline.of(highs([(10, 0), (20, BY_CLOCK)]), -1, {0: (5, 0), 1: (6, 0)}, {0, 1}, 3)
    assert line.time.tolist() == [6, 20]
    assert line.sources == {0: (20, 3), 1: (20, 0)}
    assert Timeline.of(highs([(4, BY_CLOCK)]), -1, {}, set(), 0).last == 4


def test_idle_partitions_do_not_count() -> None:
    sources = {0: (5, 100), 1: (6, 10)}
    assert holding({2}, sources, 130, 0, None) == {0, 1, 2}
    assert holding({2}, sources, 130, 0, 60) == {0}
    assert holding({2}, sources, 130, 90, 60) == {0, 1, 2}
    assert merged_sources([sources, {1: (4, 20), 3: (1, 1)}]) == {0: (5, 100), 1: (6, 20), 3: (1, 1)}
