"""Runs a foreign-key join in a task: takes foreign keys, subscribes, resolves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from crossstream.columns.changes import Changes, JoinKind, LookupCounts
from crossstream.columns.evaluate import Failure, evaluate_where, serialized
from crossstream.columns.functions import Function
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.graph.names import inner
from crossstream.operators.foreign_key_join.kernel import resolve
from crossstream.operators.foreign_key_join.subscriptions import Subscribed, subscribe
from crossstream.operators.foreign_key_join.unreferenced import unreferenced
from crossstream.planning.steps import ReferenceStep, ResolveStep, SubscribeStep
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column
from crossstream.tables.join_spec import Serdes
from crossstream.task.runner import Emitted, Runner

LEFT_ROWS: Mapping[graph.ForeignKeyKind, JoinKind] = MappingProxyType(
    {"inner": "inner", "left": "left", "right": "inner", "outer": "left"}
)
"""Which join the rows of left keys are, in each kind of join."""


class ReferenceRunner(Runner):
    """Takes the foreign key out of each row and serialises it with the right table's key serde.

    A row that has none because the extractor failed stays in the table, for other readers; it is marked, and the
    join skips it.
    """

    step: ReferenceStep

    def by_key(self) -> bool:
        return True

    def accept(self, flow: str, changes: Changes) -> None:
        node: graph.ForeignKeyJoin = self.node
        serde = self.task.node(node.parents[1]).key
        column, failures = references_of(node.foreign_key, serde, changes)
        if failures:
            self.task.failures.failed(node, changes, failures)
        self.note_field(node.foreign_key, changes)
        extra = {**changes.extra, self.step.column: column}
        if self.task.settings.processing.action != "fail":
            extra[failed_column(self.step.column)] = np.zeros(changes.rows, np.uint8)
            extra[failed_column(self.step.column)][[failure.row for failure in failures]] = 1
        self.emit(replace(changes, extra=extra))


def references_of(
    function: Function, serde: EngineSerde | None, changes: Changes
) -> tuple[Column, list[Failure]]:
    """The foreign key that an extractor takes from each row, serialised; null in a deleted row."""
    outcome = evaluate_where(~changes.value.missing(), function, changes.key, value=changes.value)
    column, wrong = serialized(outcome.values, serde, "the foreign key")
    return column, [*outcome.failures, *wrong]


def failed_column(column: str) -> str:
    """Beside the extra column of foreign keys: 1 where a function failed."""
    return f"{column} failed"


class SubscribeRunner(Runner):
    """First half of a foreign-key join."""

    step: SubscribeStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        node: graph.ForeignKeyJoin = self.node
        left = self.latest_only(self.arrived(self.step.inputs[0]))
        mark = failed_column(self.step.column)
        if left is not None and mark in left.extra:
            left = left.where(left.extra[mark] == 0)
        if left is None or not left.rows:
            return
        self.task.report.count_in(node.name, left.rows)
        # What cannot be written must not subscribe; from here on rows are keyed by their foreign keys.
        left = self.as_stored(replace(left, old=None), self.task.flow(self.out()).value)
        if not left.rows:
            return
        store = self.task.stores(self.step.store)
        references = Values(store.definition.value, wire=left.extra[self.step.column])
        spec = self.join_spec(LEFT_ROWS[node.kind], changelog=self.step.changelog)
        counted = node.kind in ("right", "outer")
        subscribed = subscribe(spec, store.view, replace(left, extra={}), references, counted=counted)
        self.task.report.count_dropped(node.name, subscribed.dropped)
        if subscribed.subscriptions.rows:
            yield self.out(), subscribed.subscriptions
        if subscribed.answers.rows:
            yield self.step.answers, subscribed.answers


class ResolveRunner(Runner):
    """Second half of a foreign-key join."""

    step: ResolveStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        node: graph.ForeignKeyJoin = self.node
        asking, alone, table_changes = self.step.inputs
        subscriptions, answers = self.arrived(asking), self.arrived(alone)
        take_right = self.arrived if self.step.changelog else self.gathered
        right = self.latest_only(take_right(table_changes))
        if subscriptions is None and answers is None and right is None:
            return
        store = self.task.stores(self.step.subscriptions)
        table = self.task.stores(self.step.right_store)
        flows = self.task.plan.flows
        flow, left_key = flows[inner(node.name, "subscriptions")], flows[inner(node.name, "answers")].key
        either = None if self.step.referrers is None else node.key
        spec = self.join_spec(
            LEFT_ROWS[node.kind],
            Serdes(left_key, flow.value, either=either),
            headers=node.headers,
            changelog=self.step.changelog,
        )
        left, side = Subscribed.of(subscriptions, answers, flow.key, spec.serdes), table.side(right)
        counts = LookupCounts()
        for joined in resolve(spec, store.view, left, side, (counts, counts)):
            yield from self.joined(joined)
        self.report_asked(counts, store.some_key, table.some_key)
        if self.step.referrers is None:
            return
        unreferred = unreferenced(spec, self.task.stores(self.step.referrers).view, left.subscriptions, side)
        if unreferred is not None:
            yield from self.joined(unreferred)
