"""Topics that are read again: from where they begin, up to where the state has read them; a new one to its end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from msgspec import structs

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.evolution.decision import Decision
from crossstream.evolution.part import Part
from crossstream.evolution.reading import is_part_of_state
from crossstream.filetopics.refreshed import PREFIX as REFRESHED
from crossstream.graph.names import matches
from crossstream.graph.nodes import Node
from crossstream.storage.log_entries import Starts
from crossstream.topics import TopicLog, TopicPartition


@dataclass(frozen=True, slots=True)
class Reread:
    """What a part reads of topics. ``known``: up to where the state has read each; ``starts``: where it began.

    ``old``: the sources that were there before. A topic that one of them has not read yet comes in the next batches, as
    it does for what is kept.
    """

    part: Part
    old: Collection[str]
    known: Mapping[str, Mapping[int, int]]
    ids: Mapping[str, str]
    starts: Starts

    @classmethod
    def of(cls, part: Part, decision: Decision) -> Reread:
        commit = decision.commit
        known = {topic: at for topics in commit.positions.values() for topic, at in topics.items()}
        known |= {topic: {0: stand.position} for topic, stand in commit.stands.items()}
        starts = decision.before.starts
        return cls(
            part,
            decision.sources.keys(),
            known,
            {**starts.topic_ids, **commit.topic_ids},
            _renamed(starts, part),
        )

    def ends(self, log: TopicLog) -> dict[str, dict[int, int]]:
        """Up to where each topic is read. Raises `StateError` CS-754 where records are gone, or were never in one."""
        there = log.topics()
        found: dict[str, dict[int, int]] = {}
        for node in self.part.topology:
            if node.reads_input and not node.reads_topics and node.name in self.part.needed:
                what = f"{node.name} would have to be read again, and the rows of a DataFrame cannot be"
                raise refuse("CS-754", what, **node.where)
            for topic in _topics(node, there):
                partitions = [TopicPartition(topic, number) for number in range(there[topic])]
                begins, ends = log.begin_offsets(partitions), log.end_offsets(partitions)
                if node.name in self.part.needed:
                    self._check(node, topic, begins, ends, log)
                    known = self.known.get(topic, {} if node.name in self.old else None)
                    found[topic] = {
                        tp.partition: ends[tp] if known is None else known.get(tp.partition, begins[tp])
                        for tp in partitions
                    }
                else:
                    found[topic] = {tp.partition: begins[tp] for tp in partitions}
        for topic in (
            self.known.keys() & there.keys() - found.keys()
        ):  # transactions, which say where tables end
            found[topic] = dict(self.known[topic])
        return found

    def _check(
        self,
        node: Node,
        topic: str,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        log: TopicLog,
    ) -> None:
        """Nothing of what is read again may be gone."""
        known = self.known.get(topic)
        if known is None:
            if topic.startswith(REFRESHED):
                what = f"{node.name} is a table that is read again and again, and new: its rows are not in the state"
                raise refuse("CS-756", what, **node.where)
            return
        found = log.topic_ids([topic]).get(topic)
        if found is not None and self.ids.get(topic, found) != found:
            raise _gone(node, "the topic was deleted and made again since it was read", topic=topic)
        starts = self.starts.positions.get(topic, {})
        for tp, begin in begins.items():
            first, last = starts.get(tp.partition, 0), known.get(tp.partition, 0)
            if first < begin and first < last:
                missing = f"offsets {first} to {min(begin, last) - 1} are gone"
                raise _gone(node, missing, topic=topic, partition=tp.partition, offset=first)
            if ends[tp] < last:
                missing = f"the topic ends at offset {ends[tp]}, and was read up to {last}"
                raise _gone(node, missing, topic=topic, partition=tp.partition, offset=ends[tp])


def _gone(node: Node, missing: str, **where: object) -> CrossStreamError:
    what = f"{node.name} would have to be read again, and its records are not there: {missing}"
    return refuse("CS-754", what, **node.where, **where)


def _topics(node: Node, there: Collection[str]) -> list[str]:
    """The topics of a source that are there; not stored rows, and results, which are read whole."""
    if not node.reads_topics:
        return []
    if node.pattern is not None:
        return [topic for topic in there if matches(node.pattern, topic)]
    return [topic for topic in node.topics if topic in there and not is_part_of_state(topic)]


def _renamed(starts: Starts, part: Part) -> Starts:
    """Where sources began, by the names that they have now."""
    names = [node.name for node in part.topology if any(topic in starts.positions for topic in node.topics)]
    return structs.replace(starts, sources=tuple(sorted({*starts.sources, *names})))
