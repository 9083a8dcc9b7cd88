"""Sinks in a task: results go to topics, or to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import index
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import call_of_user
from crossstream.columns.order import BranchTags
from crossstream.columns.values import Values
from crossstream.errors import SerdeError, SinkError
from crossstream.graph import nodes as graph
from crossstream.operators.runner import Emitted, Runner, Task
from crossstream.planning.steps import SinkStep
from crossstream.runtime.shuffle_codec import pack
from crossstream.serdes.refusals import UNDECODABLE, show
from crossstream.topics import is_legal_name

_CHUNK = 16_384
"""Rows that are serialised at once; the next ones use the same memory (decision 0027)."""


class SinkRunner(Runner):
    """Writes a flow to its topic: at once, or in order with the other sinks of the topic."""

    step: SinkStep

    def __init__(self, task: Task, step: SinkStep) -> None:
        super().__init__(task, step)
        self._tags = BranchTags(step.branches)

    def by_key(self) -> bool:
        return True

    def takes_tags(self) -> bool:
        return self.step.shares is not None

    def accept(self, flow: str, changes: Changes) -> None:
        if changes.rows:
            changes = self._tags.added(flow, changes)
            for piece in changes.chunks(_CHUNK if changes.value.made() else changes.rows):
                self._write_all(piece)

    def finish(self) -> Emitted:
        if self.step.orders:
            for topic, records, partitions in self.task.shared.take(self.step, self.task.batch.came_from):
                self.task.output.write(topic, records, partitions)
        return iter(())

    def _write_all(self, changes: Changes) -> None:
        node: graph.Sink = self.task.node(self.step.node)
        assert node.key is not None
        assert node.value is not None
        changes = self.writable(self.writable(changes, "key", node.key), "value", node.value)
        if not changes.rows:
            return
        key, value = changes.key.wire(node.key), changes.value.wire(node.value)
        headers = (
            changes.headers if changes.headers is not None else pa.nulls(changes.rows, pa.large_binary())
        )
        records = pa.RecordBatch.from_arrays(
            [key, value, pa.array(changes.ts), headers], names=["key", "value", "timestamp", "headers"]
        )
        for topic, rows in self._topics(node, changes):
            self._write(
                node,
                topic,
                records if rows is None else records.take(pa.array(rows)),
                changes if rows is None else changes.take(rows),
            )

    def _topics(self, node: graph.Sink, changes: Changes) -> list[tuple[str, np.ndarray | None]]:
        """The topics to write to, with the rows of each; None: all of them."""
        if node.topic is not None:
            return [(node.topic, None)]
        assert node.topic_of is not None
        columns = [changes.key.objects(), changes.value.objects()]
        names, failures = call_of_user(node.topic_of, columns, partial(_topic, node), "topic function")
        if failures:
            self.task.failures.failed(node, changes, failures)
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            if name is not None:
                rows.setdefault(name, []).append(row)
        for name in rows:
            self.task.output.must_exist(name)
        return [(name, np.array(found)) for name, found in rows.items()]

    def _write(self, node: graph.Sink, topic: str, records: pa.RecordBatch, changes: Changes) -> None:
        if node.partitioner is None:
            self._send(node, topic, records, changes, None)
            return
        count = self.task.output.partition_count(topic)
        partitioner = node.partitioner
        answers, failures = call_of_user(
            lambda key, value: partitioner(topic, key, value, count),
            [changes.key.objects(), changes.value.objects()],
            lambda answer: _partitions(node, topic, answer, count),
            "partitioner",
        )
        if failures:
            self.task.failures.failed(node, changes, failures)
            for failure in failures:
                answers[failure.row] = ()
        # Neighbours are written together, so that records of one partition stay in order.
        for default, group in groupby(enumerate(answers), key=lambda one: one[1] is None):
            if default:
                placed, chosen = [row for row, _ in group], None
            else:
                pairs = [(row, partition) for row, answer in group for partition in answer]
                placed, chosen = [row for row, _ in pairs], [partition for _, partition in pairs]
            if placed:
                rows = np.array(placed)
                self._send(node, topic, records.take(pa.array(rows)), changes.take(rows), chosen)

    def _send(
        self,
        node: graph.Sink,
        topic: str,
        records: pa.RecordBatch,
        changes: Changes,
        partitions: Sequence[int] | None,
    ) -> None:
        """Writes records, or keeps them for the sinks that write together. ``changes``: the rows they come from."""
        if self.step.shares is None:
            self.task.output.write(topic, records, partitions)
        else:
            self.task.shared.put(self.step, topic, records, changes, partitions)
        self.task.report.count_out(node.name, records.num_rows)


def _topic(node: graph.Sink, name: Any) -> str:
    """The name that the function returned. Another value, or a name that Kafka does not allow, is a failure."""
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a topic, got {type(name).__name__}")
    if not is_legal_name(name):
        raise SinkError(
            f"the function of {node.name} returned {show(name)}, which cannot be the name of a topic",
            code="CS-656",
            next="return 1 to 249 ASCII letters, digits, '.', '_' and '-'; or skip the record:"
            " processing_errors='skip' or cs.DeadLetter(topic)",
        )
    return name


def _partitions(node: graph.Sink, topic: str, answer: Any, count: int) -> tuple[int, ...] | None:
    """The partitions that the partitioner returned; None: Kafka's default."""
    if answer is None:
        return None
    chosen = tuple(map(index, answer if isinstance(answer, Iterable) else [answer]))
    wrong = [partition for partition in chosen if not 0 <= partition < count]
    if wrong:
        raise SinkError(
            f"the partitioner of {node.name} returned partition {wrong[0]}; {topic} has {count}",
            code="CS-654",
            next="return a partition that exists, a list of them, or None for Kafka's default",
        )
    return chosen


