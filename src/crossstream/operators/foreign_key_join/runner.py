"""Runs a foreign-key join in a task: takes foreign keys, subscribes, resolves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from crossstream.columns.changes import Changes, JoinKind, LookupCounts
from crossstream.columns.evaluate import Failure, evaluate_where, serialized
from crossstream.columns.functions import Function
from crossstream.graph import nodes as graph
from crossstream.graph.names import inner
from crossstream.operators.foreign_key_join.kernel import (
    INSTRUCTION,
    PRIMARY,
    REFERS,
    Emit,
    Serdes,
    resolve,
    subscribe,
)
from crossstream.operators.foreign_key_join.unreferenced import unreferenced
from crossstream.planning.plan import Flow
from crossstream.planning.steps import ReferenceStep, ResolveStep, SubscribeStep
from crossstream.serdes import Serde
from crossstream.storage.columns import EMPTY_BYTES, Column
from crossstream.task.runner import Emitted, Runner, no_changes

LEFT_ROWS: Mapping[graph.ForeignKeyKind, JoinKind] = MappingProxyType(
    {"inner": "inner", "left": "left", "right": "inner", "outer": "left"}
)
"""Which join the rows of left keys are, in each kind of join."""


def emit_of(changelog: bool) -> Emit:
    return "changelog" if changelog else "net"


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


def references_of(function: Function, serde: Serde | None, changes: Changes) -> tuple[Column, list[Failure]]:
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
        column = left.extra[self.step.column]
        subscribed = subscribe(
            LEFT_ROWS[node.kind],
            store.view,
            replace(left, extra={}),
            column,
            store.definition.value,
            emit=emit_of(self.step.changelog),
            bits=self.task.batch.bits,
            counted=node.kind in ("right", "outer"),
        )
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
        flow = flows[inner(node.name, "subscriptions")]
        left_key = flows[inner(node.name, "answers")].key
        if subscriptions is None:
            subscriptions = no_subscriptions(flow, counted=self.step.referrers is not None)
        if right is None:
            right = no_changes(table.definition.key, table.definition.value)
        either = None if self.step.referrers is None else node.key
        asked, right_rows = LookupCounts(), table.lookup_before()
        chunks = resolve(
            LEFT_ROWS[node.kind],
            node.joiner,
            store.view,
            subscriptions,
            answers if answers is not None else no_changes(left_key, flow.value),
            right,
            right_rows,
            Serdes(left_key, flow.value, table.definition.value, either),
            (asked, asked),
            emit=emit_of(self.step.changelog),
            bits=self.task.batch.bits,
            chunk=self.task.settings.chunk_rows,
            headers=node.headers,
        )
        for joined in chunks:
            yield from self.joined(joined)
        self.report_asked(asked, store.some_key, table.some_key)
        if self.step.referrers is None:
            return
        assert node.key is not None
        unreferred = unreferenced(
            node.joiner,
            self.task.stores(self.step.referrers).view,
            subscriptions,
            right,
            right_rows,
            node.key,
            flow.value,
            emit=emit_of(self.step.changelog),
            bits=self.task.batch.bits,
            headers=node.headers,
        )
        if unreferred is not None:
            yield from self.joined(unreferred)


def no_subscriptions(flow: Flow, counted: bool) -> Changes:
    extra = {PRIMARY: EMPTY_BYTES, INSTRUCTION: np.empty(0, np.uint8)}
    counts = {REFERS: np.empty(0, np.int64)} if counted else {}
    return replace(no_changes(flow.key, flow.value), extra={**extra, **counts})
