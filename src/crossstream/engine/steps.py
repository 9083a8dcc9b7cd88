"""The operators of a round at work in one task.

A step takes the changes of its input flows and yields changes of its output flow. Row-wise steps answer each
piece at once; steps with state collect theirs until all inputs of the round are there (`finish`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.algebra.change import Changes, concat_changes
from crossstream.algebra.evaluate import Failure, evaluate
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
from crossstream.state.columns import Column
from crossstream.state.view import View
from crossstream.topology import graph
from crossstream.topology.plan import (
    FrameSinkStep,
    Flow,
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

    def serialized(self, make: Callable[[], Any], changes: Changes, part: str) -> Any:
        """Encodes a column; where it fails, says which row it was."""
        try:
            return make()
        except SerdeError as error:
            raise self._located(error, changes, part) from error

    def _located(self, error: SerdeError, changes: Changes, part: str) -> SerdeError:
        node = self.task.node(self.step.node)
        return error.at(operator=node.name, line=None if node.location is None else str(node.location), part=part)


class StatelessRunner(Runner):
    """filter, map, … : a piece in, a piece out."""

    def accept(self, flow: str, changes: Changes) -> Emitted:
        node = self.task.node(self.step.node)
        if isinstance(node, graph.Repartition):
            return super().accept(flow, changes)
        self.task.report.count_in(node.name, changes.rows)
        result, failures = rowwise.apply(node, changes)
        if failures:
            result = self._dropped(node, changes, failures)
        if isinstance(node, graph.Peek) and node.terminal:
            return iter(())
        return iter([(self.out(), result)])

    def _dropped(self, node: Any, changes: Changes, failures: list[Failure]) -> Changes:
        good = self.task.failures.failed(node, changes, failures)
        return rowwise.apply(node, good)[0]

    def finish(self) -> Emitted:
        for flow in list(self.held):
            changes = self.arrived(flow)
            if changes is not None:
                yield self.out(), changes


class ReferenceRunner(Runner):
    """Takes the foreign key out of each row and serialises it with the right table's key serde."""

    step: ReferenceStep

    def accept(self, flow: str, changes: Changes) -> Emitted:
        node = self.task.node(self.step.node)
        rows = np.flatnonzero(~changes.value.missing())
        there = changes.take(rows)
        outcome = evaluate(node.foreign_key, there.key, value=there.value)
        if outcome.failures:
            failures = [Failure(int(rows[f.row]), f.error) for f in outcome.failures]
            changes = self.task.failures.failed(node, changes, failures)
            return self.accept(flow, changes)
        references = self._serialize(node, there, outcome.values)
        if isinstance(references, list):
            changes = self.task.failures.failed(node, changes, [Failure(int(rows[f.row]), f.error) for f in references])
            return self.accept(flow, changes)
        place = np.full(changes.rows, -1, np.int64)
        place[rows] = np.arange(len(rows))
        column = references.take(pa.array(place, mask=place < 0)) if len(rows) < changes.rows else references
        return iter([(self.out(), replace(changes, extra={**changes.extra, self.step.column: column}))])

    def _serialize(self, node: graph.ForeignKeyJoin, changes: Changes, keys: Values) -> Any:
        serde = self.task.node(node.parents[1]).key
        try:
            return keys.wire(serde)
        except SerdeError:
            failures = []
            for row, key in enumerate(keys.objects()):
                try:
                    serde.serialize(key)
                except SerdeError as error:
                    what = f"the foreign key has the wrong type: {error.what}"
                    step = "let the extractor return what the right table's key serde takes"
                    failures.append(Failure(row, SerdeError(what, code="CS-411", next=step)))
            if not failures:
                raise
            return failures


