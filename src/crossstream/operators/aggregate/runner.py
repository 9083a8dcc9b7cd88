"""Grouping of tables, and aggregation, in a task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.evaluate import Failure
from crossstream.columns.order import by_arrival
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.aggregate.builtin.columns import BEYOND, BuiltIn
from crossstream.operators.aggregate.builtin.composition import AggregateParts
from crossstream.operators.aggregate.builtin.group_rows import GroupRows
from crossstream.operators.aggregate.calls import Calls
from crossstream.operators.aggregate.counts import Count
from crossstream.operators.aggregate.folding import Fold
from crossstream.operators.aggregate.kernel import (
    GROUP,
    ROW_KEY,
    SIDE,
    SIGN,
    GroupedRows,
    GroupState,
    in_order,
    look_up,
    put,
    update,
    with_old,
)
from crossstream.operators.aggregate.refused import NOT_ADDED, RefusedRows
from crossstream.operators.stateless.kernel import map_records, select_key
from crossstream.planning.steps import AggregateStep, GroupTableStep
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import SchemaJson
from crossstream.storage.columns import take
from crossstream.task.runner import Emitted, OpenStore, Runner

_ROW = "row"
"""Extra column: the number of the change that a half is of."""


class GroupTableRunner(Runner):
    """Makes of each change of a table a row to take away and a row to add, under the keys of their groups."""

    step: GroupTableStep

    def by_key(self) -> bool:
        return True

    def accept(self, flow: str, changes: Changes) -> None:
        self.task.report.count_in(self.step.node, changes.rows)
        assert changes.old is not None, "the table was planned to give old rows"
        parts = []
        wanted = self.step.row_keys or (self.step.row_keys_to_skip and self.task.settings.skips)
        keys = {ROW_KEY: changes.key.wire(self.task.flow(flow).key)} if wanted else {}
        for sign, value in ((-1, changes.old), (1, changes.value)):
            rows = np.flatnonzero(~value.missing())
            if len(rows):
                half = replace(changes.take(rows), value=value.take(rows), old=None, extra={})
                signs = np.full(len(rows), sign, np.int64)
                extra = {name: take(column, rows) for name, column in keys.items()}
                parts.append(self._grouped(replace(half, extra={SIGN: signs, _ROW: rows, **extra})))
        if not parts:
            return
        both = concat_changes(parts)
        # In order of the changes, of each first the row that is taken away.
        both = both.take(np.lexsort((both.extra[SIGN], both.extra[_ROW])))
        both = replace(both, extra={name: both.extra[name] for name in (SIGN, *keys)})
        if both.rows:
            self.emit(both)

    def _grouped(self, half: Changes) -> Changes:
        """Under the keys of their groups; without null keys and values, which belong to none."""
        node: graph.GroupTable = self.node
        made, failures = (select_key if node.selects else map_records)(half, node.mapper)
        self.note_field(node.mapper, half)
        if failures:
            self.task.failures.failed(node, half, failures)
        return made.where(~made.key.missing() & ~made.value.missing())


class GroupedRunner(Runner):
    """What aggregations share, with windows or without: what comes in, what applies it, and how it comes out."""

    step: AggregateStep

    def records(self, store: OpenStore) -> Changes | None:
        """What is grouped, in order of arrival, with keys in the form of the store."""
        node: graph.Aggregate = self.node
        parts: list[Changes] = []
        held = {flow: self.gathered(flow) for flow in dict.fromkeys(self.step.inputs)}
        for side, flow in enumerate(self.step.inputs):
            changes = held[flow]
            if changes is None:
                continue
            extra = {name: changes.extra[name] for name in (SIGN, ROW_KEY) if name in changes.extra}
            if len(self.step.inputs) > 1:
                extra = {SIDE: np.full(changes.rows, side, np.int64)}
            self.task.report.count_in(self.step.node, changes.rows)
            changes = replace(changes, old=None, extra=extra)
            parts.append(self._dropped(changes, changes.key.missing(), self.step.null_key_reasons[side]))
        if not parts:
            return None
        changes = by_arrival(concat_changes(parts))
        if not node.takes_nulls:
            changes = self._dropped(changes, changes.value.missing(), "null-value")
        changes = self.writable(changes, "key", store.definition.key)
        return replace(changes, key=Values(store.definition.key, wire=changes.key.wire(store.definition.key)))

    def _dropped(self, changes: Changes, lost: np.ndarray, reason: str) -> Changes:
        if not lost.any():
            return changes
        self.task.report.count_dropped(self.step.node, {reason: int(lost.sum())})
        return changes.where(~lost)

    def fold(
        self, serde: EngineSerde, rows: GroupRows | None = None, refused: RefusedRows | None = None
    ) -> Fold:
        """What applies rows to aggregates. ``rows``: of the groups of a table; ``refused``: those of no aggregate."""
        node: graph.Aggregate = self.node
        if node.columns is not None:
            return BuiltIn(AggregateParts.of(node.columns), rows)
        if node.operator == "count":
            return Count(serde)
        skips = self.task.settings.skips
        return Calls(serde, node.adders, node.subtractor, node.initializer, node.merger, skips, refused)

    def report_failures(self, groups: GroupedRows, failures: list[Failure]) -> None:
        beyond = next((failure for failure in failures if failure.role == BEYOND), None)
        if beyond is not None and SIGN in groups.rows.extra:  # it could not be taken away again
            raise self.task.failures.error(self.node, groups.rows, beyond)
        if failures:
            self.task.failures.failed(self.node, groups.rows, failures)

    def changed(self, rows: int, changes: Changes, every: Changes | None) -> Emitted:
        """Emits the changes of the table. ``rows``: how many net ones; ``every``: each change."""
        self.task.report.count_out(self.node.name, rows)
        yield self.out(), self.keyed(changes)
        if self.step.changelog is not None and every is not None:
            yield self.step.changelog, self.keyed(every)

    def keyed(self, changes: Changes) -> Changes:
        """With the keys of the result, and without the columns of this step."""
        return replace(changes, extra={})


class AggregateRunner(GroupedRunner):
    """Aggregates what is grouped, and keeps the table."""

    def by_key(self) -> bool:
        """Of grouped tables the order among groups may be that of arrival in each range; between keys it is free."""
        return True

    def finish(self) -> Emitted:
        store = self.task.stores(self.step.store)
        records = self.records(store)
        if records is None or not records.rows:
            return
        groups, serde = GroupedRows.of(records, self.task.batch.bits), store.definition.value
        before, refused = look_up(store.view, groups, serde), self._refused_rows(groups)
        fold = self.fold(serde, self._group_rows(groups), refused)
        updates = update(groups, before, fold, every=self.step.changelog is not None)
        self.report_failures(groups, updates.failures)
        if refused is not None and refused.passed:
            self.task.report.count_dropped(self.node.name, {NOT_ADDED: refused.passed})
        net = self._stored(updates.net, before, serde)
        if net.rows:
            put(store.view, net, groups.hashes[net.extra[GROUP]])
            every = None if updates.every is None else in_order(self._stored(updates.every, before, serde))
            yield from self.changed(net.rows, in_order(net), every)

    def _stored(self, changes: Changes, before: GroupState, serde: EngineSerde) -> Changes:
        kept = self.as_stored(changes, serde)
        return with_old(kept, before) if self.step.old else kept

    def _refused_rows(self, groups: GroupedRows) -> RefusedRows | None:
        """The rows of a table that its adder refused, where bad records are skipped."""
        if self.step.refused is None or not self.task.settings.skips:
            return None
        return RefusedRows(self.task.stores(self.step.refused).view, groups, self.task.batch.bits)

    def _group_rows(self, groups: GroupedRows) -> GroupRows | None:
        """The rows of the groups of a table, if they are kept."""
        if self.step.rows is None:
            return None
        store = self.task.stores(self.step.rows)
        serde = store.definition.value
        assert isinstance(serde, SchemaJson)
        return GroupRows(store.view, groups, serde, self.task.batch.id, self.task.batch.bits)
