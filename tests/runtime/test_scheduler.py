"""Which records a batch takes, and the codes of what can go wrong: the same as those of Kafka's reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.api.topology import Topology
from crossstream.errors import SourceError
from crossstream.filetopics import FileTopics
from crossstream.runtime.backlog import Positions
from crossstream.runtime.scheduler import BOOTSTRAP_RECORDS, SourcePlanner
from crossstream.storage.log_entries import SourceRange
from crossstream.task.batch import STREAM_RANK
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicLog, TopicPartition
from tests.filetopics.topics import write

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@dataclass
class Log:
    """Topics as planning sees them: where their partitions begin and end, and their ids, if they have any."""

    begins: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def topics(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for tp in self.ends:
            found[tp.topic] = max(found.get(tp.topic, 0), tp.partition + 1)
        return found

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.begins.get(tp, 0) for tp in partitions}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in partitions}

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """As if every record came at the same time, 1000."""
        return {
            TopicPartition(span.topic, span.partition): OffsetAndTimestamp(span.start, 1_000)
            if timestamp <= 1_000
            else None
            for span in spans
        }


def topology(**consumed: Any) -> Topology:
    builder = cs.StreamsBuilder()
    builder.stream("a", cs.Consumed(key=serdes.string(), value=serdes.json(), **consumed))
    return builder.build()


def planner(
    log: TopicLog, positions: Positions | None = None, lost: str = "fail", **consumed: Any
) -> SourcePlanner:
    return SourcePlanner(topology(**consumed), log, positions if positions is not None else {}, lost)


def started_at(offset: int) -> Positions:
    return {"a": {"a": {0: offset}}}


def test_a_missing_topic() -> None:
    with pytest.raises(SourceError) as caught:
        planner(Log()).refresh()
    assert caught.value.code == "CS-602"


def test_a_topic_that_is_hidden_for_lack_of_rights() -> None:
    """Kafka does not list it; who asks for it is told."""

    class Hiding(Log):
        def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            raise SourceError("denied", code="CS-605", where={"topic": partitions[0].topic}, next="ask")

    with pytest.raises(SourceError) as caught:
        planner(Hiding()).refresh()
    assert caught.value.code == "CS-605"
    assert (caught.value.where["operator"], caught.value.where["topic"]) == ("a", "a")


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


def test_ids_are_taken_on_where_they_are_known() -> None:
    """A broker that tells none, as one before Kafka 2.8, says nothing about the topic."""
    log = Log({}, {A0: 9})
    found = planner(log, started_at(5))
    for told, known in ((None, {}), ("1", {"a": "1"}), (None, {"a": "1"}), ("1", {"a": "1"})):
        log.ids = {} if told is None else {"a": told}
        found.refresh()
        assert found.topic_ids == known
    log.ids = {"a": "2"}
    with pytest.raises(SourceError, match="recreated") as caught:
        found.refresh()
    assert caught.value.code == "CS-603"
    assert caught.value.where == {"operator": "a", "topic": "a"}


def test_a_topic_that_is_replaced_is_read_from_its_beginning_in_all_partitions() -> None:
    log = Log({A0: 2}, {A0: 9, A1: 9}, {"a": "1"})
    found = planner(log, {"a": {"a": {0: 5, 1: 7, 2: 4}}}, "skip", offset_reset="latest")
    found.topic_ids = {"a": "0", "b": "0"}
    found.refresh()
    assert found.positions == {"a": {"a": {0: 2, 1: 0}}}
    assert (found.topic_ids, found.replaced, found.skipped) == ({"a": "1", "b": "0"}, {"a"}, 0)


@pytest.mark.parametrize("now", [{A0: 4}, {A0: 4, A1: 1}], ids=["fewer partitions", "shorter"])
def test_a_topic_that_is_replaced_after_topics_were_looked_for(now: dict[TopicPartition, int]) -> None:
    """It is seen when its ends are asked for: it lacks a partition, or ends before what was read."""

    class Asked(Log):
        def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            for tp in partitions:
                if tp not in self.ends:
                    raise SourceError("none", code="CS-602", where={"topic": tp.topic}, next="create it")
            return super().end_offsets(partitions)

    def replaced(lost: str) -> SourcePlanner:
        log = Asked({}, {A0: 5, A1: 7}, {"a": "0"})
        found = planner(log, {"a": {"a": {0: 5, 1: 7}}}, lost)
        found.refresh()
        log.ends, log.ids = now, {"a": "1"}
        return found

    with pytest.raises(SourceError, match="recreated since it was read") as caught:
        replaced("fail").end_offsets()
    assert caught.value.code == "CS-603"
    found = replaced("skip")
    ends = found.end_offsets()
    assert found.replaced == {"a"}
    assert [(span.partition, span.start, span.end) for span in found.next_ranges(ends, None)] == [
        (tp.partition, 0, end) for tp, end in now.items()
    ]


def test_a_first_start_begins_where_it_is_told_and_later_partitions_at_their_beginning() -> None:
    log = Log({A0: 2}, {A0: 9})
    found = planner(log, offset_reset="latest")
    found.refresh()
    log.ends[A1] = 4
    found.refresh()
    assert found.positions == {"a": {"a": {0: 9, 1: 0}}}


@pytest.mark.parametrize(
    ("offset_reset", "begins"),
    [
        (datetime.fromtimestamp(1, timezone.utc), {0: 4, 1: 0}),
        (datetime.fromtimestamp(1.001, timezone.utc), {0: 6, 1: 3}),
        (datetime(1960, 1, 1), {0: 0, 1: 0}),
        (datetime(2999, 1, 1), {0: 6, 1: 3}),
        ("1 hour", {0: 6, 1: 3}),
        (timedelta(days=365 * 200), {0: 0, 1: 0}),
    ],
    ids=str,
)
def test_a_first_start_at_a_time(offset_reset: Any, begins: dict[int, int], tmp_path: Path) -> None:
    """The first record of that time or later, also where a later one is older; the end, where there is none."""
    topics = FileTopics(tmp_path)
    topics.log().create_topic("a", 2)
    for partition, stamps in enumerate([[0, 500, 0, 700, 1_000, 900], [1_000, 0, 1_000]]):
        write(topics, [(b"k", b"1", stamp, None) for stamp in stamps], "a", partition)
    made = planner(topics.log(), offset_reset=offset_reset)
    made.refresh()
    assert made.positions == {"a": {"a": begins}}
    assert made.starts.positions == made.positions["a"]


@pytest.mark.parametrize("table_first", [True, False])
@pytest.mark.parametrize("shape", ["table", "global_table"])
def test_of_records_of_one_time_those_of_tables_come_first(shape: str, table_first: bool) -> None:
    builder = cs.StreamsBuilder()
    made = [(builder.stream, "a"), (getattr(builder, shape), "shops")]
    for source, topic in reversed(made) if table_first else made:
        source(topic, cs.Consumed(key=serdes.string(), value=serdes.json()))
    found = SourcePlanner(builder.build(), Log({}, {A0: 30, A1: 10, S0: 15}), {})
    found.refresh()
    ranges = found.next_ranges(found.end_offsets(), 20)
    assert ranges == (
        SourceRange("shops", "shops", 0, 0, 15, 0),
        SourceRange("a", "a", 0, 0, 5, STREAM_RANK + 1),
    )
    found.positions = found.after(ranges)
    assert found.lag(found.end_offsets()) == 35


# Global tables


S0, S1 = TopicPartition("shops", 0), TopicPartition("shops", 1)


def with_global(log: Log, positions: Positions | None = None) -> SourcePlanner:
    """A stream of "a" and a global table of "shops", at the start of an application."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=serdes.string(), value=serdes.json())
    builder.stream("a", consumed)
    builder.global_table("shops", consumed)
    made = SourcePlanner(builder.build(), log, positions if positions is not None else {})
    made.refresh()
    made.await_first()
    return made


