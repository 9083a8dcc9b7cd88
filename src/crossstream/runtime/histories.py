"""Topics that are longer than their brokers know: where the history of each ends, and whether the topic follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol, cast

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.history import WHOLE, past_of
from crossstream.graph.nodes import Node, Source
from crossstream.storage.log_entries import Seam, Starts
from crossstream.topics import CommitLog, OffsetRange, TopicLog, TopicPartition


class SeamLog(Protocol):
    """For the driver: topics before which a lake table has their earlier records."""

    def seam(self, topic: str) -> Seam:
        """Where the history of a topic ends: as the state has it, or else as the table is now."""

    def first_held(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The first offset that the topic itself holds, for each partition."""


@dataclass(frozen=True, slots=True)
class Histories:
    """The seams of an application's sources."""

    log: TopicLog | None

    def begun(
        self,
        node: Source,
        partitions: Sequence[TopicPartition],
        known: Mapping[str, Mapping[int, int]],
        starts: Starts,
    ) -> Starts:
        """Notes where a history ends at the first start. Raises `SourceError`: CS-630 for a gap between it and the
        topic, CS-631 for a topic that is not its own, or that was read before without it.
        """
        if node.past is None:
            return starts
        topic = node.topics[0]
        of_topic = [tp for tp in partitions if tp.topic == topic]
        noted = topic if node.past.positions else past_of(topic)
        if noted in starts.seams:
            return starts
        if any(known.get(topic, {}).values()):
            what = f"{node.name} has read {topic} without the history: its rows would come after newer ones"
            step = "leave history= out, or start with an empty state_dir"
            raise refuse("CS-631", what, step, **node.where, topic=topic)
        seam = self._seams.seam(noted)
        if node.past.positions:
            self._check_offsets(node, of_topic, seam)
        else:
            self._check_times(node, of_topic, node.past.until)
        return starts.with_seam(noted, seam)

    @property
    def _seams(self) -> SeamLog:
        return cast("SeamLog", self.log)

    @property
    def _topics(self) -> TopicLog:
        return cast("TopicLog", self.log)

    def _check_offsets(self, node: Source, partitions: Sequence[TopicPartition], seam: Seam) -> None:
        """The table has no more partitions than the topic, no later offsets, and ends where the topic continues."""
        assert node.past is not None
        table, ends = node.past.table.table, self._topics.end_offsets(partitions)
        by_number = {tp.partition: end for tp, end in ends.items()}
        for partition, end in seam.ends.items():
            if partition not in by_number:
                what = f"{table} has rows of partition {partition}, and the topic has {len(by_number)} partitions"
            elif end > by_number[partition]:
                what = f"{table} has offset {end - 1}, and the topic ends at offset {by_number[partition]}"
            else:
                continue
            raise refuse("CS-631", what, **node.where, topic=node.topics[0], partition=partition)
        for tp, first in self._seams.first_held(partitions).items():
            if first > seam.ends.get(tp.partition, 0):
                raise gap(node, seam, tp, first)

    def _check_times(self, node: Source, partitions: Sequence[TopicPartition], until: int) -> None:
        """The table was written at that time or later, and the topic has all records since."""
        assert node.past is not None
        (commit,) = cast("CommitLog", self.log).commits(past_of(node.topics[0]), 0, WHOLE)
        if commit.time < until:
            last = _moment(commit.time)
            what = f"the last commit of the table is of {last}, and the topic is read from {_moment(until)}"
            raise refuse("CS-630", what, f"pass a time as until=…: {last} or earlier", **node.where)
        ends = self._topics.end_offsets(partitions)
        for tp, begin in self._topics.begin_offsets(partitions).items():
            if not begin:
                continue
            span = OffsetRange(tp.topic, tp.partition, begin, max(begin, ends[tp]))
            first = self._topics.offsets_for_times([span], 0, 0)[tp] if begin < ends[tp] else None
            if first is None or first.timestamp > until:
                has = "no record any more" if first is None else f"records from {_moment(first.timestamp)} on"
                what = f"the topic has {has}, and is read from {_moment(until)}: records between are missing"
                raise refuse(
                    "CS-630", what, **node.where, topic=tp.topic, partition=tp.partition, offset=begin
                )


def _moment(time: int) -> str:
    return datetime.fromtimestamp(time / 1000, timezone.utc).isoformat(timespec="milliseconds")


def gap(node: Node, seam: Seam, tp: TopicPartition, held: int) -> CrossStreamError:
    """The refusal (CS-630) of a history that ends before the topic begins."""
    end = seam.ends.get(tp.partition, 0)
    has = f"ends at offset {end - 1}" if end else "has no rows of this partition"
    what = (
        f"the history {has}, and the topic begins at offset {held}: offsets {end} to {held - 1} are missing"
    )
    return refuse("CS-630", what, **node.where, topic=tp.topic, partition=tp.partition, offset=end)
