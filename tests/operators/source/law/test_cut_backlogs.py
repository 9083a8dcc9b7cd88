"""A backlog that is read in parts is read in the order in which one large batch would have had it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.runtime.backlog import Cutter, Span, count
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition

TOPIC = "t"
Times = list[list[int]]
"""Timestamps of the records of each partition."""
First = dict[OffsetRange, OffsetAndTimestamp | None]


@dataclass
class Log:
    """Partitions with these timestamps. ``lazy``: looks no further than it has to."""

    times: Times
    lazy: bool
    asked: int = 0

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        self.asked += 1
        first = {span: self._first(span, timestamp) for span in spans}
        if self.lazy:
            first = self._as_far_as_needed(first, most)
        return {TopicPartition(span.topic, span.partition): moment for span, moment in first.items()}

    def _as_far_as_needed(self, first: First, most: int) -> First:
        """One record after the other in all partitions, until they are too many."""
        ends = {span: span.end if moment is None else moment.offset for span, moment in first.items()}
        looked = {span: span.start for span in first}
        while sum(looked.values()) - sum(span.start for span in first) <= most and looked != ends:
            looked = {span: min(end + 1, ends[span]) for span, end in looked.items()}
        return {
            span: first[span] if looked[span] == ends[span] else self._last(span, looked[span])
            for span in first
        }

    def _last(self, span: OffsetRange, end: int) -> OffsetAndTimestamp:
        return OffsetAndTimestamp(end, max(self.times[span.partition][span.start : end]))

    def _first(self, span: OffsetRange, timestamp: int) -> OffsetAndTimestamp | None:
        times = self.times[span.partition][span.start : span.end]
        late = np.flatnonzero(np.array(times, dtype=np.int64) >= timestamp)
        return OffsetAndTimestamp(span.start + int(late[0]), times[int(late[0])]) if len(late) else None


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
@example([[5, 0], [5, 5]], 1, True)
def test_batches_together_have_the_order_of_one(times: Times, most: int, lazy: bool) -> None:
    batches = parts(Log(times, lazy), most)
    assert all(count(batch) <= most for batch in batches)
    whole = [("node", TOPIC, number, 0, len(of)) for number, of in enumerate(times)]
    assert [place for batch in batches for place in in_order(times, batch)] == in_order(times, whole)


def in_order(times: Times, batch: list[Span]) -> list[list[int]]:
    """Partition and offset of the records of a batch in order of arrival: of one time those of the first partitions."""
    found = [
        (newest, number, offset)
        for _, _, number, start, end in batch
        for offset, newest in enumerate(accumulate(times[number][start:end], max), start)
    ]
    return [place for _, *place in sorted(found)]


@given(partitions, st.integers(1, 40), st.data())
def test_everything_is_read_wherever_reading_begins(times: Times, most: int, data: st.DataObject) -> None:
    starts = [data.draw(st.integers(0, len(of))) for of in times]
    left = sum(map(len, times)) - sum(starts)
    batches = parts(Log(times, lazy=True), most, starts)
    assert sum(map(count, batches)) == left


@pytest.mark.parametrize("gap", [0, 86_400_000])
@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("start", [0, 1])
def test_a_steady_backlog_is_cut_by_time_with_few_questions(start: int, lazy: bool, gap: int) -> None:
    """From the beginning of the log, and behind records that were read before."""
    begin = 1_700_000_000_000
    times = [[begin, *range(begin + gap + number, begin + gap + 100_000, 4)] for number in range(4)]
    log = Log(times, lazy)
    batches = parts(log, 10_000, [start] * 4)
    assert len(batches) <= 12
    assert log.asked <= 12 + 2 * len(batches)
    cuts = [{times[number][end - 1] // 20 for *_, number, _, end in batch} for batch in batches]
    assert all(len(cut) <= 2 for cut in cuts)


@pytest.mark.parametrize("lazy", [True, False])
def test_a_short_topic_beside_a_long_one_does_not_run_ahead(lazy: bool) -> None:
    month, day = list(range(0, 30_000, 10)), list(range(29_000, 30_000))
    first = parts(Log([month, day], lazy), 1_000)[0]
    assert [span[2] for span in first] == [0]
