"""Where a source begins: at the beginning of its topics, or at another place (KIP-1106)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone

from crossstream.durations import to_timestamp
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.topics import OffsetRange, TopicLog, TopicPartition


def offsets_at(
    log: TopicLog, place: str | timedelta | datetime, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """The offsets of an ``offset_reset``: the end where there is no record of that time or later."""
    if place == "earliest":
        return log.begin_offsets(partitions)
    ends = log.end_offsets(partitions)
    if not isinstance(place, timedelta | datetime):
        return ends
    at = place if isinstance(place, datetime) else datetime.now(timezone.utc) - place
    begins = log.begin_offsets(partitions)
    spans = [OffsetRange(tp.topic, tp.partition, begins[tp], ends[tp]) for tp in partitions]
    records = sum(span.end - span.start for span in spans)
    found = log.offsets_for_times(spans, max(0, to_timestamp(at)), records)
    return {tp: ends[tp] if (first := found[tp]) is None else first.offset for tp in partitions}


def recreated(node: str, topic: str) -> CrossStreamError:
    """The refusal (CS-603) of a topic that has taken the place of the one that was read."""
    return refuse(
        "CS-603",
        "the topic was deleted and recreated since it was read: what has been read is of the one before",
        "start with a new application_id, or an empty state_dir; "
        "on_lost_records='skip' keeps the state, and reads the topic from its beginning",
        operator=node,
        topic=topic,
    )