_LAST_TIMESTAMP = 253_402_300_799_999
"""Milliseconds: the end of the year 9999."""


class FrameSinkRunner(Runner):
    """Sends records to the driver, in wire form."""

    def by_key(self) -> bool:
        return True

    def accept(self, flow: str, changes: Changes) -> None:
        node: graph.FrameSink = self.task.node(self.step.node)
        bare = replace(changes, old=None, extra={})
        for part in ("key", "value"):
            bare = self._held(node, bare, part) if bare.rows else bare
        bare = self._dated(node, bare)
        if bare.rows:
            self.task.to_driver(node.name, bytes(pack(bare, node.value, node.key)))
            self.task.report.count_out(node.name, bare.rows)

    def _held(self, node: graph.FrameSink, changes: Changes, part: Literal["key", "value"]) -> Changes:
        """The records in wire form, without those whose key or value fits in no column."""
        serde = getattr(node, part)
        changes = self.writable(changes, part, serde)
        wired = Values(serde, wire=getattr(changes, part).wire(serde))
        changes = replace(changes, key=wired) if part == "key" else replace(changes, value=wired)
        if not wired.declared():
            return changes
        try:
            reasons = _unheld(wired)
        except SerdeError as error:
            line = None if node.location is None else str(node.location)
            raise error.at(operator=node.name, line=line, part=part) from None
        return self.task.failures.undecodable(node, changes, reasons, part) if reasons else changes

    def _dated(self, node: graph.FrameSink, changes: Changes) -> Changes:
        """The records without those whose timestamp is too late for Spark."""
        late = np.flatnonzero(changes.ts > _LAST_TIMESTAMP)
        reasons = [
            (row, f"{changes.ts[row]} ms are after the year 9999, the last that Spark has")
            for row in late.tolist()
        ]
        return self.task.failures.undecodable(node, changes, reasons, "timestamp") if reasons else changes


def _unheld(values: Values, first: int = 0) -> list[tuple[int, str]]:
    """(row, reason) of the values that fit in no column, found by halving; the first row is ``first``.

    Raises `SerdeError` for a fault that is not of single rows.
    """
    try:
        values.series()
    except SerdeError as error:
        if error.code != UNDECODABLE:
            raise
        if values.rows == 1:
            return [(first, error.what)]
        middle = values.rows // 2
        return [
            *_unheld(values.slice(0, middle), first),
            *_unheld(values.slice(middle, values.rows), first + middle),
        ]
    return []