class MaterializeRunner(Runner):
    """Keeps a table, and yields its net changes."""

    step: MaterializeStep

    def accept(self, flow: str, changes: Changes) -> Emitted:
        if self.step.admit:
            there = ~changes.key.missing()
            if self.step.counts:
                self.task.report.count_dropped(self.step.node, {"null-key": int((~there).sum())})
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
        plain = replace(changes, old=None)
        if definition.history is None:
            net = upsert(
                store.view, plain, bits=self.task.batch.bits, serde=definition.value, want_old=self.step.old
            )
        else:
            net, store.stream_time = upsert_versions(
                store.view, plain, bits=self.task.batch.bits, serde=definition.value, history=definition.history,
                stream_time=store.stream_time,
            )  # fmt: skip
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
        if left is None:
            return
        self.task.report.count_in(node.name, left.rows)
        store = self.task.stores(self.step.store)
        column = left.extra[self.step.column]
        told = subscribe(
            node.kind, store.view, replace(left, old=None, extra={}), column, store.definition.value,
            bits=self.task.batch.bits,
        )  # fmt: skip
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
            key = self.serialized(lambda: changes.key.wire(node.key), changes, "key")
            value = self.serialized(lambda: changes.value.wire(node.value), changes, "value")
            headers = changes.headers if changes.headers is not None else pa.nulls(changes.rows, pa.large_binary())
            records = pa.RecordBatch.from_arrays(
                [key, value, pa.array(changes.ts), headers], names=["key", "value", "timestamp", "headers"]
            )
            for topic, rows in _topics(node, changes):
                self._write(node, topic, records if rows is None else records.take(pa.array(rows)),
                            changes if rows is None else changes.take(rows))  # fmt: skip
            self.task.report.count_out(node.name, changes.rows)
        return iter(())

    def _write(self, node: graph.Sink, topic: str, records: pa.RecordBatch, changes: Changes) -> None:
        if node.partitioner is None:
            self.task.output.write(topic, records)
            return
        count = self.task.output.partition_count(topic)
        rows: list[int] = []
        chosen: list[int] = []
        default: list[int] = []
        calls = zip(changes.key.objects(), changes.value.objects(), strict=True)
        for row, (key, value) in enumerate(calls):
            answer = node.partitioner(topic, key, value, count)
            if answer is None:
                default.append(row)
                continue
            for partition in [answer] if isinstance(answer, int) else answer:
                if not 0 <= partition < count:
                    raise SinkError(
                        f"the partitioner of {node.name} gave partition {partition}; {topic} has {count}",
                        code="CS-655",
                        where={"operator": node.name, "key": key},
                        next="return a partition that exists, a list of them, or None for Kafka's default",
                    )
                rows.append(row)
                chosen.append(partition)
        if rows:
            self.task.output.write(topic, records.take(pa.array(rows)), chosen)
        if default:
            self.task.output.write(topic, records.take(pa.array(default)))


class FrameSinkRunner(Runner):
    """Sends records to the driver, in wire form."""

    def accept(self, flow: str, changes: Changes) -> Emitted:
        node: graph.FrameSink = self.task.node(self.step.node)
        if changes.rows:
            bare = replace(changes, old=None, extra={})
            self.task.to_driver(node.name, pack(bare, node.value, node.key))
            self.task.report.count_out(node.name, changes.rows)
        return iter(())


def _topics(node: graph.Sink, changes: Changes) -> list[tuple[str, np.ndarray | None]]:
    if node.topic is not None:
        return [(node.topic, None)]
    assert node.topic_of is not None
    names = np.array(
        [node.topic_of(k, v) for k, v in zip(changes.key.objects(), changes.value.objects(), strict=True)], object
    )
    return [(str(name), np.flatnonzero(names == name)) for name in dict.fromkeys(names)]


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
        changes = runner.task.failures.failed(node, changes, joined.failures)
    if changes.rows:
        runner.task.report.count_out(node.name, changes.rows)
        yield runner.out(), changes


def no_changes(key: Any, value: Any) -> Changes:
    """A side of a join that nothing happened to."""
    none = np.empty(0, np.int64)
    empty = pa.array([], pa.large_binary())
    return Changes(Values(key, wire=empty), Values(value, wire=empty), none, none, none)


def no_subscriptions(flow: Flow) -> Changes:
    empty = no_changes(flow.key, flow.value)
    return replace(empty, extra={"primary key": pa.array([], pa.large_binary()), "instruction": np.empty(0, np.uint8)})


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

