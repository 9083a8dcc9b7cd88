"""The operators of a round at work in one task.

A step takes the changes of its input flows and yields changes of its output flow. Row-wise steps answer each
piece at once; steps with state collect theirs until all inputs of the round are there (`finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.algebra.change import Changes, concat_changes
from crossstream.algebra.evaluate import Failure, call_rows, evaluate
from crossstream.algebra.foreign_key import Serdes, resolve, subscribe
from crossstream.algebra.order import by_arrival
from crossstream.algebra.table import BEHIND, Rows, latest_versions, lookup, upsert, upsert_versions
from crossstream.algebra.table_table import Joined, Lookup, join_tables
from crossstream.algebra.values import Values
from crossstream.engine import rowwise
from crossstream.engine.batch import Batch, Report
from crossstream.engine.failures import Failures
from crossstream.engine.parcels import pack
from crossstream.engine.services import Output, Settings
from crossstream.errors import SerdeError, SinkError
from crossstream.serdes import Serde
from crossstream.state.columns import EMPTY_BYTES, Column
from crossstream.state.view import View
from crossstream.topology import graph
from crossstream.topology.plan import (
    Flow,
    FrameSinkStep,
    MaterializeStep,
    Plan,
    ReferenceStep,
    ResolveStep,
    SinkStep,
    StatelessStep,
    Step,
    StoreDef,
    SubscribeStep,
    TableJoinStep,
)

Emitted = Iterator[tuple[str, Changes]]


@dataclass(slots=True)
class OpenStore:
    """A store partition in a task: what the batch sees and puts, and the stream time it moves."""

    definition: StoreDef
    view: View
    stream_time: int

    def before(self) -> View:
        """The store as it was before this batch."""
        return View(self.view.layout, self.view.slots)

    def lookup_in(self, view: View) -> Lookup:
        """Looks rows up: of a versioned table the latest ones, deletes left out."""

        def rows(hashes: np.ndarray, keys: Column) -> Rows:
            serde = self.definition.value
            if self.definition.history is None:
                return lookup(view, hashes, keys, serde)
            latest = latest_versions(view, hashes, keys, serde)
            return replace(latest, present=latest.present & ~latest.values.missing())

        return rows


@dataclass(frozen=True, slots=True)
class Task:
    """What all steps of a task share."""

    plan: Plan
    batch: Batch
    report: Report
    failures: Failures
    settings: Settings
    output: Output
    stores: Callable[[str], OpenStore]
    to_driver: Callable[[str, bytes], None]

    def node(self, name: str) -> Any:
        return self.plan.topology[name]

    def flow(self, name: str) -> Flow:
        return self.plan.flows[name]


class Runner:
    """A step at work. Row-wise steps override `accept`, steps with state `finish`."""

    def __init__(self, task: Task, step: Step) -> None:
        self.task = task
        self.step = step
        self.held: dict[str, list[Changes]] = {}

    def accept(self, flow: str, changes: Changes) -> Emitted:
        """Takes a piece of an input flow; what it gives at once."""
        self.held.setdefault(flow, []).append(changes)
        return iter(())

    def finish(self) -> Emitted:
        """What there is to give when all inputs have been taken."""
        return iter(())

    def arrived(self, flow: str) -> Changes | None:
        """All pieces of a flow in arrival order; None if there are none."""
        changes = self.gathered(flow)
        return None if changes is None else by_arrival(changes)

    def gathered(self, flow: str) -> Changes | None:
        """All pieces of a flow as they came: of a table just kept, in order of the key hash."""
        parts = self.held.pop(flow, [])
        return concat_changes(parts) if parts else None

    def out(self) -> str:
        assert self.step.output is not None
        return self.step.output

    def serialized(self, changes: Changes, part: str, serde: Serde) -> pa.LargeBinaryArray:
        """The key or value column (``part``) in wire form; where that fails, the error says which row it was."""
        try:
            return getattr(changes, part).wire(serde)
        except SerdeError as error:
            node = self.task.node(self.step.node)
            raise self.task.failures.unserializable(node, changes, part, serde, error) from error


class StatelessRunner(Runner):
    """filter, map, … : a piece in, a piece out."""

    def accept(self, flow: str, changes: Changes) -> Emitted:
        node = self.task.node(self.step.node)
        if isinstance(node, graph.Repartition):
            return super().accept(flow, self._with_key(changes))
        self.task.report.count_in(node.name, changes.rows)
        result, failures = rowwise.apply(node, changes)
        if failures:
            self.task.failures.failed(node, changes, failures)
        if isinstance(node, graph.Peek) and node.terminal:
            return iter(())
        return iter([(self.out(), result)])

    def _with_key(self, changes: Changes) -> Changes:
        """Without null keys, which have no partition (semantics 1.4, 8.19)."""
        there = ~changes.key.missing()
        self.task.report.count_dropped(self.step.node, {"null-key-repartition": int((~there).sum())})
        return changes.where(there)

    def finish(self) -> Emitted:
        for flow in list(self.held):
            changes = self.arrived(flow)
            if changes is not None and changes.rows:
                yield self.out(), changes


class ReferenceRunner(Runner):
    """Takes the foreign key out of each row and serialises it with the right table's key serde.

    A row that has none because the extractor failed stays in the table, for other readers; it is marked, and the
    join passes it over.
    """

    step: ReferenceStep

    def accept(self, flow: str, changes: Changes) -> Emitted:
        node = self.task.node(self.step.node)
        rows = np.flatnonzero(~changes.value.missing())
        there = changes.take(rows)
        outcome = evaluate(node.foreign_key, there.key, value=there.value)
        references, wrong = self._serialize(node, outcome.values)
        failures = [Failure(int(rows[f.row]), f.error) for f in (*outcome.failures, *wrong)]
        if failures:
            self.task.failures.failed(node, changes, failures)
        place = np.full(changes.rows, -1, np.int64)
        place[rows] = np.arange(len(rows))
        column = references.take(pa.array(place, mask=place < 0)) if len(rows) < changes.rows else references
        extra = {**changes.extra, self.step.column: column}
        if self.task.settings.processing.action != "fail":
            extra[failed_column(self.step.column)] = np.zeros(changes.rows, np.uint8)
            extra[failed_column(self.step.column)][[failure.row for failure in failures]] = 1
        return iter([(self.out(), replace(changes, extra=extra))])

    def _serialize(
        self, node: graph.ForeignKeyJoin, keys: Values
    ) -> tuple[pa.LargeBinaryArray, list[Failure]]:
        serde = self.task.node(node.parents[1]).key
        try:
            return keys.wire(serde), []
        except SerdeError:
            found: list[bytes | None] = []
            wrong = []
            for row, key in enumerate(keys.objects()):
                try:
                    found.append(serde.serialize(key))
                except SerdeError as error:
                    what = f"the foreign key has the wrong type: {error.what}"
                    step = "let the extractor return what the right table's key serde takes"
                    wrong.append(Failure(row, SerdeError(what, code="CS-411", next=step)))
                    found.append(None)
            if not wrong:
                raise
            return pa.array(found, pa.large_binary()), wrong


def failed_column(column: str) -> str:
    """Beside the extra column of foreign keys: 1 where there is none because a function failed."""
    return f"{column} failed"


class MaterializeRunner(Runner):
    """Keeps a table, and yields its net changes."""

    step: MaterializeStep

    def accept(self, flow: str, changes: Changes) -> Emitted:
        if self.step.admit:
            there = ~changes.key.missing()
            if self.step.counts:
                self.task.report.count_dropped(self.step.node, {self.step.admit: int((~there).sum())})
            changes = changes.where(there)
        return super().accept(flow, changes) if changes.rows else iter(())

    def finish(self) -> Emitted:
        changes = self.arrived(self.step.inputs[0])
        if changes is None:
            return
        if self.step.admit:
            self.task.report.count_in(self.step.node, changes.rows)
        store = self.task.stores(self.step.store)
        definition = store.definition
        self.serialized(changes, "value", definition.value)
        plain = replace(changes, old=None, lost=None)
        if definition.history is None:
            net = upsert(
                store.view, plain, bits=self.task.batch.bits, serde=definition.value, want_old=self.step.old
            )
        else:
            net, store.stream_time = upsert_versions(
                store.view,
                plain,
                bits=self.task.batch.bits,
                serde=definition.value,
                history=definition.history,
                stream_time=store.stream_time,
            )
        if self.step.counts:
            self.task.report.count_dropped(self.step.node, net.dropped)
        if net.changes.rows:
            yield self.out(), net.changes


class TableJoinRunner(Runner):
    """Primary-key join of two materialised tables."""

    step: TableJoinStep

    def finish(self) -> Emitted:
        node: graph.TableJoin = self.task.node(self.step.node)
        names = self.step.inputs
        left = latest_only(self, self.gathered(names[0]))
        right = left if names[0] == names[1] else latest_only(self, self.gathered(names[1]))
        if left is None and right is None:
            return
        stores = [self.task.stores(name) for name in self.step.stores]
        left_key, right_key = (self.task.flow(name).key for name in names)
        joined = join_tables(
            node.kind,
            node.joiner,
            left if left is not None else no_changes(left_key, stores[0].definition.value),
            right if right is not None else no_changes(right_key, stores[1].definition.value),
            stores[0].lookup_in(stores[0].before()),
            stores[1].lookup_in(stores[1].before()),
            bits=self.task.batch.bits,
            want_old=self.step.old,
        )
        yield from emit_joined(self, joined)


class SubscribeRunner(Runner):
    """First half of a foreign-key join."""

    step: SubscribeStep

    def finish(self) -> Emitted:
        node: graph.ForeignKeyJoin = self.task.node(self.step.node)
        left = latest_only(self, self.arrived(self.step.inputs[0]))
        mark = failed_column(self.step.column)
        if left is not None and mark in left.extra:
            left = left.where(left.extra[mark] == 0)
        if left is None or not left.rows:
            return
        self.task.report.count_in(node.name, left.rows)
        store = self.task.stores(self.step.store)
        column = left.extra[self.step.column]
        told = subscribe(
            node.kind,
            store.view,
            replace(left, old=None, extra={}),
            column,
            store.definition.value,
            bits=self.task.batch.bits,
        )
        self.task.report.count_dropped(node.name, told.dropped)
        if told.subscriptions.rows:
            yield self.out(), told.subscriptions
        if told.answers.rows:
            yield self.step.answers, told.answers


class ResolveRunner(Runner):
    """Second half of a foreign-key join."""

    step: ResolveStep

    def finish(self) -> Emitted:
        node: graph.ForeignKeyJoin = self.task.node(self.step.node)
        told_by, alone, table_changes = self.step.inputs
        subscriptions, answers = self.arrived(told_by), self.arrived(alone)
        right = latest_only(self, self.gathered(table_changes))
        if subscriptions is None and answers is None and right is None:
            return
        store = self.task.stores(self.step.subscriptions)
        table = self.task.stores(self.step.right_store)
        flows = self.task.plan.flows
        told = flows[f"{node.name}.subscriptions"]
        left_key = flows[f"{node.name}.answers"].key
        no_right = no_changes(table.definition.key, table.definition.value)
        chunks = resolve(
            node.kind,
            node.joiner,
            store.view,
            subscriptions if subscriptions is not None else no_subscriptions(told),
            answers if answers is not None else no_changes(left_key, told.value),
            right if right is not None else no_right,
            table.lookup_in(table.view),
            Serdes(left_key, told.value),
            bits=self.task.batch.bits,
            chunk=self.task.settings.chunk_rows,
        )
        for joined in chunks:
            yield from emit_joined(self, joined)


class SinkRunner(Runner):
    """Writes a flow to its topic."""

    def accept(self, flow: str, changes: Changes) -> Emitted:
        node: graph.Sink = self.task.node(self.step.node)
        if changes.rows:
            key, value = (self.serialized(changes, part, getattr(node, part)) for part in ("key", "value"))
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
        return iter(())

    def _topics(self, node: graph.Sink, changes: Changes) -> list[tuple[str, np.ndarray | None]]:
        """The topics to write to, with the rows of each; None: all of them."""
        if node.topic is not None:
            return [(node.topic, None)]
        topic_of = node.topic_of
        assert topic_of is not None

        def name_of(key: Any, value: Any) -> str:
            name = topic_of(key, value)
            if not isinstance(name, str):
                raise TypeError(f"expected the name of a topic, got {type(name).__name__}")
            return name

        names, failures = call_rows(name_of, [changes.key.objects(), changes.value.objects()])
        if failures:
            self.task.failures.failed(node, changes, failures)
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            if name is not None:
                rows.setdefault(name, []).append(row)
        return [(name, np.array(found)) for name, found in rows.items()]

    def _write(self, node: graph.Sink, topic: str, records: pa.RecordBatch, changes: Changes) -> None:
        if node.partitioner is None:
            self._send(node, topic, records, None)
            return
        count = self.task.output.partition_count(topic)
        answers, failures = call_rows(
            lambda key, value: _partitions(node, topic, key, value, count),
            [changes.key.objects(), changes.value.objects()],
        )
        if failures:
            self.task.failures.failed(node, changes, failures)
            for failure in failures:
                answers[failure.row] = ()
        # Neighbours go together, so that records of one partition stay in order.
        for default, group in groupby(enumerate(answers), key=lambda one: one[1] is None):
            if default:
                self._send(node, topic, records.take(pa.array([row for row, _ in group])), None)
                continue
            placed = [(row, partition) for row, answer in group for partition in answer]
            if placed:
                rows, chosen = zip(*placed, strict=True)
                self._send(node, topic, records.take(pa.array(rows)), chosen)

    def _send(
        self, node: graph.Sink, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None
    ) -> None:
        self.task.output.write(topic, records, partitions)
        self.task.report.count_out(node.name, records.num_rows)


def _partitions(node: graph.Sink, topic: str, key: Any, value: Any, count: int) -> tuple[int, ...] | None:
    """Where a record goes by the user's partitioner; None: where Kafka's default puts it."""
    assert node.partitioner is not None
    answer = node.partitioner(topic, key, value, count)
    if answer is None:
        return None
    chosen = tuple(map(index, answer if isinstance(answer, Iterable) else [answer]))
    wrong = [partition for partition in chosen if not 0 <= partition < count]
    if wrong:
        raise SinkError(
            f"the partitioner of {node.name} gave partition {wrong[0]}; {topic} has {count}",
            code="CS-655",
            next="return a partition that exists, a list of them, or None for Kafka's default",
        )
    return chosen


class FrameSinkRunner(Runner):
    """Sends records to the driver, in wire form."""

    def accept(self, flow: str, changes: Changes) -> Emitted:
        node: graph.FrameSink = self.task.node(self.step.node)
        if changes.rows:
            bare = replace(changes, old=None, extra={})
            self.task.to_driver(node.name, pack(bare, node.value, node.key))
            self.task.report.count_out(node.name, changes.rows)
        return iter(())


def latest_only(runner: Runner, changes: Changes | None) -> Changes | None:
    """A join ignores, and counts, versions behind the latest one (semantics 2.2.6)."""
    if changes is None or BEHIND not in changes.extra:
        return changes
    behind = changes.extra[BEHIND].astype(bool)
    runner.task.report.count_dropped(runner.step.node, {"out-of-order-version": int(behind.sum())})
    kept = changes.where(~behind)
    extra = {name: column for name, column in kept.extra.items() if name != BEHIND}
    return replace(kept, extra=extra) if kept.rows else None


def emit_joined(runner: Runner, joined: Joined) -> Emitted:
    """Hands on the results of a join, less the rows its joiner failed on."""
    node = runner.task.node(runner.step.node)
    changes = joined.changes
    if joined.failures:
        runner.task.failures.failed(node, changes, joined.failures)
        changes = changes.without([failure.row for failure in joined.failures])
    if changes.rows:
        runner.task.report.count_out(node.name, changes.rows)
        yield runner.out(), changes


def no_changes(key: Any, value: Any) -> Changes:
    """A side of a join that nothing happened to."""
    none = np.empty(0, np.int64)
    return Changes(Values(key, wire=EMPTY_BYTES), Values(value, wire=EMPTY_BYTES), none, none, none)


def no_subscriptions(flow: Flow) -> Changes:
    empty = no_changes(flow.key, flow.value)
    return replace(empty, extra={"primary key": EMPTY_BYTES, "instruction": np.empty(0, np.uint8)})


RUNNERS: dict[type[Step], type[Runner]] = {
    StatelessStep: StatelessRunner,
    ReferenceStep: ReferenceRunner,
    MaterializeStep: MaterializeRunner,
    TableJoinStep: TableJoinRunner,
    SubscribeStep: SubscribeRunner,
    ResolveStep: ResolveRunner,
    SinkStep: SinkRunner,
    FrameSinkStep: FrameSinkRunner,
}