def read(sources: SourcePlanner, ends: Mapping[TopicPartition, int], most: int | None = None) -> list[Any]:
    """The ranges of the next batch, which is then done."""
    ranges = sources.next_ranges(ends, most)
    sources.positions = sources.after(ranges)
    return [(span.node, span.partition, span.start, span.end) for span in ranges]


def test_a_global_table_is_read_to_the_end_of_the_start_before_anything_else() -> None:
    log = Log(ends={A0: 5, S0: 7, S1: 3})
    sources = with_global(log)
    log.ends |= {A0: 6, S0: 9}
    assert sources.bootstrapping
    assert read(sources, log.ends) == [("shops", 0, 0, 7), ("shops", 1, 0, 3)]
    assert not sources.bootstrapping
    assert read(sources, log.ends) == [("shops", 0, 7, 9), ("a", 0, 0, 6)]
    assert read(sources, log.ends) == []


def test_it_is_read_in_parts() -> None:
    log = Log(ends={A0: 5, S0: 8, S1: 4})
    sources = with_global(log)
    parts = []
    while sources.bootstrapping:
        parts.append(read(sources, log.ends, most=6))
    assert all(0 < sum(end - start for *_, start, end in part) <= 6 for part in parts)
    assert {node for part in parts for node, *_ in part} == {"shops"}
    assert sources.consumed() == {A0: 0, S0: 8, S1: 4}


def test_without_a_limit_it_is_read_in_parts_of_bounded_size() -> None:
    log = Log(ends={A0: 5, S0: 3 * BOOTSTRAP_RECORDS})
    sources = with_global(log)
    assert read(sources, log.ends) == [("shops", 0, 0, BOOTSTRAP_RECORDS)]


def test_a_restart_reads_what_came_since() -> None:
    log = Log(ends={A0: 5, S0: 9, S1: 3})
    sources = with_global(log, {"a": {"a": {0: 2}}, "shops": {"shops": {0: 7, 1: 3}}})
    assert read(sources, log.ends) == [("shops", 0, 7, 9)]
    assert read(sources, log.ends) == [("a", 0, 2, 5)]


def test_a_global_topic_that_was_made_anew() -> None:
    log = Log(ends={A0: 5, S0: 1})
    sources = with_global(log, {"a": {"a": {0: 5}}, "shops": {"shops": {0: 7}}})
    assert not sources.bootstrapping
    with pytest.raises(SourceError) as caught:
        sources.next_ranges(log.ends, None)
    assert caught.value.code == "CS-603"
