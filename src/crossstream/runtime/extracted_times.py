"""The times of records whose sources extract them from keys and values, looked up ahead (decision 0022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crossstream.errors import SourceError
from crossstream.graph.names import matches
from crossstream.graph.nodes import Source
from crossstream.operators.source.runner import Reader
from crossstream.planning.plan import Plan
from crossstream.planning.steps import ReadStep
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
