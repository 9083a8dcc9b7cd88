"""Topics that are the difference of two tables: what a changed result has to send, and what would take that back.

``difference:SINK`` has the rows of a result that differ, as its sink writes them; ``inverse:SINK`` the rows as they
were, behind a byte that says whether there was one; ``sent:SINK`` what such rows were, out of the store that the commit
of a change has of them. Each state partition of the new rows is a partition of the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.hashing import partition_bounds
from crossstream.evolution.compared import Differing, Rows, differing
from crossstream.records import RECORDS
from crossstream.topics import OffsetAndTimestamp, OffsetRange, ReadsInTurn, TopicPartition

Side = Literal["difference", "inverse", "sent"]
_THERE, _NOT_THERE = b"\1", b"\0"
_MARKS = pa.array([_NOT_THERE, _THERE], pa.large_binary())
_NOTHING = pa.scalar(b"", pa.large_binary())


@dataclass(frozen=True, slots=True)
class Difference:
    """A topic. ``before``: None where all rows are new; ``newest``: the latest time (ms) that the state knows.

    ``ends``: the most rows that each partition can have. ``by_value``: as `differing`.
    """

    side: Side
    sink: str
    after: Rows
    before: Rows | None
    newest: int
    ends: Sequence[int]
    by_value: bool = False

    @property
    def topic(self) -> str:
        return f"{self.side}:{self.sink}"

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The records of a partition, in order of the hash, without offsets."""
        bounds = partition_bounds(len(self.ends))
        low, high = bounds[partition], bounds[partition + 1]
        before = None if self.before is None else self.before.between(low, high)
        made = {"difference": self._difference, "inverse": self._inverse, "sent": self._sent}[self.side]
        for found in differing(self.after.between(low, high), before, low, high, by_value=self.by_value):
            yield made(found)

    def _difference(self, found: Differing) -> pa.RecordBatch:
        gone = np.asarray(found.after.is_null())
        ts = np.where(gone, np.maximum(found.ts, self.newest), found.ts)
        return _records(found.key, found.after, ts, found.headers)

    def _inverse(self, found: Differing) -> pa.RecordBatch:
        there = found.before.is_valid()
        ts = np.where(found.ts_before < 0, found.ts, found.ts_before)
        marks = _MARKS.take(there.cast(pa.int8()))
        value = pc.binary_join_element_wise(marks, pc.fill_null(found.before, b""), _NOTHING)
        return _records(found.key, value, ts)

    def _sent(self, found: Differing) -> pa.RecordBatch:
        there, value = _unmarked(found.after)
        ts = np.where(there, found.ts, np.maximum(found.ts, self.newest))
        return _records(found.key, value, ts)


def _unmarked(marked: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Whether there was a row, and its value; null where there was none."""
    _, ends, content = marked.buffers()
    offsets = np.frombuffer(ends, np.int64, len(marked) + 1, marked.offset * 8)
    data = np.frombuffer(content, np.uint8)
    there = data[offsets[:-1]] == _THERE[0]
    stays = np.ones(offsets[-1] - offsets[0], bool)
    stays[offsets[:-1] - offsets[0]] = False
    left = data[offsets[0] : offsets[-1]][stays]
    buffers = [None, pa.py_buffer(offsets - offsets[0] - np.arange(len(offsets))), pa.py_buffer(left)]
    values = pa.Array.from_buffers(pa.large_binary(), len(marked), buffers)
    return there, values.take(pa.array(np.arange(len(marked)), mask=~there))


def _records(
    key: pa.Array, value: pa.Array, ts: np.ndarray, headers: pa.Array | None = None
) -> pa.RecordBatch:
    none = pa.nulls(len(key), pa.large_binary())
    offsets = np.zeros(len(key), np.int64)
    columns = [key, value, pa.array(ts), pa.array(offsets), none if headers is None else headers]
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


class Prepared(Protocol):
    """A topic of rows to send. ``side``: what kind of rows; ``ends``: the most records of each partition."""

    @property
    def side(self) -> str: ...

    @property
    def sink(self) -> str: ...

    @property
    def ends(self) -> Sequence[int]: ...

    @property
    def topic(self) -> str: ...

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        """The records of a partition, in their order; offsets are counted by the reader."""


@dataclass(frozen=True, slots=True)
class Differences:
    """`runtime.tables_and_topics.Tables` of such topics."""

    topics: tuple[Prepared, ...]

    @property
    def names(self) -> Collection[str]:
        return [one.topic for one in self.topics]

    def log(self) -> DifferenceLog:
        return DifferenceLog({one.topic: one for one in self.topics})

    def reader(self) -> DifferenceReader:
        return DifferenceReader({one.topic: one for one in self.topics})


@dataclass(frozen=True, slots=True)
class DifferenceLog:
    """`runtime.tables_and_topics.TableLog`: offsets are counted up to the most rows that there can be."""

    of: Mapping[str, Prepared]

    def topics(self) -> Mapping[str, int]:
        return {name: len(one.ends) for name, one in self.of.items()}

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.of[tp.topic].ends[tp.partition] for tp in partitions}

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        return {TopicPartition(span.topic, span.partition): None for span in spans}

    def close(self) -> None:
        """Nothing is held open between calls."""


@dataclass(frozen=True, slots=True)
class DifferenceReader(ReadsInTurn):
    """`topics.RangeReader`: always whole partitions."""

    of: Mapping[str, Prepared]

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        offset = 0
        for records in self.of[span.topic].read(span.partition):
            for start in range(0, records.num_rows, max_rows):
                part = records.slice(start, max_rows)
                yield _at(offset, part)
                offset += part.num_rows

    def close(self) -> None:
        """Nothing is held open between reads."""


def _at(offset: int, part: pa.RecordBatch) -> pa.RecordBatch:
    offsets = pa.array(np.arange(offset, offset + part.num_rows))
    return part.set_column(RECORDS.get_field_index("offset"), RECORDS.field("offset"), offsets)
