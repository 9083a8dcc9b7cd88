"""What is read before anything else: global tables, snapshots of lake tables, tables that load first (decision 0044).

They have turns: what a table may look up comes before it, and all tables before the rows of streams.

    turn 1    global tables, up to where they end at each start; snapshots of lake tables
    turn 2    tables with `Consumed(load="first")`, up to where they ended at their first start
    turn 3    snapshots of lake tables that are read as streams, where there is a turn 2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from crossstream.error_codes import refuse
from crossstream.graph.loading import loading, transactions_of
from crossstream.graph.nodes import Source
from crossstream.runtime.backlog import Cutter, Span, Times, in_proportion
from crossstream.runtime.lakes import Lakes
from crossstream.storage.log_entries import SourceRange, Starts
from crossstream.topics import TopicLog, TopicPartition

Turn = tuple[Source, ...]
Positions = Mapping[str, Mapping[str, Mapping[int, int]]]
Spans = Callable[[Turn, Mapping[TopicPartition, int]], list[Span]]
"""What sources have between where they are and these ends."""
Loaded = Callable[..., list[Span] | None]
"""See `Transactions.loaded`."""


@dataclass(slots=True)
class ReadFirst:
    """``turns``: the sources, those of a turn together. ``ends``: up to where each is read before anything else.

    ``begins``: where the loads began that are not over. ``caps``: up to where transaction topics count for loads.
    """

    log: TopicLog | None
    lakes: Lakes
    turns: tuple[Turn, ...]
    cutter: Cutter | None
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    caps: dict[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, sources: Sequence[Source], log: TopicLog | None, lakes: Lakes, times: Times | None
    ) -> ReadFirst:
        """Of sources in the order in which records of one time are taken."""
        loads = loading(sources)
        tables = tuple(
            node
            for node in sources
            if node.shape == "global" or node.past or (node.lake and node.shape != "stream")
        )
        streams = tuple(node for node in sources if node.lake and node.shape == "stream")
        turns = (tables, loads, streams) if loads else ((*tables, *streams),)
        return cls(log, lakes, turns, None if times is None else Cutter(times))

    @property
    def loads(self) -> Turn:
        return self.turns[1] if len(self.turns) > 1 else ()

    def begun(
        self,
        node: Source,
        known: Mapping[str, Mapping[int, int]],
        partitions: Collection[TopicPartition],
        starts: Starts,
        ids: dict[str, str],
    ) -> Starts:
        """Notes where the topic of a table that loads first ends, if nothing was read of it and it is not noted yet."""
        if node not in self.loads:
            return starts
        (topic,) = node.topics
        if topic in starts.loaded(ids) or any(known.get(topic, {}).values()):
            return starts
        assert self.log is not None
        transactions = transactions_of(node)
        if transactions is not None and transactions not in starts.loads:
            starts = starts.and_load(transactions, {0: _end_of(self.log, transactions)}, ids)
        ends = self.log.end_offsets(sorted(partitions))
        return starts.and_load(topic, {tp.partition: end for tp, end in ends.items()}, ids)

    def note(
        self,
        partitions: Mapping[str, Sequence[TopicPartition]],
        positions: Positions,
        starts: Starts,
        ids: Mapping[str, str],
    ) -> None:
        """Finds up to where each is read. What was read of a lake table before is in the state.

        Raises `SourceError` CS-603 where a topic ends before the load does.
        """
        wanted = sorted(
            tp for node in self.turns[0] if node.shape == "global" for tp in partitions[node.name]
        )
        ends = dict(self.log.end_offsets(wanted)) if wanted and self.log is not None else {}
        self.ends = {**ends, **self.lakes.snapshots(positions, starts), **self._loads(positions, starts, ids)}

    def _loads(
        self, positions: Positions, starts: Starts, ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        found = {}
        known = starts.loaded(ids)
        for node in self.loads:
            if (transactions := transactions_of(node)) in known:
                self.caps[TopicPartition(str(transactions), 0)] = known[str(transactions)][0]
            for topic in node.topics:
                for partition, end in known.get(topic, {}).items():
                    if positions[node.name][topic].get(partition, end) < end:
                        found[TopicPartition(topic, partition)] = end
        if found and self.log is not None:
            self.begins = dict(self.log.begin_offsets(list(found)))
            _check_held(found, self.log.end_offsets(list(found)))
        return found

    def next_spans(
        self, spans: Spans, ends: Mapping[TopicPartition, int], loaded: Loaded, most: int
    ) -> Sequence[Span] | None:
        """What a batch takes of it, about ``most`` records; nothing: it waits; None: nothing of it is left.

        ``ends``: where topics end now. ``loaded``: what is whole of tables that load, by their transactions.
        """
        limit = partial(self.cut, most=most)
        while missing := self.missing(spans):
            if not self.is_of_load(missing):
                return limit(missing)
            found = loaded(missing, spans(self.loads, ends), limit=limit, caps=self.caps)
            if found is None or found:
                return found or ()
            self.end_load()
        return None

    def missing(self, spans: Spans) -> list[Span]:
        """What is still to be read, of the first turn that is not over; ``spans``: what sources have up to ends."""
        if not self.ends:
            return []
        return next((left for turn in self.turns if (left := spans(turn, self.ends))), [])

    def cut(self, missing: Sequence[Span], most: int) -> list[Span]:
        """The part of what is missing that a batch takes, of about ``most`` records; snapshots whole.

        Tables that load first are cut at one time, so that their batches together have the order of one.
        """
        if not missing:
            return []
        if self.is_of_load(missing):
            assert self.cutter is not None
            return self.cutter.cut(missing, most)
        snapshots = [span for span in missing if span[1] in self.lakes.topics]
        parts = [span for span in missing if span[1] not in self.lakes.topics]
        return in_proportion(parts, most) + snapshots

    def is_of_load(self, missing: Sequence[Span]) -> bool:
        """Whether it is the turn of the tables that load first."""
        return any(node.name == span[0] for span in missing[:1] for node in self.loads)

    def end_load(self) -> None:
        """Ends the turn of the loads, though not all is read: the rest is of transactions that are not whole there."""
        topics = {topic for node in self.loads for topic in node.topics}
        self.ends = {tp: end for tp, end in self.ends.items() if tp.topic not in topics}

    def is_load(self, ranges: Sequence[SourceRange]) -> bool:
        """Whether a batch of these ranges loads tables, and so does nothing else."""
        return any(
            span.node == node.name
            and span.end <= self.ends.get(TopicPartition(span.topic, span.partition), 0)
            for span in ranges[:1]
            for node in self.loads
        )

    def waits(self, positions: Positions) -> tuple[str, ...]:
        """What is said of tables that load."""
        return tuple(
            f"loads {node}: {read:,} of {total:,}" for node, (read, total) in self.loading(positions).items()
        )

    def loading(self, positions: Positions) -> dict[str, tuple[int, int]]:
        """By table that loads, how many records were read of how many. Empty when all have."""
        found = {}
        for node in self.loads:
            read = total = 0
            for tp, end in self.ends.items():
                if tp.topic in node.topics:
                    begin = self.begins.get(tp, 0)
                    read += min(max(positions[node.name][tp.topic][tp.partition], begin), end) - begin
                    total += end - begin
            if read < total:
                found[node.name] = read, total
        return found


def _end_of(log: TopicLog, topic: str) -> int:
    """Where a transaction topic ends; one that is missing is empty."""
    return (
        log.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)] if topic in log.topics() else 0
    )


def _check_held(wanted: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    for tp, end in wanted.items():
        if ends[tp] < end:
            what = (
                f"the topic ends at offset {ends[tp]}, but ended at {end} when the application began to load it: "
                "it was truncated, or deleted and recreated"
            )
            raise refuse("CS-603", what, topic=tp.topic, partition=tp.partition, offset=end)
