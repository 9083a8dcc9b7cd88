"""A backlog that is read in parts is read in the order in which one large batch would have had it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.engine.cutting import Cutter, Span, count
from crossstream.topics import Moment, TopicPartition

TOPIC = "t"
Times = list[list[int]]
"""Timestamps of the records of each partition."""


@dataclass
class Log:
    """Partitions with these timestamps. ``whole``: looks at all their records, as Kafka does."""

    times: Times
    whole: bool
    asked: int = 0

    def moments_at(
        self, starts: Mapping[TopicPartition, int], timestamp: int
    ) -> Mapping[TopicPartition, Moment | None]:
        self.asked += 1
        return {place: self._first(place, start, timestamp) for place, start in starts.items()}

    def _first(self, place: TopicPartition, start: int, timestamp: int) -> Moment | None:
        first = 0 if self.whole else start
        times = self.times[place.partition]
        late = np.flatnonzero(np.array(times[first:], dtype=np.int64) >= timestamp)
        return Moment(first + int(late[0]), times[first + int(late[0])]) if len(late) else None


def parts(log: Log, most: int, starts: list[int] | None = None) -> list[list[Span]]:
    """The batches in which everything is read, from the given offsets on."""
    cutter = Cutter(log)
    places = starts or [0] * len(log.times)
    batches = []
    while spans := [
        ("node", TOPIC, number, start, len(log.times[number]))
        for number, start in enumerate(places)
        if start < len(log.times[number])
    ]:
        taken = cutter.cut(spans, most)
        assert taken, "a batch takes something"
        for _, _, number, start, end in taken:
            assert places[number] == start < end
            places[number] = end
        batches.append(taken)
    return batches


moments = st.one_of(st.integers(0, 20), st.integers(0, 2_000_000_000_000))
partitions = st.lists(st.lists(moments, max_size=30), min_size=1, max_size=4)


@given(partitions, st.integers(1, 40), st.booleans())
@example([[0, 0, 0, 0], [0, 0, 0, 0, 1]], 2, True)
def test_batches_are_cut_by_the_running_maximum(times: Times, most: int, whole: bool) -> None:
    majors = [np.maximum.accumulate(np.array(of, dtype=np.int64)) if of else np.empty(0) for of in times]
    newest = -1
    for batch in parts(Log(times, whole), most):
        assert count(batch) <= most + len(times)
        if len(times) == 1:
            continue
        here = np.concatenate([majors[number][start:end] for _, _, number, start, end in batch])
        assert here.min() >= newest
        newest = here.max()


@given(partitions, st.integers(1, 40), st.data())
def test_everything_is_read_wherever_reading_begins(times: Times, most: int, data: st.DataObject) -> None:
    starts = [data.draw(st.integers(0, len(of))) for of in times]
    left = sum(map(len, times)) - sum(starts)
    batches = parts(Log(times, whole=True), most, starts)
    assert sum(map(count, batches)) == left


@pytest.mark.parametrize("gap", [0, 86_400_000])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("start", [0, 1])
def test_a_steady_backlog_is_cut_by_time_with_few_questions(start: int, whole: bool, gap: int) -> None:
    """From the beginning of the log, and behind records that were read before, which Kafka's index still names."""
    begin = 1_700_000_000_000
    times = [[begin, *range(begin + gap + number, begin + gap + 100_000, 4)] for number in range(4)]
    log = Log(times, whole)
    batches = parts(log, 10_000, [start] * 4)
    assert len(batches) <= 12
    assert log.asked <= 12 + 2 * len(batches)
    cuts = [{times[number][end - 1] // 20 for *_, number, _, end in batch} for batch in batches]
    assert all(len(cut) <= 2 for cut in cuts)


@pytest.mark.parametrize("whole", [True, False])
def test_a_short_topic_beside_a_long_one_does_not_run_ahead(whole: bool) -> None:
    month, day = list(range(0, 30_000, 10)), list(range(29_000, 30_000))
    first = parts(Log([month, day], whole), 1_000)[0]
    assert [span[2] for span in first] == [0]
