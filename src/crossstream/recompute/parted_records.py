"""The results of a batch that was run again, and the records that its topics got then."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from crossstream.graph.nodes import Sink
from crossstream.recompute.again import Rerun
from crossstream.recompute.committed_results import Committed
from crossstream.recompute.inputs import object_of
from crossstream.recompute.parted_files import compare_staged, compare_tables
from crossstream.recompute.partings import MOST, Found, Name, Parting, sides, together
from crossstream.records import PRODUCER_RECORDS
from crossstream.serdes.primitives import Bytes
from crossstream.topics import TopicPartition


def compare_results(rerun: Rerun, there: Committed | None) -> Found:
    """Compares results with the records that topics got; None: it is not known which these are."""
    rows: dict[Name, int] = {}
    for owner, batch in rerun.results.records():
        name = Name("topic", owner.topic)
        rows[name] = rows.get(name, 0) + batch.num_rows
    tables = compare_tables(rerun)
    if there is None:
        topics = compare_staged(rerun) if rows else Found()
        return together(Found(rows), together(topics, tables))
    notes = list[str]()
    different: dict[Name, int] = {}
    partings: list[Parting] = []
    read = {topic for node in rerun.plan.topology for topic in node.topics}
    unknown = sorted({name for _, name in rows} - there.topics)
    if unknown:
        notes.append(f"results in {', '.join(unknown)} are not compared: the bundle was packed without --app")
    for owner in sorted({*there.records, *rerun.results.parts}):
        if owner.topic in unknown:
            continue
        ours, theirs = rerun.results.of(owner), there.records.get(owner)
        is_alone = owner.topic in {node.topic for node in _sinks(rerun)} and owner.topic not in read
        found = _between(rerun, owner, theirs, ours, is_alone=is_alone)
        if found:
            name = Name("topic", owner.topic)
            different[name] = different.get(name, 0) + len(found)
            partings += found[:MOST]
    return together(Found(rows, different, tuple(partings), tuple(notes)), tables)


def _sinks(rerun: Rerun) -> Iterator[Sink]:
    return rerun.plan.topology.each(Sink)


def _between(
    rerun: Rerun,
    owner: TopicPartition,
    theirs: pa.RecordBatch | None,
    ours: pa.RecordBatch | None,
    *,
    is_alone: bool,
) -> list[Parting]:
    """The records of a partition that are not the same. ``is_alone``: no one else is known to write the topic.

    Others may have written between them: then ours must be there, in their order.
    """
    left, right = _records(theirs), _records(ours)
    if left == right:
        return []
    found, at = [], 0
    places: dict[Any, list[int]] = {}
    for row, record in enumerate(left):
        places.setdefault(record, []).append(row)
    matched: set[int] = set()
    for record in right:
        known = places.get(record, [])
        place = bisect_left(known, at)
        if place == len(known):
            found.append(record)
        else:
            at = known[place] + 1
            matched.add(known[place])
    rest = [record for row, record in enumerate(left) if row not in matched] if is_alone else []
    return [_record_parting(rerun, owner, *pair) for pair in _by_key(rest, found)]


def _records(batch: pa.RecordBatch | None) -> list[tuple[Any, ...]]:
    if batch is None:
        return []
    columns = [batch.column(name).to_pylist() for name in PRODUCER_RECORDS.names]
    return list(zip(*columns, strict=True))


def _by_key(theirs: list[Any], ours: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Records of one key side by side, in their order; None where one side has none."""
    waiting: dict[Any, deque[Any]] = {}
    for record in ours:
        waiting.setdefault(record[0], deque()).append(record)
    for record in theirs:
        same = waiting.get(record[0])
        yield record, same.popleft() if same else None
    yield from ((None, one) for left in waiting.values() for one in left)


def _record_parting(rerun: Rerun, owner: TopicPartition, theirs: Any, ours: Any) -> Parting:
    key, value = serdes_of_topic(rerun, owner.topic)
    some = theirs or ours
    values = [
        None if one is None else {"value": object_of(value, one[1]), "timestamp": one[2]}
        for one in (theirs, ours)
    ]
    return Parting(Name("topic", owner.topic), owner.partition, object_of(key, some[0]), *sides(*values))


def serdes_of_topic(rerun: Rerun, topic: str) -> tuple[Any, Any]:
    """Those of the sink that writes the topic; bytes where none is known."""
    for sink in _sinks(rerun):
        if sink.topic == topic or (sink.topic is None and sink.topic_of is not None):
            return sink.key or Bytes(), sink.value or Bytes()
    return Bytes(), Bytes()
