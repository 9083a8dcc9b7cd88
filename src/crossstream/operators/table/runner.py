"""Tables kept, joined by primary key, and put in order by it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from crossstream.columns.changes import Changes
from crossstream.columns.match_counts import Asked, some_key
from crossstream.columns.order import arrival_of, by_key
from crossstream.graph import nodes as graph
from crossstream.operators.match_report import report_asked
from crossstream.operators.runner import Emitted, Runner, emit_joined, latest_only, no_changes, without_marks
from crossstream.operators.table.kernel import upsert, upsert_versions
from crossstream.operators.table_join.kernel import join_tables
from crossstream.planning.steps import MaterializeStep, OrderStep, TableJoinStep


class MaterializeRunner(Runner):
    """Keeps a table, and yields its changes: the last of each key, or every one."""

    step: MaterializeStep

    def by_key(self) -> bool:
        """Not where there are versions: what is too old depends on the stream time that all keys move."""
        return self.task.plan.stores[self.step.store].history is None

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
        plain = self.as_stored(replace(changes, old=None, lost=None), definition.value)
        if definition.history is None:
            plain = without_marks(plain)
            net = upsert(
                store.view,
                plain,
                bits=self.task.batch.bits,
                serde=definition.value,
                want_old=self.step.old,
                every=self.step.changelog is not None,
            )
        else:
            taken = store.taken(plain, self.task.batch.bits)
            store.stream_time = taken.stream_time
            if self.step.counts:
                self.task.report.count_dropped(self.step.node, {"expired-version": taken.refused})
            net = upsert_versions(
                store.view,
                taken.changes,
                bits=self.task.batch.bits,
                serde=definition.value,
                every=self.step.changelog is not None,
            )
        if net.changes.rows:
            yield self.out(), net.changes
        if self.step.changelog is not None and net.every is not None and net.every.rows:
            yield self.step.changelog, net.every


class TableJoinRunner(Runner):
    """Primary-key join of two materialised tables."""

    step: TableJoinStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        node: graph.TableJoin = self.task.node(self.step.node)
        names = self.step.inputs
        left = latest_only(self, self.gathered(names[0]))
        right = left if names[0] == names[1] else latest_only(self, self.gathered(names[1]))
        if left is None and right is None:
            return
        stores = [self.task.stores(name) for name in self.step.stores]
        left_key, right_key = (self.task.flow(name).key for name in names)
        asked = Asked()
        joined = join_tables(
            node.kind,
            node.joiner,
            left if left is not None else no_changes(left_key, stores[0].definition.value),
            right if right is not None else no_changes(right_key, stores[1].definition.value),
            stores[0].lookup_in(stores[0].before()),
            stores[1].lookup_in(stores[1].before()),
            asked,
            bits=self.task.batch.bits,
            want_old=self.step.old,
            every=self.step.changelog,
        )
        left_one, right_one = (partial(some_key, store.view, store.definition.key) for store in stores)
        report_asked(self, asked, left_one, right_one)
        yield from emit_joined(self, joined)


class OrderRunner(Runner):
    """Puts every change of a foreign-key join in order: grouped by primary key, in order of arrival within a key."""

    step: OrderStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        changes = self.gathered(self.step.inputs[0])
        if changes is not None:
            order, _ = by_key(changes, changes.hashes(self.task.batch.bits), arrival_of(changes))
            yield self.out(), changes.take(order)
