"""Sinks in a task: results go to topics, to the driver, or to files for a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from operator import index
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, headers_in
from crossstream.columns.evaluate import Failure, call_of_user
from crossstream.columns.order import BranchTags, in_branch_order
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SerdeError
from crossstream.graph import nodes as graph
from crossstream.operators.sink.frame_columns import columns_of
from crossstream.operators.sink.frame_files import FrameFiles
from crossstream.operators.sink.table_rows import unfit_rows
from crossstream.operators.star_join.subscriptions import RAW
from crossstream.planning.steps import FrameSinkStep, SinkStep
from crossstream.serdes.calls import bisected
from crossstream.serdes.errors import show
from crossstream.task.runner import Emitted, Runner, Task
from crossstream.task.shuffle_codec import pack
from crossstream.topics import is_legal_name

_CHUNK = 16_384
"""Rows that are serialised at once; the next ones use the same memory (decision 0027)."""

_PARTITION = "partition"
"""Extra column of records that wait for other sinks: the partition to write to, or `_ANY`."""
_ANY = -1
"""Kafka's default partition, by the key."""


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
        """The last sink of those that write together writes for all of them."""
        orders = dict(self.step.orders)
        shared = self.task.shared
        for sinks, topic in [one for one in shared if orders and one[0] == self.step.shares]:
            order = orders.get(topic) or orders[None]
            parts = sorted(shared.pop((sinks, topic)), key=lambda part: order.sinks.index(part[0]))
            self._write_runs(topic, in_branch_order(parts, order.forks, self.task.batch.came_from))
        return iter(())

    def _write_runs(self, topic: str, written: Changes) -> None:
        """Writes runs of records whose partitions are all chosen, or all Kafka's default."""
        partitions = np.asarray(written.extra[_PARTITION])
        given = partitions != _ANY
        bounds = [0, *(np.flatnonzero(given[1:] != given[:-1]) + 1).tolist(), written.rows]
        for start, stop in pairwise(bounds):
            part = written.slice(start, stop)
            assert part.headers is not None
            records = _records(part.key.wire(), part.value.wire(), part.ts, part.headers)
            self.task.output.write(topic, records, partitions[start:stop].tolist() if given[start] else None)

    def _write_all(self, changes: Changes) -> None:
        node: graph.Sink = self.node
        assert node.key is not None
        assert node.value is not None
        changes = self.writable(self.writable(changes, "key", node.key), "value", node.value)
        if not changes.rows:
            return
        key, value = changes.key.wire(node.key), changes.value.wire(node.value)
        records = _records(key, value, changes.ts, headers_in(changes))
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
            key, value, _, headers = records.columns
            chosen = np.full(changes.rows, _ANY) if partitions is None else np.array(partitions)
            written = replace(
                changes,
                key=Values(RAW, wire=key),
                value=Values(RAW, wire=value),
                headers=headers,
                old=None,
                extra={**changes.extra, _PARTITION: chosen},
            )
            self.task.shared.setdefault((self.step.shares, topic), []).append((node.name, written))
        self.task.report.count_out(node.name, records.num_rows)
        self.task.report.note_newest(node.name, int(changes.ts.max()))


def _records(key: pa.Array, value: pa.Array, ts: np.ndarray, headers: pa.Array) -> pa.RecordBatch:
    columns = [key, value, pa.array(ts), headers]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "timestamp", "headers"])


def _topic(node: graph.Sink, name: Any) -> str:
    """The name that the function returned. Another value, or a name that Kafka does not allow, is a failure."""
    if not isinstance(name, str):
        raise TypeError(f"expected the name of a topic, got {type(name).__name__}")
    if not is_legal_name(name):
        raise refuse(
            "CS-656",
            f"the function of {node.name} returned {show(name)}, which cannot be the name of a topic",
            "return 1 to 249 ASCII letters, digits, '.', '_' and '-'; or skip the record:"
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
        what = f"the partitioner of {node.name} returned partition {wrong[0]}; {topic} has {count}"
        raise refuse("CS-655", what)
    return chosen


_LAST_TIMESTAMP = 253_402_300_799_999
"""Milliseconds: the end of the year 9999."""


class FrameSinkRunner(Runner):
    """Sends records to the driver, in wire form; or writes them to files, as columns."""

    step: FrameSinkStep

    def __init__(self, task: Task, step: FrameSinkStep) -> None:
        super().__init__(task, step)
        self._files = FrameFiles(partial(task.to_file, step.node)) if step.parallel else None

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        if self._files is not None:
            self._files.flush()
        return iter(())

    def accept(self, flow: str, changes: Changes) -> None:
        node = self.node
        bare = replace(changes, old=None, extra={})
        for part in ("key", "value"):
            bare = self._held(node, bare, part) if bare.rows else bare
        late = np.flatnonzero(bare.ts > _LAST_TIMESTAMP).tolist()
        if late:
            too_late = "{} ms are after the year 9999, the last that Spark has"
            reasons = [(row, too_late.format(bare.ts[row])) for row in late]
            bare = self.task.failures.undecodable(node, bare, reasons, "timestamp")
        if bare.rows and isinstance(node, graph.TableSink):
            bare = self._fitting(node, bare)
        if bare.rows:
            if self._files is None:
                self.task.to_driver(node.name, bytes(pack(bare, node.value, node.key)))
            else:
                self._files.write(columns_of(bare))
            self.task.report.count_out(node.name, bare.rows)
            self.task.report.note_newest(node.name, int(bare.ts.max()))

    def _held(self, node: graph.Node, changes: Changes, part: Literal["key", "value"]) -> Changes:
        """The records in wire form, without those whose key or value fits in no column."""
        serde = getattr(node, part)
        changes = self.writable(changes, part, serde)
        wired = Values(serde, wire=getattr(changes, part).wire(serde))
        changes = replace(changes, key=wired) if part == "key" else replace(changes, value=wired)
        if not wired.declared():
            return changes
        try:
            with suppress(SerdeError):
                wired.series()  # which the columns of a table are made of
                return changes
            reasons = bisected(lambda wire: Values(serde, wire=wire).series(), wired.wire())
        except SerdeError as error:
            raise error.at(**node.where, part=part) from None
        return self.task.failures.undecodable(node, changes, reasons, part) if reasons else changes

    def _fitting(self, node: graph.TableSink, changes: Changes) -> Changes:
        """The records without those that the table cannot hold."""
        unfit = unfit_rows(node, changes)
        if not unfit:
            return changes
        failures = [Failure(row, _unfit(node, reason)) for row, reason in unfit]
        self.task.failures.failed(node, changes, failures)
        return changes.without([row for row, _ in unfit])


def _unfit(node: graph.TableSink, reason: str) -> CrossStreamError:
    what = f"the {node.form.capitalize()} table cannot hold a record: {reason}"
    return refuse("CS-658", what, table=node.table)
