"""Runs a foreign-key join in a task: takes foreign keys, subscribes, resolves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from crossstream.columns.changes import Changes, JoinKind, LookupCounts, concat_changes
from crossstream.columns.evaluate import Failure, evaluate_where, serialized
from crossstream.columns.functions import Function
from crossstream.columns.hashing import partition_of
from crossstream.columns.order import by_arrival
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.graph.names import inner
from crossstream.operators.foreign_key_join.kernel import resolve
from crossstream.operators.foreign_key_join.subscriptions import Subscribed, subscribe, without_referring
from crossstream.operators.foreign_key_join.unreferenced import unreferenced
from crossstream.planning.steps import ReferenceStep, ResolveStep, SubscribeStep
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column
from crossstream.tables.join_spec import JoinSpec, Serdes
from crossstream.task.runner import Emitted, OpenStore, Runner

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
        subscriptions = subscribed.subscriptions
        counts, subscriptions_store = self.step.referring or ("", "")
        hot = self.task.batch.hot_in(subscriptions_store)
        if len(hot) and subscriptions.rows:
            is_hot = np.isin(subscriptions.hashes(spec.bits), hot)
            subscriptions, referring = without_referring(subscriptions, is_hot)
            if referring.rows:
                yield counts, referring
        if subscriptions.rows:
            yield self.out(), subscriptions
        if subscribed.answers.rows:
            yield self.step.answers, subscribed.answers


class ResolveRunner(Runner):
    """Second half of a foreign-key join."""

    step: ResolveStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        node: graph.ForeignKeyJoin = self.node
        asking, alone, table_changes, *of_hot_keys = self.step.inputs
        subscriptions, answers = self.arrived(asking), self.arrived(alone)
        right = self._right(table_changes)
        copied = self._right(of_hot_keys[0]) if of_hot_keys else None
        referring = self.arrived(of_hot_keys[1]) if len(of_hot_keys) > 1 else None
        if len(self.task.batch.spreads(self.step.subscriptions)):
            self._open()
        if all(one is None for one in (subscriptions, answers, right, copied, referring)):
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
        hot = self.task.batch.hot_in(self.step.subscriptions)
        asked, side = Subscribed.of(subscriptions, answers, flow.key, spec.serdes), table.side(right)
        mine, spread = of_keys(asked.subscriptions, hot, spec.bits)
        left = replace(asked, subscriptions=mine)
        counts = LookupCounts()
        known = replace(side, changes=of_keys(side.changes, hot, spec.bits)[0])
        for joined in resolve(spec, store.view, left, known, (counts, counts)):
            yield from self.joined(joined)
        if spread.rows or copied is not None:
            of_hot = Subscribed.of(spread, None, flow.key, spec.serdes)
            yield from self._of_hot_keys(spec, store, of_hot, copied, counts)
        self.report_asked(counts, store.some_key, table.some_key)
        if self.step.referrers is None:
            return
        moves = left.subscriptions
        if referring is not None:
            moves = by_arrival(concat_changes([moves, referring])) if moves.rows else referring
        unreferred = unreferenced(spec, self.task.stores(self.step.referrers).view, moves, side)
        if unreferred is not None:
            yield from self.joined(unreferred)

    def _right(self, flow: str) -> Changes | None:
        return self.latest_only((self.arrived if self.step.changelog else self.gathered)(flow))

    def _open(self) -> None:
        """Brings the rows of keys that have become hot here, also where no row of the batch comes."""
        assert self.step.copies is not None
        self.task.stores(self.step.subscriptions)
        self.task.stores(self.step.copies)

    def _of_hot_keys(
        self,
        spec: JoinSpec,
        store: OpenStore,
        left: Subscribed,
        copied: Changes | None,
        counts: LookupCounts,
    ) -> Emitted:
        """The results of hot keys, whose right rows are here as copies (decision 0053)."""
        assert self.step.copies is not None
        side = self.task.stores(self.step.copies).side(copied)
        of_right = LookupCounts()
        for joined in resolve(spec, store.view, left, side, (counts, of_right)):
            yield from self.joined(joined)
        counts.most = max(counts.most, of_right.most)
        if side.changes.rows:  # one task counts a right row: that of its key
            at_home = partition_of(side.changes.hashes(spec.bits), self.task.batch.partitions)
            there = (at_home == self.task.number) & ~side.changes.value.missing()
            counts.count(there, there)


def of_keys(changes: Changes, hot: np.ndarray, bits: int) -> tuple[Changes, Changes]:
    """The rows of keys that are not hot, and the others."""
    is_hot = np.isin(changes.hashes(bits), hot) if len(hot) else np.zeros(changes.rows, bool)
    return changes.where(~is_hot), changes.take(np.flatnonzero(is_hot))
