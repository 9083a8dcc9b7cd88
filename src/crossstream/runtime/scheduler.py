"""Which records the next batch takes: offsets, new partitions, limits."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import structs

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SourceError
from crossstream.graph.names import check_matched_once, matches
from crossstream.graph.nodes import Graph, Source
from crossstream.runtime.backlog import Cutter, Positions, Span, copied, shorter
from crossstream.runtime.extracted_times import ExtractedTimes
from crossstream.runtime.histories import Histories, gap
from crossstream.runtime.lakes import Lakes, made_again
from crossstream.runtime.places import offsets_at, recreated
from crossstream.runtime.read_first import ReadFirst
from crossstream.runtime.transactions.together import Transactions
from crossstream.storage.log_entries import SourceRange, Starts
from crossstream.task.batch import rank_of
from crossstream.topics import TopicLog, TopicPartition, all_partitions

logger = logging.getLogger("crossstream.sources")

BOOTSTRAP_RECORDS = 1_000_000
"""Records of a batch of what is read before anything else, where nothing else limits it."""


@dataclass(slots=True)
class SourcePlanner:
    """Finds the partitions of every source, and cuts what is there into batches.

    ``log``: None where no source reads topics.
    ``lost``: what to do where records were deleted before they were read, by retention or with their topic.
    ``topic_ids``: which topics the positions are in. ``replaced``: those that others have taken the place of.
    ``starts``: where sources began that do not begin at the beginning, now or at a start before that.
    ``times``: what knows the times of records that `log` does not. ``transactions``: of tables that they cut.
    """

    topology: Graph
    log: TopicLog | None
    positions: Positions
    lost: str = "fail"
    topic_ids: dict[str, str] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    starts: Starts = field(default_factory=Starts)
    times: ExtractedTimes | None = None
    transactions: Transactions = field(default_factory=Transactions)
    started: bool = False
    skipped: int = 0
    _lost_up_to: dict[TopicPartition, int] = field(default_factory=dict)
    _partitions: dict[str, list[TopicPartition]] = field(default_factory=dict)
    _sources: list[Source] = field(init=False)
    _lakes: Lakes = field(init=False)
    _first: ReadFirst = field(init=False)
    _histories: Histories = field(init=False)
    _cutter: Cutter = field(init=False)

    def __post_init__(self) -> None:
        sources = list(self.topology.each(Source))
        # Tables before streams: in this order records of one time are taken.
        self._sources = sorted(sources, key=lambda node: node.shape == "stream")
        self._lakes = Lakes.of(sources, self.log)
        self._first = ReadFirst.of(self._sources, self.log, self._lakes, self.times or self.log)
        self._histories = Histories(self.log)
        if self.log is not None:
            self._cutter = Cutter(self.times or self.log)

    @property
    def _log(self) -> TopicLog:
        assert self.log is not None
        return self.log

    def refresh(self) -> None:
        """Looks for topics and partitions that are new.

        Raises `SourceError`: CS-602 if a topic is missing, CS-603 if it is another one than that which was read,
        CS-605 if the user may not see it; `TopologyError` CS-122 if two patterns match one.
        """
        topics = {} if self.log is None else self.log.topics()
        self.transactions.check(topics)
        readers: dict[str, list[Source]] = {}
        for node in self._sources:
            found = self._topics_of(node, topics)
            self._partitions[node.name] = all_partitions(found, topics)
            for topic in found:
                readers.setdefault(topic, []).append(node)
        for topic, nodes in readers.items():
            check_matched_once(topic, nodes)
        self._take_over()
        self._identify()
        for node in self._sources:
            self._begin(node)
        self.started = True

    def end_offsets(self) -> Mapping[TopicPartition, int]:
        """Where every topic partition ends now; without topics of patterns that are gone.

        Where a partition is missing, or ends before what was read, its topic may have been recreated since they were
        looked for, so they are looked for again. Raises what `refresh` does.
        """
        try:
            ends = self._ends()
        except SourceError as error:
            if error.code != "CS-602":
                raise
        else:
            if self._rewound(ends) is None:
                return ends
        self.refresh()
        return self._ends()

    def _ends(self) -> Mapping[TopicPartition, int]:
        self.transactions.look()
        while True:
            wanted = sorted({tp for partitions in self._partitions.values() for tp in partitions})
            try:
                return self._log.end_offsets(wanted) if wanted else {}
            except SourceError as error:
                if not self.leave_out(error):
                    raise

    def leave_out(self, error: SourceError) -> bool:
        """Continues without the topic that an error misses, until it is found again; False: a source names it.

        Its position stays, and its id: it may only be away, and if it is recreated that is seen.
        """
        topic = error.where.get("topic")
        for node in self._sources if error.code == "CS-602" else ():
            left = [tp for tp in self._partitions[node.name] if tp.topic != topic]
            if node.pattern is not None and len(left) < len(self._partitions[node.name]):
                logger.warning("the topic %r is gone: %s continues without it", topic, node.name)
                self._partitions[node.name] = left
                return True
        return False

    def await_first(self) -> None:
        """Notes what is read before anything else. Raises `SourceError` CS-603 for a topic that was to be loaded."""
        self._first.note(self._partitions, self.positions, self.starts, self.topic_ids)

    @property
    def bootstrapping(self) -> bool:
        """Whether something that is read before anything else is still missing."""
        return bool(self._first.missing(self._spans))

    @property
    def waits(self) -> tuple[str, ...]:
        """What records wait for: tables that load, and transactions that are not whole."""
        return (*self._first.waits(self.positions), *self.transactions.waits)

    @property
    def snapshots(self) -> dict[str, dict[int, int]]:
        """Up to which offset rows of a snapshot hold from the beginning of time on, by topic and partition."""
        return self.starts.snapshots(self.topic_ids)

    def end_load(self) -> None:
        """Continues with other records, though tables that load first wait for some."""
        self._first.end_load()

    def rows(self, span: SourceRange) -> int:
        """About how many records a range has."""
        return self._lakes.rows(span)

    def next_ranges(self, ends: Mapping[TopicPartition, int], most: int | None) -> tuple[SourceRange, ...]:
        """What to read up to ``ends``; with ``most``, about that many records, the earliest ones of all topics.

        As long as something is missing that is read before anything else: only that, in bounded parts.
        """
        self.transactions.planned = {}
        limited = self._first.next_spans(
            self._spans,
            ends,
            partial(self.transactions.loaded, partitions=self._partitions, positions=self.positions),
            BOOTSTRAP_RECORDS if most is None else most,
        )
        if limited is None:
            if (rewound := self._rewound(ends)) is not None:
                raise rewound
            spans = self._spans(self._sources, ends)
            limit = partial(self._limited, most=most)
            limited = self.transactions.limited(spans, self._partitions, self.positions, limit)
        return tuple(
            SourceRange(*span, rank_of(self.topology[span[0]].shape, position))
            for position, span in enumerate(limited)
        )

    def _limited(self, spans: list[Span], most: int | None) -> list[Span]:
        return spans if most is None or not spans else self._lakes.cut(self._cutter, spans, most)

    def waiting(
        self, nodes: Collection[str], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """How many records up to ``ends`` each partition of these sources has that were not read."""
        return {
            tp: max(0, ends.get(tp, 0) - self.positions[node][tp.topic][tp.partition])
            for node in nodes
            for tp in self._partitions[node]
        }

    def expected(
        self, ends: Mapping[TopicPartition, int], ranges: Sequence[SourceRange], *, every: bool
    ) -> dict[str, tuple[int, ...]]:
        """By source, the partitions with records up to ``ends`` beyond the ``ranges``; ``every``: all there are.

        While tables load first only they count, up to where that ends: what comes meanwhile changes no result.
        """
        sources: Sequence[Source] = self._sources
        if not every and self._first.is_load(ranges):
            sources, ends = self._first.loads, self._first.ends
        after, found = self.after(tuple(ranges)), {}
        for node in sources:
            at = after[node.name]
            more = {
                tp.partition
                for tp in self._partitions[node.name]
                if every or ends.get(tp, 0) > at[tp.topic][tp.partition]
            }
            if more:
                found[node.name] = tuple(sorted(more))
        return found

    def _spans(self, nodes: Sequence[Source], ends: Mapping[TopicPartition, int]) -> list[Span]:
        """From the position of each partition to its end, where there is anything between."""
        return [
            (node.name, tp.topic, tp.partition, start, ends[tp])
            for node in nodes
            for tp in self._partitions[node.name]
            if ends.get(tp, 0) > (start := self.positions[node.name][tp.topic][tp.partition])
        ]

    def _rewound(self, ends: Mapping[TopicPartition, int]) -> CrossStreamError | None:
        """The error of a partition that ends before what was read of it."""
        read = ((node.name, tp) for node in self._sources for tp in self._partitions[node.name])
        for node, tp in read:
            start = self.positions[node][tp.topic][tp.partition]
            if ends.get(tp, start) < start:
                if tp.topic in self._lakes.topics:
                    return made_again(self._lakes.topics[tp.topic], tp.topic)
                return shorter(node, tp, ends[tp], start)
        return None

    def after(self, ranges: tuple[SourceRange, ...]) -> Positions:
        """The positions past the ranges of a batch: those to continue from when it is committed."""
        moved = copied(self.positions)
        for span in ranges:
            moved.setdefault(span.node, {}).setdefault(span.topic, {})[span.partition] = span.end
        return moved

    def lag(self, ends: Mapping[TopicPartition, int]) -> int:
        """Records between the positions and ``ends``; of a lake table commits."""
        waiting = self.waiting([node.name for node in self._sources], ends)
        return sum(count for tp, count in waiting.items() if self._lakes.counts(tp))

    def taken(self, ranges: Sequence[SourceRange]) -> int:
        """How much of `lag` the ranges are."""
        return sum(span.end - span.start for span in ranges if self._lakes.counts(span))

    def consumed(self) -> dict[TopicPartition, int]:
        """The position of every topic partition that is read, for the consumer group."""
        return {
            TopicPartition(topic, partition): offset
            for topic, node in self._readers().items()
            for partition, offset in self.positions.get(node, {}).get(topic, {}).items()
        }

    def gone(self) -> set[str]:
        """The topics that were read and are not any more: no source does, or they are away."""
        return {topic for topics in self.positions.values() for topic in topics} - self._readers().keys()

    def renamed(self, ranges: tuple[SourceRange, ...]) -> tuple[SourceRange, ...] | None:
        """Ranges of the last run, for the sources that read their topics now; None if they cannot be read again.

        So it is where a topic is another one now, or no source reads it: tasks would have other ranges than before.
        """
        readers = self._readers()
        if any(span.topic in self.replaced or span.topic not in readers for span in ranges):
            return None
        return tuple(structs.replace(span, node=readers[span.topic]) for span in ranges)

    def _readers(self) -> dict[str, str]:
        """The source of every topic: there is one."""
        return {tp.topic: node for node, partitions in self._partitions.items() for tp in partitions}

    def _take_over(self) -> None:
        """A source continues where another one, such as itself under another name, has read a topic of its own."""
        for topic, reader in self._readers().items():
            others = [node for node, topics in self.positions.items() if node != reader and topic in topics]
            for node in others:
                left = self.positions[node].pop(topic)
                self.positions.setdefault(reader, {}).setdefault(topic, left)
                if not self.positions[node]:
                    del self.positions[node]

    def _identify(self) -> None:
        """Compares topic ids. In a recreated topic that is longer, offsets of the old one are in its middle."""
        readers, before = self._readers(), dict(self.topic_ids)
        for topic, found in self._log.topic_ids(sorted(readers)).items() if readers else ():
            if self.topic_ids.get(topic, found) != found:
                self._replace(readers[topic], topic)
            self.topic_ids[topic] = found
        if self.started and before.items() - self.topic_ids.items():
            self.await_first()  # up to where they end now, not where they ended

    def _replace(self, node: str, topic: str) -> None:
        """The topic was deleted and recreated: it is read from its beginning, or an error if it was read before."""
        if any(self.positions.get(node, {}).get(topic, {}).values()):
            if topic in self._lakes.topics:
                raise made_again(self._lakes.topics[topic], topic)
            if self.lost == "fail":
                raise recreated(node, topic)
            logger.warning("the topic %r was deleted and recreated: it is read from its beginning", topic)
        begins = self._log.begin_offsets([tp for tp in self._partitions[node] if tp.topic == topic])
        self.positions.setdefault(node, {})[topic] = {tp.partition: at for tp, at in begins.items()}
        self.replaced.add(topic)
        self._lost_up_to = {tp: end for tp, end in self._lost_up_to.items() if tp.topic != topic}

    def topic_names(self, topics: Mapping[str, int]) -> list[str]:
        """The topics that any source reads."""
        return sorted({topic for node in self._sources for topic in self._topics_of(node, topics)})

    def _topics_of(self, node: Source, topics: Mapping[str, int]) -> list[str]:
        if node.pattern is not None:
            return sorted(topic for topic in topics if matches(node.pattern, topic))
        for topic in node.topics:
            if topic not in topics:
                raise self._unlisted(node, topic)
        return list(node.topics)

    def _unlisted(self, node: Source, topic: str) -> CrossStreamError:
        """The topic does not exist, or the user may not see it: Kafka says which where it is asked for."""
        try:
            self._log.begin_offsets([TopicPartition(topic, 0)])
        except SourceError as error:
            if error.code == "CS-605":
                return error.at(**node.where)
        return refuse("CS-602", f"the topic {topic!r} does not exist", **node.where)

    def _begin(self, node: Source) -> None:
        """Gives new partitions a position: by ``offset_reset`` at the first start, later from their beginning."""
        chooses = node.offset_reset != "earliest" and not self.started
        first = node.name not in self.positions and node.name not in self.starts.sources
        known = self.positions.setdefault(node.name, {})
        if node.lake is not None and (before := self._lakes.moved(node, known, self.topic_ids)) is not None:
            known[node.lake.topic] = known.pop(before)
        if not self.started:
            self.starts = self._lakes.begun(node, known, self.starts, self.topic_ids)
            of_node = self._partitions[node.name]
            self.starts = self._first.begun(node, known, of_node, self.starts, self.topic_ids)
            self.starts = self._histories.begun(node, of_node, known, self.starts)
        if chooses:
            self._begin_as_before(node.name)
        chosen = chooses and first and not known
        new = [tp for tp in self._partitions[node.name] if tp.partition not in known.get(tp.topic, {})]
        place = node.offset_reset if chosen else "earliest"
        offsets = offsets_at(self._log, place, new) if new else {}
        for tp in new:
            known.setdefault(tp.topic, {})[tp.partition] = offsets[tp]
        if chosen:
            self.starts = self.starts.and_of(node.name, known, self.topic_ids)
        if not self.started:
            self._check_lost(node)

    def _begin_as_before(self, node: str) -> None:
        """Where a start before this one began with a topic of which nothing was committed since."""
        known = self.positions[node]
        for topic in {tp.topic for tp in self._partitions[node]} & self.starts.positions.keys():
            known.setdefault(topic, dict(self.starts.positions[topic]))

    def _check_lost(self, node: Source) -> None:
        begins = self._log.begin_offsets(self._partitions[node.name])
        for tp, begin in begins.items():
            position = self.positions[node.name][tp.topic][tp.partition]
            if begin > position:
                self.lose(node.name, tp, position, begin)

    def lose(self, node: str, tp: TopicPartition, position: int, begin: int) -> None:
        """Records were deleted unread: an error, or a gap that is counted, once though a batch asks for it again."""
        seam = self.starts.seams.get(tp.topic)
        if seam is not None and position < seam.ends.get(tp.partition, 0):
            raise gap(self.topology[node], seam, tp, begin)
        if self.lost == "fail":
            what = f"records were deleted before they were read: offsets {position} to {begin - 1}"
            raise refuse(
                "CS-601", what, operator=node, topic=tp.topic, partition=tp.partition, offset=position
            )
        self.skipped += begin - max(position, self._lost_up_to.get(tp, position))
        self._lost_up_to[tp] = begin
        self.positions[node][tp.topic][tp.partition] = begin
