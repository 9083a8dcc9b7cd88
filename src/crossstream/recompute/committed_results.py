"""The records that file topics got while a batch was published: between where they ended before it and after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crossstream.graph.nodes import Graph, Sink
from crossstream.recompute.past_batch import PastBatch
from crossstream.records import PRODUCER_RECORDS, concat
from crossstream.runtime.delivery import DeliveringConnection, Place
from crossstream.topics import OffsetRange, TopicPartition, all_partitions, is_elsewhere

_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Committed:
    """``records``: by topic partition, without those that got none. ``topics``: that were looked at."""

    records: Mapping[TopicPartition, pa.RecordBatch]
    topics: frozenset[str]


def committed_results(
    past: PastBatch, connection: DeliveringConnection | None, topics: frozenset[str]
) -> Committed | None:
    """The records that the batch sent to these topics.

    None: nothing is committed, or the log does not say where results are, as of topics in Kafka.
    """
    if past.after is None or connection is None:
        return None
    place = Place(past.application.application_id, past.root, Path(past.root.address) / "staged")
    if not connection.delivery(place).looks_at_ends:
        return None
    with closing(connection.log()) as log, closing(connection.reader()) as reader:
        counts = {topic: count for topic, count in log.topics().items() if not is_elsewhere(topic)}
        wanted = all_partitions(sorted(counts.keys() & topics), counts)
        now = log.end_offsets(wanted)
        found: dict[TopicPartition, pa.RecordBatch] = {}
        for tp in wanted:
            start = _at(past.entry.sinks, tp)
            end = now[tp] if past.ends is None else _at(past.ends, tp)
            parts = list(reader.read(OffsetRange(tp.topic, tp.partition, start, end), _ROWS))
            if parts:
                found[tp] = concat(parts).select(PRODUCER_RECORDS.names)
        return Committed(found, topics)


def written_topics(topology: Graph | None, past: PastBatch, ours: Iterable[str] = ()) -> frozenset[str]:
    """The topics that the batch may have written. ``ours``: those that it writes now; ``topology``: if it is known.

    Where records name their topics the log has all topics there are: what is read is left out then. It does not have
    those that the newest batch has made.
    """
    after = past.after or past.before
    read = {topic for topics in after.positions.values() for topic in topics}
    there = past.entry.sinks.keys() | (set() if past.ends is None else past.ends.keys())
    named = (
        set() if topology is None else {sink.topic for sink in topology.each(Sink) if sink.topic is not None}
    )
    return frozenset({*ours, *named, *(there - read)})


def _at(ends: Mapping[str, Sequence[int]], tp: TopicPartition) -> int:
    """Where a partition ended, as the log has it: one that it does not have was not there yet."""
    offsets = ends.get(tp.topic, ())
    return offsets[tp.partition] if tp.partition < len(offsets) else 0
