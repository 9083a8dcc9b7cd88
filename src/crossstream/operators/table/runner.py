"""Keeping a table in a task, and putting changes in order by key."""

from __future__ import annotations

from dataclasses import replace

from crossstream.columns.changes import Changes
from crossstream.columns.order import arrival_of, by_key
from crossstream.planning.steps import MaterializeStep, OrderStep
from crossstream.tables.rows import upsert, upsert_versions
from crossstream.task.runner import Emitted, Runner, without_marks


class MaterializeRunner(Runner):
    """Keeps a table, and emits its net changes and its changelog."""

    step: MaterializeStep

    def by_key(self) -> bool:
        """Not with versions: which ones are too old depends on the stream time of all keys."""
        return self.task.plan.stores[self.step.store].history is None

    def accept(self, flow: str, changes: Changes) -> None:
        if self.step.null_key_reason:
            there = ~changes.key.missing()
            if self.step.counts:
                self.task.report.count_dropped(
                    self.step.node, {self.step.null_key_reason: int((~there).sum())}
                )
            changes = changes.where(there)
        if changes.rows:
            super().accept(flow, changes)

    def finish(self) -> Emitted:
        changes = self.arrived(self.step.inputs[0])
        if self.step.latest:
            changes = self.latest_only(changes)
        if changes is None:
            self._pass_time()
            return
        if self.step.null_key_reason:
            self.task.report.count_in(self.step.node, changes.rows)
        store = self.task.stores(self.step.store)
        definition = store.definition
        plain = self.as_stored(replace(changes, old=None), definition.value)
        if definition.history is None:
            if self.node.ttl is None:
                store.horizon = 0  # rows do not expire any more, and may be older than those that did
            plain = without_marks(plain)
            net = upsert(
                store.view,
                plain,
                bits=self.task.batch.bits,
                serde=definition.value,
                want_old=self.step.old,
                changelog=self.step.changelog is not None,
            )
        else:
            taken = store.taken(plain, self.task.batch.bits)
            store.stream_time = store.versions_pass(plain).last
            if self.step.counts:
                self.task.report.count_dropped(self.step.node, {"expired-version": taken.refused})
            net = upsert_versions(
                store.view,
                taken.changes,
                bits=self.task.batch.bits,
                serde=definition.value,
                changelog=self.step.changelog is not None,
            )
        if net.changes.rows:
            yield self.out(), net.changes
        if self.step.changelog is not None and net.changelog is not None and net.changelog.rows:
            yield self.step.changelog, net.changelog

    def _pass_time(self) -> None:
        """Stream time of versions also moves with rows that other state partitions get."""
        if self.task.plan.stores[self.step.store].history is not None:
            store = self.task.stores(self.step.store)
            store.stream_time = store.versions_pass(None).last


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
