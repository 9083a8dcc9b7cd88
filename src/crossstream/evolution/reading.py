"""Where the application reads that rebuilds stores: rows of the old state, and topics up to where it had read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pyarrow as pa

from crossstream.evolution.stored_rows import PREFIX as STORED
from crossstream.evolution.stored_rows import StoredLog
from crossstream.runtime.delivery import AtOnce, DeliveringConnection, Delivery, Place, no_topics
from crossstream.runtime.histories import SeamLog
from crossstream.runtime.tables_and_topics import Logs
from crossstream.storage.log_entries import Seam
from crossstream.topics import (
    CommitLog,
    CommitRows,
    OffsetAndTimestamp,
    OffsetRange,
    RangeReader,
    RecordWriter,
    TopicLog,
    TopicPartition,
)

Bounds = Mapping[str, Mapping[int, int]]
"""Up to where topics are read, by partition; partitions that are not in it are not read."""


PREFIX = "result:"
"""Of the topics that are those of sinks, read back. Sources may read the same topics."""


def is_part_of_state(topic: str) -> bool:
    """Whether a topic is stored rows, or a result that is read back: no source of the user reads it."""
    return topic.startswith((STORED, PREFIX))


@dataclass(frozen=True, slots=True)
class Bounded:
    """A connection to topics that end where they are to be read up to.

    ``ends``: of the topics that are bounded. ``aliases``: other names for topics, which are read beside them.
    ``events``: where the results of sinks go; None: there are none.
    """

    topics: DeliveringConnection
    ends: Bounds
    aliases: Mapping[str, str]
    events: DeliveringConnection | None = None

    def log(self) -> TopicLog:
        written = None if self.events is None else self.events.log()
        return BoundedLog(self.topics.log(), self.ends, self.aliases, written)

    def reader(self) -> RangeReader:
        return _Reader(self.topics.reader(), self.aliases)

    def writer(self) -> RecordWriter:
        return no_topics() if self.events is None else self.events.writer()

    def delivery(self, place: Place) -> Delivery:
        return AtOnce(no_topics) if self.events is None else self.events.delivery(place)

    def staging_folder(self, name: str) -> Path | None:
        return None


@dataclass(frozen=True, slots=True)
class BoundedLog:
    """`TopicLog` of topics that end early; what it says of lake tables and histories is as it was."""

    whole: TopicLog
    ends: Bounds
    aliases: Mapping[str, str]
    written: TopicLog | None = None

    def topics(self) -> Mapping[str, int]:
        found = dict(self.whole.topics())
        found |= {alias: found[topic] for alias, topic in self.aliases.items() if topic in found}
        return found if self.written is None else found | dict(self.written.topics())

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        found = self.whole.topic_ids([self._real(topic) for topic in topics])
        return {topic: found[real] for topic in topics if (real := self._real(topic)) in found}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = self.whole.begin_offsets([self._of(tp) for tp in partitions])
        return {tp: found[self._of(tp)] for tp in partitions}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        mine = [tp for tp in partitions if self.written is not None and tp.topic in self.written.topics()]
        others = [tp for tp in partitions if tp not in mine]
        found = dict(self.whole.end_offsets([self._of(tp) for tp in others])) if others else {}
        ends = {tp: self._end(tp, found[self._of(tp)]) for tp in others}
        return ends if self.written is None else ends | dict(self.written.end_offsets(mine))

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        real = [replace(span, topic=self._real(span.topic)) for span in spans]
        found = self.whole.offsets_for_times(real, timestamp, most)
        pairs = zip(spans, real, strict=True)
        return {
            TopicPartition(span.topic, span.partition): found[TopicPartition(one.topic, one.partition)]
            for span, one in pairs
        }

    def commits(self, topic: str, start: int, end: int) -> Sequence[CommitRows]:
        return cast("CommitLog", self.whole).commits(topic, start, end)

    def seam(self, topic: str) -> Seam:
        return cast("SeamLog", self.whole).seam(topic)

    def first_held(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return cast("SeamLog", self.whole).first_held(partitions)

    def is_timed(self, topic: str) -> bool:
        """Whether a topic is rows with versions, which are read in the order of time."""
        log = self.whole.of_tables.get(topic) if isinstance(self.whole, Logs) else None
        return isinstance(log, StoredLog) and log.is_timed(topic)

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        raise AssertionError("nothing is written while stores are rebuilt")

    def delete_topic(self, topic: str) -> None:
        raise AssertionError("nothing is written while stores are rebuilt")

    def close(self) -> None:
        self.whole.close()
        if self.written is not None:
            self.written.close()

    def _end(self, tp: TopicPartition, end: int) -> int:
        bound = self.ends.get(tp.topic)
        return end if bound is None else min(end, bound.get(tp.partition, 0))

    def _of(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(self._real(tp.topic), tp.partition)

    def _real(self, topic: str) -> str:
        return self.aliases.get(topic, topic)


@dataclass(frozen=True, slots=True)
class _Reader:
    """`RangeReader` of topics that are also known by other names."""

    topics: RangeReader
    aliases: Mapping[str, str]

    def read(self, span: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        return self.topics.read(self._real(span), max_rows)

    def read_many(
        self, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        wanted = list(spans)
        plain = [span for span in wanted if span.topic not in self.aliases]
        yield from self.topics.read_many(plain, max_rows)
        for span in wanted:
            if span.topic in self.aliases:
                yield from ((span, records) for records in self.topics.read(self._real(span), max_rows))

    def _real(self, span: OffsetRange) -> OffsetRange:
        return replace(span, topic=self.aliases.get(span.topic, span.topic))

    def close(self) -> None:
        self.topics.close()
