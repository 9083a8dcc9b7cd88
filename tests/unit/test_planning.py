"""Which records a batch takes, and the codes of what can go wrong: the same as those of Kafka's reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.engine.batch import SourceRange
from crossstream.engine.planning import Positions, SourcePlanner
from crossstream.errors import SourceError
from crossstream.topics import TopicPartition
from crossstream.topology.graph import Topology

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@dataclass
class Log:
    """Topics as planning sees them: where their partitions begin and end."""

    begins: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def topics(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for tp in self.ends:
            found[tp.topic] = max(found.get(tp.topic, 0), tp.partition + 1)
        return found

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.begins.get(tp, 0) for tp in partitions}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in partitions}


def topology(**consumed: Any) -> Topology:
    builder = cs.StreamsBuilder()
    builder.stream("a", cs.Consumed(key=serdes.string(), value=serdes.json(), **consumed))
    return builder.build()


def planner(
    log: Log, positions: Positions | None = None, lost: str = "fail", **consumed: Any
) -> SourcePlanner:
    return SourcePlanner(topology(**consumed), log, positions if positions is not None else {}, lost)


def started_at(offset: int) -> Positions:
    return {"a": {"a": {0: offset}}}


def test_a_missing_topic() -> None:
    with pytest.raises(SourceError) as caught:
        planner(Log()).refresh()
    assert caught.value.code == "CS-602"


def test_records_that_were_deleted_unread() -> None:
    log = Log({A0: 7}, {A0: 9})
    with pytest.raises(SourceError) as caught:
        planner(log, started_at(5)).refresh()
    assert caught.value.code == "CS-601"
    skipping = planner(log, started_at(5), "skip")
    skipping.refresh()
    assert (skipping.skipped, skipping.positions) == (2, started_at(7))


def test_a_topic_that_was_made_anew() -> None:
    log = Log({}, {A0: 3})
    found = planner(log, started_at(5))
    found.refresh()
    with pytest.raises(SourceError) as caught:
        found.next_ranges(found.end_offsets(), None)
    assert caught.value.code == "CS-603"


def test_a_first_start_begins_where_it_is_told_and_later_partitions_at_their_beginning() -> None:
    log = Log({A0: 2}, {A0: 9})
    found = planner(log, offset_reset="latest")
    found.refresh()
    log.ends[A1] = 4
    found.refresh()
    assert found.positions == {"a": {"a": {0: 9, 1: 0}}}


def test_a_limit_is_shared_out_in_proportion() -> None:
    log = Log({}, {A0: 30, A1: 10})
    found = planner(log)
    found.refresh()
    ranges = found.next_ranges(found.end_offsets(), 20)
    assert ranges == (SourceRange("a", "a", 0, 0, 15, 0), SourceRange("a", "a", 1, 0, 5, 1))
    found.advance(ranges)
    assert found.lag(found.end_offsets()) == 20
