"""When the rows of a history were records: the first one of a time or later, in a range of offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from crossstream.lakehouse.history_order import InOrder
from crossstream.lakehouse.history_rows import HistoryRows
from crossstream.lakehouse.times import times_of
from crossstream.lakehouse.versions import LakeVersions
from crossstream.storage.log_entries import Seam
from crossstream.topics import Columns, FirstRecords, OffsetRange, Ranges, Timelines, TopicPartition

AHEAD = 1 << 20
"""Offsets of a partition that are read at a time, at least."""
ROWS = 1 << 18


@dataclass(slots=True)
class HistoryTimes:
    """Looks for times in the tables, which are read ahead, the columns of positions and times alone."""

    versions: Callable[[str], LakeVersions]
    seam: Callable[[str], Seam]
    histories: Mapping[str, HistoryRows]
    _known: dict[TopicPartition, tuple[int, int, np.ndarray, np.ndarray]] = field(default_factory=dict)
    _timelines: Timelines = field(init=False)

    def __post_init__(self) -> None:
        self._timelines = Timelines(self._read)

    def first(self, ranges: Ranges, timestamp: int, most: int) -> FirstRecords:
        """As `TopicLog.offsets_for_times`."""
        for tp, span in ranges.items():
            self._timelines.turn_to(tp, span.start, span.start)
        return self._timelines.seek(ranges, timestamp, most)

    def _read(self, ranges: Ranges) -> Mapping[TopicPartition, Columns]:
        missing: dict[str, dict[int, OffsetRange]] = {}
        for tp, span in ranges.items():
            begin, end, _, _ = self._known.get(tp, (0, 0, None, None))
            if not begin <= span.start <= span.end <= end:
                missing.setdefault(tp.topic, {})[tp.partition] = span
        for topic, spans in missing.items():
            self._read_ahead(topic, spans)
        return {tp: self._within(tp, span) for tp, span in ranges.items()}

    def _within(self, tp: TopicPartition, span: OffsetRange) -> Columns:
        _, _, offsets, times = self._known[tp]
        low, high = np.searchsorted(offsets, (span.start, span.end))
        return [offsets[low:high]], [times[low:high]]

    def _read_ahead(self, topic: str, spans: Mapping[int, OffsetRange]) -> None:
        history, seam = self.histories[topic].history, self.seam(topic)
        ranges = {
            number: (span.start, max(span.end, min(span.start + AHEAD, seam.ends[number])))
            for number, span in spans.items()
        }
        found: dict[int, tuple[list[np.ndarray], list[np.ndarray]]] = {number: ([], []) for number in ranges}
        columns = (str(history.table.timestamp),)
        rows = InOrder(self.versions(topic), history, seam.version, ranges, columns, ROWS)
        for number, offsets, batch in rows.read():
            found[number][0].append(offsets)
            found[number][1].append(times_of(history.table, batch, seam.version).to_numpy())
        none = np.empty(0, np.int64)
        for number, (start, end) in ranges.items():
            offsets, times = (np.concatenate([none, *parts]) for parts in found[number])
            self._known[TopicPartition(topic, number)] = start, end, offsets, times
