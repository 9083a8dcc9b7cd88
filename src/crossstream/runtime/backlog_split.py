"""How much of a backlog a batch takes: cut at one time in all topics, and small batches done by one task.

A small batch is not shuffled: one task does all rounds of all partitions (decision 0025).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crossstream.errors import SourceError
from crossstream.graph.names import matches
from crossstream.graph.nodes import Source, lineage
from crossstream.operators.source.runner import Reader
from crossstream.planning.plan import Plan
from crossstream.planning.steps import GlobalResolveStep, ReadStep, ResolveManyStep, ResolveStep
from crossstream.storage.log_entries import SourceRange
from crossstream.task.batch import Batch, Input, Policy, Report, Settings
from crossstream.task.failures import Failures
from crossstream.topics import (
    Columns,
    FirstRecords,
    OffsetRange,
    Ranges,
    Timelines,
    TopicLog,
    TopicPartition,
    partition_of,
    passed,
)

Span = tuple[str, str, int, int, int]
"""Source node, topic, partition, first offset, and the offset after the last one."""

NEVER = 1 << 62
"""A time after every timestamp."""
FIRST_STEP = 1_000
"""How far to look ahead in ms when nothing is known."""
GROWTH = 8
"""How much farther each time, until it is far enough."""
ENOUGH, AIM = 0.9, 0.95
"""The shares of the limit that a batch should have at least, and that are aimed at."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """The parts of spans before a time, as far as they were looked at.

    ``next``: the time of the first record that is not before it. ``seen``: the latest time that was seen.
    """

    until: int
    spans: list[Span]
    next: int
    seen: int


@dataclass(slots=True)
class Cutter:
    """Cuts spans at one time. ``until``: where the last cut was; ``step``: how far the next is likely to go, in ms."""

    log: TopicLog | ExtractedTimes
    until: int = 0
    step: int = FIRST_STEP

    def cut(self, spans: Sequence[Span], most: int) -> list[Span]:
        """The parts of ``spans`` to read first, together about ``most`` records.

        Of the records of the very time at which the cut falls those of the first spans come first.
        """
        if count(spans) <= most or len(spans) == 1:
            return in_proportion(spans, most)
        early, begun = self._bracket(spans, most)
        if count(early.spans) < most * ENOUGH:
            taken = self._with_tied(spans, early, most - count(early.spans))
        else:
            taken = early.spans
            self.step = max(1, int((early.until - begun) * most * AIM / count(taken)))
        self.until = max(self.until, early.until)
        return [span for span in taken if span[4] > span[3]]

    def _with_tied(self, spans: Sequence[Span], early: _Cut, room: int) -> list[Span]:
        """The early parts, each with the records of the time of the cut, span by span as long as there is room."""
        taken = []
        for span, before in zip(spans, early.spans, strict=True):
            end = before[4]
            if room > 0 and end < span[4]:
                [tied] = self._at([(*span[:3], end, span[4])], early.until + 1, room).spans
                end = min(tied[4], end + room)
                room -= end - before[4]
            taken.append((*span[:4], end))
        return taken

    def _bracket(self, spans: Sequence[Span], most: int) -> tuple[_Cut, int]:
        """A cut with enough records and not too many; or with too few, where one a millisecond later has too many.

        Also when about the records begin.
        """
        early = _Cut(0, [(*span[:4], span[3]) for span in spans], self.until, 0)
        late = _Cut(NEVER, list(spans), NEVER, NEVER)
        ahead, begun, first = self.step if self.until else 0, self.until, self.until
        for turn in itertools.count():
            few, many = count(early.spans), count(late.spans)
            if few >= most * ENOUGH or late.until - early.until <= 1:
                break
            if late.until == NEVER:
                guess, ahead = begun + ahead, max(FIRST_STEP, ahead * GROWTH)
            elif early.until < begun < late.until:
                guess = begun
            elif turn % 3:
                guess = early.until + int((late.seen - early.until) * (most * AIM - few) / (many - few))
            else:
                guess = (early.until + late.until) // 2
            found = self._at(spans, min(max(guess, early.until + 1), late.until - 1), most)
            if count(found.spans) > most:
                late = found
            else:  # nothing lies between it and the record that comes next
                early = replace(found, until=min(max(found.until, found.next), late.until - 1))
                begun = early.until
                if not count(found.spans):
                    first = begun
        return early, first

    def _at(self, spans: Sequence[Span], timestamp: int, most: int) -> _Cut:
        """Each span up to its first record of that time or later; or less, if that is more than ``most`` as well."""
        ranges = [OffsetRange(topic, partition, start, end) for _, topic, partition, start, end in spans]
        moments = self.log.offsets_for_times(ranges, timestamp, most)
        found = [moments[TopicPartition(topic, partition)] for _, topic, partition, _, _ in spans]
        parts = [
            (*span[:4], span[4] if moment is None else moment.offset)
            for span, moment in zip(spans, found, strict=True)
        ]
        times = [moment.timestamp for moment in found if moment is not None]
        next_one = min(times, default=NEVER)
        seen = max((time for time in times if time < timestamp), default=timestamp)
        return _Cut(timestamp, parts, next_one, seen)


def count(spans: Sequence[Span]) -> int:
    return sum(end - start for *_, start, end in spans)


def in_proportion(spans: Sequence[Span], most: int) -> list[Span]:
    """Each span cut in proportion, so that together they have about ``most`` records."""
    total = count(spans)
    if total <= most:
        return list(spans)
    share = most / total
    return [
        (node, topic, partition, start, min(end, start + max(1, int((end - start) * share))))
        for node, topic, partition, start, end in spans
    ]


USUAL_SECONDS = 10e-6
"""The time per row before any was measured."""
FIXED_SECONDS = 0.25
"""What the tasks of a batch may take together whatever its rows."""
FADING = 0.7
"""How much of what is known stays known from batch to batch."""


@dataclass(frozen=True, slots=True)
class Fan:
    """A join whose right rows change many results each: stores of its left rows, and of the right ones.

    ``tables``: how many right tables the store of the left rows is an index for.
    """

    left: str
    right: str
    tables: int = 1

    def rows(self, held: Mapping[str, int]) -> float:
        """Left rows for each right row, by what the stores hold."""
        return held.get(self.left, 0) / self.tables / max(1, held.get(self.right, 0))


@dataclass(slots=True)
class Sizing:
    """Knows small batches, from what the stores hold and what batches took before.

    ``limit``: rows that one task does alone, if a row takes what is usual. ``fans``: by source, the joins where it
    comes in on the right.
    """

    limit: int
    fans: Mapping[str, tuple[Fan, ...]]
    row_seconds: float = USUAL_SECONDS
    _expected: float = 0.0

    def is_small(self, ranges: Iterable[SourceRange], held: Mapping[str, int]) -> bool:
        """Whether one task does a batch of these ranges alone; ``held``: rows in each store."""
        self._expected = sum((span.end - span.start) * self._each(span.node, held) for span in ranges)
        return self.limit > 0 and self._expected * self.row_seconds <= self.limit * USUAL_SECONDS

    def learn(self, seconds: float) -> None:
        """Takes in how long the tasks worked together on the batch that `is_small` was last asked of."""
        expected, self._expected = self._expected, 0.0
        measured = (seconds - FIXED_SECONDS) / expected if expected else 0.0
        self.row_seconds = max(USUAL_SECONDS, FADING * self.row_seconds, measured)

    def _each(self, source: str, held: Mapping[str, int]) -> float:
        """Rows that a record of a source makes work of."""
        return 1 + sum(fan.rows(held) for fan in self.fans.get(source, ()))


def fans_of(plan: Plan) -> dict[str, tuple[Fan, ...]]:
    """The joins of a plan in which a change of a right row may change many results, by the sources it comes from."""
    found: dict[str, list[Fan]] = {}
    for step in plan.steps:
        parents = plan.topology[step.node].parents
        if isinstance(step, ResolveStep):
            fans = [(parents[1], Fan(step.subscriptions, step.right_store))]
        elif isinstance(step, GlobalResolveStep):
            fans = [(parents[1], Fan(step.subscriptions, step.table))]
        elif isinstance(step, ResolveManyStep):
            rights = zip(parents[1:], step.right_stores, strict=True)
            fans = [(parent, Fan(step.referrers, store, len(step.right_stores))) for parent, store in rights]
        else:
            continue
        for parent, fan in fans:
            for node in lineage(plan.topology.nodes, [parent]):
                if not node.parents:
                    found.setdefault(node.name, []).append(fan)
    return {source: tuple(fans) for source, fans in found.items()}


GONE = frozenset({"CS-601", "CS-602"})
"""Records or topics are not there any more: the batch that reads them says so, and knows whether it matters."""


@dataclass(slots=True)
class ExtractedTimes:
    """The times of topics, some of which have sources with an extractor. ``log``: knows the times of all others.

    The records of a backlog that is cut are read ahead, once, as a batch reads them. One that cannot be decoded or has
    no time moves none, as in a batch that skips it. Where it stops the application, the batch that takes it says so.
    Decision 0022.
    """

    log: TopicLog
    input: Input
    sources: Mapping[str, Source]
    steps: Mapping[str, ReadStep]
    failures: Failures
    rows: int = Settings().read_rows
    _timelines: Timelines = field(init=False)

    def __post_init__(self) -> None:
        self._timelines = Timelines(self._read)

    @classmethod
    def of(cls, plan: Plan, log: TopicLog, input_: Input) -> ExtractedTimes | None:
        """None where no source of a topic has an extractor."""
        sources = {
            node.name: node
            for node in plan.topology
            if isinstance(node, Source) and node.timestamp_extractor is not None
        }
        if not sources:
            return None
        plans = [plan] if plan.global_stage is None else [plan, plan.global_stage]
        steps = [step for one in plans for step in one.parts[0].steps if isinstance(step, ReadStep)]
        skip, report = Policy("skip"), Report()
        batch, nothing = Batch(0, (), 1), lambda *_: None
        failures = Failures(plan.topology, batch, report, skip, skip, nothing, nothing)
        return cls(log, input_, sources, {step.node: step for step in steps}, failures)

    def offsets_for_times(self, spans: Sequence[OffsetRange], timestamp: int, most: int) -> FirstRecords:
        """See `TopicLog.offsets_for_times`."""
        ahead = {partition_of(span): span for span in spans if self._source(span.topic) is not None}
        others = [span for span in spans if partition_of(span) not in ahead]
        found: FirstRecords = dict(self.log.offsets_for_times(others, timestamp, most)) if others else {}
        for tp, span in ahead.items():
            self._timelines.turn_to(tp, span.start, span.start)
        before = sum(passed(span, found[partition_of(span)]) for span in others)
        try:
            return found | self._timelines.seek(ahead, timestamp, most - before)
        except SourceError as error:
            if error.code not in GONE:
                raise
            return dict(self.log.offsets_for_times(spans, timestamp, most))

    def _source(self, topic: str) -> str | None:
        """The source with an extractor that reads a topic, if there is one."""
        return next(
            (
                name
                for name, node in self.sources.items()
                if topic in node.topics or matches(node.pattern, topic)
            ),
            None,
        )

    def _read(self, spans: Ranges) -> Mapping[TopicPartition, Columns]:
        columns: dict[TopicPartition, Columns] = {tp: ([], []) for tp in spans}
        wanted = [
            SourceRange(self._source(span.topic) or "", span.topic, span.partition, span.start, span.end, 0)
            for span in spans.values()
        ]
        for span, records in self.input.read(wanted, self.rows):
            node, step = self.sources[span.node], self.steps[span.node]
            offsets, times = Reader(node, step, span, self.failures).times(records)
            tp = TopicPartition(span.topic, span.partition)
            columns[tp][0].append(offsets)
            columns[tp][1].append(times)
        return columns
