"""What the planner of sources asks: which parts of the spans a batch takes, so that transactions stay whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from crossstream.error_codes import refuse
from crossstream.graph.nodes import Source
from crossstream.runtime.backlog import Span
from crossstream.runtime.transactions.group import Cut, Group
from crossstream.runtime.transactions.reading import Reading
from crossstream.storage.log_entries import Stand
from crossstream.task.batch import Input
from crossstream.topics import TopicLog, TopicPartition

Positions = Mapping[str, Mapping[str, Mapping[int, int]]]


@dataclass(slots=True)
class Transactions:
    """The tables that are cut by their transactions, in groups that share a transaction topic.

    ``planned``: where the batch stands that was planned last, by transaction topic. ``waits``: what is waited for,
    ``held``: up to which offsets partitions were looked at of which nothing can be taken now; ``looked``: up to where
    the transaction topics were looked at then.
    """

    groups: tuple[Group, ...] = ()
    planned: dict[str, Stand] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    held: dict[TopicPartition, int] = field(default_factory=dict)
    looked: dict[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, sources: Sequence[Source], log: TopicLog, input_: Input, stands: Mapping[str, Stand], most: int
    ) -> Transactions:
        """``most``: records of a transaction that is kept whole."""
        found: dict[str, list[Source]] = {}
        for node in sources:
            if node.unwrap is not None and node.unwrap.transactions is not None:
                found.setdefault(node.unwrap.transactions, []).append(node)
        groups = []
        for topic, nodes in sorted(found.items()):
            reading = Reading(TopicPartition(topic, 0), tuple(nodes), input_)
            groups.append(Group(reading, log, stands.get(topic), most))
        return cls(tuple(groups))

    def check(self, topics: Mapping[str, int]) -> None:
        """Raises `SourceError` CS-622 for a transaction topic with several partitions. One that is missing is empty."""
        for group in self.groups:
            group.is_there = group.topic in topics
            if topics.get(group.topic, 1) != 1:
                what = f"the transaction topic has {topics[group.topic]} partitions, so its records have no order"
                step = "let the connector write a topic with one partition"
                raise refuse("CS-622", what, step, topic=group.topic)

    def look(self) -> None:
        """Looks where the transaction topics end."""
        wanted = [group.reading.tp for group in self.groups if group.is_there]
        ends = self.groups[0].log.end_offsets(wanted) if wanted else {}
        for group in self.groups:
            group.end = max(group.end, ends.get(group.reading.tp, 0))

    def note(self, stands: Mapping[str, Stand]) -> None:
        """A batch is committed that stands there."""
        for group in self.groups:
            group.note(stands.get(group.topic))

    def limited(
        self,
        spans: Sequence[Span],
        partitions: Mapping[str, Sequence[TopicPartition]],
        positions: Positions,
        limit: Callable[[list[Span]], list[Span]],
    ) -> list[Span]:
        """The parts of spans that a batch takes. ``limit``: takes the earliest records of some spans."""
        if not self.groups:
            return limit(list(spans))
        cuts = [(group, self._cut(group, spans, partitions, positions)) for group in self.groups]
        self.waits = tuple(text for _, cut in cuts for text in cut.waits)
        self.held, self.planned = {}, {}
        own = {node.name for group in self.groups for node in group.reading.sources}
        others = [span for span in spans if span[0] not in own]
        whole = [span for group, cut in cuts for span in _spans(group, cut.ends, partitions, positions)]
        chosen = limit(_in_order([*others, *whole], partitions))
        taken = {TopicPartition(topic, partition): end for _, topic, partition, _, end in chosen}
        made = [span for span in chosen if span[0] not in own]
        for group, cut in cuts:
            begins = _begins(group, partitions, positions)
            wanted = {tp: taken.get(tp, begin) for tp, begin in begins.items()}
            if wanted != begins:
                exact = group.within(cut, wanted)
                made += _spans(group, exact.ends, partitions, positions)
                self.planned[group.topic] = exact.stand
            elif cut.ends == begins:
                self.held |= {tp: span[4] for span in spans if (tp := _tp(span)) in begins}
        self.looked = {group.reading.tp: group.end for group in self.groups}
        return _in_order(made, partitions)

    def ends(self, log: TopicLog, topics: Mapping[str, int]) -> dict[TopicPartition, int]:
        """Where the transaction topics end that are there, as another thread sees it with a log of its own."""
        there = [group.reading.tp for group in self.groups if group.topic in topics]
        return dict(log.end_offsets(there)) if there else {}

    def held_at(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """``held``, where the transaction topics were looked at up to these ends; before that nothing is known."""
        is_known = all(end <= self.looked.get(tp, 0) for tp, end in ends.items())
        return self.held if is_known else {}

    def loaded(
        self,
        spans: Sequence[Span],
        later: Sequence[Span],
        partitions: Mapping[str, Sequence[TopicPartition]],
        positions: Positions,
        limit: Callable[[list[Span]], list[Span]],
        caps: Mapping[TopicPartition, int],
    ) -> list[Span] | None:
        """What a batch takes of tables that load first: whole transactions inside ``spans``; empty: there are no more.

        ``caps``: where transaction topics ended then: what a later END makes whole is no part of the load. A snapshot
        that has begun is loaded to its end, so of ``later``; None: it is waited for.
        """
        ends = [group.end for group in self.groups]
        for group in self.groups:
            group.end = min(group.end, caps.get(group.reading.tp, group.end))
        try:
            made = self.limited(spans, partitions, positions, limit)
            if made or not any(group.loading for group in self.groups):
                return made
            made = self.limited(later, partitions, positions, limit)
            self.held |= {_tp(span): span[4] for span in later}
            return made or None
        finally:
            for group, end in zip(self.groups, ends, strict=True):
                group.end = end

    def _cut(
        self,
        group: Group,
        spans: Sequence[Span],
        partitions: Mapping[str, Sequence[TopicPartition]],
        positions: Positions,
    ) -> Cut:
        begins = _begins(group, partitions, positions)
        limits = {_tp(span): span[4] for span in spans if _tp(span) in begins}
        if not limits:
            return Cut(dict(begins), group.stand or Stand(0))
        return group.cut(begins, begins | limits)


def _begins(
    group: Group, partitions: Mapping[str, Sequence[TopicPartition]], positions: Positions
) -> dict[TopicPartition, int]:
    """Where each partition of the group is read next."""
    return {
        tp: positions[node.name][tp.topic][tp.partition]
        for node in group.reading.sources
        for tp in partitions[node.name]
    }


def _tp(span: Span) -> TopicPartition:
    return TopicPartition(span[1], span[2])


def _spans(
    group: Group,
    ends: Mapping[TopicPartition, int],
    partitions: Mapping[str, Sequence[TopicPartition]],
    positions: Positions,
) -> list[Span]:
    """From where each partition of the group is read next to these ends, where there is anything between."""
    begins = _begins(group, partitions, positions)
    return [
        (node.name, tp.topic, tp.partition, begins[tp], ends[tp])
        for node in group.reading.sources
        for tp in partitions[node.name]
        if ends[tp] > begins[tp]
    ]


def _in_order(spans: Sequence[Span], partitions: Mapping[str, Sequence[TopicPartition]]) -> list[Span]:
    """The spans in the order of the sources, and of the partitions of each."""
    nodes = {name: place for place, name in enumerate(partitions)}
    return sorted(spans, key=lambda span: (nodes[span[0]], partitions[span[0]].index(_tp(span))))
